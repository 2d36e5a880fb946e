"""How large noise should be for a data set: the lengths that make a contrastive problem neither trivial nor hopeless.

A local move of size e changes the energy by about e |grad E|. If that is far above 1, data and noise are told apart at
once and nothing more is learnt; far below 1, they look the same. The score of a kernel density estimate, with the
bandwidth that held-out points like best, says how steep the energy is before any network has seen the data.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unnorm.errors import require


@dataclass(frozen=True)
class Scales:
    """`bandwidth` is the best of a KDE; over `length` along an axis the energy changes by about one."""

    bandwidth: float
    length: float
    dimension: int

    @property
    def step(self) -> float:
        """The size of a local move that changes the energy by about 1.4: length sqrt(2 / d)."""
        return self.length * (2 / self.dimension) ** 0.5


@jax.jit
def _held_out(valid: Float[Array, "m d"], train: Float[Array, "n d"], bandwidths: Float[Array, " k"]):
    """Mean held-out log density and mean squared score of the KDE at each bandwidth."""
    d = train.shape[1]
    middle = train.mean(0, keepdims=True)
    a, b = valid - middle, train - middle
    squared = jnp.maximum(jnp.sum(a**2, 1)[:, None] - 2 * a @ b.T + jnp.sum(b**2, 1)[None], 0)

    def at(h):
        exponents = -squared / (2 * h**2)
        log_density = jax.nn.logsumexp(exponents, axis=1) - d * jnp.log(h)
        score = (jax.nn.softmax(exponents, axis=1) @ b - a) / h**2
        return jnp.mean(log_density), jnp.mean(jnp.sum(score**2, 1))

    return jax.lax.map(at, bandwidths)


def scales_of(train: Any, valid: Any, *, points: int = 4000) -> Scales:
    """The scales of a data set, from at most `points` training rows and a quarter as many held-out ones.

    length^2 = d / E|grad log kde|^2: on N(0, s^2 I) it is s, up to the smoothing of the estimate.

    >>> import jax
    >>> train, valid = jax.random.normal(jax.random.key(0), (2, 4000, 2))
    >>> 0.7 < scales_of(train, valid).length < 1.4
    True
    """
    train, valid = np.asarray(train, np.float32)[:points], np.asarray(valid, np.float32)[: max(points // 4, 1)]
    require(train.ndim == 2 and len(train) >= 2, f"scales need n x d points, not shape {train.shape}")
    spread = float(np.sqrt(train.var(0).mean()))
    bandwidths = spread * np.geomspace(0.01, 1.0, 25, dtype=np.float32)
    fits, scores = _held_out(jnp.asarray(valid), jnp.asarray(train), jnp.asarray(bandwidths))
    best = int(jnp.argmax(fits))
    length = float(np.sqrt(train.shape[1] / max(float(scores[best]), 1e-12)))
    return Scales(float(bandwidths[best]), min(length, spread), train.shape[1])
