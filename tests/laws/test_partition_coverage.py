"""Stated errors of log Z cover at their nominal rate over many repeats, which halved ones must not.

Sequential Monte Carlo, reverse annealing, thermodynamic integration and bridge sampling on the targets of `targets`;
importance sampling and annealing, whose laws on easier targets are in `test_partition`, on the two hard ones.
"""

import math

import jax
import pytest
from harness import coverage, covers, halved
from targets import BASES, METHODS, PROBLEMS, repeated, truth_of

from unnorm.energies import standard_gaussian
from unnorm.estimate import Estimate
from unnorm.evaluation import ais, importance
from unnorm.evaluation.partition.reference import tailed

pytestmark = pytest.mark.optimised


@pytest.mark.parametrize("method", METHODS)
def test_the_stated_error_covers(method):
    truth = truth_of("mixture")
    found = repeated(method, "mixture", repeats=200, seed=2)
    assert covers(found, truth)
    assert not covers(halved(found), truth)


@pytest.mark.thorough
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", METHODS)
def test_the_stated_error_covers_at_the_nominal_rate(method, problem):
    """1000 repeats: the share has a standard error of 0.7%; finite samples fall up to 3% short."""
    truth = truth_of(problem)
    found = repeated(method, problem, repeats=1000, seed=3, size=1000)
    assert 0.91 <= coverage(found, truth) <= 0.98
    assert coverage(halved(found), truth) < 0.78


# ----------------------------------------------------------------------------- importance sampling and annealing

#: The tails of a funnel are wider than those of any Gaussian: weights from one would have no variance.
TAILED = tailed(standard_gaussian(2, 1.5), 4)


def weighed(method: str, problem: str, repeats: int, seed: int) -> list[Estimate]:
    target, keys = PROBLEMS[problem], jax.random.split(jax.random.key(seed), repeats)
    if method == "importance sampling":
        return [importance(target, TAILED, draws=2000, key=k) for k in keys]
    return [ais(target, BASES[problem], chains=320, levels=40, key=k) for k in keys]


def share_below(repeats: int, sigmas: float = 3.0) -> float:
    """What a share of 95% does not fall below, by so many of its standard errors."""
    return 0.95 - sigmas * math.sqrt(0.95 * 0.05 / repeats)


@pytest.mark.parametrize("problem", ["funnel", "network"])
@pytest.mark.parametrize("method", ["importance sampling", "AIS"])
def test_the_stated_error_of_weights_covers_on_hard_targets(method, problem):
    """The funnel in closed form, the network by quadrature."""
    truth = truth_of(problem)
    found = weighed(method, problem, repeats=100, seed=4)
    assert coverage(found, truth) >= share_below(100)
    assert coverage(halved(found), truth) < share_below(100)


@pytest.mark.thorough
@pytest.mark.parametrize("problem", ["funnel", "network"])
@pytest.mark.parametrize("method", ["importance sampling", "AIS"])
def test_the_stated_error_of_weights_covers_at_the_nominal_rate_on_hard_targets(method, problem):
    """1000 repeats: finite samples fall 1% short."""
    truth = truth_of(problem)
    found = weighed(method, problem, repeats=1000, seed=5)
    assert share_below(1000) - 0.01 <= coverage(found, truth) <= 0.98
    assert coverage(halved(found), truth) < 0.78
