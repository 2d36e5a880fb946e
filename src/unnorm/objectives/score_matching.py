"""Score matching: fit the slope of log p, exactly or along random directions.

The Fisher divergence 1/2 E|s - s_data|^2 holds the unknown score of the data, but integration by parts removes it
(Hyvarinen 2005): up to a constant it is J = E[ tr grad s(x) + 1/2 |s(x)|^2 ]. The trace costs one derivative of the
score for each of the D coordinates; slices (Song et al. 2019) need one for each direction drawn.
"""

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
from unnorm.objectives.slices import AbstractSlices, RademacherSlices, require_directions
from unnorm.scores import AbstractScore, as_score, slopes_and_curvature

Point = Float[Array, "..."]


def score_field(model: AbstractEnergy | AbstractScore) -> Callable[[Point], Point]:
    """x -> s(0, x): objectives of one level look at level 0."""
    score = as_score(model)
    return lambda x: score(jnp.zeros((), x.dtype), x)


def value_and_divergence(field: Callable[[Point], Point], x: Point, *, chunk: int = 32) -> tuple[Point, Scalar]:
    """F(x) and div F(x) = tr grad F(x), exactly.

    F is linearised once and its derivative applied to the basis vectors, `chunk` of them at a time: forward over
    reverse for the score of an energy. Neither the Jacobian nor the basis is ever held whole, and in a gradient each
    chunk is computed anew rather than remembered, so memory does not grow with the dimension.

    >>> value, divergence = value_and_divergence(lambda x: x**2, jnp.array([1.0, 2.0]))
    >>> float(divergence)
    6.0
    """
    value, derivative = jax.linearize(field, x)
    size = x.size

    def along(i):
        # Beyond the last coordinate this is the zero vector, which adds nothing.
        v = jax.nn.one_hot(i, size, dtype=x.dtype).reshape(x.shape)
        return jnp.vdot(v, derivative(v))

    if size <= chunk:
        return value, jnp.sum(jax.vmap(along)(jnp.arange(size)))

    def add(total, first):
        return total + jnp.sum(jax.vmap(along)(first + jnp.arange(chunk))), None

    total, _ = jax.lax.scan(jax.checkpoint(add), jnp.zeros((), x.dtype), jnp.arange(0, size, chunk))
    return value, total


def along(
    model: AbstractEnergy | AbstractScore,
) -> Callable[[Point, Float[Array, "k ..."]], tuple[Float[Array, " k"], Scalar]]:
    """(x, directions) -> v_i's(x) for every direction, and sum_i v_i'(grad s(x)) v_i.

    An energy is differentiated twice going forward (`scores.slopes_and_curvature`); a free score once.

    >>> import unnorm as un
    >>> slopes, curvature = along(un.energies.standard_gaussian(2))(jnp.array([1.0, 2.0]), jnp.eye(2))
    >>> slopes.tolist(), float(curvature)
    ([-1.0, -2.0], -2.0)
    """
    field = score_field(model)
    if isinstance(model, AbstractEnergy):
        energy = model

        def of_energy(x, vs):
            slopes, curvature = slopes_and_curvature(energy, x, vs)
            return -slopes, -curvature

        return of_energy

    def of_score(x, vs):
        s, derivative = jax.linearize(field, x)
        return jax.vmap(lambda v: jnp.vdot(v, s))(vs), jnp.sum(jax.vmap(lambda v: jnp.vdot(v, derivative(v)))(vs))

    return of_score


def square_and_trace(
    model: AbstractEnergy | AbstractScore, x: Point, root: Callable[[Array], Array], *, chunk: int = 32
) -> tuple[Scalar, Scalar]:
    """|b's(x)|^2 and tr(b'(grad s(x)) b), exactly; `root` maps a unit vector e_i to the column b e_i.

    `chunk` columns at a time: never more are held, and in a gradient each chunk is computed anew rather than
    remembered, so memory does not grow with the dimension.
    """
    size, part = x.size, along(model)

    def columns(first, count):
        # Beyond the last coordinate this is the zero vector, which adds nothing.
        units = jax.vmap(lambda i: jax.nn.one_hot(i, size, dtype=x.dtype))(first + jnp.arange(count))
        slopes, trace = part(x, jax.vmap(root)(units).reshape(count, *x.shape))
        return jnp.sum(slopes**2), trace

    if size <= chunk:
        return columns(0, size)

    def add(sums, first):
        return jax.tree.map(jnp.add, sums, columns(first, chunk)), None

    nothing = (jnp.zeros((), x.dtype), jnp.zeros((), x.dtype))
    return jax.lax.scan(jax.checkpoint(add), nothing, jnp.arange(0, size, chunk))[0]


class SM(AbstractObjective):
    """L = E[ tr grad s(x) + 1/2 |s(x)|^2 ], with the exact trace.

    At its minimum s is the score of the data; the density must vanish at the edge of its support (for one that does
    not, see `DiffusionSM`). `chunk` basis vectors are pushed through the score at a time. Hyvarinen 2005.

    >>> import jax, unnorm as un
    >>> points = jnp.array([[1.0, 1.0]])
    >>> float(SM()(un.energies.standard_gaussian(2), None, points, key=jax.random.key(0))[0])
    -1.0
    """

    comparable: ClassVar[bool] = True
    chunk: int = eqx.field(static=True, default=32)

    def __check_init__(self):
        require_count(self.chunk, 1, "the basis vectors taken at a time")

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model without a score is refused here."""
        as_score(model)
        return None

    def __call__(
        self, model: AbstractEnergy | AbstractScore, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        parts = jax.vmap(lambda x: square_and_trace(model, x, lambda v: v, chunk=self.chunk))(batch)
        square, trace = jax.tree.map(jnp.mean, parts)
        return trace + 0.5 * square, (None, {"trace": trace})


def _drawn(slices: AbstractSlices, draws: int, x: Point, key: PRNGKeyArray) -> Float[Array, "draws ..."]:
    return jax.vmap(lambda k: slices(x, key=k))(jax.random.split(key, draws))


class SSM(AbstractObjective):
    """L = E_x E_v[ v'(grad s(x)) v + 1/2 (v's(x))^2 ]: score matching along random directions.

    Its minimum is the score of the data for every law of directions with E[v v'] positive definite and any number of
    `draws` per point; more of them only make it less noisy. Song, Garg, Shi and Ermon 2019 (Song 2022, Alg. 3.1).

    >>> SSM().draws
    1
    """

    comparable: ClassVar[bool] = True
    slices: AbstractSlices = RademacherSlices()
    draws: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        require_directions(self.slices, self.draws)

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model without a score is refused here."""
        as_score(model)
        return None

    def __call__(
        self, model: AbstractEnergy | AbstractScore, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        part = along(model)
        slopes, curvatures = jax.vmap(lambda x, k: part(x, _drawn(self.slices, self.draws, x, k)))(
            batch, jax.random.split(key, len(batch))
        )
        trace = jnp.mean(curvatures) / self.draws
        return trace + 0.5 * jnp.mean(slopes**2), (None, {"trace": trace})


class SSMVR(AbstractObjective):
    """L = E_x[ E_v[ v'(grad s(x)) v ] + 1/2 |s(x)|^2 ]: sliced score matching of reduced variance.

    With E[v v'] = I the mean of (v's)^2 is |s|^2, which needs no drawing: what is left is Hutchinson's estimate of the
    trace. Song, Garg, Shi and Ermon 2019 (Song 2022, Eq. 3.8). Directions that are not white are refused.

    >>> import unnorm as un
    >>> SSMVR(un.objectives.SphereSlices(radius=1.0))
    Traceback (most recent call last):
    unnorm.errors.InputError: SSMVR needs directions with E[v v'] = I, and SphereSlices(radius=1.0) is not such; use SSM
    """

    comparable: ClassVar[bool] = True
    slices: AbstractSlices = RademacherSlices()
    draws: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        require_directions(self.slices, self.draws)
        require(self.slices.white, f"SSMVR needs directions with E[v v'] = I, and {self.slices} is not such; use SSM")

    def init(self, model: Any, data: Float[Array, "n ..."], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model without a score is refused here."""
        as_score(model)
        return None

    def __call__(
        self, model: AbstractEnergy | AbstractScore, state: None, batch: Float[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        field = score_field(model)

        def one(x, key):
            # |s|^2 needs the whole score, so the score is differentiated rather than the energy twice.
            s, derivative = jax.linearize(field, x)
            return s, jax.vmap(lambda v: jnp.vdot(v, derivative(v)))(_drawn(self.slices, self.draws, x, key))

        scores, curvatures = jax.vmap(one)(batch, jax.random.split(key, len(batch)))
        trace = jnp.mean(curvatures)
        return trace + 0.5 * jnp.sum(scores**2) / len(batch), (None, {"trace": trace})
