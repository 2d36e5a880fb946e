"""Whether an estimate by Markov chain Monte Carlo is one: at the maximum the mean statistics are the observed ones.

Fresh draws at the estimate give the gap g between the two. Its covariance has two parts, that of the mean of the draws
and that of the estimate's Monte Carlo error moved through the information, and g' C^-1 g is of chi-squared law with a
degree for each coefficient (Hotelling 1931, with many draws).
"""

from dataclasses import dataclass

import numpy as np

from unnorm.graphs.chains import Chains, mean_covariance
from unnorm.graphs.model import Model

#: Draws of each chain.
DRAWS = 512


@dataclass(frozen=True, eq=False)
class Convergence:
    """The gap of each statistic in units of its error, the statistic of all together, and its p-value."""

    gaps: np.ndarray
    statistic: float
    p_value: float


def converged(
    model: Model,
    chains: Chains,
    theta: np.ndarray,
    observed: np.ndarray,
    information: np.ndarray,
    monte_carlo: np.ndarray,
    interval: int,
    count: int = 1,
) -> Convergence:
    """Test an estimate (the learnt coefficients) of so many graphs by fresh draws."""
    from scipy.stats import chi2

    free = ~model.fixed
    chains.draw(model.full(theta), DRAWS // 8, interval)
    drawn = chains.draw(model.full(theta), DRAWS, interval)[..., free]
    if chains.lost:
        missing = np.full(len(theta), np.nan)
        return Convergence(missing, np.inf, 0.0)
    gap = drawn.reshape(-1, drawn.shape[-1]).mean(0) - observed
    each = information / count
    covariance = mean_covariance(drawn) + each @ monte_carlo @ each
    scale = np.sqrt(np.diag(covariance))
    whitened = np.linalg.pinv(covariance / np.outer(scale, scale), rcond=1e-10, hermitian=True)
    statistic = float((gap / scale) @ whitened @ (gap / scale))
    return Convergence(gap / scale, statistic, float(chi2.sf(statistic, len(theta))))
