"""Samplers, each once; those of the catalogue on every space that they work on."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from shape_parts import (
    BITS,
    BITS_CONTEXT,
    CONTEXTS,
    FREE,
    KEY,
    ROWS,
    SPACE,
    WIDE,
    Piece,
    X,
    built_model,
    denoiser,
    held,
    low_rank,
    traced,
    walk_energy,
)

import unnorm as un
from unnorm import catalogue, energies, evaluation, samplers, scores
from unnorm.spaces import AbstractSpace, Binary


def walk_sampler(sampler: samplers.AbstractSampler, target: Any, x: jax.Array = X) -> None:
    held(sampler).check(target)

    def step(target: Any, x: jax.Array) -> jax.Array:
        return sampler.position(sampler.step(target, sampler.init(target, x), key=KEY)[0])

    assert traced(step, target, x).shape == x.shape
    if isinstance(sampler, samplers.AbstractAdaptiveSampler):
        traced(lambda t, x: sampler.warm_up(t, x, steps=20, key=KEY)[1], target, x)


def of_catalogue(entry: catalogue.Entry[Any], context: catalogue.Context) -> None:
    """The sampler of this entry on the space of the context."""
    small = {"islands": 8, "particles": 16, "moves": 1, "leapfrogs": 1} if entry.name == "smc" else {}
    sampler: Any = entry.build(catalogue.read_options(entry, small), context)
    if isinstance(sampler, samplers.TemperedSMC):
        found = sampler(FREE, key=KEY)
        found.mean(lambda x: x[:, 0])
        found.resampled(5)
        assert found.log_z.stderr > 0
    elif isinstance(sampler, samplers.ImportanceResampling):
        found = sampler(built_model("tilted", context), 5, key=KEY)
        assert found.draws.shape == (5, *context.space.struct().shape) and not found.warnings
    elif context.space == SPACE:
        walk_sampler(sampler, FREE)
    else:
        walk_sampler(sampler, built_model("mlp", context), start_of(context.space))


def start_of(space: AbstractSpace) -> jax.Array:
    return jnp.zeros(space.struct().shape, space.struct().dtype)


def walks() -> Iterator[Piece]:
    def wherever_it_works(entry: catalogue.Entry[Any]) -> None:
        for context in CONTEXTS:
            if entry.works(context.space):
                of_catalogue(entry, context)

    for entry in catalogue.SAMPLERS:
        yield f"samplers/{entry.name}", lambda entry=entry: wherever_it_works(entry)

    def sites() -> None:
        for name in ("mlp", "ising", "rbm", "markov"):
            target = built_model(name, BITS_CONTEXT)
            walkers = (samplers.Gibbs(), samplers.DiscreteLangevin(0.2), samplers.DiscreteLangevin(0.2, False))
            for sampler in walkers:
                walk_sampler(sampler, target, start_of(BITS))
        for context in CONTEXTS[1:]:
            target = 0.5 * built_model("ising", context) + energies.uniform(context.space)
            walk_sampler(samplers.SwendsenWang(), target, start_of(context.space))
        trace = un.sample(target, samplers.Gibbs(), chains=4, steps=3, key=KEY, progress=False)
        assert trace.draws.shape == (4, 3, 2, 2)

    yield "samplers/sites", sites

    def denoising() -> None:
        target, learned = samplers.learned_posterior(denoiser(), 0.5)
        for covariance in (
            samplers.FullCovariance(),
            samplers.DiagonalCovariance(2),
            samplers.IsotropicCovariance(0.2),
            learned,
        ):
            walk_sampler(samplers.DenoisingGibbs(0.5, covariance), target)
        walk_sampler(samplers.DenoisingGibbs(0.5), WIDE)
        samplers.isotropic_covariance(WIDE, 1.0, ROWS, key=KEY)

    def rows() -> None:
        target = samplers.SumOverRows(FREE, lambda x, row: 0.5 * jnp.sum((row - x) ** 2), ROWS)
        walk_sampler(samplers.SGLD(0.1, 3), target)
        walk_energy(target)

    binary = energies.FunctionEnergy(lambda x: jnp.sum(x), Binary((3,)))
    slow = (samplers.Langevin(0.1), samplers.Ozaki(0.1), samplers.Ozaki(0.1, 2))
    yield "samplers/Gibbs", lambda: walk_sampler(samplers.Gibbs(2), binary, jnp.zeros(3))
    yield "samplers/DenoisingGibbs", denoising
    yield "samplers/Ozaki", lambda: (walk_sampler(samplers.Ozaki(0.1), FREE), walk_sampler(samplers.Ozaki(1, 2), FREE))
    yield (
        "samplers/scores",
        lambda: [walk_sampler(w, s.at(0)) for w in slow for s in (scores.FromScore(FREE), low_rank())],
    )
    yield "samplers/SGLD", rows
    yield "samplers/halved", lambda: walk_sampler(samplers.Langevin.halved(0.1), FREE)

    def sample() -> None:
        trace = un.sample(FREE, samplers.MALA(), chains=4, steps=3, warmup=20, key=KEY, progress=False)
        assert trace.draws.shape == (4, 3, 2)
        with tempfile.TemporaryDirectory() as folder:
            start, walk = np.zeros((4, 2)), samplers.Langevin(0.1)
            un.sample(FREE, walk, chains=4, steps=3, start=start, to=Path(folder) / "x", key=KEY, progress=False)
        evaluation.summarise(np.random.default_rng(0).normal(size=(4, 20, 2)))

    yield "samplers/sample", sample
