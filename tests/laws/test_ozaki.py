"""Ozaki's walk on Gaussians is linear, so that its law after any number of steps is known; also where it is biased.

With precision A and c = -diag(A) a step is x' = (I - M A) x + V^(1/2) z, M_i = (1 - e^{-h a_i}) / a_i and
V_i = (1 - e^{-2 h a_i}) / a_i. Its stationary covariance solves the discrete Lyapunov equation
S = (I - M A) S (I - M A)' + V, which is A^-1 for a diagonal A only: a diagonal does not see how a Gaussian is turned.
With one probe v of fair signs c_i = -v_i (A v)_i is drawn anew at every step, and S is that of the mean over all v.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from scipy.linalg import solve_discrete_lyapunov
from walks import NoisyOzaki

import unnorm as un
from unnorm.energies import gaussian
from unnorm.samplers import AbstractSampler, Langevin, Ozaki

TURN = np.array([[0.8, -0.6], [0.6, 0.8]])
#: Turned by some 37 degrees; every estimate of its diagonal by signs is positive, so that nothing is clipped.
PRECISION = (TURN * [1.0, 3.0]) @ TURN.T
TARGET = gaussian(np.zeros(2), np.linalg.inv(PRECISION))
CHAINS = 40_000


def linear_step(h: float, diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """I - M A and V."""
    gain = (1 - np.exp(-h * diagonal)) / diagonal
    return np.eye(2) - gain[:, None] * PRECISION, np.diag((1 - np.exp(-2 * h * diagonal)) / diagonal)


def stationary(h: float) -> np.ndarray:
    """With the exact diagonal."""
    return solve_discrete_lyapunov(*linear_step(h, np.diag(PRECISION)))


def stationary_with_one_probe(h: float) -> np.ndarray:
    """The mean of linear_step over the signs of a probe, as one linear equation in S."""
    steps = [linear_step(h, v * (PRECISION @ v)) for v in map(np.array, itertools.product([-1.0, 1.0], repeat=2))]
    carried = np.mean([np.kron(b, b) for b, _ in steps], axis=0)
    added = np.mean([v for _, v in steps], axis=0)
    return np.linalg.solve(np.eye(4) - carried, added.ravel()).reshape(2, 2)


def langevin(h: float) -> np.ndarray:
    return solve_discrete_lyapunov(np.eye(2) - h * PRECISION, 2 * h * np.eye(2))


def products(sampler: AbstractSampler, steps: int) -> np.ndarray:
    """x_1^2, x_1 x_2, x_2^2 of the last draw of each chain that began at a draw of the target."""
    trace = un.sample(
        TARGET, sampler, chains=CHAINS, steps=1, thin=steps, start=TARGET.samples(CHAINS, key=jax.random.key(3)),
        key=jax.random.key(4), progress=False,
    )  # fmt: skip
    assert trace.clipped == 0
    return entries(np.einsum("ni,nj->nij", trace.draws[:, 0], trace.draws[:, 0], dtype=np.float64))


def entries(matrices: np.ndarray) -> np.ndarray:
    return matrices[..., [0, 0, 1], [0, 1, 1]]


def noise_of_half_the_time(h, c):
    return (1 - jnp.exp(-h * c)) / c


@pytest.mark.parametrize(("h", "steps"), [(0.1, 100), (0.5, 30), (2.0, 30)])
def test_the_exact_diagonal_has_its_stationary_covariance(h, steps):
    """At a small step it is nearly the target's; at a large one it is far from it, and this law knows how far."""
    found = products(Ozaki(h), steps)
    assert holds(found, entries(stationary(h)))
    # Controls: the target's own covariance, and a walk whose noise grows for the wrong time.
    assert breaks(found, entries(np.linalg.inv(PRECISION)))
    assert breaks(products(NoisyOzaki(h, noise_of_half_the_time), steps), entries(stationary(h)))


@pytest.mark.parametrize(("h", "steps"), [(0.25, 50), (0.5, 30)])
def test_one_probe_has_a_stationary_covariance_of_its_own(h, steps):
    found = products(Ozaki(h, probes=1), steps)
    assert holds(found, entries(stationary_with_one_probe(h)))
    # Control: what the exact diagonal gives, the mean of these estimates.
    assert breaks(found, entries(stationary(h)))


def test_langevin_has_another_one():
    """Its own law, which that of Ozaki rejects at the same step."""
    found = products(Langevin(0.5), 30)
    assert holds(found, entries(langevin(0.5)))
    assert breaks(found, entries(stationary(0.5)))
