"""Scores, each once."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from shape_parts import DATA, FREE, KEY, WIDE, Piece, X, classifier, denoiser, held, low_rank, mlp, traced

from unnorm import networks, noises, scores
from unnorm.spaces import Categorical


def walk_score(score: scores.AbstractScore, x: jax.Array = X) -> None:
    held(score)
    for t in (0.5, jnp.asarray(0.5)):
        traced(score, t, x)


def walk_second(score: scores.AbstractSecondOrder) -> None:
    walk_score(score)
    posterior = scores.DenoisingPosterior(score, 0.5)
    traced(lambda x: (score.diagonal(x), score.apply(x, x), score.matrix(x)), X)
    traced(lambda x: (posterior.mean(x), posterior.variances(x), posterior.apply(x, x), posterior.covariance(x)), X)
    traced(lambda x: posterior.sample(x, key=KEY), X)


def slopes() -> Iterator[Piece]:
    noise = noises.VarianceExploding(0.1, 10)
    levelled = scores.levelled_energy(noise, 2, width=4, depth=1, make=networks.silent_resnet, key=KEY)
    yield "scores/EnergyScore", lambda: walk_score(scores.as_score(FREE))
    yield "scores/FunctionScore", lambda: walk_score(scores.FunctionScore(lambda t, x: -x / (1 + t)))
    yield "scores/LevelledScore", lambda: walk_score(scores.levelled_score(noise, 2, width=4, depth=1, key=KEY))
    yield "scores/LevelledEnergy", lambda: walk_score(levelled)
    yield "scores/LevelEnergy", lambda: traced(held(levelled.at(0.0)), X)
    yield "scores/LevelledFunction", lambda: walk_score(scores.LevelledFunction(lambda t, x: -x, noise))
    labels = Categorical((), 3)
    told = scores.levelled_score(noise, 2, condition=labels, width=4, depth=1, key=KEY)
    yield "scores/Given", lambda: (walk_score(scores.Given(told, 1)), traced(told.at(0.5, 1), 0.0, X))

    def guided() -> None:
        for score in (scores.ClassifierFree(told, 2.0), scores.Classified(levelled, classifier(), 3)):
            walk_score(scores.Given(held(score), 1))
            traced(score.at(0.5, 1), 0.0, X)
        traced(held(classifier()), 0.5, X)

    def wells() -> None:
        made = scores.wells_energy(noise, DATA, units=3, radius=0.5, key=KEY)
        walk_score(made)
        traced(held(made.network), X, jnp.asarray(0.5))

    yield "scores/guidance", guided
    yield "scores/wells", wells
    kinds = (
        scores.Scaled(), scores.PredictNoise(2), scores.PredictData(), scores.PredictVelocity(), scores.PredictFlow(),
        scores.DividedBySigma(), scores.PredictScore(), scores.Plain(),
        scores.Telling(scores.Scaled(), scores.LogSigma()),
    )  # fmt: skip
    for clock in (scores.LogSigma(), scores.Steps(), scores.edm_clock()):
        name = type(clock).__name__
        yield f"scores/{name}", lambda clock=clock: traced(held(clock), noise, jnp.asarray(0.5))
    for kind in kinds:
        name = type(kind).__name__
        yield f"scores/{name}", lambda kind=kind: traced(held(kind).read, noise, jnp.asarray(0.5))
    yield "scores/LevelScore", lambda: walk_score(scores.FunctionScore(lambda t, x: -x / (1 + t)).at(0.5))
    yield "scores/LevelSecondOrder", lambda: traced(held(low_rank().at(0)).diagonal, X)
    yield "scores/SpectralScore", lambda: traced(lambda xs: walk_score(scores.SpectralScore(xs)), DATA)
    yield "scores/stein_score", lambda: (traced(scores.stein_score, DATA), traced(scores.stein_score, DATA, 1, 2.0))
    yield "scores/FreeScore", lambda: walk_score(scores.FreeScore(mlp(2, 2)))
    yield "scores/FromScore", lambda: walk_second(scores.FromScore(WIDE))
    yield "scores/LowRankSecondOrder", lambda: walk_second(low_rank())
    yield (
        "scores/DiagonalSecondOrder",
        lambda: walk_second(scores.diagonal_mlp(2, width=4, factor_width=4, depth=1, key=KEY)),
    )
    yield "scores/GaussianDenoiser", lambda: traced(lambda x: (denoiser()(x), denoiser().sample(x, key=KEY)), X)
    yield (
        "scores/posterior_moment",
        lambda: traced(lambda x: scores.posterior_moment(scores.as_score(WIDE), 1.0, x, 2), X),
    )
    yield "scores/slopes_and_curvature", lambda: traced(lambda x: scores.slopes_and_curvature(FREE, x, jnp.eye(2)), X)
