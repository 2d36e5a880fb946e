"""Song 2022, Fig. 3.2: the time of a training step against the dimension, for score matching and its substitutes.

Data N(0, I_D), batches of 100. The source trains a deep kernel exponential family on a graphics card and draws the
times as curves without printing them, so that only their shape can be compared. The network here is ours: a
`NeuralEnergy` on a perceptron with two hidden layers of 128 softplus units; the step is loss, gradient and Adam update,
compiled once (not timed) and then timed over repeats. The table has their medians; the claims and the picture take the
fastest repeat of each, which other programs on the machine disturb least. Exact score matching takes one derivative of
the score per coordinate, the others a fixed number.
"""

import math
import time

import equinox as eqx
import jax
import numpy as np
import optax
from matplotlib.figure import Figure

from unnorm.energies import NeuralEnergy
from unnorm.estimate import Estimate
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row
from unnorm.networks import MLP
from unnorm.noises import Gaussian
from unnorm.objectives import DSM, FDSSM, SM, SSM, SSMVR, AbstractObjective, ApproximateBP, CurvaturePropagation
from unnorm.plots import grid_lines, named_ticks, panels
from unnorm.spaces import Real

BATCH, WIDTH, DEPTH = 100, 128, 2
METHODS: dict[str, AbstractObjective] = {
    "SM": SM(),
    "SSM": SSM(),
    "SSM-VR": SSMVR(),
    "FD-SSM": FDSSM(),
    "DSM": DSM(Gaussian(0.1)),
    "approximate BP": ApproximateBP(),
    "CP": CurvaturePropagation(),
}
DIMENSIONS = (10, 30, 100, 300, 1000)


def _time(name: str, dimension: int, seed: int, repeats: int, budget: float) -> dict[str, float]:
    """Seconds of one step: the median of up to `repeats`, as many as fit the budget but never fewer than five."""
    init, draw, steps = jax.random.split(jax.random.key(seed), 3)
    network = MLP(dimension, 1, width=WIDTH, depth=DEPTH, activation=jax.nn.softplus, key=init)
    model = NeuralEnergy(Real((dimension,)), network)
    objective, optimiser = METHODS[name], optax.adam(1e-3)
    points = jax.random.normal(draw, (BATCH, dimension))
    weights, skeleton = eqx.partition(model, eqx.is_inexact_array)

    @eqx.filter_jit
    def step(weights, memory, key):
        def loss_of(weights):
            return objective(eqx.combine(weights, skeleton), None, points, key=key)[0]

        gradient = eqx.filter_grad(loss_of)(weights)
        direction, memory = optimiser.update(gradient, memory)
        return optax.apply_updates(weights, direction), memory

    memory = optimiser.init(weights)
    began = time.perf_counter()
    weights, memory = jax.block_until_ready(step(weights, memory, steps))
    compiled = time.perf_counter() - began
    times: list[float] = []
    while len(times) < 5 or (len(times) < repeats and sum(times) < budget):
        began = time.perf_counter()
        weights, memory = jax.block_until_ready(step(weights, memory, jax.random.fold_in(steps, len(times))))
        times.append(time.perf_counter() - began)
    # The median's standard error from the middle half of the repeats, as if they were Gaussian.
    quarter, three = np.quantile(times, [0.25, 0.75])
    return {
        "median": float(np.median(times)),
        "fastest": min(times),
        "stderr": float(1.253 * (three - quarter) / 1.349 / math.sqrt(len(times))),
        "first": compiled,
        "repeats": len(times),
    }


def _slope(dimensions: list[int], seconds: list[float]) -> float:
    """The least-squares slope of log time against log dimension."""
    return float(np.polyfit(np.log(dimensions), np.log(seconds), 1)[0])


def run(job: Job) -> Result:
    """Time every method in every dimension."""
    repeats, budget = (50, 3.0) if job.quick else (300, 30.0)
    found = job.pieces(
        {
            f"{name.replace(' ', '-')}-{d}": (lambda name=name, d=d: _time(name, d, job.seed, repeats, budget))
            for d in DIMENSIONS
            for name in METHODS
        },
        "timing",
    )
    seconds = {n: [found[f"{n.replace(' ', '-')}-{d}"]["fastest"] for d in DIMENSIONS] for n in METHODS}
    columns = tuple(f"D = {d}, ms" for d in DIMENSIONS)
    rows = []
    for name in METHODS:
        figures = {}
        for d, column in zip(DIMENSIONS, columns, strict=True):
            piece = found[f"{name.replace(' ', '-')}-{d}"]
            diagnostics = {
                "repeats": float(piece["repeats"]),
                "fastest_ms": 1e3 * piece["fastest"],
                "first_call_seconds": piece["first"],
            }
            figures[column] = Estimate(1e3 * piece["median"], 1e3 * piece["stderr"], "median of repeats", diagnostics)
        rows.append(Row(name, figures))
    late = [i for i, d in enumerate(DIMENSIONS) if d >= 100]
    slopes = {n: _slope([DIMENSIONS[i] for i in late], [t[i] for i in late]) for n, t in seconds.items()}
    return Result(
        "Figure 3.2: time of one training step, batch 100",
        columns,
        tuple(rows),
        _claims(seconds, slopes),
        {"dimensions": list(DIMENSIONS), "seconds": seconds, "slopes": slopes},
        (
            "Slopes of log time against log dimension from D = 100: "
            + ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
            + ". The first layer's matrix has D columns, which makes every method's work grow with D in the end.",
        ),
    )


def _claims(seconds: dict[str, list[float]], slopes: dict[str, float]) -> tuple[Claim, ...]:
    # Against the sliced loss on the same network: what is left is the number of derivatives, one per coordinate.
    excess = slopes["SM"] - slopes["SSM"]
    ratio = seconds["SM"][-1] / seconds["SSM"][-1]
    sliced = [seconds[name][-1] / seconds[name][0] for name in ("SSM", "SSM-VR")]
    cheap = max(seconds[name][-1] for name in METHODS if name != "SM")
    return (
        Claim(
            f"Exact score matching grows at least linearly with the dimension: slope {slopes['SM']:.2f} from D = 100.",
            slopes["SM"] > 0.8,
        ),
        Claim(
            f"It grows faster than the sliced loss by {excess:.2f} in the exponent, one derivative per coordinate.",
            0.6 < excess < 1.4,
        ),
        Claim(
            f"The sliced losses grow far slower than the dimension: {DIMENSIONS[-1] // DIMENSIONS[0]} times as many "
            f"coordinates take {sliced[0]:.1f} (SSM) and {sliced[1]:.1f} (SSM-VR) times as long.",
            max(sliced) < 10,
        ),
        Claim(f"At D = {DIMENSIONS[-1]} exact score matching takes {ratio:.0f} times as long as SSM.", ratio > 20),
        Claim(
            f"Every substitute takes less than a tenth of its time there (the slowest {1e3 * cheap:.1f} ms).",
            cheap < 0.1 * seconds["SM"][-1],
        ),
    )


def draw(result: Result) -> Figure:
    """Time against dimension, both on logarithmic axes."""
    figure, panel = panels(1, 1, 7, 4.6)
    axes, dimensions = panel[0, 0], result.series["dimensions"]
    for name, seconds in result.series["seconds"].items():
        label = f"{name} (slope {result.series['slopes'][name]:.2f})"
        axes.plot(dimensions, 1e3 * np.asarray(seconds), "o-", ms=4, label=label)
    axes.set(xscale="log", yscale="log", xlabel="dimension D", ylabel="milliseconds per training step (fastest)")
    axes.set_title("Batch 100, perceptron energy, two layers of 128 softplus units")
    named_ticks(axes, dimensions)
    grid_lines(axes)
    axes.legend(title="slope from D = 100")
    return figure


EXPERIMENT = Experiment("ssm-scaling", run, draw)
