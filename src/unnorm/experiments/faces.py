"""A diffusion of one face, 28 x 20 pixels: draws, faces between two faces, and faces out of noise with their spread.

The 1,965 pictures are frames of a film, and neighbours are nearly equal. So the film is cut into pieces of 49 frames,
and no piece is both learnt from and judged on: with frames split at random, held-out ones are copies in all but name.
What comes of a noisy face is known in one respect: draws of p(x | x_t) should be as far from their mean as the truth.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from unnorm.data.kinds import Origin
from unnorm.data.pictures import PictureKind, PictureSchema
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation import frechet, nearest
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row
from unnorm.experiments.picture_models import drawn, tiles, told_apart, trained_diffusion
from unnorm.generators import EulerMaruyama, decode, encode, generate, slerp
from unnorm.plots import new_figure, picture
from unnorm.runs import Prepared
from unnorm.runs.prepare import ready
from unnorm.scores import AbstractLevelledScore

FRAMES = 49
NOISES = (0.25, 0.5, 1.0)
DISTANCE, NEAREST = "Frechet distance, pixels", "nearest training picture"
NOISY, MEAN, RATIO = "error of the noisy face", "error of the mean", "spread / error"
BACK = "error of code and back"
COLUMNS = (DISTANCE, NEAREST, NOISY, MEAN, RATIO, BACK)
DRAWS, DATA, CODES = "draws", "training faces", "codes"


@dataclass(frozen=True)
class Size:
    """Steps of training, draws, noisy faces, draws out of each, steps of their walk, faces between two."""

    steps: int
    draws: int
    faces: int
    of_each: int
    walk: int
    between: int


QUICK = Size(2500, 512, 32, 8, 60, 10)
PAPER = Size(20_000, 2048, 128, 32, 500, 10)


def frames(source: str = "freyfaces") -> Prepared:
    """The film in pieces, of which each is in one part of the split."""
    found = PictureKind().read(Origin(source))
    return ready(replace(found, together=np.arange(len(found)) // FRAMES), 0)


def level_of(score: AbstractLevelledScore, ratio: float) -> float:
    """The level at which noise is so many times as large as what is left of the point."""
    return float(score.noise.level_at(-jnp.log(jnp.asarray(ratio))))


def _out_of_noise(
    score: AbstractLevelledScore, faces: np.ndarray, size: Size, seed: int, ratio: float
) -> dict[str, Any]:
    """Faces with noise, their posterior's mean and spread, and how far each is from the truth."""
    start = level_of(score, ratio)
    noisy, walk = jax.random.split(jax.random.fold_in(jax.random.key(seed), round(100 * ratio)))
    t = jnp.asarray(start)
    seen = score.noise.alpha(t) * faces + score.noise.sigma(t) * jax.random.normal(noisy, faces.shape)
    many = jnp.repeat(seen, size.of_each, axis=0)
    levels = np.linspace(start, float(score.noise.least_level()), size.walk)
    found = generate(score, EulerMaruyama(), levels=levels, n=len(many), start=many, key=walk).points
    found = found.reshape(len(faces), size.of_each, *faces.shape[1:])
    mean = found.mean(axis=1)
    # The mean of n draws is further from the truth than the posterior's, by a share 1/n of the variance.
    spread = found.var(axis=1, ddof=1).mean(axis=(1, 2, 3)) * (1 + 1 / size.of_each)
    error = ((mean - faces) ** 2).mean(axis=(1, 2, 3))
    told = mean_estimate((np.asarray(seen / score.noise.alpha(t)) - faces).reshape(len(faces), -1).std(axis=1), "noisy")
    influence = (spread - error * spread.mean() / error.mean()) / error.mean()
    return {
        NOISY: told.to_dict(),
        MEAN: mean_estimate(np.sqrt(error), "root mean square over pixels").to_dict(),
        RATIO: Estimate(
            float(spread.mean() / error.mean()), float(influence.std(ddof=1) / len(faces) ** 0.5), "ratio of means"
        ).to_dict(),
        "shown": [
            np.asarray(part[:8]).tolist() for part in (seen / score.noise.alpha(t), mean, found[:, 0], found[:, 1])
        ],
    }


def _codes(score: AbstractLevelledScore, faces: np.ndarray, size: Size) -> dict[str, Any]:
    """Codes of faces, and back; and faces between two of them, along the arc of their codes."""
    codes = encode(score, faces).points
    back = decode(score, codes).points
    error = np.sqrt(((back - faces) ** 2).mean(axis=(1, 2, 3)))
    shares = np.linspace(0, 1, size.between)
    arcs = [
        np.stack([np.asarray(slerp(jnp.asarray(one), jnp.asarray(other), a)) for a in shares])
        for one, other in zip(codes[::2], codes[1::2], strict=True)
    ]
    return {
        BACK: mean_estimate(error, "root mean square over pixels").to_dict(),
        "between": [decode(score, arc).points.tolist() for arc in arcs[:4]],
    }


def _draws(score: AbstractLevelledScore, prepared: Prepared, size: Size, seed: int, name: str) -> dict[str, Any]:
    held, train = prepared.test, prepared.train
    chance = np.random.default_rng(seed)
    points = (
        drawn(score, size.draws, steps=30, seed=seed)
        if name == DRAWS
        else train[chance.permutation(len(train))][: size.draws]
    )
    found = {DISTANCE: frechet(points, held, key=jax.random.key(seed)).to_dict(), "sheet": points[:64].tolist()}
    if name == DRAWS:
        own, of_data = (nearest(rows, train).distances for rows in (points, held))
        share = float(own.mean() / of_data.mean())
        found[NEAREST] = Estimate(
            share, share * float(own.std() / own.mean()) / len(own) ** 0.5, "mean distance, of that of held-out faces"
        ).to_dict()
    return found


def run(job: Job) -> Result:
    """Train once; draws, codes, and faces out of noise."""
    size, prepared = QUICK if job.quick else PAPER, frames()
    schema = prepared.schema
    assert isinstance(schema, PictureSchema)
    score = trained_diffusion(job, "faces", prepared, {"steps": size.steps})
    held = prepared.test
    faces = held[np.random.default_rng(job.seed).permutation(len(held))[: size.faces]]
    of = job.over("faces, draws", partial(_draws, score, prepared, size, job.seed), (DRAWS, DATA))
    codes = job.piece("codes", lambda: _codes(score, faces[:8], size))
    noisy = job.over("faces, noise", partial(_out_of_noise, score, faces, size, job.seed), NOISES)
    rows = [
        Row(name, {c: Estimate.from_dict(of[name][c]) for c in (DISTANCE, NEAREST) if c in of[name]}) for name in of
    ]
    rows.append(Row(CODES, {BACK: Estimate.from_dict(codes[BACK])}))
    for ratio, found in noisy.items():
        rows.append(Row(f"noise {ratio:g}", {c: Estimate.from_dict(found[c]) for c in (NOISY, MEAN, RATIO)}))
    series = {
        "sheets": {DRAWS: told_apart(of[DRAWS]["sheet"], schema), DATA: told_apart(of[DATA]["sheet"], schema)},
        "between": told_apart(np.concatenate(codes["between"]), schema),
        "noise": {f"{ratio:g}": told_apart(np.concatenate(found["shown"]), schema) for ratio, found in noisy.items()},
    }
    return Result("A diffusion of one face", COLUMNS, tuple(rows), _claims({row.label: row for row in rows}), series)


def _claims(rows: dict[str, Row]) -> tuple[Claim, ...]:
    share, back = rows[DRAWS].figures[NEAREST], rows[CODES].figures[BACK]
    found = []
    for ratio in NOISES:
        figures = rows[f"noise {ratio:g}"].figures
        better, calibrated = figures[NOISY].minus(figures[MEAN]), figures[RATIO]
        found.append(
            Claim(
                f"Noise {ratio:g}: the mean is nearer to the truth, by {better.number()}.",
                better.value > 4 * better.stderr,
            )
        )
        found.append(
            Claim(
                f"Noise {ratio:g}: draws are spread as the truth is, within a third (ratio {calibrated.number()}).",
                abs(np.log(calibrated.value)) < np.log(4 / 3) + 2 * calibrated.stderr,
            )
        )
    return (
        Claim(f"Draws are no copies: nearest training faces at {share.number()} of the distance.", share.value > 0.8),
        Claim(f"A face comes back from its code to {back.number()} of a range of 2.", back.value < 0.02),
        *found,
    )


def draw(result: Result) -> Figure:
    """Draws beside data, faces between two, and faces out of noise."""
    sheets, noise = result.series["sheets"], result.series["noise"]
    figure = new_figure(13, 8)
    grid = np.ravel(figure.subplots(2, 3))
    pages = [(name, images, 8) for name, images in sheets.items()]
    pages.append(("between two faces", result.series["between"], len(result.series["between"]) // 4))
    pages += [(f"noise {name}: seen, mean, two draws", images, 8) for name, images in noise.items()]
    for axes, (name, images, across) in zip(grid[: len(pages)], pages, strict=True):
        picture(axes, tiles(images, across), vmin=0, vmax=255)
        axes.set_title(name)
    for axes in grid[len(pages) :]:
        axes.set_axis_off()
    return figure


EXPERIMENT = Experiment("faces", run, draw)
