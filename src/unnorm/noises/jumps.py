"""Local moves and jumps between modes, together: the noise of mix-CNCE (Yu et al. 2025).

A local kernel shows the shape of one mode, a global one how much each mode weighs. `Choice` picks one kernel per
noise point and remembers which (the paper's mix); `BlendedKernel` is the same mixture seen as one kernel, its density
summed over the choices. `Jumps` and `GlobalJumps` are recipes: they become noises when they see the data.
"""

import math
from abc import abstractmethod
from math import inf

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.energies.em import moment_gaussian
from unnorm.errors import require
from unnorm.noises.base import AbstractKernel, AbstractNoise, Level, Point, Scalar
from unnorm.noises.gaussian import Gaussian
from unnorm.noises.kde import REMEMBERED, DataJump, Independent, KDEJump, LeaveOneOut, Remembered
from unnorm.noises.rows import Rows


def _check_shares(noises: tuple[AbstractNoise, ...], shares: tuple[float, ...]) -> None:
    require(
        len(noises) == len(shares) > 0 and all(s > 0 for s in shares) and abs(sum(shares) - 1) < 1e-6,
        f"{len(noises)} noises need as many positive shares that sum to 1, not {shares}",
    )


def _draw(noises: tuple[AbstractNoise, ...], shares: tuple[float, ...], t: Level, x: Point, key: PRNGKeyArray):
    """A draw of the mixture, and the index of the noise that made it."""
    which, inner = jax.random.split(key)
    index = jax.random.categorical(which, jnp.log(jnp.asarray(shares)))
    draws = [noise.sample(t, x, key=k) for noise, k in zip(noises, jax.random.split(inner, len(noises)), strict=True)]
    return jnp.stack(draws)[index], index


def _mixture_log_prob(
    noises: tuple[AbstractNoise, ...], shares: tuple[float, ...], t: Level, y: Point, x: Point
) -> Scalar:
    parts = jnp.stack([noise.log_prob(t, y, x) for noise in noises])
    return jax.nn.logsumexp(parts + jnp.log(jnp.asarray(shares, parts.dtype)))


class Choice(AbstractNoise):
    """One of several noises, chosen at random for each noise point; the ratio is that of the one chosen."""

    noises: tuple[AbstractNoise, ...]
    shares: tuple[float, ...] = eqx.field(static=True)

    def __check_init__(self):
        _check_shares(self.noises, self.shares)

    @property
    def makes_real_numbers(self) -> bool:
        return any(noise.makes_real_numbers for noise in self.noises)

    def sample(self, t: Level, x: Point, *, key: PRNGKeyArray) -> Point:
        return _draw(self.noises, self.shares, t, x, key)[0]

    def log_prob(self, t: Level, y: Point, x: Point) -> Scalar:
        return _mixture_log_prob(self.noises, self.shares, t, y, x)

    def propose(self, t: Level, x: Point, *, key: PRNGKeyArray) -> tuple[Point, Scalar]:
        which, inner = jax.random.split(key)
        index = jax.random.categorical(which, jnp.log(jnp.asarray(self.shares)))
        keys = jax.random.split(inner, len(self.noises))
        ys, ratios = zip(*(n.propose(t, x, key=k) for n, k in zip(self.noises, keys, strict=True)), strict=True)
        return jnp.stack(ys)[index], jnp.stack(ratios)[index]

    def propose_each(
        self, t: Level, xs: Float[Array, "n ..."], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "n ..."], Float[Array, " n"]]:
        """Stratified: each noise gets its share of the rows, so that the cost of a kernel is paid only where it is
        used, and the split has no sampling error beyond rounding.
        """
        ends = np.round(np.cumsum(self.shares) * len(xs)).astype(int)
        keys = jax.random.split(key, len(ends))
        pieces = [
            noise.propose_each(t, xs[start:end], key=k)
            for noise, start, end, k in zip(self.noises, [0, *ends[:-1]], ends, keys, strict=True)
            if end > start
        ]
        ys, ratios = zip(*pieces, strict=True)
        return jnp.concatenate(ys), jnp.concatenate(ratios)


class BlendedKernel(AbstractKernel):
    """q(y | x) = sum_i share_i q_i(y | x), as one kernel with its exact density."""

    noises: tuple[AbstractNoise, ...]
    shares: tuple[float, ...] = eqx.field(static=True)

    def __check_init__(self):
        _check_shares(self.noises, self.shares)

    @property
    def makes_real_numbers(self) -> bool:
        return any(noise.makes_real_numbers for noise in self.noises)

    def sample(self, t: Level, x: Point, *, key: PRNGKeyArray) -> Point:
        return _draw(self.noises, self.shares, t, x, key)[0]

    def log_prob(self, t: Level, y: Point, x: Point) -> Scalar:
        return _mixture_log_prob(self.noises, self.shares, t, y, x)


class LeaveOneOutBlend(AbstractNoise):
    """share N(y; x, s^2 I) + (1 - share) KDE(y) as one kernel, with a ratio that does not count a row's own kernel.

    x is a row that the estimate was made of, y is not. So the kernel on x is left out of the KDE in log q(x | y), the
    density *at the row*, as `LeaveOneOut` does; log q(y | x) is the whole blend's. There the kernel on x is harmless:
    where a local move of s = r bandwidths leads, at s sqrt(d) from x, it is to the local part of the blend as
    (r e^{(1 - r^2) / 2})^d (1 - share) / (n share), at most 1 / n at equal shares; and of the jumps 1 / n come from it.

    >>> import jax.numpy as jnp
    >>> blend = LeaveOneOutBlend(Gaussian(1.0), KDEJump(jnp.array([[0.0], [1.0]]), 1.0), 0.5)
    >>> x, y = jnp.zeros(1), jnp.full(1, 9.0)
    >>> round(float(blend.of_data(0.0, x, y) - blend.log_prob(0.0, x, y)), 4)
    -0.2809
    """

    local: Gaussian
    kde: KDEJump
    share: float = eqx.field(static=True)
    #: The estimate at the rows it was made of, each without its own kernel, if it was computed beforehand.
    known: Rows | None = None

    def __check_init__(self):
        _check_shares((self.local, self.kde), (self.share, 1 - self.share))

    @property
    def makes_real_numbers(self) -> bool:
        return True

    def sample(self, t: Level, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Float[Array, " d"]:
        return _draw((self.local, self.kde), (self.share, 1 - self.share), t, x, key)[0]

    def log_prob(self, t: Level, y: Float[Array, " d"], x: Float[Array, " d"]) -> Scalar:
        return _mixture_log_prob((self.local, self.kde), (self.share, 1 - self.share), t, y, x)

    def of_data(self, t: Level, x: Float[Array, " d"], y: Float[Array, " d"]) -> Scalar:
        """log q(x | y) at a row x: its own kernel is left out."""
        return self._blended(t, x, y, self.kde.leave_one_out(x))

    def _blended(self, t: Level, x: Float[Array, " d"], y: Float[Array, " d"], log_kde: Scalar) -> Scalar:
        """log (share N(x; y, s^2 I) + (1 - share) kde)."""
        return jnp.logaddexp(math.log(self.share) + self.local.log_prob(t, x, y), math.log1p(-self.share) + log_kde)

    def propose(self, t: Level, x: Float[Array, " d"], *, key: PRNGKeyArray) -> tuple[Float[Array, " d"], Scalar]:
        y = self.sample(t, x, key=key)
        return y, self.log_prob(t, y, x) - self.of_data(t, x, y)

    def propose_each(
        self, t: Level, xs: Float[Array, "m d"], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
        """The estimate at rows of the data is looked up, as in `Remembered`."""
        ys = jax.vmap(lambda x, k: self.sample(t, x, key=k))(xs, jax.random.split(key, len(xs)))
        there = jax.vmap(lambda y, x: self.log_prob(t, y, x))(ys, xs)
        alone = self.kde.leave_one_out
        log_kde = jax.vmap(alone)(xs) if self.known is None else self.known.values_at(xs, alone)
        return ys, there - jax.vmap(lambda x, y, k: self._blended(t, x, y, k))(xs, ys, log_kde)


class AbstractNoiseFromData(eqx.Module):
    """A recipe that becomes a noise when it sees the training data."""

    @abstractmethod
    def fit(self, data: Float[Array, "n d"]) -> AbstractNoise:
        """The noise for this data set."""


def _check_left_out(leave_one_out: bool, bandwidth: float) -> None:
    require(
        not leave_one_out or bandwidth > 0,
        "leaving one out needs a positive bandwidth: without one there is no density",
    )


def _check_rows(data: Float[Array, "n d"]) -> None:
    require(len(data) >= 2, f"jumps need at least 2 rows to lead between, not {len(data)}; use noises.Gaussian")


def _widths(local: float | tuple[float, ...]) -> tuple[float, ...]:
    return tuple(local) if isinstance(local, tuple | list) else (float(local),)


class GlobalJumps(AbstractNoiseFromData):
    """Jumps to the neighbourhood of any data point: a KDE of the data, or the data itself at bandwidth 0.

    With `leave_one_out` the density at a data point does not count its own kernel (`noises.LeaveOneOut`).
    """

    bandwidth: float = eqx.field(static=True)
    block: int = eqx.field(static=True, default=2048)
    leave_one_out: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        require(0 <= self.bandwidth < inf, f"a bandwidth must be finite and not negative, not {self.bandwidth}")
        _check_left_out(self.leave_one_out, self.bandwidth)

    def fit(self, data: Float[Array, "n d"]) -> AbstractNoise:
        _check_rows(data)
        if self.bandwidth == 0:
            return DataJump(data)
        kde = KDEJump(data, self.bandwidth, block=self.block)
        jump = LeaveOneOut(kde) if self.leave_one_out else kde
        return Remembered(jump) if len(data) <= REMEMBERED else jump


class Jumps(AbstractNoiseFromData):
    """A share of local Gaussian moves of size `local`, the rest global jumps of the given bandwidth (Yu et al. 2025).

    Several local sizes share the local moves equally. A share `wide` of the noise points comes from the data's Gaussian
    at twice its standard deviation: contrastive noise that stays near the data leaves the energy free elsewhere, and
    what is free may grow a mode. `leave_one_out` is that of `GlobalJumps`.

    >>> import jax.numpy as jnp
    >>> type(Jumps(local=0.1, bandwidth=0.1).fit(jnp.zeros((10, 2)))).__name__
    'Choice'
    """

    local: tuple[float, ...] = eqx.field(static=True, converter=_widths)
    bandwidth: float = eqx.field(static=True)
    share: float = eqx.field(static=True, default=0.5)
    wide: float = eqx.field(static=True, default=0.0)
    leave_one_out: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        require(0 < self.share < 1, f"the share of local moves lies strictly between 0 and 1, not {self.share}")
        require(
            0 <= self.wide < 1 - self.share,
            f"the share of wide jumps lies between 0 and {1 - self.share:g}, what local moves leave, not {self.wide}",
        )
        require(len(self.local) > 0, "jumps need at least one size of local move")
        require(
            all(0 < width < inf for width in self.local),
            f"local moves must have a positive and finite size, not {self.local}",
        )
        require(0 <= self.bandwidth < inf, f"a bandwidth must be finite and not negative, not {self.bandwidth}")
        _check_left_out(self.leave_one_out, self.bandwidth)

    def fit(self, data: Float[Array, "n d"]) -> AbstractNoise:
        near = tuple(Gaussian(width) for width in self.local)
        shares = (*(self.share / len(near) for _ in near), 1 - self.share - self.wide)
        noises = (*near, GlobalJumps(self.bandwidth, leave_one_out=self.leave_one_out).fit(data))
        if self.wide == 0:
            return Choice(noises, shares)
        return Choice((*noises, Independent(moment_gaussian(data, 2.0))), (*shares, self.wide))


class BlendedJumps(AbstractNoiseFromData):
    """As `Jumps`, with the two kernels blended into one whose density is known.

    With `leave_one_out` the density at a data point does not count its own kernel (`noises.LeaveOneOutBlend`).
    """

    local: float = eqx.field(static=True)
    bandwidth: float = eqx.field(static=True)
    share: float = eqx.field(static=True, default=0.5)
    leave_one_out: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        require(0 < self.share < 1, f"the share of local moves lies strictly between 0 and 1, not {self.share}")
        require(0 < self.local < inf, f"local moves must have a positive and finite size, not {self.local}")
        require(
            0 < self.bandwidth < inf,
            f"the bandwidth of blended jumps must be positive and finite, not {self.bandwidth}",
        )

    def fit(self, data: Float[Array, "n d"]) -> AbstractNoise:
        _check_rows(data)
        local, kde = Gaussian(self.local), KDEJump(data, self.bandwidth)
        if not self.leave_one_out:
            return BlendedKernel((local, kde), (self.share, 1 - self.share))
        known = Rows(data, kde.leave_one_out) if len(data) <= REMEMBERED else None
        return LeaveOneOutBlend(local, kde, self.share, known)
