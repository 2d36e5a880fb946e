"""Networks, each once."""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
from shape_parts import DATA, IMAGE, KEY, SPACE, Piece, X, held, mlp, traced

from unnorm import networks
from unnorm.spaces import Categorical, Mixed


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
            networks.ncsnpp((4, 4, 1), looking=4, **small | {"multipliers": (1,)}),
            networks.ddpmpp((4, 4, 1), looking=4, **small | {"multipliers": (1,)}),
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
