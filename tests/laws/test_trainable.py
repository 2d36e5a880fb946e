"""What is learnt and what is given: fixed parts keep every bit, and no optimiser has memory of them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_runs import DATA

import unnorm as un
from unnorm.energies import AbstractEnergy, AbstractNormalised, gaussian_mixture, standard_gaussian, tilt
from unnorm.errors import InputError
from unnorm.noises import Gaussian
from unnorm.objectives import DSM
from unnorm.spaces import Real
from unnorm.training import best_model, fit, trainable

REFERENCE = gaussian_mixture([0.3, 0.7], [[-1.0, 0.2], [1.0, 0.1]], 0.37)
DECAYED = optax.adamw(1e-2, weight_decay=0.5)
OPTIONS: Any = {"steps": 20, "batch": 32, "evaluations": 2, "progress": False, "key": jax.random.key(1)}


class Loose(AbstractEnergy):
    """The wrong variant of a tilted energy: no gradient reaches its reference, but nothing says that it is given."""

    reference: AbstractNormalised
    network: Any
    space: Real = eqx.field(static=True, default=Real((2,)))

    def __call__(self, x):
        arrays, rest = eqx.partition(self.reference, eqx.is_array)
        return eqx.combine(jax.lax.stop_gradient(arrays), rest)(x) + self.network(x)[0]


def tilted(seed: int = 0):
    return tilt(REFERENCE, width=4, depth=1, key=jax.random.key(seed))


def loose():
    return Loose(REFERENCE, tilted().network)


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def learnt(model: Any) -> list[str]:
    """The names of what is learnt."""
    leaves = jax.tree_util.tree_leaves_with_path(trainable(model))
    return [jax.tree_util.keystr(path) for path, yes in leaves if yes]


def of_optimiser(fitted: Any) -> int:
    """How many numbers Adam remembers of the weights: two for each."""
    return sum(leaf.size for leaf in jax.tree.leaves(fitted.state.optimiser) if leaf.ndim > 0)


def size(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


def test_weight_decay_leaves_the_reference_as_it_was():
    fitted = fit(tilted(), DSM(Gaussian(0.3)), DATA, optimiser=DECAYED, **OPTIONS)
    assert bits(fitted.model.reference) == bits(REFERENCE)
    assert bits(fitted.model.network) != bits(tilted().network)
    # Adam remembers the network, twice, and nothing else.
    assert of_optimiser(fitted) == 2 * size(tilted().network)
    # Negative control: a gradient of zero does not keep a weight from its decay.
    other = fit(loose(), DSM(Gaussian(0.3)), DATA, optimiser=DECAYED, **OPTIONS)
    assert bits(other.model.reference) != bits(REFERENCE)
    assert of_optimiser(other) == 2 * size(loose())


def test_parts_that_are_given_are_found_wherever_they_are():
    network = [f".network.layers[{i}].{name}" for i in (0, 1) for name in ("weight", "bias")]
    inner = [f".network{name}" for name in network]
    assert learnt(tilted()) == network and len(learnt(loose())) > len(network)
    levelled = un.scores.levelled_energy(Gaussian(0.3), 2, width=4, depth=1, key=jax.random.key(0))
    assert learnt(levelled) == inner
    assert learnt(levelled.at(0.0)) == [f".levelled{name}" for name in inner]
    # Within sums, containers and one another, and under names that other modules learn by.
    assert learnt({"b": (tilted() + tilted()).terms[1]}) == [f"['b']{name}" for name in network]
    assert learnt(tilted().fixing({0: 1.0})) == [f".energy{name}" for name in network]
    gaussian = standard_gaussian(2)
    assert learnt(gaussian.fixing({0: 1.0})) == [".energy.mean", ".energy.factor"]
    # An array that is given at one place and learnt at another.
    assert learnt((gaussian, un.energies.Tilted(gaussian, tilted().network)))[:2] == ["[0].mean", "[0].factor"]
    posterior = un.energies.LatentPosterior(un.networks.GaussianDecoder(lambda z: z, 1.0), jnp.ones(2), gaussian)
    assert learnt(posterior) == [".prior.mean", ".prior.factor"]


def test_a_model_without_fixed_parts_is_learnt_whole():
    model = un.energies.MLPEnergy(Real((2,)), width=4, depth=1, key=jax.random.key(0))
    assert jax.tree.leaves(trainable(model)) == [eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(model)]


def test_the_best_model_of_a_checkpoint_comes_back(tmp_path):
    path = tmp_path / "run"
    fitted = fit(tilted(), DSM(Gaussian(0.3)), DATA, checkpoint=path, **OPTIONS)
    # The weights of the model that is given count for nothing.
    found = best_model(tilted(seed=5), path)
    assert bits(found) == bits(fitted.model) and bits(found) != bits(tilted(seed=5))
    # A checkpoint holds what is learnt only.
    arrays, _ = un.training.checkpoint.load_arrays(path)
    best = {name for name in arrays if name.startswith("state.best.")}
    assert best == {f"state.best{name}" for name in learnt(tilted())}


def test_a_checkpoint_of_another_model_gives_no_best(tmp_path):
    path = tmp_path / "run"
    fit(tilted(), DSM(Gaussian(0.3)), DATA, checkpoint=path, **OPTIONS)
    elsewhere = gaussian_mixture([0.3, 0.7], [[-1.0, 0.2], [1.0, 0.1]], 0.38)
    with pytest.raises(InputError, match="other fixed parts"):
        best_model(tilt(elsewhere, width=4, depth=1, key=jax.random.key(0)), path)
    with pytest.raises(InputError, match="give the settings it was made with"):
        best_model(tilt(REFERENCE, width=5, depth=1, key=jax.random.key(0)), path)
    with pytest.raises(InputError, match="another model or objective"):
        best_model(standard_gaussian(2), path)
    un.training.checkpoint.save_arrays(tmp_path / "draws", {"x": np.zeros(2)}, {})
    with pytest.raises(InputError, match="holds no run of training"):
        best_model(standard_gaussian(2), tmp_path / "draws")
    with pytest.raises(InputError, match="no checkpoint"):
        best_model(standard_gaussian(2), tmp_path / "nowhere")
