"""Diffusion score matching: score matching that looks harder in some places than in others."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_count
from unnorm.energies import AbstractEnergy
from unnorm.errors import require
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import is_known
from unnorm.objectives.score_matching import score_field, square_and_trace, value_and_divergence
from unnorm.scores import AbstractScore, as_score

#: Rows at which the diffusion is looked at before training.
LOOKED_AT = 64


def _require_shape(b: Array, size: int) -> None:
    require(
        b.size == size or b.shape == (size, size),
        f"the diffusion at a point of {size} numbers is {size} or {size} x {size}, not {b.shape}",
    )


class DiffusionSM(AbstractObjective):
    """L = E[ 1/2 |b(x)'s(x)|^2 + div(Sigma(x) s(x)) ],  Sigma = b b' positive definite.

    Up to a constant this is 1/2 E|b'(s - s_data)|^2, so its minimum is the score of the data for every b. With b = 1 it
    is `SM`. A b that vanishes at the edge of the support removes the boundary term that plain score matching ignores
    (densities on a half-line: b(x) = x); one that is small in the tails tames a heavy-tailed density. `diffusion` maps
    a point to b: an array of D numbers is its diagonal, one of D x D the matrix. Barp et al. 2019.

    >>> import jax, unnorm as un
    >>> flat = DiffusionSM(lambda x: jnp.ones_like(x))
    >>> float(flat(un.energies.standard_gaussian(2), None, jnp.array([[1.0, 1.0]]), key=jax.random.key(0))[0])
    -1.0
    """

    comparable: ClassVar[bool] = True
    diffusion: Callable[[Array], Array]
    chunk: int = eqx.field(static=True, default=32)

    def __check_init__(self):
        require_count(self.chunk, 1, "the basis vectors taken at a time")

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model without a score, or a b that vanishes, is refused here."""
        as_score(model)
        found, size = jax.vmap(self.diffusion)(data[:LOOKED_AT]), data[0].size
        _require_shape(found[0], size)
        # Inside compiled code there is no value to look at.
        if is_known(found):
            require(bool(jnp.all(jnp.isfinite(found))), "the diffusion b(x) is not finite at some rows of the data")
            rows = found.reshape(len(found), size, -1)
            require(
                bool(jnp.all(jnp.any(rows != 0, axis=(0, 2)))),
                "the diffusion b(x) is 0 in some coordinate at every row of the data, so that nothing is learnt there; "
                "b b' must be positive definite",
            )
        return None

    def __call__(
        self, model: AbstractEnergy | AbstractScore, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        score = score_field(model)

        def root(x):
            """v -> b(x) v, and its transpose, on flat vectors."""
            b, size = self.diffusion(x), x.size
            _require_shape(b, size)
            if b.size == size:
                return (lambda v: b.reshape(-1) * v), (lambda v: b.reshape(-1) * v)
            return (lambda v: b @ v), (lambda v: b.T @ v)

        def loss_of(x):
            # div(Sigma s) = tr(b'(grad s) b) + (div Sigma)'s; in the second term the score does not vary.
            square, trace = square_and_trace(model, x, root(x)[0], chunk=self.chunk)
            s = score(x).reshape(-1)

            def bent(y):
                forth, back = root(y)
                return forth(back(s)).reshape(y.shape)

            _, drift = value_and_divergence(bent, x, chunk=self.chunk)
            return 0.5 * square + trace + drift

        return jnp.mean(jax.vmap(loss_of)(batch)), (None, {})
