"""What the sweep is made of: rows, small models, and what is done to look at a piece of the library.

A piece has a name, "kind/name" as in the catalogue, and a function that exercises what it names. What need only be
traced is traced and not compiled. The pieces of each package are in a file of their own, `shape_parts_*`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, get_type_hints

import checking
import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import watching
from beartype.door import is_bearable

from unnorm import catalogue, energies, networks, noises, scores
from unnorm.spaces import Binary, Categorical, Conditioned, Real

Piece = tuple[str, Callable[[], Any]]

KEY = jax.random.key(0)
ROWS = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
DATA = jnp.asarray(ROWS)
X = DATA[0]
#: Rows, columns and channels.
IMAGE = jnp.zeros((5, 6, 2))
SPACE = Real((2,))
GAUSSIAN = energies.standard_gaussian(2)
WIDE = energies.standard_gaussian(2, scale=2**0.5)
#: A density whose constant is not known.
FREE = energies.FunctionEnergy(lambda x: 0.3 * jnp.sum(x**2) + 0.1 * jnp.sum(x**4), SPACE)

BITS, WORDS, LABELS = Binary((2, 2)), Categorical((2, 2), 3), Categorical((), 3)
COINS = np.random.default_rng(1).integers(0, 2, (40, 2, 2)).astype(np.float32)
NAMES = np.random.default_rng(2).integers(0, 3, (40, 2, 2)).astype(np.int32)
PICTURES = np.random.default_rng(3).normal(size=(12, 4, 4, 1)).astype(np.float32)
SCALES = noises.Scales(0.3, 1.0, 2)
CONTEXT = catalogue.Context(SPACE, SCALES, KEY, ROWS[:30], ROWS[30:])
BITS_CONTEXT = catalogue.Context(BITS, None, KEY, COINS[:30], COINS[30:])
#: What a builder may look at, on every kind of space that a command has.
CONTEXTS = (CONTEXT, BITS_CONTEXT, catalogue.Context(WORDS, None, KEY, NAMES[:30], NAMES[30:]))
PICTURES_CONTEXT = catalogue.Context(Real((4, 4, 1)), SCALES, KEY, PICTURES[:8], PICTURES[8:])
LABELLED = Conditioned(ROWS, np.arange(40) % 3)
LABELLED_CONTEXT = catalogue.Context(
    SPACE,
    SCALES,
    KEY,
    Conditioned(ROWS[:30], LABELLED.condition[:30]),
    Conditioned(ROWS[30:], LABELLED.condition[30:]),
    condition=LABELS,
)


def traced(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes of the result; nothing is compiled. It is traced for two of everything, too (see `watching`)."""
    watching.mapped(function, *args, **kwargs)
    return eqx.filter_eval_shape(function, *args, **kwargs)


def held(module: Any) -> Any:
    """A module whose fields are what their annotations say; the hook itself looks at arguments only."""
    hints = get_type_hints(type(module), include_extras=True)
    with jaxtyping.jaxtyped("context"):
        for field in dataclasses.fields(module):
            value = getattr(module, field.name)
            if not is_bearable(value, hints[field.name], conf=checking.CONF):
                raise jaxtyping.TypeCheckError(
                    f"{type(module).__name__}.{field.name} is {hints[field.name]}, and holds {eqx.tree_pformat(value)}"
                )
    return module


def mlp(inputs: int = 2, outputs: int = 1) -> networks.MLP:
    return networks.MLP(inputs, outputs, width=4, depth=1, key=KEY)


# ------------------------------------------------------------------------------------------------- models

#: Options that make a model small.
SMALL: dict[str, dict[str, Any]] = {
    "tilted": {"width": 4, "depth": 1},
    "diffusion": {"width": 4, "depth": 1, "channels": 4, "sizes": 2},
    "rbm": {"hidden": 3},
    "gaussian-rbm": {"hidden": 3},
    "ising": {"lattice": "2x2"},
    "mlp": {"width": 4, "depth": 1},
    "resnet": {"width": 4, "blocks": 1},
    "mixture": {"components": 2},
}


def built_model(name: str, context: catalogue.Context = CONTEXT) -> Any:
    """The catalogue's model of this name on the space of the context, small; what it begins with is not fitted."""
    entry = catalogue.find(catalogue.MODELS, name, "model")
    options = {**SMALL.get(name, {})}
    if name == "tilted" and context.space == SPACE:
        options["reference"] = "gaussian"
    elif name == "tilted":
        context = dataclasses.replace(context, reference=energies.uniform(context.space))
    elif name == "markov":
        context = dataclasses.replace(context, reference=energies.markov_network(context.space))
    return entry.build(catalogue.read_options(entry, options), context)


def dkef() -> energies.DKEF:
    return energies.DKEF(DATA, anchors=4, width=3, key=KEY)


def nice() -> energies.NICE:
    return energies.NICE(SPACE, width=4, depth=1, couplings=2, key=KEY)


def mixture() -> energies.GaussianMixture:
    return energies.gaussian_mixture([0.5, 0.5], [[-1.0, 0.0], [1.0, 0.0]], 0.5)


def denoiser() -> scores.GaussianDenoiser:
    return scores.GaussianDenoiser(mlp(2, 4))


def low_rank() -> scores.LowRankSecondOrder:
    return scores.low_rank_mlp(2, rank=1, width=4, factor_width=4, depth=1, key=KEY)


def deep() -> energies.DeepBoltzmann:
    return energies.deep_boltzmann((3, 2, 2), key=KEY)


def classifier() -> scores.LevelledClassifier:
    return scores.levelled_classifier(noises.VariancePreserving(), 2, 3, width=4, depth=1, key=KEY)


def walk_draws(energy: Any, x: Any) -> None:
    """What an energy that can be drawn from, or has hidden units, can do besides."""
    if isinstance(energy, energies.AbstractNormalised):
        traced(energy.log_prob, x)
        traced(lambda key: energy.sample(key=key), KEY)
        traced(lambda key: energy.samples(3, key=key), KEY)
    if isinstance(energy, energies.AbstractHidden):
        traced(lambda e, key: e.alternate(x, key=key), energy, KEY)
        for other in energy.equivalents():
            traced(held(other), jnp.zeros(other.space.shape))


def walk_energy(energy: energies.AbstractEnergy) -> None:
    """All that an energy of real numbers says."""
    x = jnp.zeros(energy.space.shape)
    traced(held(energy), x)
    traced(jax.vmap(energy), x[None])
    traced(lambda e: (0.5 * e + e)(x), energy)
    traced(lambda e: (jnp.asarray(0.5) * e)(x), energy)
    traced(scores.EnergyScore(energy), 0.0, x)
    if energy.space.size > 1:
        traced(lambda e: e.fixing({0: 1.0})(jnp.zeros(energy.space.size - 1)), energy)
    walk_draws(energy, x)
