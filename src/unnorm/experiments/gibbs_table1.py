"""Zhang et al. 2023, Table 1: denoising Gibbs on three densities of the plane, by the covariance of its posterior.

Published, MMD^2 of one chain of 10,000 steps against the training set, mean and standard deviation of 5 chains:

    data     learned diagonal   isotropic        full
    MoG      0.929 ± 0.343      0.724 ± 0.361    0.305 ± 0.141
    Rings    0.364 ± 0.044      0.006 ± 0.002    0.005 ± 0.001
    Roll     0.053 ± 0.011      0.030 ± 0.001    0.016 ± 0.002

Settings: noise 0.2; 10,000 rows; chains from N(0, 0.1 I). What the paper does not print is in its public code: rings
of radii 0.65 and 1.3 blurred by 0.065, a roll t (cos t, sin t) / 10 blurred by 0.05, and a kernel exp(-d^2 / b) whose
five widths b are 1/4 to 4 times the mean squared distance of two points (here of the rows; there of rows and chain
together, which changes MMD^2 by half a percent). Its five seeds are five chains of one network, which matters: networks
trained as printed differ (on rings 0.006 to 0.017 for the full covariance, from one seed to the next), so that a
published figure has the spread of networks for an error. MMD^2 is without bias here (theirs has one of about 0.0006),
and each figure is a mean over several single chains of a model, since one that seldom changes modes says little.

Every posterior is learnt twice: as printed, and further (`gibbs_models.Training`), and both are compared with the
published figures. A chain with the exact score shows what is left when nothing is to be learnt. On MoG that is nearly
all: it changes modes some eight times and visits them unevenly, so the figure tells how often a chain crosses more than
how good its posterior is, and a network trained as printed, too smooth between the modes, crosses more often and comes
out ahead of the truth. MoG is also a product over its coordinates, so its true posterior covariance is diagonal, and
the full matrix has nothing to gain there.

Beside them stands what the same rows allow: a score of all noise levels (32 from 4 down to 0.03), Gibbs between the
levels, one point per walk. Its measure is the floor: the MMD^2 of fresh rows against the training set, zero within its
standard deviation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from matplotlib.figure import Figure

from unnorm.compiling import compiled
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation.two_sample.mmd import mmd
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, over_seeds
from unnorm.experiments.gibbs_models import (
    DATA,
    FURTHER,
    PRINTED,
    ROWS,
    SIGMA,
    Training,
    data_of,
    noisy_energy,
    train_denoiser,
    train_energy,
)
from unnorm.generators import GibbsTransition, PosteriorDraw, generate
from unnorm.noises import VarianceExploding
from unnorm.objectives import DSM
from unnorm.plots import dots, panels
from unnorm.samplers import AbstractSampler, DenoisingGibbs, FullCovariance, isotropic_covariance, learned_posterior
from unnorm.scores import conditional_score
from unnorm.training import fit

#: Chains behind a published mean.
SEEDS = 5
#: The widths b of exp(-d^2 / b), as multiples of the mean squared distance of two points.
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
LEARNED, ISOTROPIC, FULL = "learned diagonal", "isotropic", "full"
EXACT, LEVELS, FLOOR = "full, exact score", "many levels", "two samples of the data"
SINGLE = (LEARNED, ISOTROPIC, FULL)
#: What follows the name of the data in a row, by the training.
TRAININGS = {"": PRINTED, ", trained further": FURTHER}
PUBLISHED = {
    "MoG": {LEARNED: (0.929, 0.343), ISOTROPIC: (0.724, 0.361), FULL: (0.305, 0.141)},
    "Rings": {LEARNED: (0.364, 0.044), ISOTROPIC: (0.006, 0.002), FULL: (0.005, 0.001)},
    "Roll": {LEARNED: (0.053, 0.011), ISOTROPIC: (0.030, 0.001), FULL: (0.016, 0.002)},
}
NOISE = VarianceExploding(0.03, 4.0)
TIMES = np.linspace(1, 0, 33)


@dataclass(frozen=True)
class Size:
    """Seeds, single chains of each model, points of a chain compared, steps of training of the many levels."""

    seeds: int
    chains: int
    compared: int
    steps: int


QUICK = Size(1, 64, 2500, 6000)
PAPER = Size(5, 16, ROWS, 30_000)


@compiled
def walk(sampler: AbstractSampler, target: Any, start: Array, steps: int, key: PRNGKeyArray) -> tuple[Array, Array]:
    """chains x steps x point, and the number of variances raised to the floor."""

    def move(states, key):
        keys = jax.random.split(key, len(start))
        states, info = jax.vmap(lambda x, k: sampler.step(target, x, key=k))(states, keys)
        return states, (states, jnp.sum(jnp.asarray(info.clipped)))

    _, (draws, clipped) = jax.lax.scan(move, start, jax.random.split(key, steps))
    return jnp.swapaxes(draws, 0, 1), jnp.sum(clipped)


def mean_square(points: Array) -> float:
    """The mean squared distance of two different points."""
    return 2 * float(jnp.sum(jnp.var(points, axis=0, ddof=1)))


def bandwidths(points: Array) -> tuple[float, ...]:
    """The kernel's for `evaluation.mmd`, whose convention is exp(-d^2 / (2 h^2))."""
    return tuple((width * mean_square(points) / 2) ** 0.5 for width in WIDTHS)


@compiled
def _mean_kernel(a: Array, b: Array, square: Array) -> Array:
    """The mean of the sum of five kernels over all pairs; each width is twice the last, its kernel the square."""

    def row(x):
        kernel = jnp.exp(-jnp.sum((b - x) ** 2, axis=1) / (WIDTHS[-1] * square))
        total = kernel
        for _ in WIDTHS[:-1]:
            kernel = kernel**2
            total = total + kernel
        return jnp.mean(total)

    return jnp.mean(jax.lax.map(row, a, batch_size=500))


def _within(a: Array, square: Array) -> float:
    """The mean over pairs of different points: the kernel of a point with itself is the number of widths."""
    n = len(a)
    return (float(_mean_kernel(a, a, square)) * n - len(WIDTHS)) / (n - 1)


def discrepancies(chains: Array, reference: Array) -> list[float]:
    """`evaluation.mmd` of each chain to one reference, whose own part is found once."""
    square = jnp.asarray(mean_square(reference))
    own = _within(reference, square)
    return [_within(chain, square) + own - 2 * float(_mean_kernel(chain, reference, square)) for chain in chains]


def _judge(sampler: AbstractSampler, target: Any, data: Array, size: Size, key: PRNGKeyArray) -> dict[str, Any]:
    """MMD^2 of each of several single chains."""
    begin, run = jax.random.split(key)
    start = 0.1**0.5 * jax.random.normal(begin, (size.chains, 2))
    draws, clipped = walk(sampler, target, start, ROWS, run)
    return {
        "values": discrepancies(draws[:, :: ROWS // size.compared], data),
        "clipped": float(clipped) / draws.size,
        "points": np.round(np.asarray(draws)[0, ::10], 3).tolist(),
    }


def _keys(name: str, seed: int) -> PRNGKeyArray:
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), DATA.index(name)), 8)


def _analytic(name: str, seed: int, size: Size, training: Training) -> dict[str, Any]:
    """Isotropic and full covariance of one energy."""
    keys = _keys(name, seed)
    data = data_of(name, ROWS, keys[0])
    energy = train_energy(data, training, keys[1])
    isotropic = isotropic_covariance(energy, SIGMA, data, key=keys[2])
    return {
        ISOTROPIC: _judge(DenoisingGibbs(SIGMA, isotropic), energy, data, size, keys[3]),
        FULL: _judge(DenoisingGibbs(SIGMA, FullCovariance()), energy, data, size, keys[3]),
    }


def _learned(name: str, seed: int, size: Size, training: Training) -> dict[str, Any]:
    keys = _keys(name, seed)
    data = data_of(name, ROWS, keys[0])
    target, covariance = learned_posterior(train_denoiser(data, training, keys[4]), SIGMA)
    return {LEARNED: _judge(DenoisingGibbs(SIGMA, covariance), target, data, size, keys[3])}


def _exact(name: str, seed: int, size: Size) -> dict[str, Any]:
    """What the sampler does with nothing left to learn, from the same random numbers."""
    keys = _keys(name, seed)
    return {EXACT: _judge(DenoisingGibbs(SIGMA), noisy_energy(name), data_of(name, ROWS, keys[0]), size, keys[3])}


def _levels(name: str, seed: int, size: Size) -> dict[str, Any]:
    """Gibbs between the levels of a conditional score, and fresh rows for comparison."""
    keys = _keys(name, seed)
    data = data_of(name, ROWS, keys[0])
    spread = float(jnp.sqrt(jnp.mean(jnp.var(data, axis=0))))
    begin, run, out = jax.random.split(keys[5], 3)
    model = conditional_score(NOISE, 2, spread=spread, width=128, depth=3, key=begin)
    score = fit(model, DSM(NOISE), data, steps=size.steps, batch=256, rate=3e-3, key=run, progress=False).model
    found = generate(score, NOISE, GibbsTransition(), levels=TIMES, n=ROWS, shape=(2,), finish=PosteriorDraw(), key=out)
    reference = np.asarray(data)
    fresh = np.asarray(data_of(name, ROWS, keys[6]))
    kernels = bandwidths(data)
    floor = mmd(fresh, reference, bandwidths=kernels)
    return {
        LEVELS: {
            "values": [mmd(found.points, reference, bandwidths=kernels).value],
            "clipped": found.clipped / (found.points.size * len(TIMES)),
            "points": np.round(found.points[::10], 3).tolist(),
        },
        FLOOR: {
            "values": [floor.value],
            "null": floor.diagnostics["null_stderr"],
            "points": np.round(fresh[::10], 3).tolist(),
        },
    }


def _null(pieces: list[dict[str, Any]]) -> float:
    """The deviation, over so many seeds, of the MMD^2 of two samples of one law."""
    return float(np.mean([piece[FLOOR]["null"] for piece in pieces])) / len(pieces) ** 0.5


def _figure(pieces: list[dict[str, Any]], method: str) -> Estimate:
    """The mean over seeds and chains.

    Its error is that of the seeds, each with a network of its own; of a single network that of its chains; and that of
    the null where a seed has one figure only.
    """
    means = [float(np.mean(piece[method]["values"])) for piece in pieces]
    share = {"share_of_raised_variances": float(np.mean([piece[method].get("clipped", 0.0) for piece in pieces]))}
    if method in (LEVELS, FLOOR):
        return Estimate(float(np.mean(means)), _null(pieces), "mean over seeds, error of the null", share)
    if len(pieces) == 1:
        found = mean_estimate(np.asarray(pieces[0][method]["values"]), "single chains of one network")
    else:
        found = over_seeds(means, "single chains of several networks")
    return replace(found, diagnostics={**found.diagnostics, **share})


def _gap(pieces: list[dict[str, Any]], a: str, b: str) -> Estimate:
    """How far a is above b: network by network, or of a single one chain by chain (both walk by the same numbers)."""
    gaps = [np.subtract(piece[a]["values"], piece[b]["values"]) for piece in pieces]
    if len(gaps) == 1:
        return mean_estimate(gaps[0], "chains of one network, in pairs")
    return over_seeds([float(gap.mean()) for gap in gaps], "networks, in pairs")


def _best(row: Row, pieces: list[dict[str, Any]]) -> Claim:
    """Whether either of the others is ahead; most gaps are within their errors."""
    rival = min((LEARNED, ISOTROPIC), key=lambda method: row.figures[method].value)
    gap = _gap(pieces, FULL, rival)
    return Claim(
        f"{row.label}: no other posterior is better than the full one by two standard errors "
        f"(it is off the {rival} by {gap.value:+.4f} ± {gap.stderr:.4f}).",
        gap.value <= 2 * gap.stderr,
    )


def _against_published(row: Row, networks: int) -> Claim:
    """Within two standard errors of the difference.

    The published figure is of five chains of one network, so that it is off the mean of networks by their spread. Of a
    single network here that spread is not known, and not in the error.
    """
    ours, theirs = row.figures[FULL], row.published[FULL]
    spread = ours.stderr * networks**0.5 if networks > 1 else 0.0
    gap, error = ours.value - theirs.value, math.hypot(ours.stderr, spread, (theirs.error or 0.0) / SEEDS**0.5)
    return Claim(
        f"{row.label}: with it a single chain is no worse than published ({gap:+.4f} ± {error:.4f}).", gap <= 2 * error
    )


def _against_exact(row: Row) -> Claim:
    """Whether anything is left to learn."""
    gap = row.figures[FULL].minus(row.figures[EXACT])
    return Claim(
        f"{row.label}: nor is it worse than a chain with the exact score ({gap.value:+.4f} ± {gap.stderr:.4f}).",
        gap.value <= 2 * gap.stderr,
    )


def _parts(name: str, seed: int, suffix: str) -> dict[str, Callable[[str, int, Size], dict[str, Any]]]:
    """What makes the row of a data set and a training, by the name of its piece; two parts belong to both trainings."""
    training, ending = TRAININGS[suffix], suffix.replace(", ", "-").replace(" ", "-")
    return {
        f"{name}-{seed}-analytic{ending}": partial(_analytic, training=training),
        f"{name}-{seed}-learned{ending}": partial(_learned, training=training),
        f"{name}-{seed}-exact": _exact,
        f"{name}-{seed}-levels": _levels,
    }


def run(job: Job) -> Result:
    """Three data sets, three posteriors of a single level in two trainings, one model of all levels."""
    size = QUICK if job.quick else PAPER
    seeds = range(job.seed, job.seed + size.seeds)
    parts = {
        (name, suffix, seed): _parts(name, seed, suffix) for name in DATA for seed in seeds for suffix in TRAININGS
    }
    computes = {
        piece: partial(compute, name, seed, size)
        for (name, _, seed), of in parts.items()
        for piece, compute in of.items()
    }
    pieces = job.pieces(computes, "gibbs-table1")
    found: dict[str, list[dict[str, Any]]] = {
        name + suffix: [
            {method: of for piece in parts[name, suffix, seed] for method, of in pieces[piece].items()}
            for seed in seeds
        ]
        for name in DATA
        for suffix in TRAININGS
    }
    methods = (*SINGLE, EXACT, LEVELS, FLOOR)
    rows = tuple(
        Row(
            label,
            {method: _figure(of, method) for method in methods},
            {method: Published(*PUBLISHED[label.split(",")[0]][method]) for method in SINGLE},
        )
        for label, of in found.items()
    )
    null = {name: _null(found[name]) for name in DATA}
    further = tuple(row for row in rows if row.label not in DATA)
    claims = (
        *(_best(row, found[row.label]) for row in rows),
        *(_against_published(row, size.seeds) for row in rows),
        *(_against_exact(row) for row in further),
        Claim(
            "A score of all levels with Gibbs between them is at least ten times closer than these chains on each.",
            all(row.figures[LEVELS].value < row.figures[FULL].value / 10 for row in rows),
        ),
        Claim(
            "It is at the floor on each: within 3 standard deviations of what fresh rows of the data give.",
            all(abs(row.figures[LEVELS].value) < 3 * null[row.label] for row in rows if row.label in DATA),
        ),
    )
    remarks = tuple(
        f"{name}: two independent samples of {ROWS} rows have an MMD^2 of 0 ± {null[name]:.1g}" for name in DATA
    )
    series = {label: {method: of[0][method]["points"] for method in methods} for label, of in found.items()}
    return Result("Denoising Gibbs: MMD^2 to the training set", methods, rows, claims, series, remarks)


def draw(result: Result) -> Figure:
    """Every tenth point: a row for each data set, a column for each method."""
    methods = list(next(iter(result.series.values())))
    figure, grid = panels(len(result.series), len(methods), 2.3, 2.4)
    for line, (name, drawn) in zip(grid, result.series.items(), strict=True):
        for axes, method in zip(line, methods, strict=True):
            dots(axes, drawn[method], 2)
            axes.set_title(f"{method}\n{result.row(name).figures[method].value:.4f}", fontsize=8)
        line[0].set_ylabel(name)
    return figure


EXPERIMENT = Experiment("gibbs-table1", run, draw)
