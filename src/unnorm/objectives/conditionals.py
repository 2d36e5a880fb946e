"""Learning from the law of each site given the others: no constant is needed, and no chain.

log Z cancels in p(x_i | rest). Maximum pseudo-likelihood takes the log of these laws, ratio matching their squared
error; both are least at the truth, because a law is judged by a proper score. An energy that factorises gives all of
them at the price of about one energy, any other at the price of one for every value of each site.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from unnorm.arguments import require_count
from unnorm.energies import AbstractEnergy, every_site, site_logits
from unnorm.energies.factorised import array_space
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_energy


class AbstractConditionals(AbstractObjective):
    """L = mean over rows of sum_i score(softmax(logits_i), x_i), logits_i those of site i given all others."""

    #: So many sites of every row, chosen anew at every step, stand for all; None: all of them.
    sites: eqx.AbstractVar[int | None]

    @abstractmethod
    def score(self, log_probabilities: Float[Array, " k"], value: Float[Array, " k"]) -> Scalar:
        """How wrong the law of a site is, at the value that the site has (as zeros and a one)."""

    def init(self, model: AbstractEnergy, data: Shaped[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps."""
        require_energy(model, type(self).__name__)
        array_space(model.space)
        return None

    def __call__(
        self, model: AbstractEnergy, state: None, batch: Shaped[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        def of(x, key):
            flat = x.reshape(-1).astype(int)
            if self.sites is None or self.sites >= x.size:
                logits, values, factor = every_site(model, x), flat, 1.0
            else:
                chosen = jax.random.permutation(key, x.size)[: self.sites]
                logits = jax.vmap(lambda site: site_logits(model, site, x))(chosen)
                values, factor = flat[chosen], x.size / self.sites
            ones = jax.nn.one_hot(values, logits.shape[-1], dtype=logits.dtype)
            logs = jax.nn.log_softmax(logits)
            right = jnp.mean((jnp.argmax(logits, axis=-1) == values).astype(float))
            return factor * jnp.sum(jax.vmap(self.score)(logs, ones)), right

        losses, right = jax.vmap(of)(batch, jax.random.split(key, len(batch)))
        return jnp.mean(losses), (None, {"accuracy": jnp.mean(right)})


class PseudoLikelihood(AbstractConditionals):
    """L = -mean sum_i log p(x_i | rest) (Besag 1975): maximum pseudo-likelihood on zeros and ones and on categories.

    With `sites` so many of them are chosen at random for every row and stand for all.

    >>> import unnorm as un
    >>> coins = un.energies.uniform(un.spaces.Binary((3,)))
    >>> round(float(PseudoLikelihood()(coins, None, jnp.zeros((4, 3)), key=jax.random.key(0))[0]), 4)
    2.0794
    """

    comparable: ClassVar[bool] = True
    sites: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.sites is not None:
            require_count(self.sites, 1, "the sites of pseudo-likelihood")

    def score(self, log_probabilities: Float[Array, " k"], value: Float[Array, " k"]) -> Scalar:
        return -jnp.sum(value * log_probabilities)


class RatioMatching(AbstractConditionals):
    """L = mean sum_i sum_c (p(x_i = c | rest) - 1[x_i = c])^2 / 2 (Hyvärinen 2007; for categories Lyu 2009).

    For zeros and ones the term of a site is (1 - p(x_i | rest))^2, a function of the ratio p(x) / p(x with x_i
    flipped). It is bounded, so that rows that the model finds impossible do not rule the gradient.

    >>> import unnorm as un
    >>> coins = un.energies.uniform(un.spaces.Binary((3,)))
    >>> float(RatioMatching()(coins, None, jnp.zeros((4, 3)), key=jax.random.key(0))[0])
    0.75
    """

    comparable: ClassVar[bool] = True
    sites: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.sites is not None:
            require_count(self.sites, 1, "the sites of ratio matching")

    def score(self, log_probabilities: Float[Array, " k"], value: Float[Array, " k"]) -> Scalar:
        return 0.5 * jnp.sum((jnp.exp(log_probabilities) - value) ** 2)
