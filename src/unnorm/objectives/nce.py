"""Noise-contrastive estimation: tell data from draws of a density that is known, log Z learnt on the way."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from unnorm.arguments import named, require_positive
from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.energies.kernel import DKEF
from unnorm.errors import require
from unnorm.noises.references import AbstractReference, AbstractReferenceFromData, Known
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_energy, require_finite, require_kind, require_real


def classification(of_data: Float[Array, " n"], of_noise: Float[Array, " m"]) -> tuple[Scalar, Scalar]:
    """The logistic loss per row of data, and the share of points told apart rightly, from their log-odds of being data.

    >>> loss, _ = classification(jnp.zeros(3), jnp.zeros(3))
    >>> round(float(loss), 4)
    1.3863
    """
    n, m = len(of_data), len(of_noise)
    loss = jnp.mean(jax.nn.softplus(-of_data)) + m / n * jnp.mean(jax.nn.softplus(of_noise))
    return loss, (jnp.sum(of_data > 0) + jnp.sum(of_noise < 0)) / (n + m)


class NCE(AbstractObjective):
    """L = (1/n) [ sum_i softplus(-G(x_i)) + sum_j softplus(G(y_j)) ],  G = -E - log q + log(n/m),  y_j ~ q.

    n rows of data against m = ratio n draws of the noise q: G is the log-odds that a point is data. At its minimum
    exp(-E) is the normalised density, so E must be able to shift by a constant: neural energies do, others are given
    one by `energies.Shifted`, without which a DKEF is refused. `noise` is a normalised density, a reference, or a
    recipe that makes one from the data (`noises.MomentGaussian`, `UnitGaussian`, `SpanGaussian`, `FittedKDE`,
    `FittedMixture`). Gutmann and Hyvarinen 2012. Some lecture slides print the offset log(m/n), of the wrong sign.

    >>> import unnorm as un
    >>> NCE(un.noises.MomentGaussian(), ratio=5.0).ratio
    5.0
    """

    comparable: ClassVar[bool] = True
    noise: AbstractNormalised | AbstractReference | AbstractReferenceFromData
    ratio: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        require_positive(self.ratio, "the number of noise points per datum")
        require_kind(
            self.noise,
            (AbstractNormalised, AbstractReference, AbstractReferenceFromData),
            "NCE tells data from draws of a normalised density such as noises.MomentGaussian(), and {} is not one; "
            "a noise that corrupts points is for CNCE",
        )

    def init(self, model: AbstractEnergy, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> AbstractReference:
        """The noise as a reference, fitted to the data where it needs them."""
        require_energy(model, "NCE")
        require(
            not isinstance(model, DKEF),
            "NCE learns log Z as a constant of the energy, and a DKEF has none; wrap it in energies.Shifted",
        )
        if isinstance(self.noise, AbstractReferenceFromData):
            require_real(model.space, f"NCE with {named(self.noise)}", "makes noise of real numbers")
            fitted = self.noise.fit(data, key=key)
            require_finite(fitted, "NCE", self.noise)
            return fitted
        reference = self.noise if isinstance(self.noise, AbstractReference) else Known(self.noise)
        if isinstance(reference, Known):
            there = reference.density.space
            require(
                there == model.space,
                f"NCE has its noise on {there} and its model on {model.space}; give both one space",
            )
        return reference

    def __call__(
        self, model: AbstractEnergy, state: AbstractReference, batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[AbstractReference, Info]]:
        n = len(batch)
        m = max(1, round(self.ratio * n))
        noise = jax.vmap(lambda k: state.sample(key=k))(jax.random.split(key, m)).astype(batch.dtype)
        log_q = jnp.concatenate([state.of_rows(batch), jax.vmap(state.of_noise)(noise)])
        # One pass of the network over data and noise together: one large matrix product instead of two.
        energies = jax.vmap(model)(jax.lax.stop_gradient(jnp.concatenate([batch, noise])))
        log_odds = -energies - jax.lax.stop_gradient(log_q) + jnp.log(n / m)
        loss, accuracy = classification(log_odds[:n], log_odds[n:])
        return loss, (state, {"accuracy": accuracy})
