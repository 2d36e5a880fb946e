"""The linear algebra of compiled programs against NumPy's in double precision, mapped and differentiated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lapack_calls import batched_calls

from unnorm import small_matrices as sm
from unnorm.energies import KDE, gaussian
from unnorm.energies.gaussian import unpack_factor

#: Matrices at once, their size, and right-hand sides.
MANY, SIZE, SIDES = 3, 6, 2
RNG = np.random.default_rng(0)
#: Well conditioned, so that rounding alone stays below some hundred times the precision.
LOWER = np.tril(RNG.normal(size=(MANY, SIZE, SIZE)), -1) + (1 + RNG.uniform(size=(MANY, SIZE, 1))) * np.eye(SIZE)
ABOVE = np.triu(RNG.normal(size=(MANY, SIZE, SIZE)), 1)
GENERAL = RNG.normal(size=(MANY, SIZE, SIZE)) + 4 * np.eye(SIZE)
ROOT = RNG.normal(size=(MANY, SIZE, 2 * SIZE))
POSITIVE = ROOT @ ROOT.swapaxes(1, 2) / SIZE
B = RNG.normal(size=(MANY, SIZE, SIDES))


def _transposed(m):
    return m.swapaxes(-1, -2)


def _whole(matrix):
    """A function of matrices that depends on values and vectors, but not on the vectors' signs."""
    values, vectors = sm.symmetric_eigen(matrix)
    return (vectors * jnp.exp(-values)) @ vectors.T


def _whole_by_numpy(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.exp(-values)[:, None, :]) @ _transposed(vectors)


#: Name: the function of one problem, NumPy's of many, and the arguments. What stands above a lower half is noise.
CASES = {
    "solve_lower": (sm.solve_lower, lambda m, b: np.linalg.solve(np.tril(m), b), (LOWER + ABOVE, B)),
    "solve_lower_transposed": (
        sm.solve_lower_transposed,
        lambda m, b: np.linalg.solve(_transposed(np.tril(m)), b),
        (LOWER + ABOVE, B),
    ),
    "inverse_lower": (sm.inverse_lower, lambda m: np.linalg.inv(np.tril(m)), (LOWER + ABOVE,)),
    "cholesky": (sm.cholesky, np.linalg.cholesky, (POSITIVE,)),
    "solve": (sm.solve, np.linalg.solve, (GENERAL, B)),
    "solve_positive": (sm.solve_positive, np.linalg.solve, (POSITIVE, B)),
    "symmetric_eigen": (_whole, _whole_by_numpy, (POSITIVE,)),
    "orthonormal": (
        lambda m: sm.orthonormal(m) @ sm.orthonormal(m).T,
        lambda m: m @ np.linalg.solve(_transposed(m) @ m, _transposed(m)),
        (B,),
    ),
}
#: Those that take symmetric matrices only have derivatives along symmetric changes.
SYMMETRIC = ("cholesky", "solve_positive", "symmetric_eigen")


def _error(found, truth):
    return float(np.max(np.abs(np.asarray(found, np.float64) - truth)) / np.max(np.abs(truth)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_values_are_those_of_numpy(name, precision):
    function, by_numpy, given = CASES[name]
    truth = by_numpy(*given)
    bound = 300 * np.finfo(precision).eps
    with jax.enable_x64(precision is np.float64):
        arguments = [jnp.asarray(a, precision) for a in given]
        mapped = jax.jit(jax.vmap(function))(*arguments)
        assert mapped.dtype == precision
        assert _error(mapped, truth) < bound
        assert _error(function(*(a[1] for a in arguments)), truth[1]) < bound
        # Negative control: the problem's mirror image has another answer.
        mirrored = jax.jit(jax.vmap(function))(arguments[0][:, ::-1], *arguments[1:])
        assert not _error(mapped, np.asarray(mirrored, np.float64)) < bound


@pytest.mark.parametrize("name", [name for name in CASES if name != "orthonormal"])
def test_derivatives_are_those_of_finite_differences(name):
    """Forwards and backwards, of one problem and of many at once, in double precision."""
    function, by_numpy, given = CASES[name]
    rng = np.random.default_rng(1)
    step = 1e-5
    changes = [rng.normal(size=a.shape) for a in given]
    if name in SYMMETRIC:
        changes[0] = changes[0] + _transposed(changes[0])
    ahead, behind = (by_numpy(*(a + s * c for a, c in zip(given, changes, strict=True))) for s in (step, -step))
    slope = (ahead - behind) / (2 * step)
    weights = rng.normal(size=slope.shape)
    along = np.sum(weights * slope)
    with jax.enable_x64(True):
        places = tuple(range(len(given)))

        def one(weights, *arguments):
            return jnp.sum(weights * function(*arguments))

        def all_of_them(*arguments):
            return jnp.sum(jax.vmap(one)(weights, *arguments))

        @jax.jit
        def derivatives(arguments, changes):
            forwards = jax.jvp(jax.vmap(function), arguments, changes)[1]
            each = jax.vmap(jax.grad(one, tuple(i + 1 for i in places)))(weights, *arguments)
            return forwards, each, jax.grad(all_of_them, places)(*arguments)

        changes = tuple(jnp.asarray(c) for c in changes)
        forwards, *gradients = derivatives(tuple(jnp.asarray(a) for a in given), changes)
        # Differences of h = 1e-5 are right to h^2 and to the rounding of values over h, both near 1e-10.
        assert _error(forwards, slope) < 1e-7
        along, size = float(np.sum(weights * slope)), float(np.sum(np.abs(weights * slope)))
        for gradient in gradients:
            backwards = sum(float(jnp.sum(g * c)) for g, c in zip(gradient, changes, strict=True))
            assert abs(backwards - along) < 1e-7 * size
            # Negative control: the gradient of the mirror image.
            turned = sum(float(jnp.sum(g[:, ::-1] * c)) for g, c in zip(gradient, changes, strict=True))
            assert not abs(turned - along) < 1e-7 * size


def test_what_is_not_positive_definite_has_no_factor():
    indefinite = jnp.array([[1.0, 2.0], [2.0, 1.0]])
    assert np.isnan(sm.cholesky(indefinite)).any()
    assert np.isnan(sm.solve_positive(indefinite, jnp.ones(2))).all()
    assert np.isfinite(sm.cholesky(indefinite.at[1, 1].set(5.0))).all()


def test_equal_eigenvalues_have_a_derivative():
    """d exp(-A) at the unit matrix is -exp(-1) dA; and the sum of the eigenvalues is the trace."""
    gradient = jax.grad(lambda m: jnp.sum(sm.symmetric_eigen(m)[0]))(jnp.eye(3))
    np.testing.assert_allclose(gradient, np.eye(3), atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_no_batch_goes_to_lapack(name):
    """What is mapped calls LAPACK for single matrices only, however deeply it is mapped."""
    function, _, given = CASES[name]
    arguments = [jnp.asarray(np.stack([a, a]), float) for a in given]
    assert batched_calls(jax.jit(jax.vmap(jax.vmap(function))).lower(*arguments).as_text()) == []
    # Negative control: JAX's own hands all of them over at once.
    whole = jax.jit(jax.vmap(jax.vmap(jnp.linalg.eigh))).lower(jnp.asarray(np.stack([POSITIVE, POSITIVE]), float))
    assert batched_calls(whole.as_text()) != []


def test_draws_together_are_those_one_by_one():
    """P'(x - mean) is the white noise that x was made of."""
    model = gaussian(np.arange(SIZE), POSITIVE[0])
    key = jax.random.key(0)
    one_by_one = jax.jit(jax.vmap(lambda k: model.sample(key=k)))(jax.random.split(key, 50))
    together = model.samples(50, key=key)
    white = jax.vmap(lambda k: jax.random.normal(k, (SIZE,)))(jax.random.split(key, 50))
    bound = 300 * np.finfo(np.float32).eps
    factor = unpack_factor(model.factor)
    for draws in (one_by_one, together):
        assert _error((draws - model.mean) @ factor, np.asarray(white)) < bound
        # Negative control: the factor the wrong way round.
        assert not _error((draws - model.mean) @ factor.T, np.asarray(white)) < bound


def test_shaped_kernels_are_whitened_alike_inside_programs():
    """A KDE made in a compiled program, where its shape has no value yet, is the one made outside."""
    shape = jnp.asarray(np.linalg.cholesky(POSITIVE[0]), float)
    centres = jnp.asarray(RNG.normal(size=(20, SIZE)), float)
    points = centres[:5] + 0.1

    def logs(shape):
        return jax.vmap(KDE(centres, 0.5, shape=shape).log_prob)(points)

    # Squared distances are known to the precision of the largest, some hundreds here.
    np.testing.assert_allclose(jax.jit(logs)(shape), logs(shape), atol=1e-3)
    # Negative control: the kernel of a matrix that is not this one.
    assert not np.allclose(jax.jit(logs)(shape.T), logs(shape), atol=1e-3)
