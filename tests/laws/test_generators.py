"""Laws of the transitions between noise levels, on a Gaussian whose score is known at every level.

Data N(0, S^2) under noise x_0 + sigma(t) z has the marginal variance V(t) = S^2 + sigma(t)^2 and the score -x / V(t).
Every transition here is linear in x, so the variance after it is known exactly.
"""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.generators import LangevinCorrector, Stay, Then, generate
from unnorm.generators.base import AbstractOneStep, AbstractTransition, Walker
from unnorm.noises import VarianceExploding
from unnorm.scores import LevelledFunction

SPREAD = 0.8
NOISE = VarianceExploding(low=0.1, high=5.0)
T, S = 0.8, 0.5


def marginal(t: float) -> float:
    """V(t)."""
    return SPREAD**2 + (0.1 * 50.0**t) ** 2


SCORE = LevelledFunction(lambda t, x: -x / (SPREAD**2 + NOISE.sigma(t) ** 2), NOISE)


def once(transition: AbstractTransition, x, key):
    """Where one transition from level T to S leads."""
    return transition.position(transition.step(SCORE, T, S, transition.init(SCORE, T, x), key=key)[0])


class Exact(AbstractOneStep):
    """The exact predictor: x_s given x_t is N(x_t V(s) / V(t), V(s) (1 - V(s) / V(t)))."""

    def move(self, score, t, s, x, *, key):
        after, before = SPREAD**2 + score.noise.sigma(s) ** 2, SPREAD**2 + score.noise.sigma(t) ** 2
        kept = after / before
        return kept * x + jnp.sqrt(after * (1 - kept)) * jax.random.normal(key, x.shape), {}


class Double(AbstractOneStep):
    """x <- 2 x."""

    def move(self, score, t, s, x, *, key):
        return 2 * x, {}


class Levels(AbstractOneStep):
    """x <- x + 10 t + s: shows which levels it was called with."""

    def move(self, score, t, s, x, *, key):
        return x + 10 * t + s, {}


class Noise(AbstractOneStep):
    """x <- x + z."""

    def move(self, score, t, s, x, *, key):
        return x + jax.random.normal(key, x.shape), {"draws": jnp.ones(())}


class Momentum(AbstractTransition):
    """x <- x + (x - x before): remembers one step."""

    together: ClassVar[bool] = False

    def init(self, score, t, x):
        return Walker(x, x)

    def step(self, score, t, s, state, *, key):
        return Walker(2 * state.x - state.memory, state.x), {"steps": jnp.ones(())}


class OneKey(AbstractOneStep):
    """`Then` with its mistake: one key for both transitions."""

    first: AbstractTransition
    second: AbstractTransition

    def move(self, score, t, s, x, *, key):
        return once(self.second, once(self.first, x, key), key), {}


def squares(transition: AbstractTransition, variance: float, points: int = 40_000) -> np.ndarray:
    """x'^2 after the transition from level T to S of x ~ N(0, variance)."""
    start, key = jax.random.split(jax.random.key(0))
    xs = math.sqrt(variance) * jax.random.normal(start, (points, 1))
    keys = jax.random.split(key, points)
    after = jax.jit(jax.vmap(lambda x, k: once(transition, x, k)))(xs, keys)
    return np.asarray(after, np.float64)[:, 0] ** 2


# ------------------------------------------------------------------------------------------------ Langevin corrector


@pytest.mark.parametrize("ratio", [0.1, 0.8])
def test_the_corrector_has_its_own_biased_variance(ratio):
    """x' = (1 - a / V) x + sqrt(2 a) z, a = ratio sigma(s)^2, settles at V / (1 - a / (2 V)), with V at level s."""
    a = ratio * (0.1 * 50.0**S) ** 2
    biased = marginal(S) / (1 - a / (2 * marginal(S)))
    settled = squares(LangevinCorrector(ratio=ratio, steps=200), marginal(T))
    assert holds(settled, biased)
    # Negative controls: the level it came from, and, where the step is long enough to see it, a walk with no bias.
    assert breaks(settled, marginal(T) / (1 - a / (2 * marginal(T))))
    assert ratio == 0.1 or breaks(settled, marginal(S))


def test_the_corrector_takes_the_steps_it_is_told():
    """After n steps the variance is r^n V_0 + (1 - r^n) V_stationary, with r = (1 - a / V)^2."""
    a = 0.3 * (0.1 * 50.0**S) ** 2
    rate = (1 - a / marginal(S)) ** 2
    limit = marginal(S) / (1 - a / (2 * marginal(S)))

    def after(n: int) -> float:
        return rate**n * marginal(T) + (1 - rate**n) * limit

    for n in (1, 3):
        found = squares(LangevinCorrector(ratio=0.3, steps=n), marginal(T))
        assert holds(found, after(n))
        assert breaks(found, after(n + 1))


def test_the_corrector_refuses_a_step_of_nothing():
    for options in ({"ratio": 0.0}, {"steps": 0}):
        with pytest.raises(un.InputError, match="positive ratio and at least one step"):
            LangevinCorrector(**options)


# ------------------------------------------------------------------------------------------------------- composition


def test_then_is_one_transition_after_the_other():
    x, key = jnp.asarray([1.0, -2.0]), jax.random.key(1)
    predictor, corrector = Exact(), LangevinCorrector(ratio=0.2, steps=3)
    one, two = jax.random.split(key)
    by_hand = once(corrector, once(predictor, x, one), two)
    assert np.allclose(once(Then(predictor, corrector), x, key), by_hand, rtol=1e-6)
    assert not np.allclose(once(Then(corrector, predictor), x, key), by_hand, rtol=1e-2)
    # Both know both levels, and the first comes first.
    assert np.allclose(once(Then(Double(), Levels()), x, key), 2 * x + 10 * T + S)
    assert np.allclose(once(Then(Levels(), Double()), x, key), 2 * (x + 10 * T + S))


def test_each_of_two_remembers_its_own_steps_and_counts_are_summed():
    """x_{n+1} = 2 (2 x_n - x_{n-1}): the predictor's memory is of where it stood, wherever the corrector went since."""
    both = Then(Momentum(), Then(Double(), Noise()))
    quiet, x, before = Then(Momentum(), Double()), 1.0, 1.0
    state, loud = quiet.init(SCORE, T, jnp.ones(1)), both.init(SCORE, T, jnp.ones(1))
    for n in range(3):
        state, info = quiet.step(SCORE, T, S, state, key=jax.random.key(n))
        x, before = 2 * (2 * x - before), x
        assert float(quiet.position(state)[0]) == x and float(state.memory[0][0]) == before
        loud, counts = both.step(SCORE, T, S, loud, key=jax.random.key(n))
        assert {name: float(count) for name, count in info.items()} == {"steps": 1.0}
        assert {name: float(count) for name, count in counts.items()} == {"steps": 1.0, "draws": 1.0}
    # Control: a memory that is not kept makes every step one that begins anew.
    assert x != 2.0**3
    walk = generate(SCORE, both, levels=[1.0, 0.5, 0.0], n=4, shape=(1,), finish=Stay(), key=jax.random.key(0))
    assert walk.counts == {"steps": 2 * 4, "draws": 2 * 4}


def test_the_two_transitions_draw_independently():
    """The variances of independent noises add: 1 + 1 + 1. With one key the noises would add: 1 + 4."""
    assert holds(squares(Then(Noise(), Noise()), 1.0), 3.0)
    assert breaks(squares(OneKey(Noise(), Noise()), 1.0), 3.0)


def test_predict_then_correct_is_not_correct_then_predict():
    """The predictor is exact; the corrector at level s adds a^2 / V(s) there, and does harm at any other level."""
    a = 0.5 * (0.1 * 50.0**S) ** 2
    here, there = marginal(S), marginal(T)
    kept = here / there
    right = here + a**2 / here
    wrong = kept**2 * ((1 - a / here) ** 2 * there + 2 * a) + here * (1 - kept)
    predictor, corrector = Exact(), LangevinCorrector(ratio=0.5)
    assert holds(squares(predictor, there), here)
    assert holds(squares(Then(predictor, corrector), there), right)
    assert holds(squares(Then(corrector, predictor), there), wrong)
    assert breaks(squares(Then(corrector, predictor), there), right)
