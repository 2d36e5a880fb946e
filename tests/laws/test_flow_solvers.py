"""Laws of the solvers of the probability flow: the order each has, and that it is what its paper prints.

The data are a mixture on the line whose score is exact. The order is that with which the error falls as steps are
halved, in float64, against a solution by an eighth-order method; a solver with one coefficient that is wrong, in
NumPy, loses it. In float32 each is within 1e-4 of its paper's program, and the wrong one is not.
"""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_scores import gaussian_score, mixture_score
from scipy.integrate import solve_ivp
from solver_papers import (
    CENTRES,
    SCALE,
    WEIGHTS,
    Process,
    ddim,
    dpm_solver_2m,
    dpm_solver_3m,
    edm,
    exploding,
    preserving,
    unipc,
)

import unnorm as un
from unnorm.generators import DDIM, DPMSolver, FlowEuler, Heun, PosteriorMean, ReverseFlow, Stay, UniPC, generate
from unnorm.noises import EDM, StraightPath, VarianceExploding, VariancePreserving

STARTS, LAST = np.linspace(-2.0, 2.0, 12), 0.1
#: The noise, its process in NumPy, and the width of its prior.
PROCESSES = {
    "preserving": (VariancePreserving, preserving(), 1.0),
    "exploding": (lambda: VarianceExploding(0.05, 10.0), exploding(), 10.0),
}
#: Steps of each of the walks that are compared; the longest sets the length of the program.
STEPS = (256, 512)


def inverse(process: Process, ratios: np.ndarray) -> np.ndarray:
    """The levels at which log(alpha / sigma) has these values, by bisection."""
    low, high = np.zeros(len(ratios)), np.ones(len(ratios))
    for _ in range(60):
        middle = (low + high) / 2
        noisier = process.ratio(middle) < ratios
        low, high = np.where(noisier, low, middle), np.where(noisier, middle, high)
    return (low + high) / 2


def graded(process: Process, n: int) -> np.ndarray:
    """n steps that are equal in log(alpha / sigma) but for short ones at the beginning, which are of a lower order."""
    whole = process.ratio(LAST) - process.ratio(1.0)
    h = whole / n
    short = h**2 * 2.0 ** np.arange(n)
    short = short[np.cumsum(short) < 1.5 * h]
    rest = n - len(short)
    places = np.concatenate([np.cumsum(short), short.sum() + (whole - short.sum()) * np.arange(1, rest + 1) / rest])
    return np.concatenate([[1.0], inverse(process, process.ratio(1.0) + places[:-1]), [LAST]])


def exact(process: Process, width: float) -> np.ndarray:
    """y = x / alpha as a function of r = sigma / alpha has dy / dr = the noise in x."""
    first, end = np.exp(-process.ratio(1.0)), np.exp(-process.ratio(LAST))
    # The ratio alone says the level: a process in these units has alpha = 1 and sigma = r.
    plain = Process(lambda t: 1.0, lambda t: t)
    starts = width * STARTS / process.alpha(1.0)
    found = solve_ivp(lambda r, y: plain.noise(r, y), (first, end), starts, "DOP853", rtol=1e-12, atol=1e-12)
    return process.alpha(LAST) * found.y[:, -1]


def order_of(ends: list[np.ndarray], truth: np.ndarray) -> float:
    """The power of the step with which the error falls, from the last two of the walks."""
    errors = [np.sqrt(np.mean((end - truth) ** 2)) for end in ends]
    return float(np.log2(errors[-2] / errors[-1]))


def measured(transition, name: str) -> float:
    """The order of a transition. All walks are one program: a level that is named again does nothing."""
    make, process, width = PROCESSES[name]
    with jax.enable_x64(True):
        score = mixture_score(make(), WEIGHTS, CENTRES[:, None], SCALE)
        levels = np.stack([np.pad(graded(process, n), (0, STEPS[-1] - n), mode="edge") for n in STEPS])

        def walk(levels, x):
            def step(state, pair):
                return transition.step(score, pair[0], pair[1], state, key=jax.random.key(0))[0], None

            state = transition.init(score, levels[0], x)
            return transition.position(jax.lax.scan(step, state, (levels[:-1], levels[1:]))[0])

        xs = width * jnp.asarray(STARTS)[:, None]
        ends = jax.jit(jax.vmap(lambda ts: jax.vmap(lambda x: walk(ts, x))(xs)))(jnp.asarray(levels))
        return order_of([np.asarray(end)[:, 0] for end in ends], exact(process, width))


#: The solver, its order, and its paper's program, which can be told to be wrong.
SOLVERS = {
    "FlowEuler": (FlowEuler(), 1, None),
    "ReverseFlow": (ReverseFlow(), 1, None),
    "DDIM": (DDIM(), 1, ddim),
    "Heun": (Heun(), 2, None),
    "DPM-Solver++ 1": (DPMSolver(order=1), 1, None),
    "DPM-Solver++ 2M": (DPMSolver(order=2), 2, dpm_solver_2m),
    "DPM-Solver++ 3M": (DPMSolver(order=3), 3, dpm_solver_3m),
    "UniPC-1": (UniPC(order=1), 2, partial(unipc, order=1)),
    "UniPC-2": (UniPC(order=2), 3, partial(unipc, order=2)),
    "UniPC-3": (UniPC(order=3), 4, partial(unipc, order=3)),
}


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_has_its_order(name, process):
    transition, order, paper = SOLVERS[name]
    assert measured(transition, process) > order - 0.2
    if order > 1 and paper is not None:
        _, numbers, width = PROCESSES[process]
        truth = exact(numbers, width)
        ends = [paper(numbers, graded(numbers, n), width * STARTS, wrong=True) for n in STEPS]
        assert order_of(ends, truth) < order - 0.7


def test_heuns_slopes_count_alike():
    """Control of its order: with slopes that count 0.4 and 0.6 it is of order 1."""
    process, width = PROCESSES["exploding"][1:]
    sigmas = [process.sigma(graded(process, n)) for n in STEPS]
    truth = exact(process, width)
    assert order_of([edm(each, width * STARTS) for each in sigmas], truth) > 1.8
    assert order_of([edm(each, width * STARTS, wrong=True) for each in sigmas], truth) < 1.2


@pytest.mark.parametrize("name", ["preserving", "exploding"])
def test_all_but_the_first_order_in_time_leave_a_gaussian_a_gaussian(name):
    """The flow of N(m, s^2) keeps the place of a point in units of the width; all solvers are near it in 60 steps."""
    make, process, _ = PROCESSES[name]
    noise = make()
    score = gaussian_score(noise, [0.7], [[0.25]])
    levels = graded(process, 60)
    signals = [(process.alpha(t), process.sigma(t)) for t in (1.0, LAST)]
    begin, end = ((a * 0.7, np.sqrt((0.5 * a) ** 2 + b**2)) for a, b in signals)
    starts = begin[0] + begin[1] * STARTS[:, None]
    truth = end[0] + end[1] * STARTS[:, None]
    options = {"levels": levels, "n": len(STARTS), "start": starts, "finish": Stay(), "key": jax.random.key(0)}
    for solver, limit in ((DDIM(), 0.1), (Heun(), 3e-3), (DPMSolver(2), 3e-3), (DPMSolver(3), 1e-3), (UniPC(3), 3e-4)):
        found = generate(score, solver, **options).points
        assert np.abs(found - truth).max() < limit
    # Control: another width of the data.
    other = gaussian_score(noise, [0.7], [[0.3]])
    assert np.abs(generate(other, UniPC(3), **options).points - truth).max() > 3e-3


# ------------------------------------------------------------------------------------------ as the papers print them


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("name", [name for name, (_, _, paper) in SOLVERS.items() if paper is not None])
def test_a_solver_is_what_its_paper_prints(name, process):
    transition, order, paper = SOLVERS[name]
    make, numbers, width = PROCESSES[process]
    score = mixture_score(make(), WEIGHTS, CENTRES[:, None], SCALE)
    # Of unequal size, and one named twice.
    levels = np.array([1.0, 0.83, 0.7, 0.6, 0.6, 0.45, 0.37, 0.25, 0.18, 0.12])
    starts = width * STARTS
    options = {"levels": levels, "n": len(starts), "start": starts[:, None], "finish": Stay(), "key": jax.random.key(0)}
    found = generate(score, transition, **options).points[:, 0]
    once = np.unique(levels)[::-1]
    assert np.abs(found - paper(numbers, once, starts)).max() < 1e-4
    if order > 1:
        assert np.abs(found - paper(numbers, once, starts, wrong=True)).max() > 1e-3


#: The levels of Karras et al. 2022, Eq. 5, and 0 after them.
SIGMAS = np.append((10 ** (1 / 7) + np.linspace(0, 1, 12) * (0.02 ** (1 / 7) - 10 ** (1 / 7))) ** 7, 0.0)


def test_heuns_method_is_algorithm_2_of_edm():
    score = mixture_score(EDM(0.02, 10.0), WEIGHTS, CENTRES[:, None], SCALE)
    starts = 10.0 * STARTS
    options = {"levels": np.linspace(1, 0, 12), "n": len(starts), "start": starts[:, None], "key": jax.random.key(0)}
    found = generate(score, Heun(), finish=PosteriorMean(), **options).points[:, 0]
    assert np.abs(found - edm(SIGMAS, starts)).max() < 1e-4
    assert np.abs(found - edm(SIGMAS, starts, wrong=True)).max() > 1e-3
    # The same levels in another process: only sigma / alpha counts, and the end is divided by alpha.
    times = inverse(preserving(), -np.log(SIGMAS[1:-1]))
    other = mixture_score(VariancePreserving(), WEIGHTS, CENTRES[:, None], SCALE)
    alphas = preserving().alpha(times)
    begun = edm(SIGMAS[:2], starts)
    options |= {"levels": times, "start": alphas[0] * begun[:, None]}
    found = generate(other, Heun(), finish=PosteriorMean(), **options).points[:, 0]
    assert np.abs(found - edm(SIGMAS[1:], begun)).max() < 3e-4


def test_churn_is_that_of_algorithm_2():
    churn = {"churn": 0.3, "low": 0.05, "high": 6.0, "inflation": 1.01}
    score, solver = mixture_score(EDM(0.02, 10.0), WEIGHTS, CENTRES[:, None], SCALE), Heun(**churn)
    times, x = np.linspace(1, 0, 12), jnp.asarray(10.0 * STARTS[:, None], jnp.float32)
    step = jax.jit(jax.vmap(lambda t, s, x, key: solver.move(score, t, s, x, key=key)[0], (None, None, 0, 0)))
    draws = []
    for i, (t, s) in enumerate(pairwise(times)):
        keys = jax.random.split(jax.random.key(i), len(STARTS))
        draws.append(np.array([jax.random.normal(key, (1,))[0] for key in keys], float))
        x = step(t, s, x, keys)
    truth = edm(SIGMAS[:-1], 10.0 * STARTS, draws, **churn)
    assert np.abs(np.asarray(x)[:, 0] - truth).max() < 2e-4
    for wrong in ({"inflation": 1.0}, {"churn": 0.25}, {"low": 0.0}):
        assert np.abs(edm(SIGMAS[:-1], 10.0 * STARTS, draws, **(churn | wrong)) - truth).max() > 1e-3


@pytest.mark.parametrize("solver", [DDIM(), Heun(), DPMSolver(2), DPMSolver(3), UniPC(2), UniPC(3)])
def test_a_last_step_to_no_noise_is_the_posterior_mean(solver):
    score = mixture_score(VariancePreserving(), WEIGHTS, CENTRES[:, None], SCALE)
    levels, starts = np.array([1.0, 0.6, 0.3, 0.1]), STARTS[:, None]
    options = {"n": len(starts), "start": starts, "key": jax.random.key(0)}
    mean = generate(score, solver, levels=levels, finish=PosteriorMean(), **options).points
    last = generate(score, solver, levels=np.append(levels, 0.0), finish=Stay(), **options).points
    assert np.abs(last - mean).max() < 1e-4
    assert np.abs(last - generate(score, solver, levels=levels, finish=Stay(), **options).points).max() > 1e-2


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: DPMSolver(order=4), "DPMSolver has the orders 1, 2 and 3, not 4"),
        (lambda: UniPC(order=0), "UniPC has the orders 1, 2 and 3, not 0"),
        (lambda: DDIM(eta=1.5), "the eta of DDIM lies between 0 and 1, not at 1.5"),
        (lambda: Heun(churn=-0.1), "the churn of Heun's method must be finite and not negative, not -0.1"),
    ],
)
def test_solvers_that_cannot_be_are_refused(build, words):
    with pytest.raises(un.InputError) as told:
        build()
    assert words in str(told.value)


def test_a_walk_does_not_begin_where_nothing_is_left():
    score = gaussian_score(StraightPath(), [0.0], [[1.0]])
    options = {"n": 4, "key": jax.random.key(0)}
    with pytest.raises(un.InputError, match="nothing is left of a point at level 1"):
        generate(score, DDIM(), levels=[1.0, 0.5, 0.1], **options)
    assert generate(score, DDIM(), levels=[0.999, 0.5, 0.1], **options).warnings == ()
