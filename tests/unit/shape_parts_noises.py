"""Noises, each once."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from shape_parts import COINS, DATA, GAUSSIAN, KEY, NAMES, PICTURES, ROWS, Piece, X, held, traced

from unnorm import noises
from unnorm.spaces import Binary


def walk_noise(noise: noises.AbstractNoise, xs: jax.Array = DATA, *, density: bool = True) -> None:
    held(noise)
    for t in (0, jnp.asarray(0.5)):
        traced(lambda x, t=t: noise.sample(t, x, key=KEY), xs[0])
        traced(lambda x, t=t: noise.propose(t, x, key=KEY), xs[0])
        traced(lambda xs, t=t: noise.propose_each(t, xs, key=KEY), xs)
        if density:
            traced(lambda x, t=t: noise.log_prob(t, x, x), xs[0])
        if isinstance(noise, noises.AbstractGaussianNoise):
            traced(lambda t: (noise.alpha(t), noise.sigma(t), noise.variance(t), noise.drift(t), noise.diffusion(t)), t)


def walk_reference(recipe: noises.AbstractReferenceFromData) -> None:
    reference = held(held(recipe).fit(DATA, key=KEY))
    traced(lambda key: reference.sample(key=key), KEY)
    traced(lambda x: (reference.of_noise(x), reference.of_data(x)), X)
    traced(reference.of_rows, DATA)


def walk_process(noise: noises.AbstractGaussianNoise) -> None:
    walk_noise(noise)
    for t in (0.5, jnp.asarray(0.5)):
        for method in (noise.sigma, noise.drift, noise.diffusion, noise.log_ratio, lambda t: noise.between(0.1, t)):
            traced(method, t)
        traced(lambda x, t=t: (noise.reverse_drift(t, x, x), noise.flow(t, x, x), noise.prior_log_prob(x)), X)
    traced(noise.level_at, jnp.asarray(0.3))
    traced(lambda: noise.prior_sample((2,), key=KEY))


def corruptions() -> Iterator[Piece]:
    for kind in (noises.Gaussian, noises.VarianceExploding, noises.VariancePreserving, noises.OrnsteinUhlenbeck):
        yield f"noises/{kind.__name__}", lambda kind=kind: walk_noise(kind(0.5))

    for noise in (
        noises.SubVariancePreserving(), noises.Cosine(), noises.EDM(), noises.StraightPath(), noises.Ladder([0.1, 1]),
        noises.linear_chain(30), noises.Path(jnp.cos, jnp.sin), noises.Begun(noises.Cosine(), 0.01),
    ):  # fmt: skip
        yield f"noises/{type(noise).__name__}", lambda noise=noise: walk_process(noise)
    yield "noises/same_noise", lambda: noises.same_noise(noises.Cosine(), noises.EDM())

    def kde() -> None:
        noise = noises.KDEJump(DATA, 0.5)
        walk_noise(noise)
        walk_noise(noises.Remembered(noise))
        traced(lambda x: (noise.leave_one_out(x), noise.of_data(x), noise.of_noise(x)), X)

    def jumps() -> None:
        walk_noise(noises.Jumps(local=0.1, bandwidth=0.1).fit(DATA))
        walk_noise(noises.Jumps((0.1, 1), 0.1, wide=0.1, leave_one_out=True).fit(DATA))
        walk_noise(noises.GlobalJumps(0).fit(DATA), density=False)
        walk_noise(noises.GlobalJumps(0.1).fit(DATA))

    yield "noises/KDEJump", kde
    yield "noises/DataJump", lambda: walk_noise(noises.DataJump(DATA), density=False)
    yield "noises/Independent", lambda: walk_noise(noises.Independent(GAUSSIAN))
    yield "noises/Jumps", jumps
    yield "noises/BlendedJumps", lambda: walk_noise(noises.BlendedJumps(0.1, 0.1).fit(DATA))
    yield "noises/LeaveOneOutBlend", lambda: walk_noise(noises.BlendedJumps(0.1, 0.1, leave_one_out=True).fit(DATA))
    yield "noises/LeaveOneOut", lambda: walk_noise(noises.LeaveOneOut(noises.KDEJump(DATA, 0.5)))
    yield "noises/MomentGaussian", lambda: walk_reference(noises.MomentGaussian())
    yield "noises/UnitGaussian", lambda: walk_reference(noises.UnitGaussian())
    yield "noises/SpanGaussian", lambda: walk_reference(noises.SpanGaussian())
    yield "noises/FittedKDE", lambda: walk_reference(noises.FittedKDE(0.5))
    yield "noises/FittedMixture", lambda: walk_reference(noises.FittedMixture(2, steps=2))

    def sites() -> None:
        for noise in (noises.Flips(0.1), noises.OneSite()):
            walk_noise(noise, jnp.asarray(COINS))
        for noise in (noises.Flips(jnp.asarray(0.1), 3), noises.OneSite(3)):
            walk_noise(noise, jnp.asarray(NAMES))
        noises.Flips(0.1).check(Binary((2, 2)))

    def equations() -> None:
        def turned(t, x):
            return jnp.outer(x, x)

        for spread in (lambda t, x: 0.5, lambda t, x: x, turned):
            made = held(noises.Equation(lambda t, x: -x, spread, 2))
            traced(lambda x, e=made: (e.spread_out(0.5, x, x), e.covariance_times(0.5, x, x), e.divergence(0.5, x)), X)
            traced(lambda x, e=made: e.draw(jnp.asarray(0.5), x, key=KEY), X)
        traced(noises.equation_of(noises.OrnsteinUhlenbeck(1.0)).drift, 0.5, X)

    def techniques() -> None:
        assert noises.schedule_for(PICTURES, low=0.05).updates > 0
        noises.overlap(noises.ratio_for(16), 16), noises.responsibility_bound(3.0, 1.0)
        noises.variance_ratio(noises.langevin_step(5, 1.1, 0.05, grid=100), 5, 1.1, 0.05)
        noises.level_count(noises.largest_distance(ROWS), 0.01, 1.1)

    def times() -> None:
        noise, least = noises.VariancePreserving(), jnp.asarray(1e-3)
        steps = noises.DiscreteTimes((0.1, 0.5, 1.0))
        for law in (noises.UniformTimes(), noises.LikelihoodTimes(), noises.LogNormalTimes(), steps):
            traced(lambda least, law=held(law): law.draw(noise, least, 5, key=KEY), least)
        traced(noises.likelihood_mass, noise, least)

    yield "noises/sites", sites
    yield "noises/equations", equations
    yield "noises/techniques", techniques
    yield "noises/times", times
    yield "noises/scales_of", lambda: noises.scales_of(ROWS[:30], ROWS[30:]).step
