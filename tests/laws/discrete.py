"""Models on small discrete spaces, whose laws are known by enumeration, and what is asked of draws of them."""

import math
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.stats import chi2

import unnorm as un
from unnorm.energies import RBM, AbstractEnergy, Ising, Potts, lattice
from unnorm.evaluation import Enumerated, enumerated
from unnorm.spaces import Binary, Categorical

RNG = np.random.default_rng(20)
#: Twelve spins in three rows of four, each edge with a coupling of its own.
SPINS = Ising(lattice((3, 4)), 0.4 * RNG.normal(size=(3, 4)), 0.8 * RNG.normal(size=17))
#: Six spins.
FEW = Ising(lattice((2, 3)), 0.4, 0.7)
#: Six visible units, three hidden ones.
MACHINE = RBM(Binary((6,)), 1.2 * RNG.normal(size=(6, 3)), 0.3 * RNG.normal(size=6), 0.3 * RNG.normal(size=3))
#: Four sites of three colours.
COLOURS = Potts(lattice((2, 2)), 3, [0.0, 0.4, -0.3], 0.9)


class Couplings(AbstractEnergy):
    """Twelve coins of which each is tied to each other: nothing in it is independent of anything."""

    weights: jax.Array
    space: Binary = eqx.field(static=True, default=Binary((12,)))

    def __call__(self, x):
        return -(x @ self.weights @ x)


TIED = Couplings(jnp.asarray(0.4 * RNG.normal(size=(12, 12))))
DICE = un.energies.FunctionEnergy(
    lambda x: 0.5 * jnp.sum((x[:-1] - x[1:]) ** 2) - 0.3 * jnp.sum(x), Categorical((4,), 3)
)


@cache
def law(energy_id: int) -> Enumerated:
    return enumerated(_KNOWN[energy_id])


_KNOWN: dict[int, AbstractEnergy] = {}


def truth(energy: AbstractEnergy) -> Enumerated:
    """The law of an energy, enumerated once."""
    _KNOWN[id(energy)] = energy
    return law(id(energy))


def numbers_of(points, space) -> np.ndarray:
    """The place of every point among all points of its space."""
    k = space.categories if isinstance(space, Categorical) else 2
    flat = np.asarray(points).reshape(len(points), -1).astype(np.int64)
    return flat @ (k ** np.arange(flat.shape[1] - 1, -1, -1, dtype=np.int64))


def agrees(draws, of: Enumerated, space, level: float = 1e-4) -> bool:
    """Pearson's chi-square of independent draws; values that are rare are taken together."""
    counts = np.bincount(numbers_of(draws, space), minlength=len(of.probabilities))
    order = np.argsort(of.probabilities)
    expected, observed = len(draws) * of.probabilities[order], counts[order]
    # Cells of at least eight expected draws: neighbours in the order of their probability.
    cells = np.minimum((np.cumsum(expected) / 8).astype(int), int(expected.sum() // 8) - 1)
    expected, observed = (np.bincount(cells, weights=values) for values in (expected, observed))
    kept = expected > 0
    statistic = float(np.sum((observed[kept] - expected[kept]) ** 2 / expected[kept]))
    return statistic < chi2.isf(level, int(kept.sum()) - 1)


def settled(energy: AbstractEnergy, sampler, *, chains: int = 6000, steps: int = 40, seed: int = 0) -> np.ndarray:
    """The ends of many independent chains that began anywhere: draws of the stationary law."""
    trace = un.sample(energy, sampler, chains=chains, steps=1, thin=steps, key=jax.random.key(seed), progress=False)
    return trace.draws[:, 0]


def z_score(estimate, value: float) -> float:
    """How many stated standard errors an estimate is off; the sums of 32 bits are good to a part in a million."""
    return (estimate.value - value) / math.hypot(estimate.stderr, 3e-6 * max(1.0, abs(value)))


def parameters(model):
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    flat, back = ravel_pytree(arrays)
    return flat, lambda theta: eqx.combine(back(theta), rest)


def gradients(objective, model, law, *, repeats: int = 150, batch: int = 128, seed: int = 0):
    """The gradient at the model for many batches that are drawn from the law."""
    flat, build = parameters(model)
    rows = jnp.asarray(law.draws(repeats * batch, seed=seed)).reshape(repeats, batch, *law.points.shape[1:])

    def one(rows, key):
        start, key = jax.random.split(key)
        state = objective.init(model, rows, key=start)
        return jax.grad(lambda theta: objective(build(theta), state, rows, key=key)[0])(flat)

    return np.asarray(jax.jit(jax.vmap(one))(rows, jax.random.split(jax.random.key(seed + 1), repeats)))


def kl(p: np.ndarray, q: np.ndarray) -> float:
    return float(np.sum(p * (np.log(p) - np.log(q))))
