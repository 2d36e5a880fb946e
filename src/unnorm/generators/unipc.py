"""The probability flow by a predictor and a corrector that share the score."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import require
from unnorm.generators.base import AbstractTransition, Info, Walker
from unnorm.generators.dpm_solver import Seen, denoised, nothing_seen, seen_also
from unnorm.noises.base import Level, Point, Scalar
from unnorm.scores import AbstractLevelledScore
from unnorm.small_matrices import solve


class UniPC(AbstractTransition):
    """UniPC of order 1 to 3 with B(h) = e^h - 1 (Zhao et al. 2023, bh2, data prediction): one score a step.

    A predictor of order p goes to the next level by the data D that x was likely to be at the last p; what D is there
    then corrects the same step to order p + 1, and is what the next step knows, without another score. The corrected
    point replaces the predicted one. First steps have the orders that there are levels for. A last step to a level
    without noise is of order 1, x = alpha D.

    >>> UniPC(order=3).order
    3
    """

    together: ClassVar[bool] = False
    order: int = eqx.field(static=True, default=2)

    def __check_init__(self):
        require(self.order in (1, 2, 3), f"UniPC has the orders 1, 2 and 3, not {self.order}")

    def init(self, score: AbstractLevelledScore, t: Level, x: Point) -> Walker:
        t = jnp.asarray(t, x.dtype)
        seen = nothing_seen(score.noise, t, x, self.order)
        return Walker(x, seen_also(seen, denoised(score, t, x), score.noise.log_ratio(t), jnp.asarray(True)))

    def step(
        self, score: AbstractLevelledScore, t: Level, s: Level, state: Walker, *, key: PRNGKeyArray
    ) -> tuple[Walker, Info]:
        noise, x, seen = score.noise, state.x, state.memory
        left = noise.variance(s) > 0
        there = jnp.where(left, s, t)
        ratio = noise.log_ratio(there)
        h = jnp.where(left, ratio - seen.ratios[0], jnp.inf)
        moved = h > 0
        h = jnp.where(moved & left, h, 1.0)
        grown = -jnp.expm1(-h)
        base = noise.sigma(s) / noise.sigma(t) * x + noise.alpha(s) * grown * seen.data[0]
        predicting, correcting = self._weights(h, seen)
        differences = [(data - seen.data[0]) for data in seen.data[1:]]
        bend = sum((w * d for w, d in zip(predicting, differences, strict=True)), jnp.zeros_like(x))
        predicted = base + noise.alpha(s) * grown * bend
        data = denoised(score, there, jnp.where(left, predicted, x))
        *others, own = correcting
        bend = sum((w * d for w, d in zip(others, differences, strict=True)), own * (data - seen.data[0]))
        corrected = base + noise.alpha(s) * grown * bend
        # Where no noise is left at the end, `data` is what is likely here, at the corrected point.
        end = jnp.where(left, corrected, noise.alpha(s) * data)
        return Walker(jnp.where(moved, end, x), seen_also(seen, data, ratio, moved & left)), {}

    def _weights(self, h: Scalar, seen: Seen) -> tuple[list[Scalar], list[Scalar]]:
        """What each difference D_i - D_0 counts in the predictor; and in the corrector, the new one included."""
        places = [_apart(ratio - seen.ratios[0], h) / h for ratio in seen.ratios[1:]]
        found = [_of_order(order, h, places) for order in range(1, self.order + 1)]
        at = [seen.steps == order for order in range(1, self.order)]

        def chosen(values: list[Scalar]) -> Scalar:
            picked = values[-1]
            for here, value in zip(at[::-1], values[-2::-1], strict=True):
                picked = jnp.where(here, value, picked)
            return picked

        predicting = [chosen([parts[0][i] for parts in found]) for i in range(self.order - 1)]
        correcting = [chosen([parts[1][i] for parts in found]) for i in range(self.order)]
        return predicting, correcting


def _apart(distance: Scalar, h: Scalar) -> Scalar:
    """How far back a level lies, a negative number to divide by; where there is none yet the quotient is not used."""
    return jnp.where(distance < 0, distance, -h)


def _of_order(order: int, h: Scalar, places: list[Scalar]) -> tuple[list[Scalar], list[Scalar]]:
    """The weights of one order; zero for what it does not look at. The last of the corrector's is that of the new D."""
    zero = jnp.zeros_like(h)
    # b_i = i! phi_{i+1}(-h) / B(-h): what the powers of the place must sum to.
    sides, phi, factorial = [], jnp.expm1(-h) / -h - 1, 1
    for i in range(1, order + 1):
        sides.append(phi * factorial / jnp.expm1(-h))
        factorial *= i + 1
        phi = phi / -h - 1 / factorial
    seen = places[: order - 1]
    blank = [zero] * (len(places) - len(seen))
    predicting = _matched(seen, sides[:-1]) if order > 2 else [zero + 0.5] * (order - 1)
    correcting = _matched([*seen, jnp.ones_like(h)], sides) if order > 1 else [zero + 0.5]
    *others, own = correcting
    return (
        [w / place for w, place in zip(predicting, seen, strict=True)] + blank,
        [w / place for w, place in zip(others, seen, strict=True)] + blank + [own],
    )


def _matched(places: list[Scalar], sides: list[Scalar]) -> list[Scalar]:
    """Weights w with sum_k w_k place_k^(i-1) = side_i."""
    powers: Float[Array, "n n"] = jnp.stack([jnp.stack(places) ** i for i in range(len(places))])
    found = solve(powers, jnp.stack(sides))
    return [found[i] for i in range(len(places))]
