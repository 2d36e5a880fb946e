"""Walks from noise to data, each once."""

from collections.abc import Iterator

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from shape_parts import CONTEXT, DATA, KEY, Piece, X, held, traced

import unnorm as un
from unnorm import catalogue, noises, scores
from unnorm.generators.base import WALKERS
from unnorm.spaces import Categorical, Real


def generators() -> Iterator[Piece]:
    kinds = un.generators
    noise = noises.VarianceExploding(0.1, 10.0)
    score = scores.LevelledFunction(lambda t, x: -x / (1 + noise.variance(t)), noise)
    langevin, gibbs = kinds.LangevinCorrector(steps=2), kinds.GibbsTransition(steps=2)

    def walk(transition: un.generators.AbstractTransition) -> None:
        def go(x: jax.Array) -> jax.Array:
            state = held(transition).init(score, 0.5, x)
            return transition.position(transition.step(score, 0.5, jnp.asarray(0.4), state, key=KEY)[0])

        # Where a step looks at the other points, the walkers have to be several.
        traced(jax.vmap(go, axis_name=WALKERS) if transition.together else go, DATA if transition.together else X)

    def generate() -> None:
        for finish in (kinds.Stay(), kinds.PosteriorMean(), kinds.PosteriorDraw()):
            traced(lambda x, finish=finish: held(finish)(score, 0.1, x, key=KEY), X)
        both, levels = kinds.Then(gibbs, langevin), np.linspace(1, 0, 3)
        kinds.generate(score, both, levels=levels, n=3, shape=(2,), key=KEY)

    yield "generators/LangevinCorrector", lambda: walk(langevin)
    yield "generators/GibbsTransition", lambda: walk(gibbs)
    yield "generators/Then", lambda: walk(kinds.Then(gibbs, langevin))
    for solver in (
        kinds.EulerMaruyama(), kinds.ReverseDiffusion(), kinds.ReverseFlow(), kinds.Ancestral(0.5), kinds.DDIM(0.5),
        kinds.ExponentialIntegrator(), kinds.FlowEuler(), kinds.Heun(0.2), kinds.DPMSolver(3), kinds.UniPC(3),
        kinds.SignalToNoise(together=False), kinds.AdaptiveFlow(0.1), kinds.Repeated(langevin, 2),
        kinds.Replacing(langevin, kinds.Known(X, jnp.array([True, False]))),
    ):  # fmt: skip
        yield f"generators/{type(solver).__name__}", lambda solver=solver: walk(solver)
    for entry in catalogue.SOLVERS:
        built = entry.build(catalogue.read_options(entry, {}), CONTEXT)
        yield f"generators/{entry.name}", lambda built=built: walk(built)

    def general() -> None:
        growth = noises.Equation(lambda t, x: -x, lambda t, x: 0.5 * x, 2)
        back = held(kinds.ReverseProcess(growth, scores.FunctionScore(lambda t, x: -x)))
        traced(lambda x: (back.drift(0.5, x), back.diffusion(0.5, x), back.flow(0.5, x)), X)
        back.walk(np.ones((2, 2)), np.linspace(1, 0, 3), key=KEY)
        back.follow(np.ones((2, 2)), np.linspace(0, 1, 3))

    yield "generators/ReverseProcess", general
    wells = scores.LevelledEnergyFunction(lambda t, x: jnp.sum(x**2), noise, Real((2,)))

    def composed() -> None:
        both = held(scores.EnergyProduct((wells, held(scores.EnergyMixture((wells, wells), (0.5, 0.5)))), (1.0, -0.5)))
        mended = held(kinds.MetropolisCorrector())
        traced(lambda x: mended.move(both, 0.5, jnp.asarray(0.4), x, key=KEY)[0], X)
        told = scores.levelled_energy(noise, 2, condition=Categorical((), 3), width=4, depth=1, key=KEY)
        traced(held(scores.GivenEnergy(told, jnp.asarray(1))), 0.5, X)
        traced(held(scores.ScoreProduct((both, wells), (1.0, 1.0))), jnp.asarray(0.5), X)
        traced(held(both.at(0.5)), X)

    def flows() -> None:
        codes = kinds.encode(score, X[None], tolerance=0.1)
        kinds.decode(score, codes.points, tolerance=0.1)
        traced(lambda x: kinds.flowed(score, 0.5, 0.4, x, 0.1), X)
        traced(lambda x: kinds.slerp(x, x, 0.5), X)
        levels = np.linspace(1, 0, 3)
        kinds.mixed_walks(score, langevin, levels=levels, n=1, shape=(2,), key=KEY)
        known = kinds.Known(X, jnp.array([True, False]))
        traced(lambda x: held(kinds.Restored(kinds.Stay(), known))(score, 0.1, x, key=KEY), X)
        kinds.impute(score, X, [True, False], levels=levels, n=2, key=KEY)

    yield "generators/MetropolisCorrector", composed
    yield "generators/flows", flows
    path = diffrax.UnsafeBrownianPath(shape=(2,), key=KEY)
    yield "generators/flow_term", lambda: traced(lambda x: kinds.flow_term(score).vf(0.5, x, None), X)
    yield "generators/reverse_terms", lambda: traced(lambda x: kinds.reverse_terms(score, path).vf(0.5, x, None), X)
    yield "generators/generate", generate
