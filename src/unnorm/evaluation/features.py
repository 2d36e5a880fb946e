"""Figures of pictures in the features of a classifier that is trained here, on the labels of the data themselves.

They say what published ones say (FID, Inception score, improved precision and recall), and are not comparable with
them, which belong to one network trained on another data set. What they are to be compared with is stated beside each:
the same figure between halves of the data. Architecture, seed, rows and steps are fixed here, so that equal data have
equal features.
"""

from dataclasses import dataclass
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.errors import require
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation.two_sample.frechet import frechet
from unnorm.evaluation.two_sample.precision_recall import precision_recall
from unnorm.networks import Conv

#: All that settles the features: widths, their number, seed, rows at most, steps of Adam, rows of each, rate.
WIDTHS, FEATURES, SEED, ROWS, STEPS, BATCH, RATE = (16, 32), 64, 0, 10_000, 400, 128, 3e-3
#: Of the rows every tenth is held out, for the accuracy.
HELD = 10
#: Rows that precision and recall look at: their memory is the square.
SOME = 1000
RESAMPLES = 50


class FeatureNet(eqx.Module):
    """Two convolutions of stride 2, means over quarters of the picture, 64 features, logits of the labels."""

    convolutions: tuple[Conv, ...]
    hidden: Float[Array, "f q"]
    shift: Float[Array, " f"]
    weight: Float[Array, "k f"]
    bias: Float[Array, " k"]

    def __init__(self, channels: int, classes: int, *, key: PRNGKeyArray):
        *keys, inner, last = jax.random.split(key, len(WIDTHS) + 2)
        sizes = (channels, *WIDTHS)
        self.convolutions = tuple(Conv(a, b, stride=2, key=k) for a, b, k in zip(sizes, WIDTHS, keys, strict=False))
        quarters = 4 * WIDTHS[-1]
        self.hidden = jax.random.normal(inner, (FEATURES, quarters)) / quarters**0.5
        self.weight = jax.random.normal(last, (classes, FEATURES)) / FEATURES**0.5
        self.shift, self.bias = jnp.zeros(FEATURES), jnp.zeros(classes)

    def features(self, x: Float[Array, "h w c"]) -> Float[Array, " f"]:
        """What the last layer sees."""
        for convolution in self.convolutions:
            x = jax.nn.silu(convolution(x))
        rows, columns = (-(-side // 2) for side in x.shape[:2])
        parts = [x[i : i + rows, j : j + columns] for i in (0, x.shape[0] - rows) for j in (0, x.shape[1] - columns)]
        return jax.nn.silu(self.hidden @ jnp.concatenate([jnp.mean(p, axis=(0, 1)) for p in parts]) + self.shift)

    def __call__(self, x: Float[Array, "h w c"]) -> Float[Array, " k"]:
        return self.weight @ self.features(x) + self.bias


@dataclass(frozen=True, eq=False)
class PictureFeatures:
    """The classifier, and the share of held-out pictures that it names right."""

    net: FeatureNet
    accuracy: Estimate


@compiled
def _trained(net: FeatureNet, pictures: Array, labels: Array, key: Array) -> FeatureNet:
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, STEPS))
    arrays, rest = eqx.partition(net, eqx.is_inexact_array)

    def loss(arrays: Any, at: Array) -> Array:
        logits = jax.vmap(eqx.combine(arrays, rest))(pictures[at])
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels[at]))

    def step(carry: Any, key: Array):
        arrays, state = carry
        slope = jax.grad(loss)(arrays, jax.random.randint(key, (BATCH,), 0, len(pictures)))
        change, state = optimiser.update(slope, state)
        return (optax.apply_updates(arrays, change), state), None

    (arrays, _), _ = jax.lax.scan(step, (arrays, optimiser.init(arrays)), jax.random.split(key, STEPS))
    return cast(FeatureNet, eqx.combine(arrays, rest))


@compiled
def _outputs(net: FeatureNet, pictures: Array) -> tuple[Array, Array]:
    return jax.lax.map(lambda x: (net.features(x), jax.nn.softmax(net(x))), pictures, batch_size=256)


def picture_features(pictures: Float[Any, "n h w c"], labels: Int[Any, " n"], *, classes: int) -> PictureFeatures:
    """A classifier of these pictures: 400 steps of Adam on nine tenths of 10,000 of them at most, from seed 0."""
    xs, ys = np.asarray(pictures, np.float32), np.asarray(labels, np.int32)
    require(
        xs.ndim == 4 and len(xs) == len(ys),
        "a classifier needs pictures n x height x width x channels, each with a label",
    )
    require(len(xs) >= 2 * HELD, f"{len(xs)} pictures are too few to train a classifier")
    require(
        classes >= 2 and int(ys.min()) >= 0 and int(ys.max()) < classes, f"labels are numbers from 0 to {classes - 1}"
    )
    order = np.random.default_rng(SEED).permutation(len(xs))[:ROWS]
    xs, ys = xs[order], ys[order]
    held = np.arange(len(xs)) % HELD == 0
    begin, run = jax.random.split(jax.random.key(SEED))
    net = _trained(FeatureNet(xs.shape[-1], classes, key=begin), jnp.asarray(xs[~held]), jnp.asarray(ys[~held]), run)
    named = np.asarray(_outputs(net, jnp.asarray(xs[held]))[1]).argmax(1) == ys[held]
    return PictureFeatures(net, mean_estimate(named.astype(np.float64), f"{len(named)} held-out pictures"))


def inception_score(chances: Float[Any, "n k"], *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """exp E KL(p(label | x), p(label)) of the chances that a classifier gives (Salimans et al. 2016), bootstrapped.

    Between 1, where every picture says the same of its label or nothing, and the number of labels, where each picture
    is certain and all labels come alike.

    >>> round(inception_score(np.eye(4)).value, 6)
    4.0
    """
    p = np.asarray(chances, np.float64)
    require(p.ndim == 2 and len(p) >= 2, "an Inception score needs the chances of labels of two pictures or more")
    own = np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0), axis=1)

    def of(rows: np.ndarray) -> float:
        whole = p[rows].mean(0)
        return float(
            np.exp(own[rows].mean() - np.sum(np.where(whole > 0, whole * np.log(np.where(whole > 0, whole, 1)), 0)))
        )

    generator = np.random.default_rng(seed)
    again = [of(generator.integers(len(p), size=len(p))) for _ in range(resamples)]
    return Estimate(of(np.arange(len(p))), float(np.std(again, ddof=1)), f"Inception-type score of {len(p)} pictures")


@dataclass(frozen=True)
class FeatureFigures:
    """Figures of draws in features; `of_data` those between halves of the data, about what a perfect model gets."""

    accuracy: Estimate
    frechet: Estimate
    score: Estimate
    precision: Estimate
    recall: Estimate
    of_data: dict[str, Estimate]


def feature_figures(found: PictureFeatures, draws: Any, data: Any, *, key: PRNGKeyArray) -> FeatureFigures:
    """Frechet distance, Inception-type score, precision and recall of draws, beside those of halves of the data.

    Precision and recall are of equal numbers, at most 1000, since they depend on it; so are the halves'.
    """
    (of_draws, chances), (of_data, chances_of_data) = (
        (np.asarray(part, np.float64) for part in _outputs(found.net, jnp.asarray(np.asarray(x, np.float32))))
        for x in (draws, data)
    )
    far, near, halves, split = jax.random.split(key, 4)
    order = np.asarray(jax.random.permutation(split, len(of_data)))
    half = len(of_data) // 2
    one, other = of_data[order[:half]], of_data[order[half:]]
    n = min(half, len(of_draws), SOME)
    require(
        n >= 25, f"precision and recall need 25 draws and 50 pictures at least, not {len(of_draws)} and {len(of_data)}"
    )
    own = precision_recall(one[:n], of_draws[:n], key=near)
    ideal = precision_recall(one[:n], other[:n], key=halves)
    return FeatureFigures(
        found.accuracy, frechet(of_draws, of_data, key=far), inception_score(chances), own.precision, own.recall,
        {
            "frechet": frechet(one, other, key=halves), "score": inception_score(chances_of_data),
            "precision": ideal.precision, "recall": ideal.recall,
        },
    )  # fmt: skip
