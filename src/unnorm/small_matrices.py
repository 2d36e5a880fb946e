"""Linear algebra for compiled programs: nothing here hands a batch of matrices to LAPACK.

On processors jaxlib 0.10 shares a batched LAPACK call out over the threads of the pool that it runs on, and waits for
them. Where every thread of the pool waits like that, none is left to do the work, and the program stands still for
good. So a batch of triangular systems is solved by plain arithmetic, all matrices at once, and what is too much for
that (general systems, eigenvalues, orthonormal bases) goes to LAPACK one matrix after another, whatever is mapped.

All of it can be differentiated in both directions.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

Square = Float[Array, "d d"]
#: One right-hand side, or one in every column.
Sides = Float[Array, "d ..."]
Result = TypeVar("Result")


# ------------------------------------------------------------------------------------------------- plain arithmetic


def _row(matrix: Square, i: Any) -> Float[Array, " d"]:
    return jax.lax.dynamic_index_in_dim(matrix, i, keepdims=False)


def _along(row: Float[Array, " d"], b: Sides) -> Sides:
    """The row, to be multiplied with each column of b."""
    return row.reshape(-1, *(1,) * (b.ndim - 1))


def _forwards(lower: Square, b: Sides) -> Sides:
    """x_i = (b_i - sum_{j < i} L_ij x_j) / L_ii, from the first to the last."""
    below = jnp.tril(lower, -1)
    diagonal = jnp.diagonal(lower)

    def step(i, x):
        # A sum of products, which is compiled into one pass; as a product of matrices each would be called by itself.
        known = jnp.sum(_along(_row(below, i), x) * x, axis=0)
        return x.at[i].set((x[i] - known) / diagonal[i])

    return jax.lax.fori_loop(0, len(b), step, b)


def _backwards(lower: Square, b: Sides) -> Sides:
    """L' x = b: x_i = b_i / L_ii, and L_ij x_i leaves every other side, from the last to the first."""
    below = jnp.tril(lower, -1)
    diagonal = jnp.diagonal(lower)

    def step(done, x):
        i = len(b) - 1 - done
        found = x[i] / diagonal[i]
        # Row i of L is column i of L': read where it lies in memory.
        return (x - _along(_row(below, i), x) * found[None]).at[i].set(found)

    return jax.lax.fori_loop(0, len(b), step, b)


@jax.jit
def solve_lower(lower: Square, b: Sides) -> Sides:
    """L^-1 b for a lower-triangular L; what stands above its diagonal is not looked at.

    >>> solve_lower(jnp.array([[2.0, 0.0], [1.0, 1.0]]), jnp.array([2.0, 3.0])).tolist()
    [1.0, 2.0]
    """
    return jax.lax.custom_linear_solve(
        lambda x: jnp.tril(lower) @ x, b, lambda _, b: _forwards(lower, b), lambda _, b: _backwards(lower, b)
    )


@jax.jit
def solve_lower_transposed(lower: Square, b: Sides) -> Sides:
    """L'^-1 b for a lower-triangular L; what stands above its diagonal is not looked at.

    >>> solve_lower_transposed(jnp.array([[2.0, 0.0], [1.0, 1.0]]), jnp.array([4.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    return jax.lax.custom_linear_solve(
        lambda x: jnp.tril(lower).T @ x, b, lambda _, b: _backwards(lower, b), lambda _, b: _forwards(lower, b)
    )


@jax.jit
def inverse_lower(lower: Square) -> Square:
    """L^-1 for a lower-triangular L.

    >>> inverse_lower(jnp.array([[2.0, 0.0], [1.0, 1.0]])).tolist()
    [[0.5, 0.0], [-0.5, 1.0]]
    """
    return solve_lower(lower, jnp.eye(len(lower), dtype=lower.dtype))


@jax.custom_jvp
@jax.jit
def cholesky(matrix: Square) -> Square:
    """The lower-triangular L with L L' = A, for a symmetric A; not numbers where A is not positive definite.

    >>> cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    indices = jnp.arange(len(matrix))

    def step(i, upper):
        # Row i of L' from the rows before it: A_ij - sum_k L'_ki L'_kj, over its root at j = i.
        column = jax.lax.dynamic_index_in_dim(upper, i, axis=1)
        left = _row(matrix, i) - jnp.sum(column * upper, axis=0)
        return upper.at[i].set(jnp.where(indices >= i, left / jnp.sqrt(left[i]), 0.0))

    return jax.lax.fori_loop(0, len(matrix), step, jnp.zeros_like(matrix)).T


@cholesky.defjvp
def _(primals, tangents):
    """dL = L Phi(L^-1 dA L'^-1), Phi the lower half with half the diagonal (Murray 2016)."""
    lower = cholesky(*primals)
    inverse = inverse_lower(lower)
    change = inverse @ tangents[0] @ inverse.T
    return lower, lower @ (jnp.tril(change, -1) + 0.5 * jnp.diag(jnp.diagonal(change)))


# ------------------------------------------------------------------------------------------------- one after another


def in_turn(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function of arrays; where it is mapped over many on a processor, it is called for one after the other.

    For a call that must not see a batch. It cannot be differentiated backwards; what uses it says how.

    >>> jax.vmap(in_turn(jnp.linalg.inv))(jnp.full((2, 1, 1), 4.0)).tolist()
    [[[0.25]], [[0.25]]]
    """
    one = custom_vmap(function)

    @one.def_vmap
    def _(size, mapped, *args):
        # Of an array that is shared by all there is no copy for each.
        def call(own):
            own = iter(own)
            return one(*(next(own) if each else arg for each, arg in zip(mapped, args, strict=True)))

        own = tuple(arg for each, arg in zip(mapped, args, strict=True) if each)
        if jax.default_backend() == "cpu":
            found = jax.lax.map(call, own)
        else:
            found = jax.vmap(function, tuple(0 if each else None for each in mapped), axis_size=size)(*args)
        return found, jax.tree.map(lambda _: True, found)

    return one


_solve = in_turn(lambda matrix, b: jnp.linalg.solve(matrix, b))
_solve_positive = in_turn(lambda matrix, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), b))
_eigen = in_turn(lambda matrix: tuple(jnp.linalg.eigh(matrix, symmetrize_input=False)))
_orthonormal = in_turn(lambda matrix: jnp.linalg.qr(matrix)[0])


@jax.jit
def solve(matrix: Square, b: Sides) -> Sides:
    """A^-1 b.

    >>> solve(jnp.array([[0.0, 2.0], [1.0, 0.0]]), jnp.array([2.0, 3.0])).tolist()
    [3.0, 1.0]
    """
    return jax.lax.custom_linear_solve(
        lambda x: matrix @ x, b, lambda _, b: _solve(matrix, b), lambda _, b: _solve(matrix.T, b)
    )


@jax.jit
def solve_positive(matrix: Square, b: Sides) -> Sides:
    """A^-1 b for a symmetric and positive definite A, by its Cholesky factor; not numbers where A is not.

    >>> solve_positive(jnp.array([[4.0, 0.0], [0.0, 1.0]]), jnp.array([2.0, 3.0])).tolist()
    [0.5, 3.0]
    """
    return jax.lax.custom_linear_solve(lambda x: matrix @ x, b, lambda _, b: _solve_positive(matrix, b), symmetric=True)


@jax.custom_jvp
@jax.jit
def symmetric_eigen(matrix: Square) -> tuple[Float[Array, " d"], Square]:
    """The eigenvalues of a symmetric matrix, upwards, and their eigenvectors, in columns.

    >>> values, vectors = symmetric_eigen(jnp.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> values.round(3).tolist()
    [-1.0, 1.0]
    """
    return _eigen(matrix)


@symmetric_eigen.defjvp
def _(primals, tangents):
    """d lambda_i = v_i' dA v_i, dv_i = sum_j v_j (v_j' dA v_i) / (lambda_i - lambda_j)."""
    values, vectors = symmetric_eigen(*primals)
    change = vectors.T @ (tangents[0] + tangents[0].T) @ vectors / 2
    own = jnp.eye(len(values), dtype=values.dtype)
    gaps = values - values[:, None] + own
    return (values, vectors), (jnp.diagonal(change), vectors @ ((1 - own) * change / gaps))


@jax.jit
def orthonormal(matrix: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """An orthonormal basis of the columns of a matrix: Q of its Q R.

    >>> [round(abs(float(q)), 4) for q in orthonormal(jnp.array([[3.0], [4.0]]))[:, 0]]
    [0.6, 0.8]
    """
    return _orthonormal(matrix)
