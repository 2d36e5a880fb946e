"""Where to start when nothing is known about a target: a density fitted to a short tempered run."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies import (
    AbstractEnergy,
    AbstractNormalised,
    GaussianDensity,
    GaussianMixture,
    fit_gaussian,
    fit_sites,
)
from unnorm.errors import InputError, require
from unnorm.evaluation.likelihoods.likelihood import energies
from unnorm.evaluation.partition.importance import defensive, expectation
from unnorm.evaluation.partition.pairs import require_number
from unnorm.samplers import ParallelTempering, sample
from unnorm.spaces import Real

#: Chains of the run, each with replicas of its own.
CHAINS = 32
#: Standard normal points among which chains look for a place to begin.
CANDIDATES = 1024
#: A run whose chains disagree by more than this R-hat has not settled. It is 1.01 on a Gaussian, up to 1.15 where two
#: modes are 30 of their widths apart, and above 1.4 where a coordinate is flat.
SETTLED = 1.2
#: How often the width of the tail's parts doubles.
DOUBLINGS = 6
#: Standard deviations from the run beyond which nothing is expected; the widest parts of the tail still reach there.
FAR = 32.0
#: More of the integral than this out there is too much: of runs on a Cauchy law 1 in 200 finds as much, of runs on
#: 1 / sqrt(1 + x^2), which has no integral, all do, and most of them a sixth.
FAR_SHARE = 0.01


class Reference(NamedTuple):
    """A fitted density with a heavy tail, for importance sampling, and one without, to anneal from; and the run itself.

    `mean` and `scale` are those of every coordinate of the run, `rhat` says whether its chains agree.
    """

    tailed: GaussianMixture
    near: GaussianMixture
    mean: Float[Array, " d"]
    scale: Float[Array, " d"]
    rhat: float

    def far_share(self, target: AbstractEnergy, draws: int, *, key: PRNGKeyArray) -> float:
        """The share of the integral that lies more than `FAR` standard deviations from the run.

        A density that can be integrated has little there; of one that falls as 1 / r, every doubling of r holds as
        much as the one before.
        """

        def far(x: Float[Array, " d"]) -> Float[Array, ""]:
            return jnp.any(jnp.abs(x - self.mean) > FAR * self.scale).astype(float)

        return expectation(target, far, self.tailed, draws=draws, key=key).value

    def warnings(self, share: float) -> tuple[str, ...]:
        """What is wrong with the run, in sentences, given its `far_share`; empty if nothing was seen."""
        found = unsettled(self.rhat, "the density may not be integrable, or may have modes that were missed")
        if share > FAR_SHARE:
            found.append(
                f"{share:.0%} of the integral lies more than {FAR:.0f} standard deviations from the run that looked "
                "for a base: the density may not be integrable; pass base= with a density that covers it."
            )
        return tuple(found)


def unsettled(rhat: float, what: str) -> list[str]:
    """A warning, if chains disagree."""
    if rhat <= SETTLED:
        return []
    return [
        f"The run that looked for a base did not settle (R-hat {rhat:.2f}, above {SETTLED}): {what}; pass base= with a "
        "density that covers it."
    ]


def tailed(gaussian: GaussianDensity, doublings: int = DOUBLINGS) -> GaussianMixture:
    """The Gaussian with half of the mass, twice as wide with a quarter, four times with an eighth, and so on.

    The mass beyond r then falls as 1 / r, that of a Cauchy law, up to 2^doublings standard deviations: importance
    weights of a target with tails that heavy are bounded there. In many dimensions the wide parts are wasted, which
    costs half of the draws.
    """
    powers = jnp.arange(doublings + 1)
    shares = 0.5 ** jnp.minimum(powers + 1, doublings)
    # The packed factor holds the precision's logs on its diagonal.
    lower, logs = jnp.tril(gaussian.factor, -1), jnp.diagonal(gaussian.factor)
    factors = jax.vmap(lambda k: lower / 2.0**k + jnp.diag(logs - k * jnp.log(2.0)))(powers)
    means = jnp.broadcast_to(gaussian.mean, (doublings + 1, *gaussian.mean.shape))
    return GaussianMixture(jnp.log(shares), means, factors)


def _starts(target: AbstractEnergy, space: Real, key: PRNGKeyArray) -> Float[np.ndarray, "chains d"]:
    """Standard normal points at which the energy is finite."""
    candidates = np.asarray(jax.random.normal(key, (CANDIDATES, *space.shape)))
    found = energies(target, candidates)
    inside = candidates[np.isfinite(found)]
    how = "NaN" if np.isnan(found).any() else "infinite"
    require(
        len(inside) > 0,
        f"the energy is {how} at all of {CANDIDATES} standard normal points, so no base was found; pass base= with a "
        "density inside the target",
    )
    return np.resize(inside, (CHAINS, *space.shape))


def reference_of(target: AbstractEnergy, *, key: PRNGKeyArray) -> Reference:
    """A Gaussian fitted to a short run of parallel tempering from N(0, I), widened.

    The hottest of 8 replicas sees E / 50, and so crosses between modes some 30 of their widths apart. A mode that
    nothing visits is not in the fit; R-hat can tell only of modes that some chain has found.
    """
    space = target.space
    if not isinstance(space, Real) or len(space.shape) != 1:
        raise InputError(f"log Z needs a base density on {space}; pass base=")
    require_number(target, jax.ShapeDtypeStruct(space.shape, jnp.zeros(()).dtype))
    begin, run = jax.random.split(key)
    trace = sample(
        target,
        ParallelTempering(leapfrogs=5),
        chains=CHAINS,
        steps=400,
        warmup=400,
        start=_starts(target, space, begin),
        key=run,
        progress=False,
    )
    fitted = fit_gaussian(trace.flat)
    mean, scale = (jnp.asarray(part, float) for part in (trace.flat.mean(axis=0), trace.flat.std(axis=0)))
    near = defensive(fitted, trace.flat, share=0.5)
    return Reference(tailed(fitted), near, mean, scale, float(trace.diagnostics.worst_rhat))


class ReferenceOnSites(NamedTuple):
    """Sites that are independent, each with the law it had in a short run, and whether the chains of that run agree."""

    density: AbstractNormalised
    rhat: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the run, in sentences; empty if nothing was seen."""
        return tuple(unsettled(self.rhat, "modes may have been missed"))


def reference_on_sites(target: AbstractEnergy, *, key: PRNGKeyArray) -> ReferenceOnSites:
    """The law of every site, from a short run of parallel tempering by Gibbs sampling.

    One row of every value is added to each site, so that none is impossible.
    """
    run = {"chains": CHAINS, "steps": 200, "warmup": 100, "key": key, "progress": False}
    trace = sample(target, ParallelTempering(6, 0.1), **run)
    # A site that never changes its value has no R-hat.
    rhats = np.asarray(trace.diagnostics.rhat)
    worst = float(np.max(rhats[~np.isnan(rhats)], initial=1.0))
    return ReferenceOnSites(fit_sites(target.space, trace.flat), worst)
