"""Likelihoods of a score over noise levels by the probability flow, a change of variables from data to noise.

    dx/dt = v(t, x) = f x - g^2 s / 2,   log p(x) = log pi(x_1) + Int_least^1 div v dt,  along the path from x

(Chen et al. 2018; Song et al. 2021, App. D.2). pi = N(0, sigma(1)^2 I). The divergence is the trace of a derivative:
exact, or by Hutchinson's v' J v with random signs v, whose mean is the trace.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count, require_positive
from unnorm.compiling import compiled
from unnorm.errors import InputError, require
from unnorm.estimate import Estimate, mean_estimate
from unnorm.scores import AbstractLevelledScore

#: Up to so many coordinates the divergence is exact.
EXACT = 32
#: Rows whose flow is solved side by side.
BLOCK = 256
#: Rows whose flow is solved again, more coarsely, to see what the solver's tolerance costs.
AGAIN = 16


def flow_log_prob(
    score: AbstractLevelledScore,
    rows: Any,
    *,
    conditions: Any = None,
    probes: int | None = None,
    tolerance: float = 1e-5,
    last: float = 1.0,
    key: PRNGKeyArray,
) -> tuple[np.ndarray, np.ndarray]:
    """log p of every row by the probability flow, and how often the score was asked for each.

    `probes` random signs a row for the divergence, the same along its path; 0: exact, which is the default up to 32
    coordinates (else 1). A probe's error is one of this row alone: the mean over rows has it in its spread. `last` is
    the level at which noise begins, below 1 for processes that leave nothing of the point there.

    >>> import unnorm as un
    >>> noise = un.noises.VariancePreserving()
    >>> score = un.scores.LevelledFunction(lambda t, x: -x, noise)  # data N(0, I)
    >>> found, _ = flow_log_prob(score, jnp.zeros((1, 2)), key=jax.random.key(0))
    >>> round(float(found[0]), 3)
    -1.838
    """
    if not isinstance(score, AbstractLevelledScore):
        raise InputError(f"the flow runs over the levels of a noise, and a {type(score).__name__} has none")
    rows = jnp.asarray(rows, float)
    size = int(np.prod(rows.shape[1:]))
    probes = (0 if size <= EXACT else 1) if probes is None else int(probes)
    require(probes >= 0, f"probes are a number from 0 (the exact divergence) up, not {probes}")
    require_positive(tolerance, "the tolerance of a solver")
    require_count(len(rows), 1, "the number of rows")
    keys = jax.random.split(key, len(rows))
    found, asked = [], []
    for begin in range(0, len(rows), BLOCK):
        block = jax.tree.map(lambda a: a[begin : begin + BLOCK], (rows, keys, conditions))  # noqa: B023
        log_prob, steps = _solved(score, block, probes, jnp.asarray(tolerance), jnp.asarray(last))
        found.append(np.asarray(log_prob, np.float64))
        asked.append(np.asarray(steps))
    values = np.concatenate(found)
    lost = int(np.sum(~np.isfinite(values)))
    require(
        lost == 0,
        f"the flow of {lost} of {len(rows)} rows could not be solved to a tolerance of {tolerance:g}; the score is not "
        "finite somewhere on their paths, or give a larger tolerance",
    )
    return values, np.concatenate(asked)


@compiled
def _solved(
    score: AbstractLevelledScore,
    block: tuple[Float[Array, "n ..."], Array, Any],
    probes: int,
    tolerance: Array,
    last: Array,
) -> tuple[Array, Array]:
    import diffrax

    (rows, keys, conditions), noise = block, score.noise
    least = noise.least_level()

    def one(x, key, condition):
        signs = jax.random.rademacher(key, (max(probes, 1), *x.shape), x.dtype)

        def velocity(t, y):
            return noise.drift(t) * y - 0.5 * noise.diffusion(t) ** 2 * score(t, y, condition)

        def field(t, state, _):
            y, _ = state
            if probes == 0:
                flat = lambda z: velocity(t, z.reshape(y.shape)).reshape(-1)  # noqa: E731
                return velocity(t, y), jnp.trace(jax.jacfwd(flat)(y.reshape(-1)))
            v, along = jax.linearize(lambda z: velocity(t, z), y)
            return v, jnp.mean(jax.vmap(lambda sign: jnp.vdot(sign, along(sign)))(signs))

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Dopri5(), least.astype(x.dtype), last.astype(x.dtype), None,
            (x, jnp.zeros((), x.dtype)), stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            max_steps=4096, throw=False, adjoint=diffrax.ForwardMode(),
        )  # fmt: skip
        assert solution.ys is not None
        (end,), (gained,) = solution.ys
        sound = solution.result == diffrax.RESULTS.successful
        sigma = noise.sigma(last.astype(x.dtype))
        prior = -0.5 * jnp.sum((end / sigma) ** 2) - x.size * (jnp.log(sigma) + 0.5 * jnp.log(2 * jnp.pi))
        # Six evaluations a step; the seventh is the first of the next one.
        return jnp.where(sound, prior + gained, jnp.nan), 6 * solution.stats["num_steps"] + 1

    return jax.vmap(one)(rows, keys, conditions)


def flow_log_likelihood(
    score: AbstractLevelledScore,
    rows: Any,
    *,
    conditions: Any = None,
    probes: int | None = None,
    tolerance: float = 1e-5,
    last: float = 1.0,
    log_volume: float = 0.0,
    groups: np.ndarray | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """Mean log-likelihood of the rows by the probability flow, in nats per row.

    Its error is that of the rows and of the probes, which the spread over rows shows together, and in squares what the
    solver leaves out: the difference to a solution ten times as coarse of some of the rows. `log_volume` is the log
    Jacobian of a standardisation.

    >>> import unnorm as un
    >>> noise = un.noises.VariancePreserving()
    >>> score = un.scores.LevelledFunction(lambda t, x: -x, noise)  # data N(0, I)
    >>> rows = jax.random.normal(jax.random.key(0), (50, 2))
    >>> bool(abs(flow_log_likelihood(score, rows, key=jax.random.key(1)).value + 2.84) < 0.5)
    True
    """
    options = {"probes": probes, "last": last, "key": key}
    values, asked = flow_log_prob(score, rows, conditions=conditions, tolerance=tolerance, **options)
    some = slice(0, min(AGAIN, len(values)))
    few = jax.tree.map(lambda a: a[some], (jnp.asarray(rows, float), conditions))
    # Keys are split by the number of rows, so the coarse solution has probes of its own: both are solved again.
    fine, _ = flow_log_prob(score, few[0], conditions=few[1], tolerance=tolerance, **options)
    coarse, _ = flow_log_prob(score, few[0], conditions=few[1], tolerance=10 * tolerance, **options)
    by_solver = float(np.abs(np.mean(coarse - fine)))
    found = mean_estimate(values, f"probability flow, {len(values)} rows", groups)
    told = {**found.diagnostics, "evaluations": float(asked.mean()), "solver": by_solver}
    return Estimate(found.value - log_volume, float(np.hypot(found.stderr, by_solver)), found.method, told)


def bits_per_dimension(log_likelihood: Estimate, size: int, levels: int, width: float = 2.0) -> Estimate:
    """-log2 p per coordinate of rounded values, from nats per row of the values as they were learnt from.

    `levels` is how many values a coordinate can take, spread over an interval of this width (2: pixels in [-1, 1]);
    noise of one step was added before learning (`data.Dequantise`), without which densities of rounded values have no
    bound. Then the density is at most that of the values themselves, and the number an upper bound on their bits.

    >>> bits_per_dimension(Estimate(0.0, 0.0, "flow"), 64, 256).value
    7.0
    """
    require_count(levels, 2, "the values that a coordinate can take")
    factor = float(-1 / (size * np.log(2)))
    offset = float(np.log2(levels / width))
    return Estimate(
        log_likelihood.value * factor + offset, log_likelihood.stderr * abs(factor), log_likelihood.method,
        log_likelihood.diagnostics, log_likelihood.warnings,
    )  # fmt: skip
