"""Autoencoders whose code has a density that can be drawn from but not computed.

Only one term of their loss needs that density, the entropy of z, and only its gradient: for z = g(eps),

    grad H(q) = -E[ s_q(z) . grad g(eps) ],  s_q = grad_z log q,

which is minus the gradient of the surrogate stopgrad(s_q(z)) . z (Song 2022, section 3.4.2). The score s_q comes from a
network trained by sliced score matching on the same draws, or from a kernel estimator. The losses of the score network
and of the autoencoder are added with gradients stopped between them, so that one optimiser serves both.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count, require_positive
from unnorm.errors import InputError, require
from unnorm.networks.autoencoder import Autoencoder, GaussianEncoder, ScoredAutoencoder
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_kind
from unnorm.objectives.slices import AbstractSlices, GaussianSlices, require_directions
from unnorm.parts import held
from unnorm.scores.kernel import SpectralScore, stein_score

Codes = Float[Array, "n k"]


def entropy_surrogate(scores: Codes, codes: Codes) -> Scalar:
    """The mean of stopgrad(s(z)) . z: its gradient in whatever made the codes is that of -H(q).

    Its value means nothing.

    >>> codes = jnp.ones((4, 2))
    >>> jax.grad(lambda z: entropy_surrogate(-z, z))(codes)[0].tolist()
    [-0.25, -0.25]
    """
    return jnp.mean(jnp.sum(jax.lax.stop_gradient(scores) * codes, axis=-1))


def stein(codes: Codes) -> Codes:
    """The Stein estimate of the score at the codes, gradients stopped."""
    return stein_score(jax.lax.stop_gradient(codes))


def spectral(codes: Codes) -> Codes:
    """The spectral estimate of the score at the codes, gradients stopped."""
    codes = jax.lax.stop_gradient(codes)
    return jax.vmap(lambda z: SpectralScore(codes)(0.0, z))(codes)


def _prior(codes: Codes) -> Scalar:
    """The mean of -log N(z; 0, I)."""
    return 0.5 * jnp.mean(jnp.sum(codes**2, axis=-1)) + 0.5 * codes.shape[-1] * jnp.log(2 * jnp.pi)


def _sliced(field: Callable[[Array], Array], z: Array, v: Array) -> Scalar:
    """v'(grad h) v + |h|^2 / 2: sliced score matching of reduced variance at one code."""
    value, slope = jax.jvp(field, (z,), (v,))
    return jnp.dot(v, slope) + 0.5 * jnp.sum(value**2)


def _reconstruction(decoder: Any, xs: Array, zs: Codes) -> Scalar:
    return -jnp.mean(jax.vmap(decoder.log_prob)(xs, zs))


@lru_cache
def two_rates(rate: optax.ScalarOrSchedule = 1e-3, factor: float = 10.0) -> optax.GradientTransformation:
    """Adam for `fit(optimiser=...)` that moves h `factor` times as fast as the autoencoder.

    The encoder runs from where h says the codes are dense, and h follows the codes: when both move alike under Adam
    they circle each other, and with h much faster they settle. On digits RMSProp with one constant
    rate for both did better (`unnorm reproduce implicit-vae`). Cached, so that two runs share one
    compiled program.
    """
    require_positive(factor, "a ratio of rates")

    def faster(updates: Any, _: Any = None) -> Any:
        return ScoredAutoencoder(
            updates.encoder, updates.decoder, jax.tree.map(lambda move: factor * move, updates.score)
        )

    return optax.chain(optax.scale_by_adam(), optax.stateless(faster), optax.scale_by_learning_rate(rate))


#: Kernel estimators and the ELBO need no network for the score; a model may have one all the same.
EITHER = (Autoencoder, ScoredAutoencoder)


def _require_autoencoder(model: Any, who: str, kinds: tuple[type, ...]) -> None:
    require_kind(model, kinds, f"{who} trains a networks.{kinds[0].__name__}, not {{}}")


def _require_parts_fit(objective: AbstractObjective, model: Any, data: Any, key: PRNGKeyArray) -> None:
    """Refuse a model whose parts are not made for each other or for these points, before anything is compiled."""
    try:
        eqx.filter_eval_shape(objective, model, None, jnp.asarray(data[:2]), key=key)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{type(objective).__name__} cannot train this model on points of shape {np.shape(data)[1:]}: encoder, "
            f"decoder and score have to fit the points and each other ({reason})"
        ) from error


class ELBO(AbstractObjective):
    """L = E_q[-log p(x | z)] + KL( q(z | x) || N(0, I) ) for a Gaussian encoder, the divergence in closed form.

    The baseline of the implicit encoders, and an upper bound of -log p(x) (Kingma and Welling 2014).
    """

    comparable: ClassVar[bool] = True

    def init(self, model: Autoencoder, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model of another make is refused here."""
        _require_autoencoder(model, "ELBO", EITHER)
        require(isinstance(model.encoder, GaussianEncoder), "the ELBO needs a GaussianEncoder; try ImplicitVAE")
        _require_parts_fit(self, model, data, key)
        return None

    def __call__(
        self, model: Autoencoder, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        encoder: Any = model.encoder
        keys = jax.random.split(key, len(batch))
        zs = jax.vmap(lambda x, k: encoder.sample(x, key=k))(batch, keys)
        reconstruction = _reconstruction(model.decoder, batch, zs)
        divergence = jnp.mean(jax.vmap(encoder.divergence)(batch))
        return reconstruction + divergence, (None, {"reconstruction": reconstruction, "divergence": divergence})


class AbstractImplicit(AbstractObjective):
    """A loss with a surrogate in it: its value does not tell a better model from a worse one."""

    comparable: ClassVar[bool] = False
    #: The kinds of model it can train.
    trains: eqx.AbstractClassVar[tuple[type, ...]]

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model of another make is refused here."""
        _require_autoencoder(model, type(self).__name__, self.trains)
        _require_parts_fit(self, model, data, key)
        return None


class ImplicitVAE(AbstractImplicit):
    """L = E[-log p(x | z) - log p(z) + stopgrad(h(x, z)) . z] + E[v'(dh/dz) v + |h|^2 / 2], z = net(x, eps).

    The first part trains encoder and decoder by the gradient of the evidence bound; the second trains h on fresh codes,
    held fixed, with `slices` directions each (Song 2022, section 3.6.2).

    >>> ImplicitVAE(slices=4).slices
    4
    """

    trains: ClassVar[tuple[type, ...]] = (ScoredAutoencoder,)
    slices: int = eqx.field(static=True, default=1)
    directions: AbstractSlices = GaussianSlices()

    def __check_init__(self):
        require_directions(self.directions, self.slices, white=True)

    def __call__(
        self, model: ScoredAutoencoder, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        def one(x, key):
            first, second, slicing = jax.random.split(key, 3)
            flat = x.reshape(-1)
            z = model.encoder.sample(x, key=first)
            slope = held(model.score)(flat, z)
            fixed = jax.lax.stop_gradient(model.encoder.sample(x, key=second))

            def field(z):
                return model.score(flat, z)

            vs = jax.vmap(lambda k: self.directions(fixed, key=k))(jax.random.split(slicing, self.slices))
            return z, slope, jnp.mean(jax.vmap(lambda v: _sliced(field, fixed, v))(vs))

        zs, slopes, sliced = jax.vmap(one)(batch, jax.random.split(key, len(batch)))
        reconstruction = _reconstruction(model.decoder, batch, zs)
        score_loss = jnp.mean(sliced)
        loss = reconstruction + _prior(zs) + entropy_surrogate(slopes, zs) + score_loss
        return loss, (None, {"reconstruction": reconstruction, "score": score_loss})


class KernelVAE(AbstractImplicit):
    """As `ImplicitVAE`, the score of q(z | x) by a kernel (`stein`, `spectral`) on `draws` codes of each x.

    A kernel score of few codes is too small, and the codes come out too narrow: for a linear Gaussian decoder with 20
    codes in two dimensions their variances are about 0.6 (`stein`) and 0.9 (`spectral`) of the posterior's, and the gap
    halves with four times the codes (Song 2022, section 3.6.2, with 100 of them). The gradient is that of the mean over
    all codes of an x; with `followed` it is followed through so many of them only, which has the same mean and spares
    most of the way back.

    >>> KernelVAE(spectral, draws=20).draws
    20
    """

    trains: ClassVar[tuple[type, ...]] = EITHER
    estimator: Callable[[Codes], Codes] = eqx.field(static=True, default=stein)
    draws: int = eqx.field(static=True, default=100)
    followed: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        require_count(self.draws, 2, "the codes of a kernel estimate")
        if self.followed is not None:
            require_count(self.followed, 1, "the codes whose gradient is followed")
            require(
                self.followed <= self.draws,
                f"the gradient can be followed through 1 to {self.draws} codes, not {self.followed}",
            )

    def __call__(
        self, model: Autoencoder, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        followed = self.draws if self.followed is None else self.followed

        def one(x, key):
            keys = jax.random.split(key, self.draws)
            zs = jax.vmap(lambda k: model.encoder.sample(x, key=k))(keys[:followed])
            others = jax.vmap(lambda k: jax.lax.stop_gradient(model.encoder.sample(x, key=k)))(keys[followed:])
            scores = self.estimator(jnp.concatenate([zs, others]))
            return zs[0], _prior(zs) + entropy_surrogate(scores[:followed], zs)

        zs, latent = jax.vmap(one)(batch, jax.random.split(key, len(batch)))
        reconstruction = _reconstruction(model.decoder, batch, zs)
        return reconstruction + jnp.mean(latent), (None, {"reconstruction": reconstruction})


def _squared(decoder: Any, xs: Array, zs: Codes) -> Scalar:
    """The mean of |x - G(z)|^2."""
    means = jax.vmap(decoder.mean)(zs)
    return jnp.mean(jnp.sum((xs.reshape(len(xs), -1) - means) ** 2, axis=1))


class WAE(AbstractImplicit):
    """L = E|x - G(z)|^2 + weight (E[-log p(z) + stopgrad(h(z)) . z]) + E[v'(dh/dz) v + |h|^2 / 2], z = encoder(x).

    The entropy is that of the aggregate of z over the data, whose score h is learnt on the batch (Song 2022, section
    3.6.2, with weight 10).
    """

    trains: ClassVar[tuple[type, ...]] = (ScoredAutoencoder,)
    weight: float = eqx.field(static=True, default=10.0)
    directions: AbstractSlices = GaussianSlices()

    def __check_init__(self):
        require_positive(self.weight, "the weight of the codes' law")
        require_directions(self.directions, 1, white=True)

    def __call__(
        self, model: ScoredAutoencoder, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        coding, slicing = jax.random.split(key)
        zs = jax.vmap(lambda x, k: model.encoder.sample(x, key=k))(batch, jax.random.split(coding, len(batch)))
        fixed = jax.lax.stop_gradient(zs)
        vs = jax.vmap(lambda z, k: self.directions(z, key=k))(fixed, jax.random.split(slicing, len(batch)))
        score_loss = jnp.mean(jax.vmap(lambda z, v: _sliced(model.score, z, v))(fixed, vs))
        slopes = jax.vmap(held(model.score))(fixed)
        cost = _squared(model.decoder, batch, zs)
        loss = cost + self.weight * (_prior(zs) + entropy_surrogate(slopes, zs)) + score_loss
        return loss, (None, {"reconstruction": cost, "score": score_loss})


class KernelWAE(AbstractImplicit):
    """As `WAE`, the score of the aggregate by a kernel estimator on the codes of the batch.

    The bias is that of `KernelVAE`, with the batch for the codes.

    >>> KernelWAE(stein, weight=3.0).weight
    3.0
    """

    trains: ClassVar[tuple[type, ...]] = EITHER
    estimator: Callable[[Codes], Codes] = eqx.field(static=True, default=stein)
    weight: float = eqx.field(static=True, default=10.0)

    def __check_init__(self):
        require_positive(self.weight, "the weight of the codes' law")

    def __call__(
        self, model: Autoencoder, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        zs = jax.vmap(lambda x, k: model.encoder.sample(x, key=k))(batch, jax.random.split(key, len(batch)))
        cost = _squared(model.decoder, batch, zs)
        loss = cost + self.weight * (_prior(zs) + entropy_surrogate(self.estimator(zs), zs))
        return loss, (None, {"reconstruction": cost})
