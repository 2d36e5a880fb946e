"""What parts say about themselves, and that it is true of what they do: models, noises, entries of the catalogue."""

import inspect
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unnorm import catalogue, energies, networks, noises, objectives, scores
from unnorm.errors import InputError
from unnorm.objectives.base import rows_of
from unnorm.spaces import AbstractOnRows, Binary, Categorical, Mixed, Real
from unnorm.training.points import checked_points

KEY = jax.random.key(0)
ROWS = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
WHOLE = np.array([[0, 1], [1, 1]])
NOISE = noises.Gaussian(0.1)
PLANE = energies.standard_gaussian(2)
COINS = energies.FunctionEnergy(jnp.sum, Binary((2,)))


class Silent(eqx.Module):
    """A model of somebody's own that says nothing of its rows."""

    weight: jax.Array


def network(inputs: int = 2, outputs: int = 2) -> networks.MLP:
    return networks.MLP(inputs, outputs, width=4, depth=1, key=KEY)


#: A model, the space it says, and the type of whole numbers that it is trained on.
MODELS = {
    "energy": (PLANE, Real((2,)), "float32"),
    "coins": (COINS, Binary((2,)), "int32"),
    "energy's score": (scores.EnergyScore(PLANE), Real((2,)), "float32"),
    "network": (scores.FreeScore(network()), None, "float32"),
    "levels": (scores.levelled_energy(NOISE, 2, width=4, key=KEY), Real((2,)), "float32"),
    "levels of a score": (scores.levelled_score(NOISE, 2, width=4, key=KEY), Real((2,)), "float32"),
    "one level": (scores.LevelScore(score=scores.FreeScore(network()), level=0.0), None, "float32"),
    "one level somewhere": (
        scores.LevelScore(score=scores.FreeScore(network()), level=0.0, space=Real((2,))),
        Real((2,)),
        "float32",
    ),
    "curvature": (scores.diagonal_mlp(2, width=4, key=KEY), None, "float32"),
    "denoiser": (scores.GaussianDenoiser(network(2, 4)), None, "float32"),
    "autoencoder": (networks.gaussian_autoencoder(2, 1, width=4, key=KEY), None, "float32"),
    "scored autoencoder": (networks.implicit_autoencoder(2, 1, width=4, key=KEY), None, "float32"),
}


@pytest.mark.parametrize(("model", "space", "kind"), MODELS.values(), ids=MODELS.keys())
def test_models_say_what_their_rows_are(model, space, kind):
    assert isinstance(model, AbstractOnRows) and model.rows_space() == space
    assert checked_points("Model", rows_of(model), WHOLE, "training").dtype == kind
    if space is None:
        assert checked_points("Model", rows_of(model), np.ones((4, 3)), "training").shape == (4, 3)
        return
    with pytest.raises(InputError, match=r"shape \(3,\), and .* is made for .*give data and model the same shape"):
        checked_points("Model", rows_of(model), np.ones((4, 3)), "training")


def test_rows_of_a_model_that_says_nothing_are_left_as_they_are():
    assert checked_points("Silent", rows_of(Silent(jnp.zeros(2))), WHOLE, "training").dtype == jnp.int32


REFUSED = {
    "halves of coins": (COINS, [[0.5, 1.0]], "training data hold 1 value other than 0 and 1, the first in row 0"),
    "one point": (PLANE, [1.0, 2.0], "training data must be n points along the first axis, not (2,)"),
    "not finite": (PLANE, [[1.0, np.nan]], "training data hold 1 value that is not finite, the first in row 0"),
    "parts": (
        energies.FunctionEnergy(lambda x: jnp.sum(x[0]), Mixed((Real((2,)),))),
        ROWS,
        "training data are a tuple of 1 parts, each with all the rows, not",
    ),
}


@pytest.mark.parametrize(("model", "rows", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_rows_that_are_no_points_are_not_trained_on(model, rows, sentence):
    with pytest.raises(InputError) as refused:
        checked_points("Model", rows_of(model), rows, "training")
    assert sentence in str(refused.value)


KDE = noises.KDEJump(jnp.asarray(ROWS), 0.3)
JUMP = noises.DataJump(jnp.asarray(WHOLE, float))
KINDS = {
    "Gaussian": (NOISE, True),
    "VarianceExploding": (noises.VarianceExploding(), True),
    "KDE": (KDE, True),
    "LeaveOneOut": (noises.LeaveOneOut(KDE), True),
    "Remembered": (noises.Remembered(KDE), True),
    "Independent": (noises.Independent(PLANE), True),
    "LeaveOneOutBlend": (noises.BlendedJumps(0.1, 0.3, leave_one_out=True).fit(jnp.asarray(ROWS)), True),
    "Blend": (noises.BlendedJumps(0.1, 0.3).fit(jnp.asarray(ROWS)), True),
    "Choice": (noises.Choice((JUMP, NOISE), (0.5, 0.5)), True),
    "DataJump": (JUMP, False),
    "Choice of rows": (noises.Choice((JUMP, JUMP), (0.5, 0.5)), False),
}


@pytest.mark.parametrize(("noise", "real"), KINDS.values(), ids=KINDS.keys())
def test_noises_make_real_numbers_if_they_say_so(noise, real):
    """From a point of coins they lead to no such point, and the objective refuses them there; the others stay."""
    assert noise.makes_real_numbers is real
    ys = jax.vmap(lambda k: noise.sample(0.5, jnp.asarray(WHOLE[0], float), key=k))(jax.random.split(KEY, 16))
    assert bool(jnp.all((ys == 0) | (ys == 1))) is not real
    if real:
        with pytest.raises(InputError, match="makes noise of real numbers"):
            objectives.CNCE(noise).init(COINS, jnp.asarray(WHOLE, float), key=KEY)
    else:
        objectives.CNCE(noise).init(COINS, jnp.asarray(WHOLE, float), key=KEY)


NAMES = np.random.default_rng(1).integers(0, 2, size=(40, 4))
ROWS_ON = {Real((2,)): ROWS, Binary((4,)): NAMES.astype(np.float32), Categorical((4,), 2): NAMES.astype(np.int32)}
SMALL = {
    "tilted": {"width": 4},
    "mlp": {"width": 4},
    "resnet": {"width": 4, "blocks": 1},
    "diffusion": {"width": 4},
    "ising": {"lattice": "2x2"},
}


def context_on(space):
    lengths = noises.Scales(0.3, 1.0, 2) if isinstance(space, Real) else None
    return catalogue.Context(space, lengths, KEY, ROWS_ON[space][:30], ROWS_ON[space][30:])


@pytest.fixture(scope="module")
def built():
    """Every model that can be named, by its name and space; the reference of a tilted one is not looked for."""
    plain = {space: PLANE if isinstance(space, Real) else energies.uniform(space) for space in ROWS_ON}
    found = {}
    for space in ROWS_ON:
        for entry in (e for e in catalogue.MODELS if e.works(space)):
            context = context_on(space)
            if entry.name == "tilted":
                context = replace(context, reference=plain[space])
            found[entry.name, space] = entry.build(catalogue.read_options(entry, SMALL.get(entry.name, {})), context)
    return found


def test_entries_make_what_they_say(built):
    """Of an abstract class some kind; else that class and no other, and the network that is named beside it."""
    assert {name for name, _ in built} == {entry.name for entry in catalogue.MODELS}
    for (name, space), model in built.items():
        made, *parts = catalogue.find(catalogue.MODELS, name, "model").makes
        if name == "mlp" and isinstance(space, Categorical):
            # Categories have no lengths to be confined by; what needs the class works on vectors alone.
            assert type(model) is energies.SiteNetwork
            continue
        assert isinstance(model, made) if inspect.isabstract(made) else type(model) is made
        assert tuple(type(part) for part in ([model.network] if parts else [])) == tuple(parts)
    # Control: the one class that is abstract stands for two, and leaves others out.
    kinds = {type(model) for (name, _), model in built.items() if name == "ising"}
    assert kinds == {energies.Ising, energies.Potts}
    assert not isinstance(built["rbm", Binary((4,))], energies.AbstractFactorised)


def test_objectives_learn_the_models_that_they_suit_and_refuse_the_others(built):
    choosy = [e for e in catalogue.OBJECTIVES if e.learns]
    suited = {e.name: [model.name for model in catalogue.MODELS if e.suits(model)] for e in choosy}
    assert suited == {"tilt": ["tilted"], "denoise-levels": ["diffusion"], "approx-bp": ["mlp"], "cp": ["mlp"]}
    for entry in choosy:
        for (name, space), model in built.items():
            if not entry.works(space):
                continue
            objective = entry.build(catalogue.read_options(entry, {}), context_on(space))
            if name in suited[entry.name]:
                objective.init(model, jnp.asarray(ROWS_ON[space]), key=KEY)
                continue
            with pytest.raises(InputError):
                objective.init(model, jnp.asarray(ROWS_ON[space]), key=KEY)
    # Those that name nothing learn every energy.
    made = [model for model in catalogue.MODELS if issubclass(model.makes[0], energies.AbstractEnergy)]
    assert len(made) < len(catalogue.MODELS)
    assert all(e.suits(model) for e in catalogue.OBJECTIVES if not e.learns for model in made)
