"""Second-order denoising score matching: learn s1 = grad log q and s2 = Hessian of log q of the noisy density.

With x~ = x + sigma z and psi = s2 + s1 s1', least squares on the second moment of x given x~ is (Song 2022, Eq. 4.13)

    D2SM = E | psi(x~) + (I - z z') / sigma^2 |_F^2,

whose noise grows like sigma^-2. The antithetic pair x +- sigma z with psi(x) as control variate takes that away. The
sources print 1/sigma in one place where only 1/sigma^2 has the right expectation; the laws tell them apart. s2 is
diag(alpha) + beta beta' and no D x D matrix is ever formed (`frobenius`).
"""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unnorm.arguments import require_weight
from unnorm.errors import InputError
from unnorm.noises.gaussian import Gaussian
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.checks import require_kind
from unnorm.scores import AbstractFactored, AbstractScore, AbstractSecondOrder

Vector = Float[Array, " d"]


def frobenius(a: Vector, u: Float[Array, "d r"], c: Float[Array, " r"]) -> Scalar:
    """The squared Frobenius norm of diag(a) + u diag(c) u' at a cost of O(D r^2).

    sum a^2 + 2 sum_i a_i (u diag(c) u')_ii + tr((u'u diag(c))^2).

    >>> import jax.numpy as jnp
    >>> float(frobenius(jnp.array([1.0, 2.0]), jnp.ones((2, 1)), jnp.array([3.0])))  # [[4, 3], [3, 5]]
    59.0
    """
    gram = (u.T @ u) * c[None]
    return jnp.sum(a**2) + 2 * jnp.sum(a * (u**2 @ c)) + jnp.sum(gram * gram.T)


def _slope(model: AbstractScore, x: Array) -> Vector:
    return model(jnp.zeros((), x.dtype), x).reshape(-1)


def _psi(model: Any, x: Array) -> tuple[Vector, Float[Array, "d k"]]:
    """psi = s2 + s1 s1' as diag(alpha) + v v', v = [beta, s1]."""
    if not isinstance(model, AbstractFactored):
        raise InputError(
            "second-order denoising trains s2 = diag(alpha) + beta beta' (scores.LowRankSecondOrder or "
            f"scores.DiagonalSecondOrder), not {type(model).__name__}"
        )
    alpha, beta = model.factors(x)
    return alpha, jnp.concatenate([beta, _slope(model, x)[:, None]], axis=1)


def _diagonal_psi(model: Any, x: Array) -> tuple[Vector, Vector]:
    """diag(s2) + s1 * s1, and s1."""
    if not isinstance(model, AbstractSecondOrder):
        raise InputError(f"the diagonal of s2 is learnt by a scores.AbstractSecondOrder, not {type(model).__name__}")
    slope = _slope(model, x)
    return model.diagonal(x).reshape(-1) + slope**2, slope


def _first(after: Vector, z: Array, sigma: Scalar) -> Scalar:
    """|s1(x~) + z / sigma|^2 / 2."""
    return 0.5 * jnp.sum((after + z.reshape(-1) / sigma) ** 2)


def _first_vr(before: Vector, after: Vector, z: Array, sigma: Scalar) -> Scalar:
    """The same in expectation less d / (2 sigma^2), with s1(x) as control variate (`DSMVR`).

    The constant stays out: next to it the loss, which is of order one, has no digits in float32.
    """
    return 0.5 * jnp.sum(after**2) + jnp.sum((after - before) * z.reshape(-1)) / sigma


class AbstractSecondOrderLoss(AbstractObjective):
    """The mean over a batch of a loss of one point x and one z ~ N(0, I), and the first-order loss that goes with it.

    On its own it does not tell s1 and s2 apart; train it within `JointSecondOrder`.
    """

    noise: eqx.AbstractVar[Gaussian]
    #: The weight of the first-order loss in `JointSecondOrder` is by default this number over sigma^2.
    balance: eqx.AbstractClassVar[float]

    def __check_init__(self):
        require_kind(
            self.noise, Gaussian, f"{type(self).__name__} takes one level of noise, noises.Gaussian(scale), not {{}}"
        )

    @abstractmethod
    def both(self, model: Any, x: Array, z: Array) -> tuple[Scalar, Scalar]:
        """The loss on s2 and s1 of one point with one noise, and that on s1 alone, E |s1(x~) + z / sigma|^2 / 2.

        Together, because s1 at the noisy point is needed by both. Losses of reduced variance leave constants out.
        """

    def second(self, model: Any, x: Array, z: Array) -> Scalar:
        """The loss on s2 and s1 of one point with one noise."""
        return self.both(model, x, z)[0]

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps."""
        return None

    def __call__(
        self, model: Any, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        zs = jax.random.normal(key, batch.shape, batch.dtype)
        return jnp.mean(jax.vmap(lambda x, z: self.second(model, x, z))(batch, zs)), (None, {})


class D2SM(AbstractSecondOrderLoss):
    """L = E | s2(x~) + s1(x~) s1(x~)' + (I - z z') / sigma^2 |_F^2,  x~ = x + sigma z.

    With s1 right, its optimum is the Hessian of the log of the noisy density. Meng et al. 2021; Song 2022, Eq. 4.13.

    >>> import unnorm as un
    >>> float(D2SM(un.noises.Gaussian(0.5)).noise.scale)
    0.5
    """

    comparable: ClassVar[bool] = True
    balance: ClassVar[float] = 40.0
    noise: Gaussian

    def both(self, model: AbstractFactored, x: Array, z: Array) -> tuple[Scalar, Scalar]:
        alpha, v = _psi(model, x + self.noise.scale * z)
        weight = 1 / self.noise.scale**2
        u = jnp.concatenate([v, z.reshape(-1, 1)], axis=1)
        second = frobenius(alpha + weight, u, jnp.ones(u.shape[1], u.dtype).at[-1].set(-weight))
        return second, _first(v[:, -1], z, self.noise.scale)


class D2SMVR(AbstractSecondOrderLoss):
    """L = E [ |psi(x+)|^2 + |psi(x-)|^2 + (2 / sigma^2) <I - z z', psi(x+) + psi(x-) - 2 psi(x)> ], x+- = x +- sigma z.

    Equal to twice `D2SM` less the constant 2 D (D + 1) / sigma^4, with a variance that stays put as sigma -> 0
    (Song 2022, section 4.4.3). In float32 its rounding error is about 1e-7 / sigma^2 of psi: sigma >= 0.003 is safe.

    >>> import unnorm as un
    >>> D2SMVR(un.noises.Gaussian(0.01)).balance
    80.0
    """

    comparable: ClassVar[bool] = True
    balance: ClassVar[float] = 80.0
    noise: Gaussian

    def both(self, model: AbstractFactored, x: Array, z: Array) -> tuple[Scalar, Scalar]:
        step, flat = self.noise.scale * z, z.reshape(-1)

        def parts(y):
            """|psi|^2, <I - z z', psi> = tr psi - z' psi z, and s1."""
            alpha, v = _psi(model, y)
            contrast = jnp.sum(alpha * (1 - flat**2)) + jnp.sum(v**2) - jnp.sum((v.T @ flat) ** 2)
            return frobenius(alpha, v, jnp.ones(v.shape[1], v.dtype)), contrast, v[:, -1]

        # One by one: as a batch of three they take two thirds longer.
        plus, minus, here = (parts(y) for y in (x + step, x - step, x))
        curvature = plus[1] + minus[1] - 2 * here[1]
        second = plus[0] + minus[0] + 2 / self.noise.scale**2 * curvature
        return second, _first_vr(here[2], plus[2], z, self.noise.scale)


class DiagonalD2SM(AbstractSecondOrderLoss):
    """L = E | diag s2(x~) + s1(x~)^2 + (1 - z^2) / sigma^2 |^2, all elementwise (Song 2022, Eq. 4.17).

    Only the diagonal entries are matched; what lies off the diagonal of s1 s1' does not enter.
    """

    comparable: ClassVar[bool] = True
    balance: ClassVar[float] = 4.0
    noise: Gaussian

    def both(self, model: AbstractSecondOrder, x: Array, z: Array) -> tuple[Scalar, Scalar]:
        sigma = self.noise.scale
        psi, slope = _diagonal_psi(model, x + sigma * z)
        return jnp.sum((psi + (1 - z.reshape(-1) ** 2) / sigma**2) ** 2), _first(slope, z, sigma)


class DiagonalD2SMVR(AbstractSecondOrderLoss):
    """The antithetic form of `DiagonalD2SM`, as `D2SMVR`: twice it less the constant 4 D / sigma^4."""

    comparable: ClassVar[bool] = True
    balance: ClassVar[float] = 8.0
    noise: Gaussian

    def both(self, model: AbstractSecondOrder, x: Array, z: Array) -> tuple[Scalar, Scalar]:
        step, contrast = self.noise.scale * z, 1 - z.reshape(-1) ** 2
        # One by one: as a batch of three they take a third longer.
        (plus, noisy), (minus, _), (here, clean) = (_diagonal_psi(model, y) for y in (x + step, x - step, x))
        curvature = jnp.sum(contrast * (plus + minus - 2 * here))
        second = jnp.sum(plus**2) + jnp.sum(minus**2) + 2 / self.noise.scale**2 * curvature
        return second, _first_vr(clean, noisy, z, self.noise.scale)


class JointSecondOrder(AbstractObjective):
    """L = second-order loss + gamma * E |s1(x~) + z / sigma|^2 / 2 (Song 2022, Eq. 4.14 and 4.16).

    The first-order term is that of `DSM`, or of `DSMVR` beside a loss of reduced variance, at the same noisy points.
    Gradients of both terms flow into s1. Song 2022 does not print
    gamma; by default it is what the authors' programs used, 40 / sigma^2 beside `D2SM` and 4 / sigma^2 beside
    `DiagonalD2SM`, doubled beside their reduced forms, which are twice as large.

    >>> import unnorm as un
    >>> round(float(JointSecondOrder(D2SMVR(un.noises.Gaussian(0.1))).gamma))
    8000
    """

    comparable: ClassVar[bool] = True
    loss: AbstractSecondOrderLoss
    gamma: Scalar

    def __init__(self, loss: AbstractSecondOrderLoss, gamma: float | None = None):
        require_kind(
            loss, AbstractSecondOrderLoss, "JointSecondOrder joins a loss such as D2SMVR to its first order, not {}"
        )
        if gamma is not None:
            require_weight(gamma, "the weight of the first-order loss")
        self.loss = loss
        self.gamma = jnp.asarray(loss.balance / loss.noise.scale**2 if gamma is None else gamma, float)

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps."""
        return None

    def __call__(
        self, model: Any, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        zs = jax.random.normal(key, batch.shape, batch.dtype)
        parts = jax.vmap(lambda x, z: self.loss.both(model, x, z))(batch, zs)
        second, first = jax.tree.map(jnp.mean, parts)
        return second + self.gamma * first, (None, {"first": first, "second": second})
