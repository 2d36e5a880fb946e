"""Asymptotic covariances of maximum likelihood, NCE and conditional NCE, by Monte Carlo from the truth.

The model stands at its true parameters; theta is every inexact array of it, flattened. N is the number of data points,
and what is returned is the covariance of sqrt(N) (theta_hat - theta*). With g = d log f / d theta and s the logistic
function:

- likelihood: Cov(g)^-1, the inverse of the Fisher information;
- CNCE (Yu et al. 2025, Thm 1, and its form for K draws per datum): C1^-1 [ C2/K + (1 - 1/K) E_x(m m') ] C1^-1 with
  C1 = E[dF dF' s(F) s(-F)], C2 = E[dF dF' s(-F)^2], m(x) = E_y[dF s(-F) | x]. Noise q(y | x) = p(y) gives
  (1 + 1/K) times the inverse Fisher information (Corollary 2 at K = 1: twice);
- NCE with nu noise points per datum (Gutmann and Hyvarinen 2012, Thm 3): I^-1 - (1 + 1/nu) I^-1 m m' I^-1 with
  I = E_p[P g g'], m = E_p[P g], P = nu q / (p + nu q); theta then contains the learnt constant.

CNCE and likelihood do not see a constant of the energy: the model must have none, or its matrices are singular.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.errors import require
from unnorm.evaluation.efficiency.identified import require_identified
from unnorm.noises import AbstractNoise

#: Groups of draws whose scatter gives the standard errors.
GROUPS = 32


@dataclass(frozen=True, eq=False)
class Covariance:
    """A matrix of sqrt(N)-scaled covariances, and the Monte Carlo standard error of each entry."""

    value: np.ndarray
    stderr: np.ndarray
    method: str

    @property
    def trace(self) -> float:
        """The sum of the variances: the mean squared error of the whole parameter, times N."""
        return float(np.trace(self.value))


def _slopes(model: AbstractEnergy) -> Callable[[Array], Float[Array, " p"]]:
    """d log f / d theta at a point, as one vector."""
    weights, static = eqx.partition(model, eqx.is_inexact_array)
    theta, unravel = ravel_pytree(weights)
    require(theta.size > 0, "a covariance of parameters needs a model with parameters")

    def log_f(theta: Array, x: Array) -> Array:
        return -eqx.combine(unravel(theta), static)(x)

    return lambda x: jax.grad(log_f)(theta, x)


def _groups(samples: Any) -> Array:
    samples = jnp.asarray(samples)
    require(len(samples) >= 2 * GROUPS, f"an asymptotic covariance needs at least {2 * GROUPS} draws")
    size = len(samples) // GROUPS
    return samples[: GROUPS * size].reshape(GROUPS, size, *samples.shape[1:])


def _inverse(information: np.ndarray) -> np.ndarray:
    require_identified(information)
    return np.linalg.inv(information)


def _jackknife(parts: tuple[Array, ...], combine: Callable[..., np.ndarray], method: str) -> Covariance:
    """A function of means, with the delete-one-group jackknife's standard error."""
    doubles = [np.asarray(part, np.float64) for part in parts]
    value = combine(*(part.mean(0) for part in doubles))
    left = np.stack([combine(*((part.sum(0) - part[i]) / (GROUPS - 1) for part in doubles)) for i in range(GROUPS)])
    stderr = np.sqrt((GROUPS - 1) * np.mean((left - left.mean(0)) ** 2, axis=0))
    return Covariance(value, stderr, method)


@eqx.filter_jit
def _likelihood_moments(model: AbstractEnergy, groups: Array) -> tuple[Array, ...]:
    """E[g] and E[g g'] in each group."""
    slopes = _slopes(model)

    def one(group):
        g = jax.vmap(slopes)(group)
        return g.mean(0), g.T @ g / len(g)

    return jax.lax.map(one, groups)


@eqx.filter_jit
def _cnce_moments(
    model: AbstractEnergy, noise: AbstractNoise, groups: Array, keys: Array, inner: int
) -> tuple[Array, ...]:
    """C1, C2 and E_x(m m') in each group."""
    slopes = _slopes(model)

    def at(x, key):
        ys, ratios = jax.vmap(lambda k: noise.propose(jnp.zeros(()), x, key=k))(jax.random.split(key, inner))
        log_odds = jax.vmap(model)(ys) - model(x) + ratios
        rates = slopes(x)[None] - jax.vmap(slopes)(ys)
        pull = rates * jax.nn.sigmoid(-log_odds)[:, None]
        first = (rates * (jax.nn.sigmoid(log_odds) * jax.nn.sigmoid(-log_odds))[:, None]).T @ rates / inner
        second = pull.T @ pull / inner
        total = pull.sum(0)
        between = (jnp.outer(total, total) - inner * second) / (inner * (inner - 1))
        return first, second, between

    def one(inputs):
        group, key = inputs
        return jax.tree.map(lambda a: a.mean(0), jax.vmap(at)(group, jax.random.split(key, len(group))))

    return jax.lax.map(one, (groups, keys))


@eqx.filter_jit
def _nce_moments(model: AbstractEnergy, noise: AbstractNormalised, ratio: Array, groups: Array) -> tuple[Array, ...]:
    """E[P g] and E[P g g'] in each group."""
    slopes = _slopes(model)

    def one(group):
        g = jax.vmap(slopes)(group)
        log_odds = jax.vmap(lambda x: jnp.log(ratio) + noise.log_prob(x) + model(x))(group)
        weighted = jax.nn.sigmoid(log_odds)[:, None] * g
        return weighted.mean(0), weighted.T @ g / len(g)

    return jax.lax.map(one, groups)


def likelihood_covariance(model: AbstractEnergy, samples: Float[Array, "n ..."]) -> Covariance:
    """The inverse Fisher information, from draws of the model itself.

    >>> import jax, unnorm as un
    >>> model = un.energies.standard_gaussian(1)
    >>> draws = model.samples(20_000, key=jax.random.key(0))
    >>> [round(v, 1) for v in likelihood_covariance(model, draws).value.diagonal().tolist()]
    [1.0, 0.5]
    """

    def combine(mean, square):
        return _inverse(square - np.outer(mean, mean))

    return _jackknife(_likelihood_moments(model, _groups(samples)), combine, "maximum likelihood")


def cnce_covariance(
    model: AbstractEnergy,
    noise: AbstractNoise,
    samples: Float[Array, "n ..."],
    *,
    draws: int = 1,
    inner: int = 8,
    key: PRNGKeyArray,
) -> Covariance:
    """That of conditional NCE with K = `draws` noise points per datum.

    Each sample is given `inner` noise points; products of two different ones estimate E_x(m m') without bias.

    >>> import jax, unnorm as un
    >>> model = un.energies.standard_gaussian(1)
    >>> draws = model.samples(6400, key=jax.random.key(0))
    >>> oracle = un.noises.Independent(model)
    >>> bound = likelihood_covariance(model, draws)
    >>> found = cnce_covariance(model, oracle, draws, key=jax.random.key(1))
    >>> 1.8 < found.trace / bound.trace < 2.2
    True
    """
    require(isinstance(noise, AbstractNoise), f"conditional NCE needs an AbstractNoise, not {type(noise).__name__}")
    require(draws >= 1, f"conditional NCE has at least one noise point per datum, not {draws}")
    require(inner >= 2, f"the conditional mean needs at least 2 inner draws, not {inner}")

    def combine(first, second, between):
        inverse = _inverse(first)
        return inverse @ (second / draws + (1 - 1 / draws) * between) @ inverse

    found = _cnce_moments(model, noise, _groups(samples), jax.random.split(key, GROUPS), inner)
    return _jackknife(found, combine, f"CNCE, {draws} per datum")


def nce_covariance(
    model: AbstractEnergy, noise: AbstractNormalised, samples: Float[Array, "n ..."], *, ratio: float = 1.0
) -> Covariance:
    """That of NCE with `ratio` draws of the noise density per datum; exp(-E) must be normalised at the truth.

    >>> import jax, unnorm as un
    >>> truth = un.energies.standard_gaussian(1)
    >>> model = un.energies.Shifted(truth)
    >>> nce_covariance(model, truth, truth.samples(640, key=jax.random.key(0))).value.shape
    (3, 3)
    """
    require(
        isinstance(noise, AbstractNormalised),
        f"NCE needs a normalised density for its noise, not {type(noise).__name__}",
    )
    require(ratio > 0, f"noise points per datum must be positive, not {ratio}")

    def combine(mean, information):
        inverse = _inverse(information)
        return inverse - (1 + 1 / ratio) * inverse @ np.outer(mean, mean) @ inverse

    return _jackknife(
        _nce_moments(model, noise, jnp.asarray(ratio), _groups(samples)), combine, f"NCE, {ratio:g} per datum"
    )
