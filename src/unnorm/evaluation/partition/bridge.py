"""Bridge sampling: log Z from draws of the target and of a base, each weighed where both are likely."""

import math

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.errors import require
from unnorm.estimate import Estimate, require_weights
from unnorm.evaluation.counts import whole_numbers
from unnorm.evaluation.likelihoods.likelihood import energies
from unnorm.evaluation.partition.chains import Draws, as_chains, mean_of_chains
from unnorm.evaluation.partition.importance import weighted_draws
from unnorm.evaluation.partition.pairs import point_of, require_pair
from unnorm.evaluation.partition.rounding import with_rounding


def _share(log_ratios: np.ndarray, log_r: float, odds: float) -> np.ndarray:
    """s1 p / (s1 p + s2 q) with p / q = exp(log_ratio - log_r) and s1 / s2 = exp(odds)."""
    return 0.5 * (1 + np.tanh(0.5 * (log_ratios - log_r + odds)))


def optimal_bridge(
    of_target: Float[np.ndarray, " n"], of_base: Float[np.ndarray, " m"], effective: float | None = None
) -> float:
    """log r with r = mean_base[l / (s1 l + s2 r)] / mean_target[1 / (s1 l + s2 r)], l = exp(-E) / q, s = n / (n + m).

    Meng and Wong (1996) iterate this equation; both sides of mean_target[r / ...] = mean_base[l / ...] are monotone in
    r, so that its one root is found by bracketing instead. `effective` draws of the target count in s1.

    >>> round(optimal_bridge(np.full(10, 2.0), np.full(10, 2.0)), 6)
    2.0
    """
    # Loaded here: nothing else in this module needs it.
    from scipy.optimize import brentq

    count = len(of_target) if effective is None else effective
    odds = math.log(count / len(of_base))
    s1 = count / (count + len(of_base))

    def gap(log_r: float) -> float:
        return float(
            np.mean(1 - _share(of_target, log_r, odds)) / (1 - s1) - np.mean(_share(of_base, log_r, odds)) / s1
        )

    every = np.concatenate([of_target, of_base])
    finite = every[np.isfinite(every)]
    low, high = finite.min() - abs(odds) - 40, finite.max() + abs(odds) + 40
    root, result = brentq(gap, low, high, xtol=1e-10, full_output=True)
    require(bool(result.converged), "the bridge did not converge; use a base closer to the target")
    return float(root)


def bridge(
    target: AbstractEnergy,
    base: AbstractNormalised,
    draws: Draws,
    *,
    base_draws: int | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """log Z by the bridge of least error between the target (its draws are given) and a base (drawn here, as many).

    With p, q the two densities and f = s1 p + s2 q, the squared relative error is
    Var_q(p / f) / (m E_q(p / f)^2) + Var_p(q / f) / (n_eff E_p(q / f)^2): Meng and Wong 1996; for chains, with the
    effective number of draws, Frühwirth-Schnatter 2004. `overlap` among the diagnostics is int p q / f, 1 where they
    agree. A base fitted to the very draws given here makes log Z too high: fit it to others. `draws` is a `Trace` or an
    array of independent points.

    >>> import jax, unnorm as un
    >>> target = un.energies.FunctionEnergy(lambda x: 2 * (x**2).sum(), un.spaces.Real((2,)))
    >>> draws = un.energies.standard_gaussian(2, 0.5).samples(2000, key=jax.random.key(1))
    >>> bridge(target, un.energies.standard_gaussian(2), draws, key=jax.random.key(0)).covers(0.4515827, 0.999)
    True
    """
    require_pair(target, base)
    chains = as_chains(draws, point_of(base).shape, "bridge sampling")
    shape, rows = chains.shape[:2], chains.reshape(-1, *chains.shape[2:])
    (count,) = whole_numbers(base_draws=len(rows) if base_draws is None else base_draws)
    from_draws = weighted_draws(target, base, count, key=key)
    of_base = from_draws.log_weights.astype(np.float64)
    require_weights(of_base)
    of_target = energies(base, rows) - energies(target, rows)
    require(
        bool(np.isfinite(of_target).all()),
        "the base or the target has no density at some draws of the target; use a base that covers them",
    )
    effective = min(mean_of_chains(of_target.reshape(shape)).effective, float(len(rows)))
    log_r = optimal_bridge(of_target, of_base, effective)
    odds, s1 = math.log(effective / len(of_base)), effective / (effective + len(of_base))
    # p / f under q and q / f under p: both have the mean `overlap`.
    from_base = mean_of_chains(_share(of_base, log_r, odds)[:, None] / s1)
    from_target = mean_of_chains((1 - _share(of_target, log_r, odds)).reshape(shape) / (1 - s1))
    overlap = from_base.value
    met = min(from_base.value, from_target.value) > 0  # not when the two are so far apart that all of it underflows
    stderr = math.inf
    if met:
        stderr = math.hypot(from_base.stderr / from_base.value, from_target.stderr / from_target.value)
    warnings = ()
    carried = overlap * min(effective, len(of_base))
    if not carried >= 100:
        warnings = (
            f"Base and target overlap in about {carried:.0f} draws: the stated error is too small; use a base closer "
            "to the target, more draws, or AIS.",
        )
    diagnostics = {
        "samples": float(len(rows)),
        "effective_draws": effective,
        "base_draws": float(len(of_base)),
        "overlap": overlap,
    }
    estimate = Estimate(log_r, stderr, "bridge sampling", diagnostics, warnings)
    return with_rounding(estimate, from_draws.energies, of_base)
