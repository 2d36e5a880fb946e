"""Scores over noise levels, how they are learnt, and the solvers that walk them, by name."""

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from unnorm import generators, networks, noises, objectives, scores
from unnorm.catalogue.entry import Context, Entry, Options, on_reals
from unnorm.noises import AbstractGaussianNoise
from unnorm.noises.times import AbstractTimes
from unnorm.objectives.weightings import AbstractWeighting
from unnorm.spaces import AbstractSpace, Conditioned, Real

PROCESSES: dict[str, Callable[[], AbstractGaussianNoise]] = {
    "vp": noises.VariancePreserving,
    "sub-vp": noises.SubVariancePreserving,
    "ve": lambda: noises.VarianceExploding(0.01, 50.0),
    "ou": noises.OrnsteinUhlenbeck,
    "edm": noises.EDM,
}
#: The level at which noise is all there is: every process here leaves something of the point at 1.
LAST = 1.0


class DiffusionOptions(Options):
    process: Literal["vp", "sub-vp", "ve", "ou", "edm"] = "vp"
    answer: Literal["scaled", "noise", "data", "velocity", "flow"] = "scaled"
    #: Of a U-Net, for pictures.
    channels: int = Field(default=32, ge=4)
    sizes: int | None = Field(default=None, ge=1, le=6)
    blocks: int = Field(default=1, ge=1)
    #: Of a perceptron, for vectors.
    width: int = Field(default=256, ge=1)
    depth: int = Field(default=3, ge=1)


class LevelsOptions(Options):
    weighting: Literal["even", "likelihood", "flow", "answer"] = "even"
    times: Literal["uniform", "likelihood", "lognormal"] = "uniform"


def _spread(rows: Any) -> float:
    """The standard deviation of points about the origin, over all coordinates."""
    points = rows.x if isinstance(rows, Conditioned) else rows
    return 1.0 if points is None else float(np.sqrt(np.mean(np.square(np.asarray(points, np.float64)))))


def halvings(side: int) -> int:
    """How many sizes a U-Net has: down to about five rows, and three at most.

    >>> [halvings(side) for side in (4, 8, 28, 64)]
    [1, 2, 3, 3]
    """
    return max(1, min(3, 1 + int(math.log2(max(side, 1) / 4))))


def _diffusion(o: DiffusionOptions, c: Context) -> scores.LevelledScore:
    assert isinstance(c.space, Real)
    spread, shape = _spread(c.train), c.space.shape
    if len(shape) == 3:
        sizes = o.sizes or halvings(min(shape[:2]))
        multipliers = tuple(min(2**i, 2) for i in range(sizes))
        network = networks.UNet(
            shape, channels=o.channels, multipliers=multipliers, blocks=o.blocks, condition=c.condition, key=c.key
        )
    else:
        network = networks.levelled_network(
            c.space.size, c.space.size, width=o.width, depth=o.depth, condition=c.condition, key=c.key
        )
    answers = {
        "scaled": scores.Scaled, "noise": scores.PredictNoise, "data": scores.PredictData,
        "velocity": scores.PredictVelocity, "flow": scores.PredictFlow,
    }  # fmt: skip
    return scores.LevelledScore(
        network=network, noise=PROCESSES[o.process](), preconditioning=answers[o.answer](spread), space=c.space,
        condition=c.condition,
    )  # fmt: skip


def _levels(o: LevelsOptions, c: Context) -> objectives.DSM:
    weighting: dict[str, AbstractWeighting] = {
        "even": objectives.Even(),
        "likelihood": objectives.LikelihoodWeighting(),
        "flow": objectives.FlowWeighting(),
        "answer": objectives.AnswerWeighting(),
    }
    times: dict[str, AbstractTimes] = {
        "uniform": noises.UniformTimes(),
        "likelihood": noises.LikelihoodTimes(),
        "lognormal": noises.LogNormalTimes(),
    }
    return objectives.DSM(weighting=weighting[o.weighting], times=times[o.times])


#: Pictures of more numbers than this are trained for longer, in smaller batches.
_SMALL = 256


def _training(space: AbstractSpace) -> dict[str, Any]:
    """Rates, rows and steps: three minutes for pictures of 8 x 8 with their report, 25 for 28 x 28, on two cores."""
    assert isinstance(space, Real)
    if len(space.shape) != 3 or space.size <= _SMALL:
        return {"steps": 1500, "batch": 128, "rate": 2e-3, "average": 0.995, "direction": "muon"}
    return {"steps": 6000, "batch": 64, "rate": 2e-3, "average": 0.999, "direction": "muon"}


DIFFUSION: Entry[Any] = Entry(
    "diffusion",
    "a score at every noise level: a U-Net for pictures, a perceptron for vectors",
    DiffusionOptions,
    _diffusion,
    makes=(scores.LevelledScore,),
    works=on_reals,
    conditional=True,
    training=_training,
)
LEVELS: Entry[Any] = Entry(
    "denoise-levels",
    "denoising score matching over all noise levels of the model",
    LevelsOptions,
    _levels,
    learns=(scores.AbstractLevelledScore,),
    works=on_reals,
    conditional=True,
)


class SolverOptions(Options):
    #: Levels that are walked, one score or two at each.
    steps: int = Field(default=20, ge=1)
    temperature: float = Field(default=1.0, gt=0)


class MultistepOptions(SolverOptions):
    order: int = Field(default=2, ge=1, le=3)


class HeunOptions(SolverOptions):
    churn: float = Field(default=0.0, ge=0)


class SlowOptions(SolverOptions):
    steps: int = Field(default=500, ge=1)


class CorrectorOptions(SlowOptions):
    ratio: float = Field(default=0.16, gt=0)


class AdaptiveOptions(SolverOptions):
    #: Sections of the way, each solved in as many steps as its tolerance takes.
    steps: int = Field(default=1, ge=1)
    tolerance: float = Field(default=1e-3, gt=0)


def _corrected(o: CorrectorOptions, c: Context) -> generators.AbstractTransition:
    return generators.Then(generators.ReverseDiffusion(o.temperature), generators.SignalToNoise(o.ratio))


#: The first is the default.
SOLVERS: tuple[Entry[generators.AbstractTransition], ...] = (
    Entry("dpm++", "DPM-Solver++ in several steps, Lu et al. 2022", MultistepOptions,
          lambda o, c: generators.DPMSolver(o.order), works=on_reals),
    Entry("unipc", "UniPC, Zhao et al. 2023", MultistepOptions, lambda o, c: generators.UniPC(o.order),
          works=on_reals),
    Entry("heun", "Heun's method with churn, Karras et al. 2022", HeunOptions,
          lambda o, c: generators.Heun(churn=o.churn), works=on_reals),
    Entry("ddim", "DDIM, Song, Meng and Ermon 2021", SolverOptions, lambda o, c: generators.DDIM(), works=on_reals),
    Entry("flow", "the probability flow by Euler's method", SlowOptions, lambda o, c: generators.FlowEuler(),
          works=on_reals),
    Entry("euler-maruyama", "the reverse process by Euler's method", SlowOptions,
          lambda o, c: generators.EulerMaruyama(o.temperature), works=on_reals),
    Entry("reverse-diffusion", "the reverse process as the process is discretised", SlowOptions,
          lambda o, c: generators.ReverseDiffusion(o.temperature), works=on_reals),
    Entry("ancestral", "the reverse of a chain, Ho et al. 2020", SlowOptions,
          lambda o, c: generators.Ancestral(temperature=o.temperature), works=on_reals),
    Entry("predictor-corrector", "reverse diffusion, each step mended by Langevin", CorrectorOptions, _corrected,
          works=on_reals),
    Entry("exponential", "the reverse process with the score held", SlowOptions,
          lambda o, c: generators.ExponentialIntegrator(o.temperature), works=on_reals),
    Entry("adaptive", "the probability flow in steps that keep to a tolerance", AdaptiveOptions,
          lambda o, c: generators.AdaptiveFlow(o.tolerance), works=on_reals),
)  # fmt: skip


def levels_of(noise: AbstractGaussianNoise, solver: str, steps: int) -> np.ndarray:
    """The levels that a solver walks: of the flow's, equal steps of log(alpha / sigma); of the process's, of time.

    >>> levels_of(noises.VariancePreserving(), "ancestral", 4).round(2).tolist()
    [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    least = float(noise.least_level())
    if solver not in ("dpm++", "unipc", "heun", "ddim"):
        return np.linspace(LAST, max(least, 1e-3) if solver == "adaptive" else least, steps + 1)
    # Below a hundredth of the noise's own width there is nothing to see, and equal steps would all go there.
    first, last = (float(noise.log_ratio(jnp.asarray(t))) for t in (LAST, max(least, 1e-3)))
    inner = jnp.asarray(np.linspace(first, last, steps + 1)[1:-1], float)
    # All of them by one program: one for each would take longer than the walk.
    found = np.asarray(jax.jit(jax.vmap(noise.level_at))(inner), np.float64) if steps > 1 else np.zeros(0)
    return np.array([LAST, *found, max(least, 1e-3)])
