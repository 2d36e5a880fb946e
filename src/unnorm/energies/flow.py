"""A flow whose volume is easy: additive couplings and one scale for each coordinate."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.base import AbstractNormalised, Scalar
from unnorm.errors import require
from unnorm.networks import MLP
from unnorm.spaces import Real


class NICE(AbstractNormalised):
    """log p(x) = log N(y; 0, I) + sum_i s_i with y = exp(s) * f(x): independent components (Dinh et al. 2015).

    f puts the even coordinates before the odd ones and then, coupling by coupling, adds a network of one half to the
    other, the halves taking turns. Each coupling is undone by a subtraction and keeps volumes, so that the determinant
    is exp(sum s) and the density is exact. x of any shape is taken flat.

    >>> flow = NICE(Real((2,)), width=8, depth=1, couplings=2, key=jax.random.key(0))
    >>> x = jnp.array([0.3, -1.0])
    >>> bool(jnp.allclose(flow.backward(flow.forward(x)), x, atol=1e-6))
    True
    """

    networks: tuple[MLP, ...]
    log_scale: Float[Array, " d"]
    space: Real = eqx.field(static=True)

    def __init__(self, space: Real, *, width: int = 1000, depth: int = 4, couplings: int = 4, key: PRNGKeyArray):
        """`couplings` networks of `depth` hidden layers of `width` softplus units."""
        require(space.size >= 2, "a coupling needs at least two coordinates")
        require(couplings >= 2, f"with {couplings} couplings one half of the coordinates never changes; take 2 or more")
        size = space.size
        even = (size + 1) // 2
        # The first half moves the second, then the second the first.
        sides = [(even, size - even) if i % 2 == 0 else (size - even, even) for i in range(couplings)]
        keys = jax.random.split(key, couplings)
        self.networks = tuple(
            MLP(a, b, width=width, depth=depth, activation=jax.nn.softplus, key=k)
            for (a, b), k in zip(sides, keys, strict=True)
        )
        self.log_scale = jnp.zeros(size)
        self.space = space

    def forward(self, x: Float[Array, "..."]) -> Float[Array, " d"]:
        """y of x."""
        flat = x.reshape(-1)
        first, second = flat[::2], flat[1::2]
        for i, network in enumerate(self.networks):
            if i % 2 == 0:
                second = second + network(first)
            else:
                first = first + network(second)
        return jnp.exp(self.log_scale) * jnp.concatenate([first, second])

    def backward(self, y: Float[Array, " d"]) -> Float[Array, "..."]:
        """x of y."""
        unscaled = y * jnp.exp(-self.log_scale)
        even = (y.size + 1) // 2
        first, second = unscaled[:even], unscaled[even:]
        for i, network in reversed(list(enumerate(self.networks))):
            if i % 2 == 0:
                second = second - network(first)
            else:
                first = first - network(second)
        flat = jnp.zeros_like(y).at[::2].set(first).at[1::2].set(second)
        return flat.reshape(self.space.shape)

    def __call__(self, x: Float[Array, "..."]) -> Scalar:
        y = self.forward(x)
        return 0.5 * jnp.sum(y**2) + 0.5 * y.size * math.log(2 * math.pi) - jnp.sum(self.log_scale)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "..."]:
        return self.backward(jax.random.normal(key, (self.space.size,), self.log_scale.dtype))
