"""Solvers of diffusions as their papers print them, in NumPy and float64, with nothing of the library in them.

Data are sum_k w_k N(c_k, s^2) on the line. `levels` fall; alpha and sigma are functions of t.
"""

from itertools import pairwise

import numpy as np

WEIGHTS, CENTRES, SCALE = np.array([0.3, 0.7]), np.array([-1.0, 1.5]), 0.4


class Process:
    """alpha and sigma of t."""

    def __init__(self, alpha, sigma):
        self.alpha, self.sigma = alpha, sigma

    def ratio(self, t: float) -> float:
        return np.log(self.alpha(t) / self.sigma(t))

    def score(self, t: float, x: np.ndarray) -> np.ndarray:
        alpha = self.alpha(t)
        variance = (alpha * SCALE) ** 2 + self.sigma(t) ** 2
        offsets = alpha * CENTRES[:, None] - x
        logs = np.log(WEIGHTS)[:, None] - offsets**2 / (2 * variance)
        shares = np.exp(logs - logs.max(axis=0))
        return (shares / shares.sum(axis=0) * offsets).sum(axis=0) / variance

    def data(self, t: float, x: np.ndarray) -> np.ndarray:
        """x_theta: the data prediction."""
        return (x + self.sigma(t) ** 2 * self.score(t, x)) / self.alpha(t)

    def noise(self, t: float, x: np.ndarray) -> np.ndarray:
        """epsilon_theta: the noise prediction."""
        return -self.sigma(t) * self.score(t, x)


def preserving() -> Process:
    def alpha(t):
        return np.exp(-0.25 * t**2 * 19.9 - 0.05 * t)

    return Process(alpha, lambda t: np.sqrt(-np.expm1(2 * np.log(alpha(t)))))


def exploding(low: float = 0.05, high: float = 10.0) -> Process:
    return Process(lambda t: 1.0, lambda t: low * (high / low) ** t)


def ddim(process: Process, levels, x):
    """Song, Meng and Ermon 2021, Eq. 12 with sigma_t = 0."""
    for t, s in pairwise(levels):
        inside = process.noise(t, x)
        predicted = (x - process.sigma(t) * inside) / process.alpha(t)
        x = process.alpha(s) * predicted + process.sigma(s) * inside
    return x


def edm(sigmas, x, draws=None, churn=0.0, low=0.0, high=np.inf, inflation=1.0, wrong=False):
    """Karras et al. 2022, Algorithm 2: D(x; sigma), s(t) = 1 and sigma(t) = t, times being the sigmas themselves."""
    process = Process(lambda t: 1.0, lambda t: t)
    for i, (t, after) in enumerate(pairwise(sigmas)):
        gamma = churn if low <= t <= high else 0.0
        raised = t + gamma * t
        if gamma > 0:
            x = x + np.sqrt(raised**2 - t**2) * inflation * draws[i]
        slope = (x - process.data(raised, x)) / raised
        moved = x + (after - raised) * slope
        if after != 0:
            then = (moved - process.data(after, moved)) / after
            moved = x + (after - raised) * ((0.4 * slope + 0.6 * then) if wrong else (0.5 * slope + 0.5 * then))
        x = moved
    return x


def dpm_solver_2m(process: Process, levels, x, wrong=False):
    """Lu et al. 2022 (DPM-Solver++), Algorithm 2."""
    previous, before = None, None
    for t, s in pairwise(levels):
        h, data = process.ratio(s) - process.ratio(t), process.data(t, x)
        mixed = data
        if previous is not None:
            r = before / h
            part = 1 / r if wrong else 1 / (2 * r)
            mixed = (1 + part) * data - part * previous
        x = process.sigma(s) / process.sigma(t) * x - process.alpha(s) * np.expm1(-h) * mixed
        previous, before = data, h
    return x


def dpm_solver_3m(process: Process, levels, x, wrong=False):
    """The third-order multistep update of the authors' program, with twice its d2; first steps are of orders 1 and 2.

    d2 is half of what a second derivative is by differences, and as it is printed (`wrong`) the order is lost.
    """
    seen, times = [], []
    for t, s in pairwise(levels):
        seen, times = [process.data(t, x), *seen][:3], [process.ratio(t), *times][:3]
        h = process.ratio(s) - times[0]
        phi_1 = np.expm1(-h)
        after = process.sigma(s) / process.sigma(t) * x - process.alpha(s) * phi_1 * seen[0]
        if len(seen) == 2:
            after -= 0.5 * process.alpha(s) * phi_1 * (seen[0] - seen[1]) / ((times[0] - times[1]) / h)
        if len(seen) == 3:
            r0, r1 = (times[0] - times[1]) / h, (times[1] - times[2]) / h
            d1_0, d1_1 = (seen[0] - seen[1]) / r0, (seen[1] - seen[2]) / r1
            d1 = d1_0 + r0 / (r0 + r1) * (d1_0 - d1_1)
            d2 = (d1_0 - d1_1) / (r0 + r1)
            phi_2 = phi_1 / h + 1
            phi_3 = phi_2 / h - 0.5
            after += process.alpha(s) * phi_2 * d1 - process.alpha(s) * phi_3 * d2 * (1 if wrong else 2)
        x = after
    return x


def unipc(process: Process, levels, x, order=2, wrong=False):
    """Zhao et al. 2023, Algorithms 5 and 6 (data prediction) with B_2(h) = e^h - 1, as in the authors' program."""
    seen, times = [process.data(levels[0], x)], [process.ratio(levels[0])]
    for t, s in pairwise(levels):
        p = min(order, len(seen))
        h = process.ratio(s) - times[0]
        places = [(times[i] - times[0]) / h for i in range(1, p)]
        differences = [(seen[i] - seen[0]) / r for i, r in zip(range(1, p), places, strict=True)]
        b, phi, factorial = [], np.expm1(-h) / -h - 1, 1
        for i in range(1, p + 1):
            b.append(phi * factorial / np.expm1(-h))
            factorial *= i + 1
            phi = phi / -h - 1 / factorial
        powers = np.array([[r**i for r in [*places, 1.0]] for i in range(p)])
        scale = process.alpha(s) * np.expm1(-h)
        base = process.sigma(s) / process.sigma(t) * x - scale * seen[0]
        weights = [0.5] if p == 2 else list(np.linalg.solve(powers[:-1, :-1], b[:-1])) if p > 2 else []
        predicted = base - scale * sum(w * d for w, d in zip(weights, differences, strict=True))
        new = process.data(s, predicted)
        weights = list(np.linalg.solve(powers, b)) if p > 1 else [0.5]
        if wrong:
            weights[-1] *= 0.8
        x = base - scale * sum(w * d for w, d in zip(weights, [*differences, new - seen[0]], strict=True))
        seen, times = [new, *seen][:order], [process.ratio(s), *times][:order]
    return x
