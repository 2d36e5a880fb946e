"""The evidence log p(x) of a decoder: an integral over the latent code, by annealed importance sampling."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies import AbstractNormalised
from unnorm.energies.latent import LatentPosterior
from unnorm.errors import require
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.partition.ais import ais, anneal_each
from unnorm.evaluation.partition.annealing import common_path
from unnorm.networks.autoencoder import AbstractDecoder


def evidence(
    decoder: AbstractDecoder,
    prior: AbstractNormalised,
    x: Float[Array, "..."],
    *,
    chains: int = 256,
    levels: int = 200,
    leapfrogs: int = 5,
    key: PRNGKeyArray,
) -> Estimate:
    """log p(x) = log of the integral of p(x | z) p(z) dz, along the path p(z) p(x | z)^b, with its error.

    Wu et al. 2017; Song 2022, section 3.6.2. Unbiased for p(x), so that log p(x) is on average too low, by half the
    variance of its error.

    >>> import jax, jax.numpy as jnp, unnorm as un
    >>> decoder = un.networks.GaussianDecoder(lambda z: z, 1.0)
    >>> found = evidence(decoder, un.energies.standard_gaussian(1), jnp.zeros(1), levels=30, key=jax.random.key(0))
    >>> found.covers(-1.2655121, level=0.999)
    True
    """
    return ais(LatentPosterior(decoder, x, prior), prior, chains=chains, levels=levels, leapfrogs=leapfrogs, key=key)


#: Rows by which the path for all of them is tuned.
PILOT_ROWS = 8


class _Posteriors(eqx.Module):
    """x -> the posterior of its code."""

    decoder: AbstractDecoder
    prior: AbstractNormalised

    def __call__(self, x: Float[Array, "..."]) -> LatentPosterior:
        return LatentPosterior(self.decoder, x, self.prior)


def evidences(
    decoder: AbstractDecoder,
    prior: AbstractNormalised,
    xs: Float[Array, "n ..."],
    *,
    chains: int = 256,
    levels: int = 200,
    leapfrogs: int = 5,
    key: PRNGKeyArray,
) -> list[Estimate]:
    """log p(x) of every row, as `evidence` finds it, but all of them along one path in one program.

    The path is tuned on eight rows spread over the table, so that with 16 chains a row costs less than a tenth of a
    call of `evidence`. Errors of different rows are independent of each other.

    >>> import jax, jax.numpy as jnp, unnorm as un
    >>> decoder = un.networks.GaussianDecoder(lambda z: z, 1.0)
    >>> prior, xs = un.energies.standard_gaussian(1), jnp.array([[0.0], [1.0]])
    >>> found = evidences(decoder, prior, xs, levels=30, key=jax.random.key(0))
    >>> [e.covers(truth, level=0.999) for e, truth in zip(found, [-1.2655121, -1.5155121], strict=True)]
    [True, True]
    """
    require(len(xs) >= 1, "an evidence needs at least 1 row, not 0")
    chains, levels, leapfrogs = whole_numbers(chains=chains, levels=levels, leapfrogs=leapfrogs)
    require(chains >= 2, f"AIS needs at least 2 chains, not {chains}")
    xs = jnp.asarray(xs)
    posteriors = _Posteriors(decoder, prior)
    place, tune, run = jax.random.split(key, 3)
    some = xs[np.linspace(0, len(xs) - 1, min(PILOT_ROWS, len(xs))).astype(int)]
    path = common_path(posteriors, some, prior, levels=levels, moves=1, leapfrogs=leapfrogs, place=place, tune=tune)
    return anneal_each(posteriors, xs, path, prior, chains=chains, moves=1, key=run)


def mean_evidence(
    decoder: AbstractDecoder,
    prior: AbstractNormalised,
    xs: Float[Array, "n ..."],
    *,
    chains: int = 256,
    levels: int = 200,
    leapfrogs: int = 5,
    key: PRNGKeyArray,
) -> Estimate:
    """The mean of log p(x) over rows; its error is the spread over rows, which holds the errors of each within it.

    `annealing_stderr` among the diagnostics is what the error would be if these rows were all there are.
    """
    require(len(xs) >= 2, f"a mean evidence with an error needs at least 2 rows, not {len(xs)}")
    found = evidences(decoder, prior, xs, chains=chains, levels=levels, leapfrogs=leapfrogs, key=key)
    mean = mean_estimate([estimate.value for estimate in found], "AIS")
    own = float(np.sqrt(np.sum([estimate.stderr**2 for estimate in found])) / len(found))
    doubtful = sum(bool(estimate.warnings) for estimate in found)
    warnings = (f"{doubtful} of {len(found)} rows have an evidence with a warning of its own.",) if doubtful else ()
    return replace(mean, diagnostics={**mean.diagnostics, "annealing_stderr": own}, warnings=warnings)
