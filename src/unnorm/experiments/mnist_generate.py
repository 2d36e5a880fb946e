"""A diffusion of MNIST digits, trained in 25 minutes of two cores: draws, likelihood, distances, guidance.

The published models of these chapters are of colour photographs and a hundred times as large (Song 2022, Tables 5.1 to
7.2, 9.2), so no printed figure is beside ours; each is beside its own floor instead, what as many pictures of the data
would get. Frechet distances are in pixels and in features of a classifier that is trained here: no published FID.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from unnorm.data.local import local_file
from unnorm.data.pictures import PictureSchema
from unnorm.estimate import Estimate
from unnorm.evaluation import (
    bits_per_dimension,
    feature_figures,
    flow_log_likelihood,
    frechet,
    likelihood_bound,
    nearest,
    picture_features,
)
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row
from unnorm.experiments.picture_models import drawn, tiles, told_apart, trained_diffusion
from unnorm.generators import Ancestral
from unnorm.plots import new_figure, picture
from unnorm.runs import Prepared, prepare
from unnorm.scores import AbstractLevelledScore, ClassifierFree
from unnorm.spaces import Conditioned

PIXELS, FEATURES = "Frechet distance, pixels", "Frechet distance, features"
NEAREST, RIGHT = "nearest training picture", "labels as asked"
COLUMNS = (PIXELS, FEATURES, NEAREST, RIGHT)
BITS, BOUND = "bits per dimension, flow", "bits per dimension, bound"
FEW = "30 evaluations, DPM-Solver++"
DATA = "held-out digits"
GUIDANCES = (1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Size:
    """Steps of training (None: as `unnorm fit mnist`), draws, rows of the likelihood, steps of the slow solver."""

    steps: int | None
    draws: int
    rows: int
    slow: int
    slow_draws: int


QUICK = Size(None, 2048, 500, 100, 512)
PAPER = Size(None, 2048, 500, 1000, 2048)


def digits() -> Prepared:
    """The 60,000 to learn from and to choose by, with their labels; judged on the 10,000 others."""
    test = local_file("mnist/t10k-images-idx3-ubyte.gz", "https://storage.googleapis.com/cvdf-datasets/mnist")
    return prepare("mnist", 0, test=str(test), conditions=("label",))


def _likelihood(score: AbstractLevelledScore, prepared: Prepared, rows: Conditioned, seed: int) -> dict[str, Any]:
    """Bits per dimension of test pictures with uniform noise over their steps."""
    key, rounding = jax.random.key(seed), prepared.schema.rounding
    assert rounding is not None
    keys = jax.random.split(jax.random.fold_in(key, 0), len(rows.x))
    points = jax.vmap(lambda x, k: rounding(x, key=k))(jnp.asarray(rows.x), keys)
    told: dict[str, Any] = {"conditions": jnp.asarray(rows.condition), "log_volume": prepared.schema.log_volume}
    flow = flow_log_likelihood(score, points, tolerance=1e-4, key=jax.random.fold_in(key, 1), **told)
    bound = likelihood_bound(score, points, levels=200, key=jax.random.fold_in(key, 2), **told)
    return {
        name: bits_per_dimension(found, prepared.space.size, 2).to_dict()
        for name, found in ((BITS, flow), (BOUND, bound))
    }


def _figures(points: Any, asked: np.ndarray, prepared: Prepared, classifier: Any, seed: int) -> dict[str, Any]:
    """Distances of draws to test pictures, and what the classifier takes them for."""
    held, train = prepared.test.x, prepared.train.x
    key = jax.random.key(seed)
    found = feature_figures(classifier, points, held, key=key)
    named = np.asarray(jax.lax.map(classifier.net, jnp.asarray(points), batch_size=256)).argmax(1) == asked
    own, of_data = (nearest(rows[:500], train).distances for rows in (points, held))
    share = own.mean() / of_data.mean()
    error = math.hypot(*(k * part.std(ddof=1) / len(part) ** 0.5 for k, part in ((1, own), (share, of_data))))
    error /= of_data.mean()
    return {
        PIXELS: frechet(points, held, key=key).to_dict(),
        FEATURES: found.frechet.to_dict(),
        NEAREST: Estimate(float(share), float(error), "mean distance, of that of held-out digits").to_dict(),
        RIGHT: Estimate(
            float(named.mean()),
            float(named.std() / len(named) ** 0.5),
            "share that the classifier takes for what was asked",
        ).to_dict(),
        "floor": found.of_data["frechet"].to_dict(),
    }


def _sheets(score: AbstractLevelledScore, schema: PictureSchema, seed: int) -> dict[str, Any]:
    """Draws of each class with the noise of one seed, by guidance; and one walk seen on its way."""
    labels = np.tile(np.arange(10), 6)
    sheets = {
        f"guidance {weight:g}": told_apart(
            drawn(ClassifierFree(score, weight), len(labels), steps=20, seed=seed, conditions=labels), schema
        )
        for weight in GUIDANCES
    }
    stops = (1, 2, 4, 8, 16, 32)
    return sheets | {
        "in 1, 2, 4, 8, 16, 32 steps": told_apart(
            np.concatenate([drawn(score, 10, steps=n, seed=seed, conditions=np.arange(10)) for n in stops]), schema
        )
    }


def run(job: Job) -> Result:
    """Train once, then everything that is told of the model, piece by piece."""
    size, prepared = QUICK if job.quick else PAPER, digits()
    schema = prepared.schema
    assert isinstance(schema, PictureSchema)
    score = trained_diffusion(job, "mnist", prepared, {} if size.steps is None else {"steps": size.steps})
    classifier = picture_features(prepared.train.x, prepared.train.condition, classes=10)
    chance = np.random.default_rng(job.seed)
    asked = chance.integers(10, size=size.draws)
    slow = f"{size.slow} ancestral steps"

    def judged(name: str) -> Any:
        if name == DATA:
            rows = chance.permutation(len(prepared.train.x))[: size.draws]
            return _figures(prepared.train.x[rows], prepared.train.condition[rows], prepared, classifier, job.seed)
        told: dict[str, Any] = {"steps": 30, "conditions": asked}
        if name == slow:
            labels = asked[: size.slow_draws]
            told = {"steps": size.slow, "conditions": labels, "solver": "ancestral", "transition": Ancestral()}
        points = drawn(score, len(told["conditions"]), seed=job.seed, **told)
        return _figures(points, told["conditions"], prepared, classifier, job.seed)

    found = job.over("mnist-generate", judged, (FEW, slow, DATA))
    rows = jax.tree.map(lambda leaf: leaf[: size.rows], prepared.test)
    bits = job.piece("likelihood", lambda: _likelihood(score, prepared, rows, job.seed))
    sheets = job.piece("sheets", lambda: _sheets(score, schema, job.seed))
    table = [
        Row(name, {column: Estimate.from_dict(found[name][column]) for column in COLUMNS}) for name in (FEW, slow, DATA)
    ]
    table.append(Row("likelihood", {name: Estimate.from_dict(bits[name]) for name in (BITS, BOUND)}))
    table.append(Row("classifier", {RIGHT: classifier.accuracy}))
    remarks = (
        "Frechet distances have a floor, that of halves of the test pictures: in features "
        f"{Estimate.from_dict(found[DATA]['floor']).number()}. They are no published FID.",
        f"Likelihood of {size.rows} test pictures given their labels, with uniform noise over the steps of grey.",
    )
    series = {"sheets": sheets | {"data": told_apart(prepared.test.x[:60], schema)}}
    return Result(
        "A diffusion of MNIST", (*COLUMNS, BITS, BOUND), tuple(table), _claims(found, slow, bits), series, remarks
    )


def _claims(found: dict[str, Any], slow: str, bits: dict[str, Any]) -> tuple[Claim, ...]:
    few, many = (Estimate.from_dict(found[name][PIXELS]) for name in (FEW, slow))
    gap, copies = few.minus(many), Estimate.from_dict(found[FEW][NEAREST])
    right = Estimate.from_dict(found[FEW][RIGHT])
    flow, bound = (Estimate.from_dict(bits[name]) for name in (BITS, BOUND))
    return (
        Claim(
            f"30 evaluations are as good as {slow}: their distance in pixels is larger by {gap.number()}, at most 5% "
            "or two errors.",
            gap.value <= max(0.05 * many.value, 2 * gap.stderr),
        ),
        Claim(
            f"Draws are no copies: nearest training pictures at {copies.number()} of the distance.", copies.value > 0.8
        ),
        Claim(f"Draws are of the class that was asked for: {right.number()} of them.", right.value > 0.9),
        Claim(
            f"The bound is above the flow's bits per dimension ({bound.number()}, {flow.number()}).",
            bound.value > flow.value - 2 * math.hypot(bound.stderr, flow.stderr),
        ),
    )


def draw(result: Result) -> Figure:
    """Sheets by guidance, a walk by its number of steps, and data."""
    sheets = result.series["sheets"]
    figure = new_figure(3.2 * len(sheets), 2.4)
    for axes, (name, images) in zip(np.ravel(figure.subplots(1, len(sheets))), sheets.items(), strict=True):
        picture(axes, tiles(images, 10), vmin=0, vmax=255)
        axes.set_title(name)
    return figure


EXPERIMENT = Experiment("mnist-generate", run, draw)
