"""The evidence log p(x) of a decoder: an integral over the latent code, by annealed importance sampling."""

from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies import AbstractNormalised
from unnorm.energies.latent import LatentPosterior
from unnorm.errors import require
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation.ais import ais
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

    Wu et al. 2017; thesis, section 3.6.2. Unbiased for p(x), so that log p(x) is on average too low, by half the
    variance of its error.

    >>> import jax, jax.numpy as jnp, unnorm as un
    >>> decoder = un.networks.GaussianDecoder(lambda z: z, 1.0)
    >>> found = evidence(decoder, un.energies.standard_gaussian(1), jnp.zeros(1), levels=30, key=jax.random.key(0))
    >>> found.covers(-1.2655121, level=0.999)
    True
    """
    return ais(LatentPosterior(decoder, x, prior), prior, chains=chains, levels=levels, leapfrogs=leapfrogs, key=key)


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
    found = [
        evidence(decoder, prior, x, chains=chains, levels=levels, leapfrogs=leapfrogs, key=k)
        for x, k in zip(xs, jax.random.split(key, len(xs)), strict=True)
    ]
    mean = mean_estimate([estimate.value for estimate in found], "AIS")
    own = float(np.sqrt(np.sum([estimate.stderr**2 for estimate in found])) / len(found))
    doubtful = sum(bool(estimate.warnings) for estimate in found)
    warnings = (f"{doubtful} of {len(found)} rows have an evidence with a warning of its own.",) if doubtful else ()
    return replace(mean, diagnostics={**mean.diagnostics, "annealing_stderr": own}, warnings=warnings)
