"""Whether chains can be trusted: split R-hat and effective sample sizes.

Draws have shape (chains, steps, *point); every answer has the shape of one point, one number per coordinate.
The definitions are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), "Rank-normalization,
folding, and localization: an improved R-hat for assessing convergence of MCMC". Each chain is cut into two
halves, so that a chain that drifts disagrees with itself.

Two kinds of coordinate have no answer and get nan, never an exception: one with a draw that is not finite,
and one with the same number in every draw. Chains stuck at different constants do have an answer: their R-hat
is inf.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from unnorm.errors import require

# Vehtari et al. (2021): above this, chains disagree more than the noise of well-mixed ones.
RHAT_LIMIT = 1.01
# 100 for each of the customary four chains: below this, R-hat and the error bars themselves are noise.
ESS_LIMIT = 400.0
# Means of chains that lie further apart than this many widths of a chain: no walk within one mode looks so.
SEPARATION_LIMIT = 2.0

# Coordinates are taken in blocks of at most this many draws, which keeps the transforms near 100 MB.
_BLOCK = 2**20

PerCoordinate = Float[np.ndarray, "..."]
Chains = Float[np.ndarray, "coordinates chains steps"]


def _rank_normal(x: Chains) -> Chains:
    """z = Phi^-1((rank - 3/8) / (S + 1/4)), with ranks among all S draws of a coordinate; ties share one."""
    # Loaded here: it takes a third of a second, and `unnorm --help` must not wait for it.
    from scipy.special import ndtri

    flat = x.reshape(len(x), -1)
    size = flat.shape[1]
    order = np.argsort(flat, axis=1)
    ordered = np.take_along_axis(flat, order, axis=1)
    differs = ordered[:, 1:] != ordered[:, :-1]
    edge = np.ones((len(x), 1), dtype=bool)
    place = np.arange(size)
    first = np.maximum.accumulate(np.where(np.hstack([edge, differs]), place, 0), axis=1)
    last = np.where(np.hstack([differs, edge]), place, size - 1)
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    z = np.empty_like(flat)
    np.put_along_axis(z, order, ndtri((0.5 * (first + last) + 1 - 0.375) / (size + 0.25)), axis=1)
    return z.reshape(x.shape)


def _fold(x: Chains) -> Chains:
    """|x - median|, which turns a difference in scale into one in location."""
    return np.abs(x - np.median(x, axis=(1, 2), keepdims=True))


def _rhat(x: Chains) -> Float[np.ndarray, " coordinates"]:
    """sqrt(((n - 1)/n W + B/n) / W): pooled over within-chain standard deviation."""
    n = x.shape[2]
    # The variance of a constant chain is exactly 0 only once its value is taken off.
    within = (x - x[:, :, :1]).var(axis=2, ddof=1).mean(axis=1)
    between = x.mean(axis=2).var(axis=1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((n - 1) / n + between / within)


def _rank_rhat(x: Chains, z: Chains) -> Float[np.ndarray, " coordinates"]:
    """The larger of bulk and folded R-hat."""
    # Two values on either side of the median fold onto one, which says nothing: fmax passes over its nan.
    return np.fmax(_rhat(z), _rhat(_rank_normal(_fold(x))))


def _mean_autocovariance(x: Chains) -> Float[np.ndarray, "coordinates steps"]:
    """(1/n) sum_t (x_t - mean)(x_{t+k} - mean), averaged over chains, for every lag k < n."""
    n = x.shape[2]
    length = 1 << (2 * n - 1).bit_length()  # at least 2n: a shorter transform would wrap around
    spectrum = np.fft.rfft(x - x.mean(axis=2, keepdims=True), length, axis=2)
    # One inverse transform per coordinate, since averaging chains commutes with it.
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=1)
    return np.fft.irfft(power, length, axis=1)[:, :n] / n


def _ess(x: Chains) -> Float[np.ndarray, " coordinates"]:
    """S / tau with tau = 1 + 2 sum_k rho_k, by Geyer's initial monotone sequence over all chains together.

    rho_k = 1 - (W - mean autocovariance_k) / var+, with var+ the pooled variance: chains that disagree count
    as correlated. Sums of neighbours rho_2k + rho_2k+1 are positive and decreasing for a reversible chain, so
    they are kept while positive and capped by those before. nan where the draws are constant.
    """
    _, chains, n = x.shape
    autocovariance = _mean_autocovariance(x)
    biased = autocovariance[:, :1]
    pooled = biased + x.mean(axis=2).var(axis=1, ddof=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1 - (biased * n / (n - 1) - autocovariance) / pooled
    rho[:, 0] = 1
    even, odd = rho[:, 0 : n - n % 2 : 2], rho[:, 1::2]
    pairs = even + odd
    kept = np.logical_and.accumulate(pairs > 0, axis=1)
    count = kept.sum(axis=1)
    total = np.where(kept, np.minimum.accumulate(pairs, axis=1), 0).sum(axis=1)
    # The even lag after the last pair: without it antithetic chains, with negative odd lags, look too good.
    following = np.take_along_axis(even, np.minimum(count, even.shape[1] - 1)[:, None], axis=1)[:, 0]
    following = np.where(count < even.shape[1], np.maximum(following, 0), 0)
    # Antithetic chains have tau < 1, but not without bound: a tau near 0 is noise.
    tau = np.maximum(2 * total - 1 + following, 1 / np.log10(chains * n))
    varies = (x != x[:, :1, :1]).any(axis=(1, 2))
    return np.where(varies, chains * n / tau, np.nan)


def _ess_tail(x: Chains) -> Float[np.ndarray, " coordinates"]:
    low, high = np.quantile(x, (0.05, 0.95), axis=(1, 2), keepdims=True)
    # ">=" above, not "<=": draws of zeros and ones then always keep one indicator that varies.
    return np.fmin(_ess((x <= low).astype(x.dtype)), _ess((x >= high).astype(x.dtype)))


def _separation(x: Chains) -> Float[np.ndarray, " coordinates"]:
    """Spread of the chains' means over the width of one chain, where chains stay apart; 0 where they do not.

    The halves of a chain tell how far its mean wanders by itself: chains that still travel are not apart.
    """
    chains = x.shape[1] // 2
    if chains < 2:
        return np.zeros(len(x))
    halves = x.mean(axis=2).reshape(len(x), 2, chains)
    between = halves.mean(axis=1).var(axis=1, ddof=1)
    wander = 0.25 * ((halves[:, 0] - halves[:, 1]) ** 2).mean(axis=1)
    width = x.var(axis=2, ddof=1).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(between > 4 * wander, np.sqrt(between / width), 0.0)


def _undefined(draws: np.ndarray) -> tuple[Bool[np.ndarray, "..."], Bool[np.ndarray, "..."]]:
    """Which coordinates have a draw that is not finite, and which never move."""
    broken, moves = np.zeros((2, *draws.shape[2:]), dtype=bool)
    # A few steps at a time: draws may lie in a file larger than memory.
    width = max(1, _BLOCK * draws.shape[1] // max(draws.size, 1))
    for start in range(0, draws.shape[1], width):
        part = draws[:, start : start + width]
        broken = broken | ~np.isfinite(part).all(axis=(0, 1))
        moves = moves | (part != draws[:1, :1]).any(axis=(0, 1))
    return np.asarray(broken), np.asarray(~broken & ~moves)


def _per_coordinate(draws: Any, function: Callable[[Chains], list], rows: int = 1) -> list[PerCoordinate]:
    """The rows `function` gives for split chains, block by block; nan where a coordinate has no answer."""
    draws = np.asarray(draws)
    require(
        draws.ndim >= 2 and draws.shape[0] >= 1 and draws.shape[1] >= 4,
        f"diagnostics need draws of shape (chains, steps, ...) with at least 4 steps, not {draws.shape}",
    )
    chains, steps = draws.shape[:2]
    half = steps // 2
    broken, constant = _undefined(draws)
    wanted = np.flatnonzero(~(broken | constant))
    flat = draws.reshape(chains, steps, -1)
    width = max(1, _BLOCK // (chains * steps))
    answers = np.full((rows, flat.shape[2]), np.nan)
    for start in range(0, len(wanted), width):
        these = wanted[start : start + width]
        block = np.moveaxis(flat[:, :, these], 2, 0).astype(np.float64, order="C")
        # An odd number of steps drops the one in the middle.
        answers[:, these] = function(np.concatenate([block[:, :, :half], block[:, :, -half:]], axis=1))
    return [row.reshape(draws.shape[2:]) for row in answers]


def split_rhat(draws: Any) -> PerCoordinate:
    """Rank-normalised split R-hat: how much wider all chains are together than each half-chain alone.

    sqrt(var+ / W) of z = Phi^-1((rank - 3/8) / (S + 1/4)), and of the same for |x - median|; the larger of
    the two, so that chains of different spread are seen as well as chains of different place. 1 is perfect.
    nan where a coordinate never moves or is not finite. Source: Vehtari et al. (2021), section 4.

    >>> draws = np.random.default_rng(0).normal(size=(4, 1000))
    >>> bool(split_rhat(draws) < 1.01), bool(split_rhat(draws + np.arange(4)[:, None]) > 1.1)
    (True, True)
    """
    return _per_coordinate(draws, lambda x: [_rank_rhat(x, _rank_normal(x))])[0]


def ess_bulk(draws: Any) -> PerCoordinate:
    """Effective sample size of the rank-normalised draws: how well the centre of the distribution is known.

    Defined even where the mean is not. nan where a coordinate never moves or is not finite.
    Source: Vehtari et al. (2021), section 4.

    >>> draws = np.random.default_rng(0).standard_cauchy(size=(4, 1000))
    >>> bool(3000 < ess_bulk(draws) < 5000)
    True
    """
    return _per_coordinate(draws, lambda x: [_ess(_rank_normal(x))])[0]


def ess_tail(draws: Any) -> PerCoordinate:
    """Effective sample size of the tails: the smaller of those of the indicators x <= q_5% and x >= q_95%.

    Where one of the two never varies, as for draws of zeros and ones, it is the other.
    nan where a coordinate never moves or is not finite. Source: Vehtari et al. (2021), section 4.

    >>> draws = np.random.default_rng(0).normal(size=(4, 1000))
    >>> bool(3000 < ess_tail(draws) < 5000)
    True
    """
    return _per_coordinate(draws, lambda x: [_ess_tail(x)])[0]


def ess_mean(draws: Any) -> PerCoordinate:
    """Effective sample size for the mean: the number of independent draws whose mean is as precise.

    S / (1 + 2 sum_k rho_k), the autocorrelations rho_k summed by Geyer's initial monotone sequence. Above S
    when draws are antithetic. nan where a coordinate never moves or is not finite.
    Source: Geyer (1992); Vehtari et al. (2021), section 3.

    >>> draws = np.random.default_rng(0).normal(size=(4, 1000))
    >>> bool(3000 < ess_mean(draws) < 5000)
    True
    """
    return _per_coordinate(draws, lambda x: [_ess(x)])[0]


def mcse_mean(draws: Any) -> PerCoordinate:
    """The Monte Carlo standard error of the mean over all draws, sd / sqrt(ess_mean).

    nan where a coordinate never moves (its error cannot be told) or is not finite.

    >>> draws = np.random.default_rng(0).normal(size=(4, 1000))
    >>> bool(abs(draws.mean()) < 4 * mcse_mean(draws))
    True
    """

    def errors(x: Chains) -> list[np.ndarray]:
        return [x.std(axis=(1, 2), ddof=1) / np.sqrt(_ess(x))]

    return _per_coordinate(draws, errors)[0]


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """What `summarise` found: R-hat and effective sample sizes of every coordinate, and what is wrong.

    `broken` marks coordinates with a draw that is not finite, `constant` those that never move; both have nan
    in the other arrays. The worst values pass over constant coordinates, but are nan when any is broken.
    `separation` is the spread of the chains' means over the width of one chain, 0 where they do not stay apart.
    """

    rhat: PerCoordinate
    ess_bulk: PerCoordinate
    ess_tail: PerCoordinate
    separation: PerCoordinate
    broken: Bool[np.ndarray, "..."]
    constant: Bool[np.ndarray, "..."]
    chains: int
    steps: int

    @property
    def worst_rhat(self) -> float:
        """The largest R-hat."""
        return self._worst(np.max, self.rhat)

    @property
    def worst_ess_bulk(self) -> float:
        """The smallest bulk effective sample size."""
        return self._worst(np.min, self.ess_bulk)

    @property
    def worst_ess_tail(self) -> float:
        """The smallest tail effective sample size."""
        return self._worst(np.min, self.ess_tail)

    def _worst(self, choose: Callable[[np.ndarray], Any], values: PerCoordinate) -> float:
        return float(choose(values[~self.constant])) if not self.constant.all() else float("nan")

    def _where(self, which: np.ndarray, first: int) -> str:
        """The words " in coordinate 0 and 2 others"; none when a point is a single number."""
        if which.ndim == 0:
            return ""
        index = np.unravel_index(first, which.shape)
        name = str(index[0]) if which.ndim == 1 else str(tuple(int(i) for i in index))
        others = int(which.sum()) - 1
        return f" in coordinate {name}" + (f" and {others} other{'s' * (others > 1)}" if others else "")

    def warnings(self) -> tuple[str, ...]:
        """One sentence for each thing that is wrong; empty when the draws can be used."""
        found = []
        if self.broken.any():
            where = self._where(self.broken, int(np.argmax(self.broken)))
            found.append(f"Draws are not finite{where}: the chains diverged; use a smaller step.")
        if self.constant.any():
            where = self._where(self.constant, int(np.argmax(self.constant)))
            found.append(f"Draws never change{where}: nothing can be said about mixing there.")
        high = self.rhat > RHAT_LIMIT
        if high.any():
            worst = int(np.nanargmax(self.rhat))
            found.append(
                f"Chains have not mixed: R-hat is {self.rhat.flat[worst]:.3f}{self._where(high, worst)} "
                f"(above {RHAT_LIMIT}); run longer or choose another sampler."
            )
        apart = self.separation > SEPARATION_LIMIT
        if apart.any():
            worst = int(np.nanargmax(self.separation))
            found.append(
                f"Chains stay in different modes: their means lie {self.separation.flat[worst]:.1f} times as far apart "
                f"as one chain is wide{self._where(apart, worst)}, so each mode has the share of the chains that began "
                "near it and not its weight; use samplers.ParallelTempering or samplers.TemperedSMC."
            )
        for name, sizes in (("bulk", self.ess_bulk), ("tail", self.ess_tail)):
            low = sizes < ESS_LIMIT
            if low.any():
                worst = int(np.nanargmin(sizes))
                found.append(
                    f"Too few effective draws: the {name} effective sample size is {int(sizes.flat[worst])}"
                    f"{self._where(low, worst)} (below {ESS_LIMIT:.0f}); run longer or use more chains."
                )
        return tuple(found)


def summarise(draws: Any) -> Diagnostics:
    """R-hat, bulk and tail effective sample sizes of every coordinate.

    >>> draws = np.random.default_rng(0).normal(size=(4, 1000, 2)) + np.arange(4)[:, None, None] * [1.0, 0.0]
    >>> print(summarise(draws).warnings()[0])
    Chains have not mixed: R-hat is 1.546 in coordinate 0 (above 1.01); run longer or choose another sampler.
    """
    draws = np.asarray(draws)

    def all_of_them(x: Chains) -> list[np.ndarray]:
        z = _rank_normal(x)
        return [_rank_rhat(x, z), _ess(z), _ess_tail(x), _separation(x)]

    rhat, bulk, tail, separation = _per_coordinate(draws, all_of_them, rows=4)
    broken, constant = _undefined(draws)
    return Diagnostics(rhat, bulk, tail, separation, broken, constant, draws.shape[0], draws.shape[1])
