"""Tilted references: what is learnt, what must not move, and committees of mixtures."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from discrete import agrees
from harness import breaks, holds

from unnorm.energies import (
    FunctionEnergy,
    Tilted,
    committee,
    fit_mixture,
    fit_sites,
    gaussian,
    gaussian_mixture,
    standard_gaussian,
    tilt,
)
from unnorm.energies.em import mean_log_prob
from unnorm.energies.site_network import input_size
from unnorm.errors import InputError
from unnorm.evaluation import enumerated, log_partition
from unnorm.networks import MLP
from unnorm.noises import Gaussian as Noise
from unnorm.objectives import CNCE, DSM, AbstractObjective, TiltNCE
from unnorm.objectives.nce import classification
from unnorm.samplers import ImportanceResampling
from unnorm.spaces import Binary, Categorical
from unnorm.training import fit, fit_repeats

pytestmark = pytest.mark.optimised

MEAN, SCALE = 0.5, 0.8


class Quadratic(eqx.Module):
    """a + b x + c x^2: all it takes to turn one Gaussian into another."""

    coefficients: jax.Array

    def __call__(self, x):
        return (self.coefficients[0] + self.coefficients[1] * x[0] + self.coefficients[2] * x[0] ** 2)[None]


def truth() -> np.ndarray:
    """The coefficients of log N(x; 0, 1) - log N(x; MEAN, SCALE^2), the constant included."""
    precision = 1 / SCALE**2
    return np.array([np.log(SCALE) + 0.5 * MEAN**2 * precision, -MEAN * precision, 0.5 * (precision - 1)])


class NoOffset(AbstractObjective):
    """The wrong variant: forgets log(n/m)."""

    comparable = True
    ratio: float = eqx.field(static=True)

    def init(self, model, data, *, key):
        return None

    def __call__(self, model, state, batch, *, key):
        noise = jax.lax.stop_gradient(model.reference.samples(round(self.ratio * len(batch)), key=key))
        odds = -jax.vmap(lambda x: model.network(x)[0])(jnp.concatenate([batch, noise]))
        return classification(odds[: len(batch)], odds[len(batch) :])[0], (None, {})


def learnt(objective) -> np.ndarray:
    data = MEAN + SCALE * jax.random.normal(jax.random.key(0), (32, 4000, 1))
    model = Tilted(standard_gaussian(1), Quadratic(jnp.zeros(3)))
    fits = fit_repeats(model, objective, data, steps=600, batch=500, rate=3e-2, key=jax.random.key(1))
    assert isinstance(fits, Tilted)
    return np.asarray(fits.network.coefficients)


def test_tilt_nce_learns_the_log_ratio_and_its_constant():
    assert holds(learnt(TiltNCE(ratio=2.0)), truth(), bias=0.01)
    wrong = learnt(NoOffset(2.0))
    assert breaks(wrong[:, 0], truth()[0], bias=0.01)
    # What is forgotten is log 2, and nothing else.
    assert holds(wrong - np.array([np.log(2), 0, 0]), truth(), bias=0.01)


@pytest.mark.parametrize(
    "objective",
    [
        pytest.param(TiltNCE(), id="tilt"),
        pytest.param(CNCE(Noise(0.3)), id="cnce", marks=pytest.mark.thorough),
        pytest.param(DSM(Noise(0.3)), id="dsm"),
    ],
)
def test_the_reference_never_moves(objective):
    reference = gaussian_mixture([0.3, 0.7], [[-1.0, 0.2], [1.0, 0.1]], 0.37)
    data = reference.samples(500, key=jax.random.key(0))
    begin = tilt(reference, width=8, depth=1, key=jax.random.key(1))
    model = fit(begin, objective, data, steps=50, rate=1e-2, key=jax.random.key(2), progress=False).model
    for before, after in zip(jax.tree.leaves(reference), jax.tree.leaves(model.reference), strict=True):
        assert np.asarray(before).tobytes() == np.asarray(after).tobytes()
    # Negative control: the network did.
    assert float(jnp.abs(model.network.layers[-1].weight).max()) > 1e-3


def test_a_tilted_energy_starts_at_its_reference_and_has_its_own_log_z():
    reference = gaussian([0.0, 0.0], np.eye(2))
    start = tilt(reference, width=8, depth=1, key=jax.random.key(0))
    x = jnp.array([0.3, -2.0])
    assert float(start(x)) == float(reference(x))
    np.testing.assert_allclose(jax.grad(start)(x), x, rtol=1e-6)
    # exp(-0.5 x) under N(0, 1) integrates to exp(1/8).
    shifted = Tilted(standard_gaussian(1), Quadratic(jnp.array([0.0, 0.5, 0.0])))
    log_z = log_partition(shifted, base=shifted.reference, key=jax.random.key(1))
    assert abs(log_z.value - 0.125) < 4.5 * log_z.stderr < 0.05


def test_other_energies_are_refused():
    data = jnp.zeros((10, 2))
    with pytest.raises(InputError, match="has none"):
        fit(standard_gaussian(2), TiltNCE(), data, steps=1, key=jax.random.key(0), progress=False)


@pytest.mark.parametrize("space", [Binary((4,)), Categorical((3,), 3)])
def test_what_is_learnt_and_drawn_on_sites_is_the_density_that_is_told(space):
    """The odds that the objective trains, and the weights of draws, are those of the energy; all points are counted."""
    rows = jax.random.randint(jax.random.key(0), (60, space.size), 0, getattr(space, "categories", 2))
    network = MLP(input_size(space), 1, width=16, depth=1, key=jax.random.key(1))
    network = jax.tree.map(lambda leaf: 4 * leaf if eqx.is_inexact_array(leaf) else leaf, network)
    model = Tilted(fit_sites(space, rows.astype(space.struct().dtype)), network)
    truth = enumerated(model)
    batch = jnp.asarray(truth.points[:8])
    # NCE of the whole energy with the reference for noise, on the same draws of it.
    odds = lambda x: model.reference(x) - model(x)  # noqa: E731
    noise = model.reference.samples(len(batch), key=jax.random.key(2))
    expected = classification(jax.vmap(odds)(batch), jax.vmap(odds)(noise))[0]
    found = TiltNCE()(model, None, batch, key=jax.random.key(2))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    draws = ImportanceResampling(proposals=200)(model, 4000, key=jax.random.key(3)).draws
    assert agrees(draws, truth, space)
    # Negative control: half the tilt.
    half = FunctionEnergy(lambda x: model.reference(x) + 0.5 * model.tilt(x), space)
    assert not agrees(draws, enumerated(half), space)


@pytest.fixture(scope="module")
def overfitted():
    source = gaussian_mixture([0.5, 0.5], [[-1.0, 0.0], [1.0, 0.0]], 0.6)
    train, valid = source.samples(300, key=jax.random.key(0)), source.samples(2000, key=jax.random.key(1))
    together = committee(train, 8, members=4, ridge=1e-3, key=jax.random.key(2))
    alone = [fit_mixture(train, 8, ridge=1e-3, key=k) for k in jax.random.split(jax.random.key(2), 4)]
    return together, alone, train, valid


def test_a_committee_is_the_average_density(overfitted):
    together, alone, _, valid = overfitted
    mean = np.mean([np.exp(jax.vmap(m.log_prob)(valid)) for m in alone], axis=0)
    np.testing.assert_allclose(np.exp(jax.vmap(together.log_prob)(valid)), mean, rtol=1e-3, atol=1e-6)
    # Negative control: no member is.
    assert np.max(np.abs(np.exp(jax.vmap(alone[0].log_prob)(valid)) / mean - 1)) > 0.1


def test_a_committee_beats_its_members_on_rows_it_has_not_seen():
    """By Jensen's inequality it is above their mean; that it is above the best of them makes it worth its cost."""
    source = gaussian_mixture([0.5, 0.5], [[-1.0, 0.0], [1.0, 0.0]], 0.6)
    valid = source.samples(2000, key=jax.random.key(1))
    gains = []
    for i in range(8):
        train = source.samples(300, key=jax.random.key(100 + i))
        together = committee(train, 8, members=4, ridge=1e-3, key=jax.random.key(2))
        alone = [fit_mixture(train, 8, ridge=1e-3, key=k) for k in jax.random.split(jax.random.key(2), 4)]
        scores = [mean_log_prob(m, valid) for m in alone]
        assert mean_log_prob(together, valid) > np.mean(scores)
        gains.append(mean_log_prob(together, valid) - max(scores))
    assert np.mean(gains) > 0 and breaks(gains, 0.0)
