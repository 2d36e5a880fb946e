"""A network of wells: the soft minimum of learnt quadratics, for densities of many narrow modes."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.errors import require


class Wells(eqx.Module):
    """w(x) = -log sum_k exp(h_k - |x - c_k|^2 / (2 exp(2 r_k))), with learnt centres c, log radii r and depths h.

    A plain network must build every narrow mode out of smooth pieces; here each unit is one. Units start at data rows,
    of one radius and depth, and everything about them is learnt by whatever objective trains the energy.

    Start them no wider than the modes (`noises.scales_of(...).bandwidth`): wells that start too wide can end far from
    the data, and where no noise falls they keep their mass, unseen.

    >>> import jax
    >>> rows = jax.random.normal(jax.random.key(0), (50, 3))
    >>> Wells(rows, units=8, radius=0.5, key=jax.random.key(1))(rows[0]).shape
    (1,)
    """

    centres: Float[Array, "k d"]
    log_radii: Float[Array, " k"]
    depths: Float[Array, " k"]

    def __init__(self, rows: Float[Array, "n d"], *, units: int, radius: float, key: PRNGKeyArray):
        """`units` wells at rows drawn without replacement."""
        require(1 <= units <= len(rows), f"wells start at rows of the data: 1 to {len(rows)} of them, not {units}")
        require(radius > 0, f"the radius of a well must be positive, not {radius}")
        self.centres = jnp.asarray(rows)[jax.random.permutation(key, len(rows))[:units]]
        self.log_radii = jnp.full(units, jnp.log(radius), self.centres.dtype)
        self.depths = jnp.zeros(units, self.centres.dtype)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " 1"]:
        squared = jnp.sum((x[None] - self.centres) ** 2, 1)
        return -jax.nn.logsumexp(self.depths - 0.5 * squared * jnp.exp(-2 * self.log_radii))[None]
