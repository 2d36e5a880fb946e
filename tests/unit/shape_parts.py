"""What a model is made of, each part once: networks, energies, noises and scores, in the plane.

A piece has a name, "kind/name" as in the catalogue, and a function that exercises what it names. What need only be
traced is traced and not compiled.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import checking
import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import watching
from beartype.door import is_bearable

from unnorm import catalogue, energies, networks, noises, scores
from unnorm.energies.committee import judged
from unnorm.spaces import Categorical, Mixed, Real

Piece = tuple[str, Callable[[], Any]]

KEY = jax.random.key(0)
ROWS = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
DATA = jnp.asarray(ROWS)
X = DATA[0]
#: Rows, columns and channels.
IMAGE = jnp.zeros((5, 6, 2))
SPACE = Real((2,))
GAUSSIAN = energies.standard_gaussian(2)
WIDE = energies.standard_gaussian(2, scale=2**0.5)
#: A density whose constant is not known.
FREE = energies.FunctionEnergy(lambda x: 0.3 * jnp.sum(x**2) + 0.1 * jnp.sum(x**4), SPACE)
CONTEXT = catalogue.Context(SPACE, noises.Scales(0.3, 1.0, 2), KEY, ROWS[:30], ROWS[30:])


def traced(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes of the result; nothing is compiled. It is traced for two of everything, too (see `watching`)."""
    watching.mapped(function, *args, **kwargs)
    return eqx.filter_eval_shape(function, *args, **kwargs)


def held(module: Any) -> Any:
    """A module whose fields are what their annotations say; the hook itself looks at arguments only."""
    hints = get_type_hints(type(module), include_extras=True)
    with jaxtyping.jaxtyped("context"):
        for field in dataclasses.fields(module):
            value = getattr(module, field.name)
            if not is_bearable(value, hints[field.name], conf=checking.CONF):
                raise jaxtyping.TypeCheckError(
                    f"{type(module).__name__}.{field.name} is {hints[field.name]}, and holds {eqx.tree_pformat(value)}"
                )
    return module


def mlp(inputs: int = 2, outputs: int = 1) -> networks.MLP:
    return networks.MLP(inputs, outputs, width=4, depth=1, key=KEY)


# ------------------------------------------------------------------------------------------------- energies


def walk_energy(energy: energies.AbstractEnergy) -> None:
    x = jnp.zeros(energy.space.shape)
    traced(held(energy), x)
    traced(jax.vmap(energy), x[None])
    traced(lambda e: (0.5 * e + e)(x), energy)
    traced(lambda e: (jnp.asarray(0.5) * e)(x), energy)
    traced(scores.EnergyScore(energy), 0.0, x)
    if energy.space.size > 1:
        traced(lambda e: e.fixing({0: 1.0})(jnp.zeros(energy.space.size - 1)), energy)
    if isinstance(energy, energies.AbstractNormalised):
        traced(energy.log_prob, x)
        traced(lambda key: energy.sample(key=key), KEY)
        traced(lambda key: energy.samples(3, key=key), KEY)


SMALL = {
    "tilted": {"reference": "gaussian", "width": 4, "depth": 1},
    "mlp": {"width": 4, "depth": 1},
    "resnet": {"width": 4, "blocks": 1},
    "gaussian": {},
    "mixture": {"components": 2},
}


def built_model(name: str) -> energies.AbstractEnergy:
    entry = catalogue.find(catalogue.MODELS, name, "model")
    return entry.build(catalogue.read_options(entry, SMALL[name]), CONTEXT)


def dkef() -> energies.DKEF:
    return energies.DKEF(DATA, anchors=4, width=3, key=KEY)


def nice() -> energies.NICE:
    return energies.NICE(SPACE, width=4, depth=1, couplings=2, key=KEY)


def mixture() -> energies.GaussianMixture:
    return energies.gaussian_mixture([0.5, 0.5], [[-1.0, 0.0], [1.0, 0.0]], 0.5)


def nets() -> Iterator[Piece]:
    yield "networks/MLP", lambda: traced(held(mlp()), X)
    yield "networks/ResNet", lambda: traced(held(networks.ResNet(2, 1, width=4, blocks=1, key=KEY)), X)
    yield "networks/Wells", lambda: traced(held(networks.Wells(DATA, units=3, radius=0.5, key=KEY)), X)

    def levelled() -> None:
        both = Mixed((SPACE, Categorical((), 3)))
        for make in (networks.silent_mlp, networks.silent_resnet):
            net = networks.levelled_network(2, 2, width=4, depth=1, condition=both, make=make, key=KEY)
            traced(held(net), X, jnp.asarray(0.5), (X, jnp.asarray(3)))
        traced(networks.level_features, jnp.asarray(0.5), 2)
        traced(networks.widened, mlp())

    yield "networks/LevelledNetwork", levelled

    def convolutions() -> None:
        for size, stride, dilation in ((3, 1, 1), ((4, 2), 2, (1, 3)), (1, (3, 2), 1)):
            layer = held(networks.Conv(2, 3, size=size, stride=stride, dilation=dilation, key=KEY))
            traced(layer, IMAGE)
            traced(eqx.filter_grad(lambda c: jnp.sum(jax.grad(lambda x: jnp.sum(c(x) ** 2))(IMAGE) ** 2)), layer)
        traced(held(networks.Conv(2, 1, padding=((1, 0), (0, 2)), use_bias=False, scale=0, key=KEY)), IMAGE)
        traced(lambda x: networks.convolve(x, jnp.ones((2, 2, 2, 1)), padding="VALID"), IMAGE)

    yield "networks/Conv", convolutions

    def pictures() -> None:
        traced(held(networks.GroupNorm(2)), IMAGE)
        traced(held(networks.Attention(2, key=KEY)), IMAGE)
        traced(held(networks.ResBlock(2, 3, 4, key=KEY)), IMAGE, jnp.zeros(4))
        traced(networks.halve, networks.double(IMAGE, smooth=True))
        told = Categorical((), 3)
        waves = networks.random_frequencies(4, key=KEY)
        traced(held(networks.Embedding(networks.octaves(4), 8, told, key=KEY)), jnp.zeros(()), jnp.asarray(1))
        net = networks.UNet(IMAGE.shape, channels=2, multipliers=(1, 2), attention=(1,), condition=told,
                            frequencies=waves, smooth=True, key=KEY)  # fmt: skip
        traced(held(net), IMAGE, jnp.zeros(()), jnp.asarray(1))

    yield "networks/pictures", pictures

    def published() -> None:
        x, t, label, told = jnp.zeros((4, 4, 1)), jnp.zeros(()), jnp.asarray(1), Categorical((), 3)
        small = {"channels": 4, "multipliers": (1, 2), "blocks": 1, "condition": told, "key": KEY}
        for net in (
            networks.PyramidUNet((4, 4, 1), input_pyramid="skip", output_pyramid="residual", attention=(0,), **small),
            networks.PyramidUNet((4, 4, 1), output_pyramid="skip", frequencies=networks.positional(4), **small),
            networks.ncsnpp((4, 4, 1), looking=4, **small),
            networks.ddpmpp((4, 4, 1), looking=2, **small),
            networks.PatchTransformer((4, 4, 1), width=8, depth=1, heads=2, condition=told, key=KEY),
        ):
            traced(held(net), x, t, label)
        for levels in (None, 3):
            net = networks.RefineNet(
                (4, 4, 1), channels=4, cascades=networks.cascades_for(32)[:3], levels=levels, key=KEY
            )
            traced(held(net), x, t)
        traced(held(networks.TransformerBlock(8, 2, key=KEY)), jnp.zeros((3, 8)), jnp.zeros(8))
        traced(held(networks.InstanceNormPlus(2, levels=3, key=KEY)), IMAGE, jnp.asarray(1))
        net = networks.ResBlock(2, 3, 4, dropout=0.5, rescale=False, mixes=True, key=KEY)
        traced(held(networks.dropping(net, key=KEY)), IMAGE, jnp.zeros(4))
        traced(held(networks.Dropout(0.5, KEY)), IMAGE)

    yield "networks/published", published

    def scalars() -> None:
        net = networks.levelled_network(2, 2, width=4, depth=1, key=KEY)
        for made in (networks.SumOfOutputs(net), networks.InnerProduct(net)):
            traced(held(made), X, jnp.zeros(()))
            traced(held(networks.OneLevel(made, (2,))), X)

    yield "networks/scalars", scalars

    def autoencoders() -> None:
        for make in (networks.gaussian_autoencoder, networks.implicit_autoencoder, networks.wasserstein_autoencoder):
            model = held(make(2, 2, width=4, key=KEY))
            z = traced(lambda m: m.encoder.sample(X, key=KEY), model)
            traced(lambda z, m=model: (m.decoder.mean(z), m.decoder.log_prob(X, z)), z)
        traced(networks.GaussianDecoder(mlp(2, 2)).log_prob, X, X)
        traced(networks.GaussianDecoder(mlp(2, 2)).mean, X)

    yield "networks/autoencoders", autoencoders


def made_again(chosen: Any) -> None:
    """A reference by its recipe, from plain data and from where it was."""
    recipe = energies.Recipe.from_dict(chosen.recipe.to_dict())
    walk_energy(recipe.fit(ROWS[:30], key=KEY))
    walk_energy(recipe.refit(chosen.density, ROWS[:29]))


def models() -> Iterator[Piece]:
    for entry in catalogue.MODELS:
        yield f"models/{entry.name}", lambda name=entry.name: walk_energy(built_model(name))
    yield "models/DKEF", lambda: walk_energy(dkef())
    yield "models/NICE", lambda: (walk_energy(nice()), walk_energy(energies.NICE(Real((2, 2)), width=4, key=KEY)))
    yield "models/LatentPrior", lambda: walk_energy(energies.latent_prior(2, width=4, key=KEY))
    yield "models/Shifted", lambda: walk_energy(energies.Shifted(FREE, 1.0))

    def fitted() -> None:
        walk_energy(energies.gaussian([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]]))
        walk_energy(energies.fit_gaussian(ROWS))
        traced(GAUSSIAN.fixing({np.int64(0): 1.0}), X[:1])
        traced(lambda: (GAUSSIAN.covariance, mixture().assign(X), mixture().weights, mixture().means))
        GAUSSIAN.entropy()
        mixture().entropy(20, key=KEY)
        walk_energy(energies.KDE(DATA, 0.5))
        walk_energy(energies.KDE(DATA, 0.5, shape=jnp.eye(2), block=7))
        walk_energy(energies.LatentPosterior(networks.GaussianDecoder(mlp(2, 2)), X, GAUSSIAN))
        walk_energy(energies.Blend((GAUSSIAN, mixture()), jnp.zeros(2)))
        walk_energy(energies.fit_mixture(DATA, 2, steps=2, key=KEY))
        walk_energy(energies.committee(DATA, 2, members=2, key=KEY))
        walk_energy(energies.NeuralEnergy(SPACE, mlp(), scale=2, confinement=1))

    yield "models/fitted", fitted
    yield (
        "models/chosen",
        lambda: (
            energies.best_mixture(ROWS[:30], ROWS[30:], sizes=(1, 2), key=KEY),
            energies.best_committee(DATA[:30], DATA[30:], key=KEY),
            walk_energy(energies.best_reference(ROWS[:30], ROWS[30:], key=KEY)),
            energies.stacked([judged(GAUSSIAN, DATA), judged(mixture(), DATA)]),
            made_again(energies.choose_reference(ROWS[:30], ROWS[30:], key=KEY)),
        ),
    )


# ------------------------------------------------------------------------------------------------- noises


def walk_noise(noise: noises.AbstractNoise, *, density: bool = True) -> None:
    held(noise)
    for t in (0, jnp.asarray(0.5)):
        traced(lambda x, t=t: noise.sample(t, x, key=KEY), X)
        traced(lambda x, t=t: noise.propose(t, x, key=KEY), X)
        traced(lambda xs, t=t: noise.propose_each(t, xs, key=KEY), DATA)
        if density:
            traced(lambda x, t=t: noise.log_prob(t, x, x), X)
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
        noises.linear_chain(30), noises.Path(jnp.cos, jnp.sin),
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
    yield "noises/scales_of", lambda: noises.scales_of(ROWS[:30], ROWS[30:]).step


# ------------------------------------------------------------------------------------------------- scores


def walk_score(score: scores.AbstractScore) -> None:
    held(score)
    for t in (0.5, jnp.asarray(0.5)):
        traced(score, t, X)


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
    kinds = (
        scores.Scaled(), scores.PredictNoise(2), scores.PredictData(), scores.PredictVelocity(), scores.PredictFlow(),
        scores.DividedBySigma(), scores.PredictScore(), scores.Telling(scores.Scaled(), scores.LogSigma()),
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


def denoiser() -> scores.GaussianDenoiser:
    return scores.GaussianDenoiser(mlp(2, 4))


def low_rank() -> scores.LowRankSecondOrder:
    return scores.low_rank_mlp(2, rank=1, width=4, factor_width=4, depth=1, key=KEY)
