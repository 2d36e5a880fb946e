"""Song 2022, Figs 5.1, 5.2 and the baseline of Figs B.5, B.6: three ways in which one noise level is not enough.

Manifold (5.1): sliced score matching on digits of 8 x 8, whose corners never change, and on the same with noise of
variance 1e-4; the loss without noise has no least value. (The source has CIFAR-10 and an auto-encoder.) Low density
(5.2): a perceptron learns the score of 0.2 N((-5, -5), I) + 0.8 N((5, 5), I) by sliced score matching; its error near
the modes, and where no data are. One level (B.5, B.6): Langevin at the least noise alone, 1000 steps from uniform
noise, against ten levels of 100 steps, networks and data alike. The source prints curves and pictures, no numbers.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from unnorm.energies import gaussian_mixture
from unnorm.estimate import Estimate, mean_estimate
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, ahead, exact
from unnorm.experiments.digit_levels import PIXELS, digits, distance_to_digits
from unnorm.generators import LangevinCorrector, Stay, generate
from unnorm.networks import MLP
from unnorm.noises import DiscreteTimes, VarianceExploding
from unnorm.objectives import DSM, SSMVR
from unnorm.plots import panels, picture
from unnorm.scores import AbstractScore, FreeScore, levelled_score
from unnorm.training import fit

TRUTH = ((0.2, 0.8), [[-5.0, -5.0], [5.0, 5.0]])
LOSS, FISHER, UPPER, LOWER, FAR = (
    "loss",
    "E|s - s*|^2 / 2",
    "error near the larger mode",
    "near the smaller",
    "far away",
)
CHANGE, DISTANCE = "loss lost over the last half, per pixel", "Frechet distance"
PLAIN, NOISY, TEN, ONE = "digits", "digits with noise 1e-4", "ten levels", "one level"
COLUMNS = (LOSS, FISHER, UPPER, LOWER, FAR, CHANGE, DISTANCE)
#: In [-1, 1], twice the source's 1 and 0.01.
LEVELS = VarianceExploding(0.02, 2.0)
MIXTURE = "mixture by sliced score matching"


@dataclass(frozen=True)
class Size:
    """Steps of training each, units of the digits' perceptron, draws."""

    toy: int
    manifold: int
    levels: int
    width: int
    draws: int


QUICK, PAPER = Size(4000, 2000, 2000, 256, 500), Size(10_000, 50_000, 50_000, 1024, 2000)


def regions(score: AbstractScore) -> dict[str, float]:
    """Mean |s - s*| on a grid: within 2 of either mode, and beyond 4 of both."""
    truth = gaussian_mixture(*TRUTH, 1.0)
    grid = jnp.stack(jnp.meshgrid(*[jnp.linspace(-8, 8, 41)] * 2), -1).reshape(-1, 2)
    error = jax.vmap(lambda x: jnp.linalg.norm(score(0.0, x) + jax.grad(truth)(x)))(grid)
    apart = np.linalg.norm(np.asarray(grid)[:, None] - np.array(TRUTH[1]), axis=-1)
    places = {UPPER: apart[:, 1] < 2, LOWER: apart[:, 0] < 2, FAR: apart.min(1) > 4}
    return {name: float(np.asarray(error)[where].mean()) for name, where in places.items()}


def _toy(size: Size, seed: int) -> dict[str, Any]:
    """Fig. 5.2."""
    begin, run, draw = jax.random.split(jax.random.key(seed), 3)
    truth = gaussian_mixture(*TRUTH, 1.0)
    rows = np.asarray(truth.samples(50_000, key=draw))
    start = FreeScore(MLP(2, 2, width=128, depth=2, activation=jax.nn.softplus, key=begin))
    found = fit(start, SSMVR(), rows, steps=size.toy, batch=128, rate=1e-3, key=run, progress=False).model
    some = jnp.asarray(rows[:4000])
    gaps = jax.vmap(lambda x: 0.5 * jnp.sum((found(0.0, x) + jax.grad(truth)(x)) ** 2))(some)

    def loss(x):
        return jnp.trace(jax.jacfwd(lambda y: found(0.0, y))(x)) + 0.5 * jnp.sum(found(0.0, x) ** 2)

    return {
        LOSS: mean_estimate(np.asarray(jax.vmap(loss)(some), np.float64), "4000 draws").to_dict(),
        FISHER: mean_estimate(np.asarray(gaps, np.float64), "4000 draws").to_dict(),
        **{name: exact(value, "mean over a grid").to_dict() for name, value in regions(found).items()},
    }


def _manifold(noise: float, size: Size, seed: int) -> dict[str, Any]:
    """Fig. 5.1: the loss as it is recorded, and what it lost over the last half of the run."""
    begin, run, draw = jax.random.split(jax.random.key(seed), 3)
    rows = (digits()[0] + 1) / 2
    rows = rows + noise * np.asarray(jax.random.normal(draw, rows.shape))
    start = FreeScore(MLP(PIXELS, PIXELS, width=size.width, depth=2, key=begin))
    fitted = fit(start, SSMVR(), rows, steps=size.manifold, batch=128, rate=1e-3, average=0.0, key=run, progress=False)
    loss = np.asarray(fitted.history["loss"], np.float64) / PIXELS
    last = loss[3 * len(loss) // 4 :]
    before = loss[len(loss) // 2 : 3 * len(loss) // 4]
    spread = np.hypot(last.std(ddof=1) / len(last) ** 0.5, before.std(ddof=1) / len(before) ** 0.5)
    change = Estimate(float(before.mean() - last.mean()), float(spread), "means of recorded losses")
    return {
        LOSS: Estimate(float(last.mean() * PIXELS), float(last.std(ddof=1) * PIXELS), "last quarter").to_dict(),
        CHANGE: change.to_dict(), "curve": loss.tolist(),
    }  # fmt: skip


def _levels(several: bool, size: Size, seed: int) -> dict[str, Any]:
    """Draws by annealed Langevin, or by as many steps at the least level alone, each with its own training."""
    begin, run, walk = jax.random.split(jax.random.key(seed), 3)
    train = digits()[0]
    places = np.linspace(1, 0, 10) if several else np.zeros(1)
    model = levelled_score(LEVELS, PIXELS, width=size.width, spread=float(np.sqrt(np.mean(train**2))), key=begin)
    loss = DSM(times=DiscreteTimes(tuple(float(t) for t in places)))
    fitted = fit(model, loss, train, steps=size.levels, batch=128, rate=1e-3, average=0.995, key=run, progress=False)
    start = jax.random.uniform(walk, (size.draws, PIXELS), minval=-1.0, maxval=1.0)
    # The source's e = 2e-5 with steps e / 2, in units of the least noise.
    step = LangevinCorrector(2e-5 / (2 * 0.01**2), steps=100 if several else 1000)
    levels = np.concatenate([places[:1], places])
    options = {"levels": levels, "n": size.draws, "start": start, "finish": Stay(), "key": walk}
    draws = generate(fitted.model, step, **options).points
    return {
        DISTANCE: distance_to_digits(draws, seed=seed).to_dict(),
        "shown": np.round(draws[:16], 2).tolist(),
    }


def run(job: Job) -> Result:
    """Five trainings."""
    size = QUICK if job.quick else PAPER
    computes = {
        "toy": partial(_toy, size, job.seed), "plain": partial(_manifold, 0.0, size, job.seed),
        "noisy": partial(_manifold, 0.01, size, job.seed), "ten": partial(_levels, True, size, job.seed),
        "one": partial(_levels, False, size, job.seed),
    }  # fmt: skip
    pieces = dict(zip((MIXTURE, PLAIN, NOISY, TEN, ONE), job.pieces(computes, "score-toy").values(), strict=True))
    rows = tuple(
        Row(name, {column: Estimate.from_dict(piece[column]) for column in COLUMNS if column in piece})
        for name, piece in pieces.items()
    )
    found = {row.label: row.figures for row in rows}
    toy = found[MIXTURE]
    claims = (
        Claim(
            f"Scores are learnt near the larger mode ({toy[UPPER].value:.2f}), worse near the smaller "
            f"({toy[LOWER].value:.2f}), and not where no data are ({toy[FAR].value:.2f}).",
            toy[UPPER].value < toy[LOWER].value < 0.5 * toy[FAR].value,
        ),
        ahead("Without noise the loss goes on falling, more than with it (by {} a pixel).",
              found[PLAIN][CHANGE].minus(found[NOISY][CHANGE])),
        ahead("One level fails where ten do not (Frechet distance larger by {}).",
              found[ONE][DISTANCE].minus(found[TEN][DISTANCE])),
    )  # fmt: skip
    series = {
        "curves": {n: pieces[n]["curve"] for n in (PLAIN, NOISY)},
        "shown": {n: pieces[n]["shown"] for n in (TEN, ONE)},
    }
    remark = "The optimum of the mixture's loss is -1.010 (Song 2022 shows no number; ten thousand steps reach -1.005)."
    return Result("One noise level is not enough", COLUMNS, rows, claims, series, (remark,))


def draw(result: Result) -> Figure:
    """Losses on the manifold, and draws by ten levels and by one."""
    figure, grid = panels(1, 3, 3.4, 3.2)
    for name, curve in result.series["curves"].items():
        grid[0, 0].plot(np.linspace(0, 1, len(curve)), curve, label=name)
    grid[0, 0].set(title="loss per pixel", xlabel="share of the training")
    grid[0, 0].legend(fontsize=7)
    for axes, (name, drawn) in zip(grid[0, 1:], result.series["shown"].items(), strict=True):
        sheet = np.asarray(drawn).reshape(4, 4, 8, 8).transpose(0, 2, 1, 3).reshape(32, 32)
        picture(axes, sheet, vmin=-1, vmax=1)
        axes.set_title(name)
    return figure


EXPERIMENT = Experiment("score-toy", run, draw)
