"""Exact results on the square lattice agree with enumeration, with each other and with their limits."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import unnorm as un
from unnorm.energies import (
    Ising,
    critical_coupling,
    lattice,
    onsager_equal,
    onsager_log_z,
    strip,
    torus_equal,
    torus_log_z,
    yang_magnetisation,
)
from unnorm.evaluation import enumerated

CRITICAL = critical_coupling()
BETAS = (0.4, CRITICAL, 1.3)


def summed(shape, field, coupling, around):
    """log Z and moments by summing all states, in double precision and without the library."""
    size = math.prod(shape)
    bits = (np.arange(2**size)[:, None] >> np.arange(size) & 1).astype(np.int8)
    edges = lattice(shape, periodic=True).edges if around == (True, True) else lattice(shape).edges
    if around in ((True, False), (False, True)):
        extra = [(0, j) for j in range(shape[1])] if around[0] else [(i, 0) for i in range(shape[0])]
        far = [(shape[0] - 1, j) for _, j in extra] if around[0] else [(i, shape[1] - 1) for i, _ in extra]
        number = lambda at: at[0] * shape[1] + at[1]  # noqa: E731
        edges = np.concatenate([edges, [[number(a), number(b)] for a, b in zip(extra, far, strict=True)]])
    equal = sum((bits[:, a] == bits[:, b]).astype(float) for a, b in edges)
    ones = bits.sum(axis=1).astype(float)
    logs = field * ones + coupling * equal
    weights = np.exp(logs - logs.max())
    p = weights / weights.sum()
    mean = p @ ones
    return math.log(weights.sum()) + logs.max(), mean, p @ equal, p @ (ones - mean) ** 2


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("shape", [(3, 3), (3, 4), (4, 3), (4, 4)])
def test_kaufman_is_the_sum_over_all_states(shape, beta):
    log_z, _, equal, _ = summed(shape, 0.0, beta, (True, True))
    assert torus_log_z(shape, beta) == pytest.approx(log_z, abs=1e-9)
    assert torus_equal(shape, beta) == pytest.approx(equal, abs=1e-9)
    # Controls: the textbook's coupling, and the lattice that is not closed.
    assert abs(torus_log_z(shape, 2 * beta) - log_z) > 0.1
    assert abs(torus_log_z(shape, beta) - summed(shape, 0.0, beta, (False, False))[0]) > 0.1


@pytest.mark.parametrize("around", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("shape", "field"), [((3, 4), 0.3), ((4, 4), -0.7), ((3, 5), 0.0)])
def test_transfer_matrices_are_the_sum_over_all_states(shape, field, around):
    known = summed(shape, field, 0.8, around)
    found = strip(shape, field, 0.8, around=around)
    assert np.allclose(found, known, atol=1e-6)
    assert not np.allclose(strip(shape, field + 0.1, 0.8, around=around), known, atol=1e-2)


def test_the_model_of_the_library_is_the_one_that_is_meant():
    """4 x 5 sites in a field, free edges: a million states; and the torus, at the critical coupling."""
    for field, periodic in ((0.2, False), (0.0, True)):
        law = enumerated(Ising(lattice((4, 5), periodic=periodic), field, CRITICAL))
        known = strip((4, 5), field, CRITICAL, around=(periodic, periodic))
        assert law.log_z == pytest.approx(known.log_z, abs=2e-5)
        assert law.probabilities @ law.points.reshape(len(law.points), -1).sum(1) == pytest.approx(known.ones, abs=1e-4)
    assert torus_log_z((4, 5), CRITICAL) == pytest.approx(law.log_z, abs=2e-5)
    model = Ising(lattice((3, 3), periodic=True), 0.0, 0.9)
    energy = enumerated(model).mean(lambda x: model(x))
    assert energy == pytest.approx(-0.9 * torus_equal((3, 3), 0.9), abs=1e-4)
    assert float(model.statistics(jnp.ones((3, 3)))[1]) == 18


def test_wide_tori_do_not_overflow_and_turn():
    for beta in (0.3, CRITICAL, 2.5):
        assert torus_log_z((6, 50), beta) == pytest.approx(torus_log_z((50, 6), beta), rel=1e-12)
        assert torus_log_z((6, 40), beta) == pytest.approx(
            strip((6, 40), 0, beta, around=(True, True)).log_z, rel=1e-12
        )
        assert math.isfinite(torus_log_z((300, 500), beta))


@pytest.mark.parametrize("beta", [0.3, 0.7, 1.1, 2.0])
def test_onsager_is_the_limit_of_kaufman(beta):
    sizes = [torus_log_z((n, n), beta) / n**2 - onsager_log_z(beta) for n in (16, 128)]
    # Away from the critical point corrections vanish exponentially; below it two phases add log 2.
    both = math.log(2) if beta > CRITICAL else 0.0
    assert abs(sizes[1] - both / 128**2) < 1e-9
    assert torus_equal((128, 128), beta) / 128**2 == pytest.approx(onsager_equal(beta), abs=1e-8)
    step = 1e-5
    slope = (onsager_log_z(beta + step) - onsager_log_z(beta - step)) / (2 * step)
    assert slope == pytest.approx(onsager_equal(beta), abs=1e-8)
    assert abs(slope - onsager_equal(beta + 0.01)) > 1e-5


def test_the_critical_point():
    """log Z_textbook / n = log(2) / 2 + 2 G / pi, G Catalan's constant; u = -sqrt 2; corrections fall as 1 / n^2."""
    catalan = quad(lambda t: math.atan(t) / t if t else 1.0, 0, 1)[0]
    assert onsager_log_z(CRITICAL) - CRITICAL == pytest.approx(math.log(2) / 2 + 2 * catalan / math.pi, abs=1e-9)
    assert onsager_equal(CRITICAL) == pytest.approx(1 + math.sqrt(2) / 2, abs=1e-9)
    gaps = [torus_log_z((n, n), CRITICAL) / n**2 - onsager_log_z(CRITICAL) for n in (32, 64)]
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.01)
    assert yang_magnetisation(CRITICAL - 1e-6) == 0.0 < yang_magnetisation(CRITICAL + 1e-6) < 0.3


def test_yang_is_the_limit_of_the_second_moment_on_a_torus():
    """E m^2 = 4 Var(ones) / n^2 without a field; what fluctuates within a phase is of order 1 / n."""
    beta = 1.4
    moment = 4 * strip((8, 24), 0.0, beta, around=(True, True)).variance / 192**2
    assert moment == pytest.approx(yang_magnetisation(beta) ** 2, abs=1e-3)
    assert abs(moment - yang_magnetisation(1.3) ** 2) > 1e-2


def test_what_the_formulas_do_not_have_is_refused():
    for attempt, said in (
        (lambda: torus_log_z((2, 5), 1.0), "at least 3 sites"),
        (lambda: torus_equal((3, 3), -1.0), "coupling above 0"),
        (lambda: strip((12, 3)), "1 to 11 rows"),
        (lambda: strip((2, 3), around=(True, False)), "at least 3 sites"),
    ):
        with pytest.raises(un.InputError, match=said):
            attempt()
