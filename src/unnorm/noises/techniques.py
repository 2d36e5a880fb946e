"""Noise levels and Langevin steps from the data: Techniques 1, 2 and 4 of Song and Ermon 2020 (NCSNv2).

Technique 3 is a preconditioning, `scores.DividedBySigma`; Technique 5 the moving average of the weights, `average` of
`training.fit`. The walk meant is x + a s(x, sigma_i) + sqrt(2 a) z with a = step sigma_i^2 / sigma_L^2, T times at each
level, levels falling.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from unnorm.errors import require
from unnorm.noises.chains import Ladder

#: Above so many points only some of them are looked at, and so many then.
MANY, SOME = 60_000, 10_000
_BLOCK = 1000


def largest_distance(points: Any, *, seed: int = 0) -> float:
    """The largest Euclidean distance between two points: the largest noise level (Technique 1).

    Then a walk at that level goes from any point to any other (`responsibility_bound`). Of more than 60,000 points
    10,000 random ones are looked at.

    >>> largest_distance([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    5.0
    """
    rows = np.asarray(points, np.float64)
    require(rows.ndim >= 2 and len(rows) >= 2, f"distances need two points or more, not an array of {rows.shape}")
    rows = rows.reshape(len(rows), -1)
    if len(rows) > MANY:
        rows = rows[np.random.default_rng(seed).choice(len(rows), SOME, replace=False)]
    # About the mean, where the difference of squares loses the fewest digits.
    rows = rows - rows.mean(0)
    squares, found = np.sum(rows**2, axis=1), 0.0
    for first in range(0, len(rows), _BLOCK):
        part = slice(first, first + _BLOCK)
        apart = squares[part, None] + squares[None, first:] - 2 * rows[part] @ rows[first:].T
        found = max(found, float(apart.max()))
    require(found > 0, "all points are alike, so no noise level follows from their distances")
    return math.sqrt(found)


def responsibility_bound(distance: float, sigma: float) -> float:
    """exp(-d^2 / (8 sigma^2)) / 2, which the mean responsibility of another point d away never exceeds (Prop. 6.1).

    A walk in the mixture of N(x_i, sigma^2 I) hears of x_j near x_i through r_j = p_j / sum_k p_k, and
    E_{p_i}[r_j] is at most this: at d = 18 and sigma = 1 less than 1e-17.

    >>> f"{responsibility_bound(18.0, 1.0):.2g}"
    '1.3e-18'
    """
    return 0.5 * math.exp(-((distance / sigma) ** 2) / 8)


def overlap(ratio: float, dimension: int) -> float:
    """How often |x| at a level lies within three deviations of its mean at the next larger one, `ratio` times as large.

    C = Phi(sqrt(2 D) (ratio - 1) + 3 ratio) - Phi(sqrt(2 D) (ratio - 1) - 3 ratio), as |x| of x ~ N(0, sigma^2 I_D) is
    about N(sqrt(D) sigma, sigma^2 / 2) (Prop. 6.2).

    >>> round(overlap(1.037559, 3072), 3), round(overlap(10 ** (2 / 9), 3072), 3)
    (0.567, 0.0)
    """
    middle = math.sqrt(2 * dimension) * (ratio - 1)
    return _normal(middle + 3 * ratio) - _normal(middle - 3 * ratio)


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def ratio_for(dimension: int, wanted: float = 0.5) -> float:
    """The ratio of neighbouring levels whose `overlap` is this, by bisection (Technique 2).

    >>> round(ratio_for(3072), 4)
    1.0398
    """
    require(dimension >= 1, f"a point has one coordinate or more, not {dimension}")
    most = overlap(1.0, dimension)
    require(0 < wanted < most, f"neighbouring levels overlap between 0 and {most:.4f}, so not {wanted}")
    low, high = 1.0, 2.0
    while overlap(high, dimension) > wanted:
        low, high = high, 2 * high
        require(high < 1e6, f"in {dimension} dimensions even far levels overlap more than {wanted}; ask for more")
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if overlap(middle, dimension) > wanted else (low, middle)
    return 0.5 * (low + high)


def level_count(high: float, low: float, ratio: float) -> int:
    """L = 1 + ln(high / low) / ln(ratio), rounded: how many levels there are from `high` to `low`.

    >>> level_count(50.0, 0.01, ratio_for(3072))
    219
    """
    require(0 < low < high, f"levels go from a positive low to something higher, not from {low} to {high}")
    require(ratio > 1, f"neighbouring levels have a ratio above 1, not {ratio}")
    return max(2, round(1 + math.log(high / low) / math.log(ratio)))


def variance_ratio(step: float, moves: int, ratio: float, low: float) -> float:
    """s_T^2 / sigma_i^2 after T moves at level i from N(0, sigma_{i-1}^2), the target N(0, sigma_i^2) (Prop. 6.3).

    With q = 1 - step / low^2 and v = 2 step / (low^2 (1 - q^2)): q^(2 T) (ratio^2 - v) + v. At every level the same.

    >>> round(variance_ratio(6.184e-6, 5, 1.037559, 0.01), 5)
    1.05547
    """
    return float(_variance_ratios(np.array([step]), moves, ratio, low)[0])


def _variance_ratios(steps: Float[np.ndarray, " n"], moves: int, ratio: float, low: float) -> Float[np.ndarray, " n"]:
    relative = steps / low**2
    # 1 - q^2 = relative (2 - relative).
    kept, own = (1 - relative) ** (2 * moves), 2 / (2 - relative)
    return kept * (ratio**2 - own) + own


def langevin_step(moves: int, ratio: float, low: float, *, grid: int = 10_000) -> float:
    """The step whose `variance_ratio` is nearest to 1, by a search on a grid (Technique 4).

    >>> round(langevin_step(5, 1.037559, 0.01) * 1e6, 3)
    6.184
    """
    require(moves >= 1, f"a walk moves once or more at each level, not {moves} times")
    require(ratio > 1 and low > 0, f"levels have a ratio above 1 and are positive, not {ratio} and {low}")
    # q goes from 1 to 0: larger steps overshoot. A second grid about the best of the first.
    first = low**2 * np.geomspace(1e-6, 1.0, grid)
    best = _nearest(first, moves, ratio, low)
    second = np.linspace(first[max(best - 1, 0)], first[min(best + 1, grid - 1)], grid)
    return float(second[_nearest(second, moves, ratio, low)])


def _nearest(steps: np.ndarray, moves: int, ratio: float, low: float) -> int:
    return int(np.argmin(np.abs(_variance_ratios(steps, moves, ratio, low) - 1)))


class Schedule(NamedTuple):
    """Levels, and the walk over them: `moves` at each, of `step` sigma_i^2 / sigma_L^2."""

    ladder: Ladder
    ratio: float
    moves: int
    step: float

    @property
    def updates(self) -> int:
        """Moves over all levels: what a draw costs in evaluations of the score."""
        return self.moves * len(self.ladder.sigmas)


def schedule_for(
    points: Any, *, low: float = 0.01, wanted: float = 0.5, updates: int = 1200, seed: int = 0
) -> Schedule:
    """Techniques 1, 2 and 4 on a data set: levels from its largest distance to `low`, and the walk.

    `updates` is what may be spent: moves at each level are as many as fit, one at least. The lowest level is 0.01 for
    pixels in [0, 1], which cannot be seen.

    >>> found = schedule_for(np.random.default_rng(0).normal(size=(50, 64)), low=0.05)
    >>> len(found.ladder.sigmas), found.moves, round(float(found.ladder.sigmas[-1]), 1)
    (19, 63, 14.7)
    """
    rows = np.asarray(points)
    high = largest_distance(rows, seed=seed)
    count = level_count(high, low, ratio_for(math.prod(rows.shape[1:]), wanted))
    # The levels are whole in number, so their ratio is a little different.
    ratio = (high / low) ** (1 / (count - 1))
    moves = max(1, updates // count)
    return Schedule(Ladder(np.geomspace(low, high, count)), ratio, moves, langevin_step(moves, ratio, low))
