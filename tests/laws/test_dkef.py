"""Deep kernel exponential families: the closed form against a numeric minimiser, and scores that are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.energies import DKEF, gaussian_mixture
from unnorm.errors import InputError
from unnorm.objectives import (
    DSM,
    SM,
    SSM,
    SSMVR,
    ApproximateBP,
    CurvaturePropagation,
    FittedKernelFamily,
    KernelFamily,
    finalise,
)
from unnorm.objectives.kernel_curvature import approximate_traces, sampled_trace, sampled_traces
from unnorm.objectives.kernel_family import fitted_and_judged, over_data, quadratic
from unnorm.scores import as_score

SIGMA, RIDGE, ROWS, DIMENSION = 0.4, 0.03, 60, 3
#: Losses of the library that know nothing of the closed form, and the factor that makes them 1/2 |s - target|^2 + ...
LOSSES = [(SM(), 1.0), (SSM(), 1.0), pytest.param(SSM(draws=3), 1.0, marks=pytest.mark.thorough), (SSMVR(), 1.0)]
LOSSES += [(DSM(un.noises.Gaussian(SIGMA)), DIMENSION / (2 * SIGMA**2))]


@pytest.fixture(scope="module")
def small():
    """A model with 6 anchors in three dimensions, and rows."""
    rows = 1.3 * jax.random.normal(jax.random.key(0), (ROWS, DIMENSION)) + 0.5
    return DKEF(rows, anchors=6, width=5, ridge=RIDGE, key=jax.random.key(1)), rows


def with_alpha(model, alpha):
    return eqx.tree_at(lambda m: m.alpha, model, alpha)


@jax.jit
def cross_term(model, rows):
    """mean grad log q0 . grad k_l"""
    gradients = jax.vmap(jax.jacfwd(model.basis()))(rows)
    return -jnp.mean(jnp.einsum("nld,nd->nl", gradients, rows), axis=0) / model.base_scale**2


def minimiser(value):
    """The minimum of a quadratic by its own derivatives at 0: one Newton step."""
    start = jnp.zeros(6)
    alpha = -jnp.linalg.solve(jax.hessian(value)(start), jax.grad(value)(start))
    return alpha, jax.grad(value)(alpha), jax.grad(value)(start)


@pytest.mark.parametrize(("loss", "factor"), LOSSES, ids=lambda p: type(p).__name__)
def test_closed_form_is_the_numeric_minimiser(small, loss, factor):
    """T4: the library's own loss of the energy is minimised numerically, which never sees G and b."""
    model, rows = small
    key = jax.random.key(2)
    somewhere = jnp.linspace(-1, 1, 6)

    @jax.jit
    def both(model, rows):
        def value(alpha):
            return factor * loss(with_alpha(model, alpha), None, rows, key=key)[0] + RIDGE / 2 * jnp.sum(alpha**2)

        form = quadratic(loss, model, rows, key)
        return form, form.solve(RIDGE), form(somewhere), minimiser(value), value(somewhere)

    form, closed, value_of_form, (numeric, slope, first_slope), value = both(model, rows)
    assert np.abs(slope).max() < 1e-4 * np.abs(first_slope).max()
    scale = np.abs(numeric).max()
    assert np.allclose(closed, numeric, atol=1e-3 * scale)
    # The value agrees too, constant and all, wherever alpha is.
    assert np.allclose(value_of_form, value - RIDGE / 2 * jnp.sum(somewhere**2), rtol=1e-4)
    # Without the cross term of the base b is wrong, and so is alpha. (With slices it is the same in the mean.)
    without = form._replace(vector=form.vector - cross_term(model, rows)).solve(RIDGE)
    assert not np.allclose(without, numeric, atol=0.05 * scale)


@eqx.filter_jit
def exact_traces(model, x):
    return jnp.trace(jax.hessian(model.basis())(x), axis1=1, axis2=2)


def test_curvature_propagation_is_unbiased_and_approximate_backpropagation_is_not(small):
    model, rows = small
    x = rows[0]
    truth = exact_traces(model, x)
    keys = jax.random.split(jax.random.key(3), 4_000)
    draws = np.asarray(jax.jit(jax.vmap(lambda k: sampled_traces(model, 1e-4)(x, k)))(keys))
    assert holds(draws, truth)
    approximate = np.asarray(approximate_traces(model)(x, keys[0]))
    assert breaks(draws, approximate)
    # Without the noise of the hidden layers the curvature of the features is lost.
    assert breaks(draws, exact_traces(flattened(model, x), x))


def test_curvature_propagated_through_the_whole_energy_is_unbiased_and_noisier(small):
    model, rows = small
    x, keys = rows[0], jax.random.split(jax.random.key(3), 20_000)
    # Signs of both kinds, for which the bends of the features matter most.
    flat = exact_traces(flattened(model, x), x)
    alpha = jnp.sign(exact_traces(model, x) - flat) * jnp.linspace(0.5, 1.5, len(flat))
    truth = alpha @ exact_traces(model, x)

    @jax.jit
    def both(model, alpha):
        return (
            jax.lax.map(lambda k: sampled_trace(model, alpha, 1e-4)(x, k), keys, batch_size=1000),
            jax.lax.map(lambda k: alpha @ sampled_traces(model, 1e-4)(x, k), keys, batch_size=1000),
        )

    whole, apart = (np.asarray(draws, np.float64) for draws in both(model, alpha))
    assert holds(whole, truth)
    assert whole.std() > 1.5 * apart.std()
    assert breaks(whole, alpha @ flat)


def test_the_loss_of_propagated_curvature_has_the_mean_of_exact_score_matching(small):
    """At the alpha of the first half, over the draws of the second."""
    model, rows = small
    halves = rows[: len(rows) // 2 * 2].reshape(2, -1, DIMENSION)
    loss, first, ridge = CurvaturePropagation(), jax.random.key(9), jnp.asarray(RIDGE)
    alpha = quadratic(loss, model, halves[0], first).solve(ridge)
    exact = quadratic(SM(), model, halves[1], first)

    @jax.jit
    def draws(model):
        def one(key):
            return fitted_and_judged(loss, model, halves, jnp.stack([first, key]), ridge)

        return jax.lax.map(one, jax.random.split(jax.random.key(10), 2000), batch_size=200)

    found = np.asarray(draws(model), np.float64)
    assert holds(found, exact(alpha))
    # Without the Laplacian of the base, or at another alpha, it is another loss.
    assert breaks(found, exact(alpha) + DIMENSION / model.base_scale**2)
    assert breaks(found, exact(0 * alpha))


def flattened(model, x):
    """The same kernels on features that are linear near x: same values and slopes at x, no bend."""

    class Linear(eqx.Module):
        model: DKEF
        point: jax.Array

        def basis(self):
            there = self.model.anchor_features()
            scale = 0.5 * jnp.exp(-2 * self.model.log_lengths)
            shares = jax.nn.softmax(self.model.logits)

            def kernels(y):
                here = jax.vmap(lambda phi: sum(jax.jvp(phi, (self.point,), (y - self.point,))))(self.model.features)
                return shares @ jnp.exp(-scale[:, None] * jnp.sum((there - here[:, None]) ** 2, axis=-1))

            return kernels

    return Linear(model, x)


def test_approximate_backpropagation_is_exact_on_a_chain():
    """With one unit everywhere and no short cut nothing is off the diagonal; with a short cut or more units it is."""
    rows = jax.random.normal(jax.random.key(4), (10, 1))

    def gap(width, skip):
        model = DKEF(rows, anchors=4, width=width, key=jax.random.key(5))
        model = eqx.tree_at(lambda m: m.features.skip, model, skip * model.features.skip)
        both = jax.jit(lambda m, x: (approximate_traces(m)(x, jax.random.key(0)), exact_traces(m, x)))
        found, truth = both(model, rows[0])
        return float(jnp.max(jnp.abs(found - truth)) / jnp.max(jnp.abs(truth)))

    assert gap(1, 0.0) < 1e-4
    assert gap(1, 1.0) > 1e-2
    assert gap(4, 0.0) > 1e-2


@pytest.mark.parametrize("loss", [ApproximateBP(), CurvaturePropagation()], ids=lambda p: type(p).__name__)
def test_propagated_losses_minimise_their_own_quadratic(small, loss):
    """T4 for the losses that are no function of the energy alone: the trace is linear in alpha, key by key."""
    model, rows = small
    key = jax.random.key(6)

    @jax.jit
    def all_three(model, rows):
        gradients = jax.vmap(jax.jacfwd(model.basis()))(rows)
        curvature = approximate_traces(model) if isinstance(loss, ApproximateBP) else sampled_traces(model, loss.floor)
        traces = jax.vmap(curvature)(rows, jax.random.split(key, ROWS))

        def value(alpha):
            scores = jnp.einsum("nld,l->nd", gradients, alpha) - rows / model.base_scale**2
            squares = 0.5 * jnp.mean(jnp.sum(scores**2, axis=1))
            return squares + jnp.mean(traces @ alpha) + RIDGE / 2 * jnp.sum(alpha**2)

        forms = (quadratic(loss, model, rows, key), quadratic(SM(), model, rows, key))
        return minimiser(value)[0], *(form.solve(RIDGE) for form in forms)

    numeric, closed, other = all_three(model, rows)
    scale = np.abs(numeric).max()
    assert np.allclose(closed, numeric, atol=1e-3 * scale)
    assert not np.allclose(other, numeric, atol=1e-3 * scale)


def test_blocks_and_the_ridge_of_the_final_alpha(small):
    """`over_data` is the mean over all rows, and no ridge near the chosen one is better on the held-out rows."""
    model, _ = small
    rows = jax.random.normal(jax.random.key(7), (350, DIMENSION))
    data, valid = rows[:230], rows[230:]
    done = finalise(model, SM(), data, valid, key=jax.random.key(8))
    train, held_out = (over_data(SM(), model, part, key=jax.random.key(9)) for part in (data, valid))
    assert np.allclose(train(done.alpha), SM()(done, None, data, key=jax.random.key(0))[0], atol=1e-3)
    assert np.allclose(train.solve(jnp.exp(done.log_ridge)), done.alpha, atol=2e-3 * float(jnp.abs(done.alpha).max()))
    chosen = float(held_out(done.alpha))
    others = [float(held_out(train.solve(float(jnp.exp(done.log_ridge)) * f))) for f in (0.1, 0.5, 2.0, 10.0)]
    assert chosen <= min(others) + 1e-4
    assert chosen < max(others) - 1e-4


TRUTHS = {
    "gaussian": un.energies.gaussian([0.5, -0.3], [[1.0, 0.5], [0.5, 0.8]]),
    "mixture": gaussian_mixture([0.4, 0.6], [[-1.2, 0.0], [1.2, 0.5]], [0.6, 0.8]),
}


@pytest.mark.parametrize("name", [pytest.param("gaussian", marks=pytest.mark.thorough), "mixture"])
def test_the_score_is_recovered(name):
    """Trained by slices, the model has the data's score: the Fisher divergence is a few per cent of E|s|^2 / 2, and the
    exact SM loss is that divergence less E|s|^2 / 2 (integration by parts), row by row in the mean."""
    truth = TRUTHS[name]
    data, valid, test = (truth.samples(n, key=jax.random.key(i)) for i, n in enumerate((3000, 1000, 1000)))
    model = DKEF(data, anchors=25, width=8, key=jax.random.key(3))
    fitted = un.fit(
        model, KernelFamily(SSMVR()), data, steps=150, batch=100, rate=1e-2, key=jax.random.key(4), progress=False
    )
    done = finalise(fitted.model, SSMVR(), data, valid, key=jax.random.key(5))

    @eqx.filter_jit
    def rows(energy):
        mine, theirs = (jax.vmap(lambda x, s=as_score(e): s(0.0, x))(test) for e in (energy, truth))
        traces = jax.vmap(lambda x: -jnp.trace(jax.hessian(energy)(x)))(test)
        losses = traces + 0.5 * jnp.sum(mine**2, axis=1)
        return 0.5 * jnp.sum((mine - theirs) ** 2, axis=1), losses, 0.5 * jnp.sum(theirs**2, axis=1)

    divergence, losses, size = (np.asarray(part, np.float64) for part in rows(done))
    assert divergence.mean() + 4.5 * divergence.std() / len(test) ** 0.5 < 0.05 * size.mean()
    assert holds(losses - divergence + size, 0.0)
    untrained, without, _ = (np.asarray(part, np.float64) for part in rows(model))
    assert untrained.mean() > 0.3 * size.mean()  # the base alone
    assert breaks(losses - untrained + size, 0.0)
    assert without.mean() > losses.mean()


def test_a_look_in_the_middle_has_the_alpha_of_the_rows_it_was_given(small):
    """By exact score matching nothing is drawn, and the value of a look is the library's own loss of the energy."""
    model, rows = small
    given, batch, key = rows[:40], rows[40:], jax.random.key(6)
    ridge = jnp.exp(model.log_ridge)

    @eqx.filter_jit
    def looks(model, given, batch):
        def at_alpha_of(rows):
            alpha = quadratic(SM(), model, rows, key).solve(ridge)
            return SM()(with_alpha(model, alpha), None, batch, key=key)[0]

        found = FittedKernelFamily(SM(), given)(model, None, batch, key=key)[0]
        return found, at_alpha_of(given), at_alpha_of(batch)

    found, expected, of_the_batch = looks(model, given, batch)
    assert np.allclose(found, expected, rtol=1e-4)
    # Fitted on what it is judged by, it looks better than it is.
    assert of_the_batch < found - 0.01 * abs(found)


def test_a_look_by_propagated_curvature_has_the_mean_of_exact_score_matching(small):
    model, rows = small
    given, batch = rows[:40], rows[40:]
    keys = jax.random.split(jax.random.key(8), 2_000)
    ridge = jnp.exp(model.log_ridge)

    @jax.jit
    def gaps(model):
        def one(key):
            found = FittedKernelFamily(CurvaturePropagation(), given)(model, None, batch, key=key)[0]
            alpha = quadratic(CurvaturePropagation(), model, given, jax.random.split(key)[0]).solve(ridge)
            exact = quadratic(SM(), model, batch, key)
            return found - exact(alpha), found - exact(jnp.zeros(6))

        return jax.lax.map(one, keys, batch_size=200)

    right, without_kernels = gaps(model)
    assert holds(np.asarray(right), 0.0)
    assert breaks(np.asarray(without_kernels), 0.0)


def test_what_has_no_closed_form_is_refused(small):
    model, rows = small
    with pytest.raises(InputError, match="no closed form"):
        quadratic(KernelFamily(SM()), model, rows, jax.random.key(0))
    with pytest.raises(InputError, match="one noise level"):
        quadratic(DSM(un.noises.VarianceExploding(0.1, 1.0)), model, rows, jax.random.key(0))
    with pytest.raises(InputError, match="trains a DKEF"):
        KernelFamily(SM()).init(un.energies.standard_gaussian(2), rows, key=jax.random.key(0))
    with pytest.raises(InputError, match="FittedKernelFamily judges a DKEF, not a Gaussian"):
        FittedKernelFamily(SM(), rows).init(un.energies.standard_gaussian(2), rows, key=jax.random.key(0))
    with pytest.raises(InputError, match="rows of 3 numbers"):
        FittedKernelFamily(SM(), rows[:, :2]).init(model, rows, key=jax.random.key(0))
    with pytest.raises(InputError, match="anchors"):
        DKEF(rows, anchors=1000, key=jax.random.key(0))
