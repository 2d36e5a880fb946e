"""The probability flow of a score as a density of rounded values, trained for its likelihood (Song et al. 2021)."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from unnorm.data import AbstractTransform, Dequantise
from unnorm.energies import AbstractDequantiser, FlowDequantiser, dequantiser
from unnorm.estimate import Estimate
from unnorm.evaluation import discrete_bound, discrete_log_likelihood
from unnorm.noises import LikelihoodTimes
from unnorm.objectives import DSM, LikelihoodWeighting, VariationalDequantisation
from unnorm.scores import AbstractLevelledScore
from unnorm.training import Fit, fit

Rows = Float[Any, "n ..."]


@dataclass(frozen=True, eq=False)
class ScoreFlow:
    """A score over noise levels, and where within their steps values lie: together log P(v) of rounded values."""

    score: AbstractLevelledScore
    dequantiser: AbstractDequantiser
    #: How the two came about.
    fits: tuple[Fit[Any], Fit[Any]]

    def log_likelihood(
        self, values: Rows, *, probes: int | None = None, tolerance: float = 1e-5, key: PRNGKeyArray
    ) -> Estimate:
        """A lower bound on the mean log P(v) by the probability flow, in nats per row."""
        return discrete_log_likelihood(
            self.score, values, self.dequantiser, probes=probes, tolerance=tolerance, key=key
        )

    def bound(self, values: Rows, *, levels: int = 1000, key: PRNGKeyArray) -> Estimate:
        """A lower bound on that of the reverse process."""
        return discrete_bound(self.score, values, self.dequantiser, levels=levels, key=key)


def likelihood_objective() -> DSM:
    """Denoising with each level weighted as the likelihood weighs it, and drawn so that this costs no variance.

    >>> type(likelihood_objective().times).__name__
    'LikelihoodTimes'
    """
    return DSM(weighting=LikelihoodWeighting(), times=LikelihoodTimes())


def score_flow(
    score: AbstractLevelledScore,
    values: Rows,
    *,
    step: float,
    valid: Rows | None = None,
    objective: DSM | None = None,
    steps: int = 5000,
    dequantiser_steps: int = 2000,
    batch: int = 128,
    rate: float = 1e-3,
    average: float = 0.999,
    width: int = 128,
    couplings: int = 0,
    key: PRNGKeyArray,
    progress: bool = True,
) -> ScoreFlow:
    """A score trained for likelihood on values `step` apart, then dequantisation that is learnt for it.

    The preset: likelihood weighting, importance-sampled levels, variational dequantisation. The score is trained on
    uniformly dequantised values by `likelihood_objective()` (another `objective` stands in for it), and the weights
    kept are those with the best held-out bound; it then stays as it is, and a density within the steps is learnt by its
    bound.

    >>> import unnorm as un
    >>> model = un.scores.levelled_score(un.noises.VariancePreserving(), 2, width=4, depth=1, key=jax.random.key(0))
    >>> options = {"steps": 2, "dequantiser_steps": 2, "width": 4, "progress": False, "key": jax.random.key(1)}
    >>> found = score_flow(model, np.ones((20, 2), np.float32), step=1.0, **options)
    >>> found.dequantiser.step
    1.0
    """
    learn, begin, spread = jax.random.split(key, 3)
    judge = likelihood_objective()
    spread_out: AbstractTransform = Dequantise(step)
    options: dict[str, Any] = {"batch": batch, "rate": rate, "average": average, "progress": progress, "valid": valid}
    first = fit(
        score, judge if objective is None else objective, values, steps=steps, transform=spread_out,
        judge=None if valid is None else judge, key=learn, **options,
    )  # fmt: skip
    size = int(np.prod(np.shape(values)[1:]))
    even: FlowDequantiser = dequantiser(size, step, width=width, couplings=couplings, key=begin)
    second = fit(even, VariationalDequantisation(first.model), values, steps=dequantiser_steps, key=spread, **options)
    return ScoreFlow(first.model, second.model, (first, second))
