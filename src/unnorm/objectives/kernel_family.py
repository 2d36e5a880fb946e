"""Score matching of a deep kernel exponential family: the last weights in closed form, the rest by gradient descent.

Every score matching loss of log p~ = alpha'k(x) + log q0(x) is quadratic in alpha: for one point

    loss(alpha) = 1/2 |F'alpha + r|^2 + c'alpha + e,

with F the gradients of the kernels (along a slice: L x 1, else L x D), r that of log q0 (less the target when
denoising), c the second derivatives of the kernels and e that of log q0. Over a batch this is
alpha'G alpha / 2 + b'alpha + a with G = mean F F' and b = mean(F r + c), and with a ridge
alpha = -(G + ridge I)^-1 b (Song 2022, Prop. B.1).
"""

from functools import partial, singledispatch
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from unnorm.energies.kernel import DKEF
from unnorm.errors import InputError, require
from unnorm.noises import Gaussian
from unnorm.objectives.base import AbstractObjective, Info, Scalar
from unnorm.objectives.denoising import DSM
from unnorm.objectives.kernel_curvature import Curvature, approximate_traces, sampled_trace, sampled_traces
from unnorm.objectives.propagation import ApproximateBP, CurvaturePropagation
from unnorm.objectives.score_matching import SM, SSM, SSMVR
from unnorm.objectives.slices import AbstractSlices
from unnorm.small_matrices import solve_positive

#: Rows whose gradients are held at once when a whole data set is gone through.
BLOCK = 100
#: Ridges tried by `finalise`.
RIDGES = np.logspace(-6, 2, 161)


class Quadratic(NamedTuple):
    """alpha'G alpha / 2 + b'alpha + a, a mean over points.

    >>> q = Quadratic(jnp.eye(1), jnp.array([2.0]), jnp.array(0.5))
    >>> round(float(q.solve(1.0)[0]), 4), float(q(jnp.array([-1.0])))
    (-1.0, -1.0)
    """

    matrix: Float[Array, "l l"]
    vector: Float[Array, " l"]
    constant: Scalar

    def __call__(self, alpha: Float[Array, " l"]) -> Scalar:
        return 0.5 * alpha @ self.matrix @ alpha + self.vector @ alpha + self.constant

    def solve(self, ridge: Scalar | float) -> Float[Array, " l"]:
        """-(G + ridge I)^-1 b, the minimum of the loss with ridge |alpha|^2 / 2 added."""
        matrix = self.matrix + ridge * jnp.eye(len(self.vector), dtype=self.vector.dtype)
        return -solve_positive(matrix, self.vector)


#: F, r, c and e of one point, and of every point of a batch.
Parts = tuple[Float[Array, "l m"], Float[Array, " m"], Float[Array, " l"], Scalar]
AllParts = tuple[Float[Array, "b l m"], Float[Array, "b m"], Float[Array, "b l"], Float[Array, " b"]]


Weights = Float[Array, " b"]


def _mean(parts: AllParts, weights: Weights | None) -> Quadratic:
    """From (F, r, c, e) of every point of a batch to the mean, or to the weighted sum."""
    gradients, offsets, curvatures, constants = parts
    n = len(gradients)
    weights = jnp.full(n, 1 / n, gradients.dtype) if weights is None else weights
    root = jnp.sqrt(weights)
    flat = jnp.moveaxis(gradients * root[:, None, None], 1, 0).reshape(gradients.shape[1], -1)
    residual = (offsets * root[:, None]).reshape(-1)
    return Quadratic(
        flat @ flat.T, flat @ residual + weights @ curvatures, 0.5 * residual @ residual + weights @ constants
    )


@singledispatch
def quadratic(
    loss: AbstractObjective, model: DKEF, batch: Float[Array, "b d"], key: PRNGKeyArray, weights: Weights | None = None
) -> Quadratic:
    """The loss on a batch as a function of alpha; draws are those the loss itself makes with this key.

    The mean over the rows, or with `weights` their weighted sum.
    """
    raise InputError(
        f"{type(loss).__name__} has no closed form for a DKEF; use SM, SSM, SSMVR, DSM, ApproximateBP or "
        "CurvaturePropagation"
    )


def _along(model: DKEF, x: Array, v: Array) -> tuple[Array, Array]:
    """v'grad k_l and v'(grad^2 k_l) v for every l."""
    basis = model.basis()

    def slope(x):
        return jax.jvp(basis, (x,), (v,))[1]

    return jax.jvp(slope, (x,), (v,))


def _slices(slices: AbstractSlices, draws: int, x: Array, key: PRNGKeyArray) -> Float[Array, "draws d"]:
    return jax.vmap(lambda k: slices(x, key=k))(jax.random.split(key, draws))


def _gradients(model: DKEF, x: Array) -> Float[Array, "l d"]:
    return jax.jacfwd(model.basis())(x)


@quadratic.register
def _(loss: SM, model: DKEF, batch: Array, key: PRNGKeyArray, weights: Weights | None = None) -> Quadratic:
    def one(x: Array) -> Parts:
        slopes, curvatures = jax.vmap(partial(_along, model, x))(jnp.eye(x.size, dtype=x.dtype))
        precision = 1 / model.base_scale**2
        return slopes.T, -precision * x, jnp.sum(curvatures, axis=0), jnp.asarray(-precision * x.size)

    return _mean(jax.vmap(one)(batch), weights)


@quadratic.register
def _(loss: SSM, model: DKEF, batch: Array, key: PRNGKeyArray, weights: Weights | None = None) -> Quadratic:
    def one(x: Array, key: PRNGKeyArray) -> Parts:
        vs = _slices(loss.slices, loss.draws, x, key)
        slopes, curvatures = jax.vmap(partial(_along, model, x))(vs)
        precision, root = 1 / model.base_scale**2, loss.draws**-0.5
        # A mean over draws of squares is a sum of squares of the draws over their root.
        return (
            slopes.T * root, -precision * (vs @ x) * root, jnp.mean(curvatures, axis=0),
            -precision * jnp.mean(jnp.sum(vs**2, axis=1)),
        )  # fmt: skip

    return _mean(jax.vmap(one)(batch, jax.random.split(key, len(batch))), weights)


@quadratic.register
def _(loss: SSMVR, model: DKEF, batch: Array, key: PRNGKeyArray, weights: Weights | None = None) -> Quadratic:
    def one(x: Array, key: PRNGKeyArray) -> Parts:
        vs = _slices(loss.slices, loss.draws, x, key)
        _, curvatures = jax.vmap(partial(_along, model, x))(vs)
        precision = 1 / model.base_scale**2
        constant = -precision * jnp.mean(jnp.sum(vs**2, axis=1))
        return _gradients(model, x), -precision * x, jnp.mean(curvatures, axis=0), constant

    return _mean(jax.vmap(one)(batch, jax.random.split(key, len(batch))), weights)


@quadratic.register
def _(loss: DSM, model: DKEF, batch: Array, key: PRNGKeyArray, weights: Weights | None = None) -> Quadratic:
    """1/2 |s(y) + (y - x) / sigma^2|^2 at y = x + sigma z: the loss of DSM times d / (2 sigma^2)."""
    if not isinstance(loss.noise, Gaussian):
        raise InputError(f"the closed form for a DKEF takes one noise level, Gaussian(scale), not {loss.noise}")
    sigma = loss.noise.scale
    zs = jax.random.normal(jax.random.split(key)[1], batch.shape, batch.dtype)

    def one(x: Array, z: Array) -> Parts:
        y = x + sigma * z
        offset = -y / model.base_scale**2 + z / sigma
        return _gradients(model, y), offset, jnp.zeros_like(model.alpha), jnp.zeros(())

    return _mean(jax.vmap(one)(batch, zs), weights)


def _propagated(
    model: DKEF, curvature: Curvature, batch: Array, key: PRNGKeyArray, weights: Weights | None
) -> Quadratic:
    def one(x: Array, key: PRNGKeyArray) -> Parts:
        precision = 1 / model.base_scale**2
        return _gradients(model, x), -precision * x, curvature(x, key), jnp.asarray(-precision * x.size)

    return _mean(jax.vmap(one)(batch, jax.random.split(key, len(batch))), weights)


@quadratic.register
def _(loss: ApproximateBP, model: DKEF, batch: Array, key: PRNGKeyArray, weights: Weights | None = None) -> Quadratic:
    return _propagated(model, approximate_traces(model), batch, key, weights)


@quadratic.register
def _(
    loss: CurvaturePropagation, model: DKEF, batch: Array, key: PRNGKeyArray, weights: Weights | None = None
) -> Quadratic:
    return _propagated(model, sampled_traces(model, loss.floor), batch, key, weights)


@singledispatch
def loss_at(loss: AbstractObjective, model: DKEF, alpha: Float[Array, " l"], batch: Array, key: PRNGKeyArray) -> Scalar:
    """The loss of a batch at this alpha."""
    return quadratic(loss, model, batch, key)(alpha)


@loss_at.register
def _(loss: CurvaturePropagation, model: DKEF, alpha: Float[Array, " l"], batch: Array, key: PRNGKeyArray) -> Scalar:
    """Curvature is propagated through the whole energy, not kernel by kernel."""
    basis, trace, precision = model.basis(), sampled_trace(model, alpha, loss.floor), 1 / model.base_scale**2

    def one(x: Array, key: PRNGKeyArray) -> Scalar:
        slope = jax.grad(lambda x: alpha @ basis(x))(x) - precision * x
        return 0.5 * jnp.sum(slope**2) + trace(x, key) - precision * x.size

    return jnp.mean(jax.vmap(one)(batch, jax.random.split(key, len(batch))))


@singledispatch
def fitted_and_judged(
    loss: AbstractObjective, model: DKEF, halves: Float[Array, "2 b d"], keys: Key[Array, "2"], ridge: Scalar
) -> Scalar:
    """The loss of the second half at the alpha of the first."""
    # Both halves in one go: what depends on the anchors alone is computed, and compiled, once.
    forms = jax.vmap(partial(quadratic, loss, model))(halves, keys)
    fitted, judged = (Quadratic(*(part[i] for part in forms)) for i in (0, 1))
    return judged(fitted.solve(ridge))


@fitted_and_judged.register
def _(loss: CurvaturePropagation, model: DKEF, halves: Array, keys: Key[Array, "2"], ridge: Scalar) -> Scalar:
    """Alpha needs the trace of every kernel, the loss that of the whole energy: the halves do not go together."""
    alpha = quadratic(loss, model, halves[0], keys[0]).solve(ridge)
    return loss_at(loss, model, alpha, halves[1], keys[1])


class KernelFamily(AbstractObjective):
    """One half of a batch gives alpha in closed form, differentiably; the other half gives the loss at that alpha.

    It is minimised over features, lengths, anchors and ridge alike.

    Two halves, because on one and the same the closed form would overfit and the ridge would go to zero. Any of SM,
    SSM, SSMVR, DSM (one level), ApproximateBP and CurvaturePropagation is the `loss`.

    >>> KernelFamily(SSM(draws=2)).loss.draws
    2
    """

    comparable: ClassVar[bool] = True
    loss: AbstractObjective

    def init(self, model: Any, data: Float[Array, "n d"], *, key: PRNGKeyArray) -> None:
        """Nothing persists between steps; a model of another make is refused here."""
        require(isinstance(model, DKEF), f"KernelFamily trains a DKEF, not a {type(model).__name__}")
        return None

    def __call__(
        self, model: DKEF, state: None, batch: Float[Array, "b d"], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        require(len(batch) >= 2, "a batch to be halved needs at least 2 rows")
        halves = batch[: len(batch) // 2 * 2].reshape(2, -1, batch.shape[-1])
        ridge = jnp.exp(model.log_ridge)
        return fitted_and_judged(self.loss, model, halves, jax.random.split(key), ridge), (None, {"ridge": ridge})


class FittedKernelFamily(AbstractObjective):
    """The loss of a batch at the alpha that `rows` give: what a DKEF is worth in the middle of its training.

    A judge for `fit`. A batch of a training step gives alpha by its first half, which with one slice a point has fewer
    equations than there are anchors; weights compared by that are compared by its noise.

    >>> FittedKernelFamily(SSM(), jnp.zeros((10, 2))).rows.shape
    (10, 2)
    """

    comparable: ClassVar[bool] = True
    loss: AbstractObjective
    rows: Float[Array, "n d"] = eqx.field(converter=jnp.asarray)

    def init(self, model: Any, data: Float[Array, "n d"], *, key: PRNGKeyArray) -> None:
        """Nothing persists between looks; a model of another make, or rows of another width, are refused here."""
        require(isinstance(model, DKEF), f"FittedKernelFamily judges a DKEF, not a {type(model).__name__}")
        width = model.space.shape[0]
        require(
            self.rows.ndim == 2 and self.rows.shape[1] == width and len(self.rows) > 0,
            f"FittedKernelFamily needs rows of {width} numbers, not an array of shape {self.rows.shape}",
        )
        return None

    def __call__(
        self, model: DKEF, state: None, batch: Float[Array, "b d"], *, key: PRNGKeyArray
    ) -> tuple[Scalar, tuple[None, Info]]:
        ridge = jnp.exp(model.log_ridge)
        fitting, judging = jax.random.split(key)
        alpha = quadratic(self.loss, model, self.rows, fitting).solve(ridge)
        return loss_at(self.loss, model, alpha, batch, judging), (None, {"ridge": ridge})


_block = eqx.filter_jit(quadratic)


def over_data(loss: AbstractObjective, model: DKEF, data: Float[Array, "n d"], *, key: PRNGKeyArray) -> Quadratic:
    """The mean over all rows, a block at a time; the last block is filled up with rows of no weight.

    Blocks of one size, so that data sets of any length share one compiled program: compiling it takes longer than
    going through a table.
    """
    n = len(data)
    blocks = -(-n // BLOCK)
    rows = jnp.concatenate([data, jnp.broadcast_to(data[:1], (blocks * BLOCK - n, *data.shape[1:]))])
    weights = jnp.where(jnp.arange(blocks * BLOCK) < n, 1 / n, 0.0)
    total = None
    for i, block_key in enumerate(jax.random.split(key, blocks)):
        here = slice(i * BLOCK, (i + 1) * BLOCK)
        part = _block(loss, model, rows[here], block_key, weights[here])
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    assert total is not None
    return total


def finalise(model: DKEF, loss: AbstractObjective, data: Any, valid: Any, *, key: PRNGKeyArray) -> DKEF:
    """The model with alpha fitted to all of `data`, with the ridge that does best on `valid`: an ordinary energy.

    Both losses are quadratics by then, so each of 161 ridges from 1e-6 to 100 is tried, in double precision through one
    eigendecomposition.
    """
    train_key, valid_key = jax.random.split(key)
    require(len(data) >= 1 and len(valid) >= 1, "the final alpha needs training and validation rows")
    train = over_data(loss, model, jnp.asarray(data, float), key=train_key)
    held_out = over_data(loss, model, jnp.asarray(valid, float), key=valid_key)
    matrix, vector, valid_matrix, valid_vector = (
        np.asarray(a, np.float64) for a in (train.matrix, train.vector, held_out.matrix, held_out.vector)
    )
    require(bool(np.all(np.isfinite(matrix)) and np.all(np.isfinite(vector))), "this DKEF is not finite on its data")
    values, vectors = np.linalg.eigh(matrix)
    weights = -(vectors.T @ vector) / (np.maximum(values, 0) + RIDGES[:, None])
    alphas = weights @ vectors.T
    losses = 0.5 * np.sum(alphas @ valid_matrix * alphas, axis=1) + alphas @ valid_vector
    best = int(np.argmin(losses))
    found = (jnp.asarray(alphas[best], float), jnp.asarray(np.log(RIDGES[best]), float))
    return eqx.tree_at(lambda m: (m.alpha, m.log_ridge), model, found)
