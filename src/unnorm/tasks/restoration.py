"""Black-and-white pictures with some pixels flipped, restored by an Ising prior.

A picture x of zeros and ones has the prior p(x) ∝ exp(alpha sum x_i + beta sum_{i~j} 1[x_i = x_j]), and each pixel of
the noisy picture y is that of x, or with probability e the other one. Given y the model is an Ising model again, with a
field of its own for every site (`flipped_posterior`), whose least energy is the most probable picture. It is found
exactly by a cut of least weight through a network (`graph_cut`), or approached: by `icm`, which stops at the first
picture that no single flip betters, and by `anneal`. The picture with the fewest wrong pixels on average is another
one, that of the most probable value of each pixel alone (`marginal_modes`).
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from unnorm.arguments import real_numbers, require_count, require_positive, shown
from unnorm.compiling import compiled
from unnorm.energies import Ising, every_site
from unnorm.errors import InputError, require
from unnorm.samplers import Gibbs


@dataclass(frozen=True)
class Restored:
    """A picture of zeros and ones, its energy -log p(x | y) - const, and how many sweeps it took.

    `above`: no picture has an energy lower than this one's by more; infinite where nothing is known.
    """

    picture: Float[np.ndarray, "..."]
    energy: float
    above: float
    sweeps: int


@dataclass(frozen=True)
class Marginals:
    """p(x_i = 1 | y) of every site, as a mean over chains, and the standard error of each."""

    probability: Float[np.ndarray, "..."]
    stderr: Float[np.ndarray, "..."]

    @property
    def picture(self) -> Float[np.ndarray, "..."]:
        """The more probable value of every site: the fewest wrong ones on average (Marroquin, Mitter and Poggio 1987).

        >>> Marginals(np.array([0.2, 0.8]), np.zeros(2)).picture.tolist()
        [0.0, 1.0]
        """
        return (self.probability > 0.5).astype(np.float32)


def flipped_posterior(prior: Ising, noisy: Any, flips: Any = 0.1) -> Ising:
    """p(x | y) of a picture x of the prior, seen as y with its pixels flipped with probability e.

    log p(y | x) = h sum_i (2 y_i - 1) x_i + const with h = log((1 - e) / e): an Ising model with the prior's couplings
    and the field alpha_i + h (2 y_i - 1). `flips` is one number or one for every site; 1/2 says that a site was not
    seen, which is then filled in by its neighbours.

    >>> from unnorm.energies import lattice
    >>> print(flipped_posterior(Ising(lattice((1, 2)), 0.0, 1.0), [[0, 1]], 0.1).field.round(3))
    [[-2.197  2.197]]
    """
    require(isinstance(prior, Ising), f"the prior of a picture is an Ising model, not {shown(prior)}")
    y, e, shape = real_numbers(noisy), real_numbers(flips), prior.sites.shape
    require(y is not None and bool(np.isin(y, (0, 1)).all()), "the noisy picture is made of zeros and ones only")
    y = np.asarray(y, np.float64)
    require(y.shape == shape, f"the prior is one of pictures of shape {shape}, and the noisy one has shape {y.shape}")
    require(
        e is not None and e.shape in ((), shape),
        f"the share of flips is one number or one for every site, of shape {shape}, not {shown(flips)}",
    )
    e = np.asarray(e, np.float64)
    require(bool(np.all((e > 0) & (e < 1))), "the share of flips lies between 0 and 1, and is neither")
    return Ising(prior.sites, prior.field + jnp.asarray(np.log((1 - e) / e) * (2 * y - 1), float), prior.coupling)


def numbers_of(posterior: Ising) -> tuple[Float[np.ndarray, " sites"], Float[np.ndarray, " edges"]]:
    """Its field at every site and its coupling along every edge, in double precision."""
    if not isinstance(posterior, Ising):
        raise InputError(
            f"pictures are restored under an Ising model, such as flipped_posterior, not {shown(posterior)}"
        )
    sites = posterior.sites
    field = np.broadcast_to(np.asarray(posterior.field, np.float64), sites.shape).reshape(-1)
    coupling = np.broadcast_to(np.asarray(posterior.coupling, np.float64), (len(sites.edges),))
    require(bool(np.isfinite(field).all() and np.isfinite(coupling).all()), "a field or coupling is not finite")
    return field, coupling


def energy_of(posterior: Ising, picture: np.ndarray) -> float:
    """E(x) in double precision: sums over a picture in 32 bits would hide small differences."""
    field, coupling = numbers_of(posterior)
    flat, edges = picture.reshape(-1), posterior.sites.edges
    return -float(field @ flat + coupling @ (flat[edges[:, 0]] == flat[edges[:, 1]]))


def _start(posterior: Ising, start: Any) -> Float[Array, "..."]:
    """The picture to begin with; without one every site as it would be alone, which is the noisy picture."""
    field, _ = numbers_of(posterior)
    if start is None:
        return jnp.asarray(field.reshape(posterior.sites.shape) > 0, jnp.float32)
    found, shape = real_numbers(start), posterior.sites.shape
    good = found is not None and found.shape == shape and bool(np.isin(found, (0, 1)).all())
    require(good, f"a picture to start from is made of zeros and ones, of shape {shape}, not {shown(start)}")
    return jnp.asarray(found, jnp.float32)


def _slack(posterior: Ising) -> float:
    """What rounding can do to a log odds: a flip that gains more lowers the energy for sure, so that flips end."""
    field, coupling = numbers_of(posterior)
    neighbours, edges = posterior.sites.neighbours
    around = np.abs(np.append(coupling, 0.0))[edges].sum(axis=1)
    return float((neighbours.shape[1] + 1) * np.finfo(np.float32).eps * (np.abs(field) + around).max())


@compiled
def _settled(posterior: Ising, x: Array, slack: Float[Array, ""]) -> tuple[Array, Int[Array, ""]]:
    def sweep(state: tuple[Array, Bool[Array, ""], Int[Array, ""]]) -> tuple[Array, Bool[Array, ""], Int[Array, ""]]:
        before, _, count = state
        x = before.reshape(-1)
        for block, sites in enumerate(posterior.blocks):
            logits = posterior.conditional_logits(block, x.reshape(before.shape))
            odds = logits[:, 1] - logits[:, 0]
            x = x.at[sites].set(jnp.where(jnp.abs(odds) > slack, (odds > 0).astype(x.dtype), x[sites]))
        x = x.reshape(before.shape)
        return x, jnp.any(x != before), count + 1

    found, _, count = jax.lax.while_loop(lambda s: s[1], sweep, (x, jnp.asarray(True), jnp.asarray(0)))
    return found, count


def icm(posterior: Ising, start: Any = None) -> Restored:
    """Iterated conditional modes (Besag 1986): each site takes its most probable value given the others, until none
    would change.

    The energy falls with every flip, down to a picture that no single flip betters. Which one that is depends on
    `start`; without it each site begins as its field alone would have it, which is the noisy picture.

    >>> from unnorm.energies import lattice
    >>> icm(Ising(lattice((1, 3)), [[2.0, -0.5, 2.0]], 1.0)).picture.tolist()
    [[1.0, 1.0, 1.0]]
    """
    begin = _start(posterior, start)
    found, count = _settled(posterior, begin, jnp.asarray(_slack(posterior), float))
    picture = np.asarray(found)
    return Restored(picture, energy_of(posterior, picture), math.inf, int(count))


def cooling(sweeps: int, first: float = 4.0, last: float = 0.1) -> Float[np.ndarray, " sweeps"]:
    """Temperatures that fall by one factor from sweep to sweep.

    >>> cooling(3, 4.0, 1.0).tolist()
    [4.0, 2.0, 1.0]
    """
    require_count(sweeps, 1, "the sweeps of annealing")
    for temperature in (first, last):
        require_positive(temperature, "a temperature of annealing")
    return np.geomspace(first, last, int(sweeps))


@compiled
def _annealed(
    posterior: Ising, x: Array, coldness: Float[Array, " sweeps"], slack: Float[Array, ""], keys: Array
) -> Array:
    def sweep(x: Array, inputs: tuple[Array, PRNGKeyArray]) -> tuple[Array, None]:
        b, key = inputs
        return Gibbs().step(b * posterior, x, key=key)[0], None

    def chain(key: PRNGKeyArray) -> Array:
        end, _ = jax.lax.scan(sweep, x, (coldness, jax.random.split(key, len(coldness))))
        return _settled(posterior, end, slack)[0]

    return jax.vmap(chain)(keys)


def anneal(
    posterior: Ising, temperatures: Any = 500, start: Any = None, *, chains: int = 8, key: PRNGKeyArray
) -> Restored:
    """Simulated annealing (Geman and Geman 1984): a sweep of Gibbs sampling of p(x | y)^(1/T) at each temperature T.

    `temperatures` are those of all sweeps, or how many sweeps `cooling` is to make. The end of every chain goes down by
    `icm`, and the lowest counts. Couplings may have any sign.

    >>> from unnorm.energies import lattice
    >>> anneal(Ising(lattice((1, 3)), [[2.0, -0.5, 2.0]], 1.0), 20, key=jax.random.key(0)).picture.tolist()
    [[1.0, 1.0, 1.0]]
    """
    begin, levels = _start(posterior, start), real_numbers(temperatures)
    levels = cooling(temperatures) if levels is None or levels.ndim == 0 else np.asarray(levels, np.float64)
    good = levels.ndim == 1 and levels.size > 0 and bool(np.all((levels > 0) & np.isfinite(levels)))
    require(good, "the temperatures of annealing are a row of positive and finite numbers, one for each sweep")
    require_count(chains, 1, "the chains of annealing")
    slack, keys = jnp.asarray(_slack(posterior), float), jax.random.split(key, int(chains))
    ends = np.asarray(_annealed(posterior, begin, jnp.asarray(1 / levels, float), slack, keys))
    energies = [energy_of(posterior, end) for end in ends]
    best = int(np.argmin(energies))
    return Restored(ends[best], energies[best], math.inf, len(levels))


@compiled
def _walked(posterior: Ising, x: Array, warmup: int, sweeps: int, keys: Array) -> Float[Array, "chains sites"]:
    def sweep(x: Array, key: PRNGKeyArray) -> tuple[Array, None]:
        return Gibbs().step(posterior, x, key=key)[0], None

    def told(state: tuple[Array, Array], key: PRNGKeyArray) -> tuple[tuple[Array, Array], None]:
        x, _ = sweep(state[0], key)
        logits = every_site(posterior, x)
        return (x, state[1] + jax.nn.sigmoid(logits[:, 1] - logits[:, 0])), None

    def chain(key: PRNGKeyArray) -> Float[Array, " sites"]:
        ahead, along = jax.random.split(key)
        begun, _ = jax.lax.scan(sweep, x, jax.random.split(ahead, warmup))
        (_, total), _ = jax.lax.scan(told, (begun, jnp.zeros(x.size)), jax.random.split(along, sweeps))
        return total / sweeps

    return jax.vmap(chain)(keys)


def marginal_modes(
    posterior: Ising, *, chains: int = 16, sweeps: int = 200, warmup: int = 100, key: PRNGKeyArray
) -> Marginals:
    """p(x_i = 1 | y) of every site by Gibbs sampling, each draw counted as the law of the site given the others.

    The errors are those of means over `chains` chains, which all begin with the noisy picture.

    >>> from unnorm.energies import lattice
    >>> found = marginal_modes(Ising(lattice((1, 2)), 0.0, 0.0), chains=2, sweeps=3, warmup=1, key=jax.random.key(0))
    >>> found.probability.tolist()
    [[0.5, 0.5]]
    """
    for number, least, what in ((chains, 2, "chains"), (sweeps, 1, "sweeps"), (warmup, 0, "sweeps of warm-up")):
        require_count(number, least, f"the {what} of marginal modes")
    begin = _start(posterior, None)
    means = np.asarray(
        _walked(posterior, begin, int(warmup), int(sweeps), jax.random.split(key, int(chains))), np.float64
    )
    shape = posterior.sites.shape
    error = means.std(axis=0, ddof=1) / math.sqrt(chains)
    return Marginals(means.mean(axis=0).reshape(shape), error.reshape(shape))
