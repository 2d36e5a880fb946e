"""What is known exactly of the Ising model on the square lattice, as `Ising` has it: coupling beta, y in {0, 1}.

With spins s = 2 y - 1 the model of coupling beta and no field is the textbook's at K = beta / 2: 1[y_i = y_j] = (1 +
s_i s_j) / 2, so that log Z = edges beta / 2 + log Z_textbook(beta / 2), and the critical coupling is log(1 + sqrt 2).
Kaufman 1949 has the torus of any size, Onsager 1944 its infinite limit, Yang 1952 the magnetisation there; transfer
matrices (Kramers and Wannier 1941) sum any narrow strip, also in a field. Derivatives are taken along the imaginary
axis, which is exact to rounding.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from unnorm.errors import require

#: The step along the imaginary axis.
_STEP = 1e-30
#: Rows of a strip, at most: its transfer matrix has the square of 2^rows entries.
WIDEST = 11


def _require_torus(shape: tuple[int, int]) -> None:
    require(
        len(shape) == 2 and min(shape) >= 3,
        f"the torus has two sides of at least 3 sites, not {tuple(shape)}; shorter ones have a neighbour twice",
    )


def _slope(function: Callable[[complex], complex], at: float) -> float:
    """The derivative of an analytic function, exact to rounding."""
    return function(complex(at, _STEP)).imag / _STEP


def _kaufman(rows: int, columns: int, coupling: complex) -> complex:
    """log Z of the textbook's torus at K = coupling / 2, plus edges coupling / 2."""
    k, m = coupling / 2, columns
    ratio = np.cosh(2 * k) ** 2 / np.sinh(2 * k)
    gammas = np.arccosh((ratio - np.cos(np.pi * np.arange(1, 2 * rows) / rows)).astype(complex))
    first = 2 * k + np.log(np.tanh(k))
    odd, even = gammas[0::2], gammas[1::2]
    sign = 1.0 if first.real >= 0 else -1.0
    # 2 cosh x = exp(x) (1 + exp(-2 x)), and 2 sinh x likewise; the first gamma may be negative.
    own = sign * m * first / 2
    cosh_odd = np.sum(m * odd / 2 + np.log1p(np.exp(-m * odd)))
    sinh_odd = np.sum(m * odd / 2 + np.log1p(-np.exp(-m * odd)))
    cosh_even = np.sum(m * even / 2 + np.log1p(np.exp(-m * even))) + own + np.log1p(np.exp(-2 * own))
    sinh_even = np.sum(m * even / 2 + np.log1p(-np.exp(-m * even))) + own
    logs = np.array([cosh_odd, sinh_odd, cosh_even, sinh_even])
    signs = np.array([1.0, 1.0, 1.0, sign * (1 - np.exp(-2 * own))])
    largest = float(np.real(logs).max())
    total = np.log(np.sum(signs * np.exp(logs - largest))) + largest
    sites = rows * columns
    return complex(sites * coupling - math.log(2) + sites / 2 * np.log(2 * np.sinh(2 * k)) + total)


def torus_log_z(shape: tuple[int, int], coupling: float) -> float:
    """log Z of `Ising(lattice(shape, periodic=True), 0, coupling)`, by Kaufman's formula; coupling above 0.

    >>> round(torus_log_z((3, 3), 0.5), 6)
    11.457485
    """
    _require_torus(shape)
    require(
        coupling > 0, f"Kaufman's formula is for neighbours that like to be equal, coupling above 0, not {coupling}"
    )
    return _kaufman(*shape, complex(coupling)).real


def torus_equal(shape: tuple[int, int], coupling: float) -> float:
    """The mean number of equal neighbours there, d log Z / d coupling; the mean energy is minus coupling times it."""
    _require_torus(shape)
    require(
        coupling > 0, f"Kaufman's formula is for neighbours that like to be equal, coupling above 0, not {coupling}"
    )
    return _slope(lambda b: _kaufman(*shape, b), coupling)


def onsager_log_z(coupling: float) -> float:
    """log Z for each site of the infinite square lattice without a field.

    beta + log(2 cosh 2K) + (1/pi) int_0^(pi/2) log((1 + sqrt(1 - kappa^2 sin^2 t)) / 2) dt at K = beta / 2, with
    kappa = 2 sinh 2K / cosh^2 2K (Onsager 1944).

    >>> round(onsager_log_z(0.0), 6)
    0.693147
    """
    from scipy.integrate import quad

    twice = float(coupling)
    kappa = 2 * math.sinh(twice) / math.cosh(twice) ** 2
    found, _ = quad(
        lambda t: math.log((1 + math.sqrt(max(0.0, 1 - (kappa * math.sin(t)) ** 2))) / 2), 0, math.pi / 2,
        epsabs=1e-13, epsrel=1e-12,
    )  # fmt: skip
    return coupling + math.log(2 * math.cosh(twice)) + found / math.pi


def onsager_equal(coupling: float) -> float:
    """The mean number of equal neighbours for each site there, of two that there are; coupling above 0.

    1 + coth 2K (1 + (2/pi) (2 tanh^2 2K - 1) K(kappa)) / 2, K the complete elliptic integral.

    >>> round(onsager_equal(math.log(1 + math.sqrt(2))), 6)
    1.707107
    """
    from scipy.special import ellipkm1

    require(coupling > 0, f"the coupling must be above 0, not {coupling}")
    rest = 2 * math.tanh(coupling) ** 2 - 1
    own = 0.0 if abs(rest) < 1e-12 else rest * float(ellipkm1(rest**2))
    return 1 + (1 + 2 / math.pi * own) / (2 * math.tanh(coupling))


def yang_magnetisation(coupling: float) -> float:
    """The spontaneous magnetisation |mean of 2 y - 1| there: (1 - sinh(beta)^-4)^(1/8) above the critical coupling.

    >>> yang_magnetisation(0.5), round(yang_magnetisation(1.0), 4)
    (0.0, 0.9113)
    """
    excess = 1 - math.sinh(coupling) ** -4 if coupling > 0 else -1.0
    return max(0.0, excess) ** 0.125


class StripFigures(NamedTuple):
    """log Z, and the means of what field and coupling multiply; `variance` is that of the number of ones."""

    log_z: float
    ones: float
    equal: float
    variance: float


def strip(
    shape: tuple[int, int], field: float = 0.0, coupling: float = 0.0, *, around: tuple[bool, bool] = (False, False)
) -> StripFigures:
    """The Ising model on a strip of up to 11 rows and any number of columns, by its transfer matrix.

    `around` says along which sides (rows, columns) the strip closes; a side that does has at least 3 sites. Both closed
    are the torus, which Kaufman's formula has without a field.

    >>> found = strip((1, 2), 0.0, 1.0)
    >>> round(found.log_z, 4), round(found.equal, 4)
    (2.0064, 0.7311)
    """
    rows, columns = shape
    require(1 <= rows <= WIDEST, f"a strip has 1 to {WIDEST} rows, not {rows}; turn it, or use torus_log_z")
    require(columns >= 1, f"a strip has at least 1 column, not {columns}")
    for length, closed in zip(shape, around, strict=True):
        require(not closed or length >= 3, f"a side that closes has at least 3 sites, not {length}")
    parts = _Parts(rows, around[0])

    def log_z(alpha: Any, beta: Any) -> complex:
        return _transfer(parts, columns, around[1], alpha, beta)

    field, coupling, step = float(field), float(coupling), 1e-4
    ones = [_slope(lambda a: log_z(a, coupling), field + h) for h in (-step, 0.0, step)]
    equal = _slope(lambda b: log_z(field, b), coupling)
    return StripFigures(log_z(field, coupling).real, ones[1], equal, (ones[2] - ones[0]) / (2 * step))


class _Parts:
    """All columns of a strip: the ones in each, its equal neighbours, and those of two columns side by side."""

    def __init__(self, rows: int, closed: bool):
        bits = np.arange(2**rows)[:, None] >> np.arange(rows) & 1
        self.ones = bits.sum(axis=1).astype(float)
        pairs = [(i, i + 1) for i in range(rows - 1)] + ([(rows - 1, 0)] if closed else [])
        self.within = sum(((bits[:, i] == bits[:, j]).astype(float) for i, j in pairs), np.zeros(len(bits)))
        signs = 2.0 * bits - 1
        self.between = (rows + signs @ signs.T) / 2


def _transfer(parts: _Parts, columns: int, closed: bool, alpha: Any, beta: Any) -> complex:
    """log Z; powers of the matrix are scaled as they grow."""
    own = np.exp(alpha * parts.ones + beta * parts.within)
    matrix = np.exp(beta * parts.between) * own[None, :]
    if not closed:
        vector, total = own.astype(complex), 0.0
        for _ in range(columns - 1):
            # The matrix weighs the column that it leads to.
            vector = vector @ matrix
            largest = float(np.abs(vector.real).max())
            vector, total = vector / largest, total + math.log(largest)
        return complex(np.log(vector.sum()) + total)
    power, scale, base, base_scale, left = None, 0.0, matrix.astype(complex), 0.0, columns
    while left:
        if left & 1:
            power, scale = (base, base_scale) if power is None else (power @ base, scale + base_scale)
            largest = float(np.abs(power.real).max())
            power, scale = power / largest, scale + math.log(largest)
        base, base_scale = base @ base, 2 * base_scale
        largest = float(np.abs(base.real).max())
        base, base_scale, left = base / largest, base_scale + math.log(largest), left >> 1
    assert power is not None
    return complex(np.log(np.trace(power)) + scale)
