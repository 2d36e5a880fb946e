"""The kernel density estimate of a data set as a noise distribution: the global jump of Yu et al. 2025."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies import kde as energies
from unnorm.energies.base import AbstractNormalised
from unnorm.energies.kde import BLOCK, any_row
from unnorm.errors import InputError
from unnorm.noises.base import AbstractKernel, AbstractNoise, Level, Scalar
from unnorm.noises.rows import Rows

#: Up to this many rows their densities are computed beforehand, which takes as long as n^2 kernels: a second or so.
REMEMBERED = 20_000


class KDEJump(AbstractKernel):
    """q(y | x) = (1/n) sum_i N(y; c_i, bandwidth^2 I), whatever x was: `energies.KDE` as a noise.

    >>> import jax.numpy as jnp
    >>> round(float(KDEJump(jnp.zeros((4, 1)), 1.0).log_prob(0.0, jnp.zeros(1), jnp.zeros(1))), 4)
    -0.9189
    """

    density: energies.KDE

    def __init__(self, centres: Float[Array, "n d"], bandwidth: float, *, block: int = BLOCK):
        """At most `block` centres are looked at together."""
        self.density = energies.KDE(centres, bandwidth, block=block)

    @property
    def makes_real_numbers(self) -> bool:
        return True

    def sample(self, t: Level, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
        return self.density.sample(key=key).astype(x.dtype)

    def log_prob(self, t: Level, y: Float[Array, " d"], x: Float[Array, " d"]) -> Scalar:
        return self.density.log_prob(y)

    def log_density(self, y: Float[Array, " d"]) -> Scalar:
        """log of the estimate at y."""
        return self.density.log_prob(y)

    def of_noise(self, y: Float[Array, " d"]) -> Scalar:
        """log q at a point of its own making."""
        return self.log_density(y)

    def of_data(self, x: Float[Array, " d"]) -> Scalar:
        """log q at a row of the data."""
        return self.log_density(x)

    def leave_one_out(self, x: Float[Array, " d"]) -> Scalar:
        """log of the estimate at a centre made from the other rows: `energies.KDE.leave_one_out`."""
        return self.density.leave_one_out(x)


class LeaveOneOut(AbstractNoise):
    """Draws of a KDE, with a ratio that does not count the data point's own kernel.

    log q(y) is the whole estimate's, log q(x) is that of the other centres (`leave_one_out`): x is one of the rows
    the estimate was made of, y is not, and a contrast of the two must not mistake that for a property of the density.

    >>> import jax.numpy as jnp
    >>> kde = KDEJump(jnp.array([[0.0], [1.0]]), 1.0)
    >>> round(float(kde.log_density(jnp.zeros(1)) - kde.leave_one_out(jnp.zeros(1))), 4)
    0.2809
    """

    kde: KDEJump

    @property
    def makes_real_numbers(self) -> bool:
        return True

    def sample(self, t: Level, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
        return self.kde.sample(t, x, key=key)

    def log_prob(self, t: Level, y: Float[Array, " d"], x: Float[Array, " d"]) -> Scalar:
        return self.kde.log_density(y)

    def of_noise(self, y: Float[Array, " d"]) -> Scalar:
        """log q at a point of its own making: the whole estimate's."""
        return self.kde.log_density(y)

    def of_data(self, x: Float[Array, " d"]) -> Scalar:
        """log q at a row of the data: that of the other rows."""
        return self.kde.leave_one_out(x)

    def propose(self, t: Level, x: Float[Array, " d"], *, key: PRNGKeyArray) -> tuple[Float[Array, " d"], Scalar]:
        y = self.kde.sample(t, x, key=key)
        return y, self.of_noise(y) - self.of_data(x)


class Remembered(AbstractNoise):
    """A jump whose density at the rows of the data was computed once and is looked up: half the cost of a step.

    A batch of training rows meets only densities that were known before training; a batch with any other point in it
    is computed like everything else, so what is remembered changes the time and nothing more.

    >>> import jax, jax.numpy as jnp
    >>> data = jnp.arange(6.0).reshape(3, 2)
    >>> noise = Remembered(KDEJump(data, 0.5))
    >>> ys, ratios = noise.propose_each(0.0, data, key=jax.random.key(0))
    >>> _, computed = noise.jump.propose_each(0.0, data, key=jax.random.key(0))
    >>> bool(jnp.allclose(ratios, computed))
    True
    """

    jump: KDEJump | LeaveOneOut
    known: Rows

    def __init__(self, jump: KDEJump | LeaveOneOut):
        """The rows are those the jump was made of."""
        self.jump = jump
        self.known = Rows((jump if isinstance(jump, KDEJump) else jump.kde).density.centres, jump.of_data)

    @property
    def makes_real_numbers(self) -> bool:
        return self.jump.makes_real_numbers

    def sample(self, t: Level, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
        return self.jump.sample(t, x, key=key)

    def log_prob(self, t: Level, y: Float[Array, " d"], x: Float[Array, " d"]) -> Scalar:
        return self.jump.log_prob(t, y, x)

    def propose(self, t: Level, x: Float[Array, " d"], *, key: PRNGKeyArray) -> tuple[Float[Array, " d"], Scalar]:
        return self.jump.propose(t, x, key=key)

    def propose_each(
        self, t: Level, xs: Float[Array, "m d"], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
        ys = jax.vmap(lambda x, k: self.jump.sample(t, x, key=k))(xs, jax.random.split(key, len(xs)))
        return ys, jax.vmap(self.jump.of_noise)(ys) - self.known.values_at(xs, self.jump.of_data)


class Independent(AbstractKernel):
    """q(y | x) = q(y): draws of a normalised density, whatever x was.

    >>> import jax.numpy as jnp, unnorm as un
    >>> noise = Independent(un.energies.standard_gaussian(1))
    >>> round(float(noise.log_prob(0.0, jnp.zeros(1), jnp.ones(1))), 4)
    -0.9189
    """

    density: AbstractNormalised

    @property
    def makes_real_numbers(self) -> bool:
        return self.density.space.continuous

    def sample(self, t: Level, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
        return self.density.sample(key=key).astype(x.dtype)

    def log_prob(self, t: Level, y: Float[Array, " d"], x: Float[Array, " d"]) -> Scalar:
        return self.density.log_prob(y)


class DataJump(AbstractNoise):
    """y is another data point, drawn uniformly: the global jump with bandwidth 0.

    It has no density, but the ratio of the two directions is 1, since both points carry the same empirical weight. So
    an objective learns from it that all data are equally likely, which evens out the modes; it is a regulariser beside
    other noise and no way to estimate a density. A KDE is.
    """

    centres: Float[Array, "n d"]

    @property
    def makes_real_numbers(self) -> bool:
        return False

    def sample(self, t: Level, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
        return any_row(self.centres, key=key)

    def log_prob(self, t: Level, y: Float[Array, " d"], x: Float[Array, " d"]) -> Scalar:
        raise InputError("DataJump has no density; use KDEJump with a positive bandwidth where one is needed")

    def propose(self, t: Level, x: Float[Array, " d"], *, key: PRNGKeyArray) -> tuple[Float[Array, " d"], Scalar]:
        return self.sample(t, x, key=key), jnp.zeros((), x.dtype)
