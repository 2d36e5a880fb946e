"""How objectives on sites are tied to one another, what their gradients leave out, and errors that are right."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from discrete import COLOURS, DICE, FEW, truth
from harness import breaks, covers, holds
from jax.flatten_util import ravel_pytree
from scipy.stats import chi2

import unnorm as un
from unnorm.energies import RBM, DeepBoltzmann, ExponentialFamily, GaussianRBM, Ising, every_point, lattice
from unnorm.energies.base import AbstractEnergy
from unnorm.estimate import Estimate
from unnorm.evaluation import enumerated
from unnorm.evaluation.efficiency import minimised
from unnorm.noises import Flips, OneSite
from unnorm.objectives import (
    CD,
    PCD,
    AdaptedCNCE,
    EnergyDiscrepancy,
    EnumeratedLikelihood,
    Pooling,
    PseudoLikelihood,
    RatioMatching,
)
from unnorm.objectives.adapted import Anchored
from unnorm.samplers import Gibbs, GibbsWithGradients
from unnorm.spaces import Binary, Real

#: Six spins, each edge with a coupling of its own.
PLANTED = Ising(lattice((2, 3)), 0.3, jnp.asarray([0.9, -0.5, 0.7, 0.2, 0.8, -0.3, 0.6]))


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def flat_of(model):
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    flat, back = ravel_pytree(arrays)
    return flat, lambda theta: eqx.combine(back(theta), rest)


def rests(objective, model, law, *, state=None, repeats: int = 150, batch: int = 64):
    """The gradient at the model for many batches that are drawn from a law."""
    flat, build = flat_of(model)
    rows = jnp.asarray(law.draws(repeats * batch, seed=1)).reshape(repeats, batch, *law.points.shape[1:])

    def one(rows, key):
        begin, key = jax.random.split(key)
        own = objective.init(model, rows, key=begin) if state is None else state
        return jax.grad(lambda theta: objective(build(theta), own, rows, key=key)[0])(flat)

    return np.asarray(jax.jit(jax.vmap(one))(rows, jax.random.split(jax.random.key(2), repeats)))


# -------------------------------------------------------------------------------- noise that is adapted, and divergence


@pytest.mark.parametrize("sampler", [Gibbs(2), GibbsWithGradients()], ids=["sites", "gradients"])
def test_noise_that_follows_the_model_makes_contrastive_divergence(sampler):
    """Gradient for gradient, step for step (seed 000, section 2)."""
    rows = jnp.asarray(truth(PLANTED).draws(64, seed=3))
    model, key = 0.5 * PLANTED, jax.random.key(4)

    def slope(objective, state):
        flat, build = flat_of(model)
        return np.asarray(jax.grad(lambda theta: objective(build(theta), state, rows, key=key)[0])(flat))

    adapted = AdaptedCNCE(sampler, moves=3)
    ours, theirs = slope(adapted, adapted.init(model, rows, key=key)), slope(CD(sampler, moves=3), None)
    assert np.allclose(ours, theirs, atol=1e-5) and np.abs(theirs).max() > 0.01
    # Control: noise of a model that is no longer the newest makes another gradient.
    old = Anchored(eqx.filter(0.2 * PLANTED, eqx.is_array), jnp.asarray(1))
    assert not np.allclose(slope(AdaptedCNCE(sampler, moves=3, every=9), old), theirs, atol=1e-3)


class Forgetful(eqx.Module):
    """The same contrast without the ratio of noise there and back."""

    of: AdaptedCNCE

    def __call__(self, model, state, batch, *, key):
        before = eqx.combine(state.model, eqx.filter(model, eqx.is_array, inverse=True))
        noise = un.objectives.contrastive_divergence.move_chains(self.of.sampler, before, batch, self.of.moves, key)
        gaps = jax.vmap(model)(noise) - jax.vmap(model)(batch)
        return 2 * jnp.mean(jax.nn.softplus(-gaps)), (state, {})


def test_noise_of_any_earlier_model_is_right_as_well():
    """At the truth the gradient vanishes whatever model made the noise: the chain is as likely there as back."""
    adapted = AdaptedCNCE(Gibbs(1), moves=2, every=10**6)
    old = Anchored(eqx.filter(Ising(PLANTED.sites, -0.2, 0.4 * jnp.ones(7)), eqx.is_array), jnp.asarray(1))
    assert holds(rests(adapted, PLANTED, truth(PLANTED), state=old), 0.0, bias=1e-6)
    assert breaks(rests(Forgetful(adapted), PLANTED, truth(PLANTED), state=old), 0.0)
    with pytest.raises(un.InputError, match="as likely there as back"):
        AdaptedCNCE(Gibbs())


def test_the_gradient_that_contrastive_divergence_drops():
    """KL(p_d, p) - KL(p_d Pi, p) by all points: CD estimates its gradient but for the term through the kernel Pi."""
    data, model = truth(PLANTED), 0.6 * FEW
    flat, build = flat_of(model)
    points, p = jnp.asarray(data.points), jnp.asarray(data.probabilities, jnp.float32)
    flips = jnp.asarray(np.abs(every_point(Binary((6,)))[:, None] - every_point(Binary((6,)))[None]).sum(-1) == 1)

    def law(theta):
        return jax.nn.log_softmax(-jax.vmap(build(theta))(points))

    def after(theta, p=p):
        """One site at random, redrawn: y differs from x in that site with probability sigmoid(E(x) - E(y)) / 6."""
        logs = law(theta)
        moves = jnp.where(flips, jax.nn.sigmoid(logs[None, :] - logs[:, None]) / 6, 0.0)
        return p @ (moves + jnp.diag(1 - moves.sum(1)))

    def divergence(q, logs):
        return jnp.sum(q * (jnp.log(q) - logs))

    whole = jax.grad(lambda t: divergence(p, law(t)) - divergence(after(t), law(t)))(flat)
    fixed = after(flat)
    kept = jax.grad(lambda t: divergence(p, law(t)) - divergence(fixed, law(t)))(flat)
    dropped = -jax.grad(lambda t: divergence(after(t), law(flat)))(flat)
    assert np.allclose(whole, kept + dropped, atol=1e-5) and np.abs(dropped).max() > 0.005
    found = rests(CD(Gibbs(1), moves=1), model, data, repeats=2500)
    assert holds(found, np.asarray(kept)) and breaks(found, np.asarray(whole))

    def turns(law_after):
        """How far from symmetric the Jacobian of what is kept is; the gradient of a function has a symmetric one."""
        slopes = jax.jacobian(lambda t: jax.grad(lambda s: p @ -law(s) - law_after(t) @ -law(s))(t))(flat)
        return float(jnp.abs(slopes - slopes.T).max())

    # With one site redrawn it is one of pseudo-likelihood's kind (Hyvarinen 2006); with two it is no gradient any more
    # (Sutskever and Tieleman 2010).
    assert turns(after) < 1e-5 < 1e-4 < turns(lambda t: after(t, after(t)))


# -------------------------------------------------------------------------------------------------- small perturbations


def test_at_small_rates_the_discrepancy_looks_at_neighbours_alone():
    """ED_e / e -> E sum_i (r_i + log r_i - 1) + const, r_i = p(x with site i flipped) / p(x), at first order in e.

    Like pseudo-likelihood it knows only ratios of neighbours; its own score of them is another.
    """
    data, law = truth(PLANTED).probabilities, enumerated(0.5 * FEW)
    energies = -np.log(law.probabilities)
    points = every_point(Binary((6,)))
    apart = np.abs(points[:, None] - points[None]).sum(-1)
    gaps = np.where(apart == 1, energies[:, None] - energies[None], -np.inf)
    ratios = np.exp(gaps)
    limit = float(data @ (ratios + np.where(apart == 1, energies[:, None] - energies[None], 0.0)).sum(1)) - 6
    pseudo = float(data @ np.log1p(ratios).sum(1))

    def rate(e):
        q = e**apart * (1 - e) ** (6 - apart)
        return float(data @ energies + data @ q @ np.log(np.exp(-energies) @ q)) / e

    errors = [abs(rate(e) - limit) for e in (0.02, 0.01, 0.005)]
    assert errors[-1] < 0.1 and all(1.7 < a / b < 2.3 for a, b in pairwise(errors))
    assert abs(rate(1e-3) - pseudo) > 1


CATEGORIES = {
    "flips": EnergyDiscrepancy(Flips(0.3, 3), draws=4),
    "one site": EnergyDiscrepancy(OneSite(3), draws=6),
    "pooling": EnergyDiscrepancy(Pooling((2, 1)), draws=3),
}


@pytest.mark.parametrize("name", CATEGORIES)
def test_the_discrepancy_of_categories_is_at_rest_at_the_truth(name):
    assert holds(rests(CATEGORIES[name], COLOURS, truth(COLOURS)), 0.0, bias=1e-6)
    # A window has as many of each value after pooling, so that a field is not seen by it: another coupling is.
    other = eqx.tree_at(lambda m: (m.field, m.coupling), COLOURS, (2 * COLOURS.field, jnp.asarray(0.2)))
    assert breaks(rests(CATEGORIES[name], COLOURS, enumerated(other)), 0.0)


# --------------------------------------------------------------------------------------------------------- right errors


def test_errors_of_pseudo_likelihood_are_those_of_the_sandwich():
    """95% intervals over 200 data sets; those of the curvature alone are nearly twice as wide for the field."""
    planted = Ising(lattice((2, 3)), 0.2, 1.1)
    law, right, naive = truth(planted), [], []
    for seed in range(200):
        found = minimised(planted, PseudoLikelihood(), law.draws(300, seed=100 + seed), key=jax.random.key(0))
        right.append(Estimate(float(found.values[0]), float(found.stderr[0]), "sandwich"))
        naive.append(Estimate(float(found.values[0]), float(found.naive[0]), "curvature"))
    assert covers(right, 0.2) and not covers(naive, 0.2)


class Visible(AbstractEnergy):
    """The visible units of a small deep machine, its hidden ones summed."""

    machine: DeepBoltzmann
    space: Binary = eqx.field(static=True)

    def __init__(self, machine):
        self.machine, self.space = machine, Binary((machine.visible,))

    def __call__(self, x):
        hidden = jnp.asarray(every_point(Binary((self.machine.space.size - self.machine.visible,))))
        return -jax.nn.logsumexp(-jax.vmap(lambda h: self.machine(jnp.concatenate([x, h])))(hidden))


#: Six visible units, two hidden layers of two and one. Five numbers say what the law of the two units between is, which
#: has three: these cannot be told apart.
TIES = 2.5 * jnp.asarray([[1.0, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1]])
DEEP = Visible(
    DeepBoltzmann((TIES, jnp.asarray([[2.0], [-2.0]])), (-1.2 * jnp.ones(6), -0.5 * jnp.ones(2), jnp.zeros(1)))
)
#: One and two hidden units: of two, weights that are nothing are told by many rows alone.
PLAIN = RBM(Binary((6,)), TIES.sum(1, keepdims=True), jnp.zeros(6), -7.5 * jnp.ones(1))
TWO = RBM(Binary((6,)), TIES, jnp.zeros(6), -3.75 * jnp.ones(2))


@pytest.mark.parametrize("name", ["likelihood", "pseudo-likelihood", "ratios"])
@pytest.mark.parametrize(
    ("machine", "rows"),
    [(PLAIN, 4000), pytest.param(TWO, 60_000, marks=pytest.mark.thorough)],
    ids=["one hidden", "two hidden"],
)
def test_a_planted_machine_comes_back(machine, rows, name, double):
    """Every bias and weight within 4.5 of its standard errors, from the truth on: hidden units have no order."""
    losses = (EnumeratedLikelihood(), PseudoLikelihood(), RatioMatching())
    loss = dict(zip(("likelihood", "pseudo-likelihood", "ratios"), losses, strict=True))[name]
    law, true = enumerated(machine), np.asarray(flat_of(machine)[0], np.float64)

    def off(law, seed):
        found = minimised(machine, loss, law.draws(rows, seed=seed), key=jax.random.key(0))
        return float(np.abs((found.values - true) / found.stderr).max())

    assert off(law, 5) < 4.5 < off(enumerated(0.8 * machine), 6)


def test_a_planted_deep_machine_comes_back(double):
    """Its law does: twice the gain of the fit over the truth is chi-square of no more degrees than parameters."""
    law, count = enumerated(DEEP), 2000
    bound = chi2.isf(1e-5, len(flat_of(DEEP)[0]))

    def gain(rows):
        found = minimised(DEEP, EnumeratedLikelihood(), rows, key=jax.random.key(0))
        return 2 * count * law.divergence(enumerated(found.model))

    assert gain(law.draws(count, seed=5)) < bound < gain(enumerated(0.8 * DEEP).draws(count, seed=6))


# ------------------------------------------------------------------------------------------- statistics and their means


def test_at_the_maximum_statistics_have_the_mean_of_the_data():
    """E_p[T] is the mean of T over the rows, on sites by all points; the minimum of another loss has another one."""
    family = ExponentialFamily(FEW.space, lambda x: jnp.stack([x.sum(), x[0] @ x[1], x.std()]), jnp.zeros(3))
    rows = truth(PLANTED).draws(500, seed=7)
    mean = np.mean([family.statistics(jnp.asarray(x)) for x in rows], axis=0)
    learnt = {
        o: minimised(family, o(), rows, key=jax.random.key(0)).model for o in (EnumeratedLikelihood, PseudoLikelihood)
    }
    off = {o: np.abs(enumerated(m).mean(family.statistics) - mean).max() for o, m in learnt.items()}
    assert off[EnumeratedLikelihood] < 2e-3 < 5e-3 < off[PseudoLikelihood]


def test_so_they_have_on_the_line():
    """T(x) = (x, -x^2, -x^4) on rows of no such law: by chains here, by quadrature judged."""
    rng = np.random.default_rng(8)
    rows = np.where(rng.random(4000) < 0.3, rng.gamma(3.0, 0.4, 4000), rng.normal(-1.0, 0.4, 4000))[:, None]
    rows = jnp.asarray(rows[np.abs(rows[:, 0]) < 3], jnp.float32)
    family = ExponentialFamily(Real((1,)), lambda x: jnp.stack([x[0], -(x[0] ** 2), -(x[0] ** 4)]), [0.0, 0.5, 0.05])
    mean = np.mean(jax.vmap(family.statistics)(rows), axis=0)
    grid = np.linspace(-4, 4, 4001)[:, None]

    def means(model):
        weights = np.exp(-un.evaluation.energies(model, grid.astype(np.float32)).astype(np.float64))
        return (weights / weights.sum()) @ np.asarray(jax.vmap(family.statistics)(jnp.asarray(grid)), np.float64)

    options = {"steps": 1500, "rate": 0.03, "batch": 1024, "key": jax.random.key(9), "progress": False}
    fitted = un.fit(family, PCD(un.samplers.MALA(0.3), chains=512, moves=5), rows, **options).model
    matched = un.fit(family, un.objectives.SM(), rows, **options).model
    # Chains that are 512 and move with the weights, averaged over a thousand steps.
    error = np.asarray(jnp.std(jax.vmap(family.statistics)(rows), axis=0)) / np.sqrt(512)
    assert np.all(np.abs(means(fitted) - mean) < 3 * error) and np.any(np.abs(means(matched) - mean) > 6 * error)


# --------------------------------------------------------------------------------------------- machines of real numbers


def test_a_machine_of_real_numbers_is_at_rest_at_its_own_law():
    """Exact draws: a Gaussian for every state of the hidden units, chosen by its mass."""
    rng = np.random.default_rng(10)
    model = GaussianRBM(Real((2,)), rng.normal(size=(2, 2)), [0.3, -0.2], [0.1, -0.4], [-0.3, 0.1])
    states, (hidden,) = every_point(Binary((2,))), model.equivalents()
    mass = enumerated(hidden).probabilities

    def draws(seed, scale):
        rng = np.random.default_rng(seed)
        of = states[rng.choice(4, size=150 * 128, p=mass)]
        means = np.asarray(model.visible) + of @ np.asarray(model.weights).T
        return means + scale * np.exp(np.asarray(model.log_scale)) * rng.normal(size=means.shape)

    class Law:
        points = np.zeros((1, 2))

        def __init__(self, scale):
            self.scale = scale

        def draws(self, n, seed):
            return draws(seed, self.scale)[:n].astype(np.float32)

    objective = PCD(Gibbs(), chains=128, moves=1)
    assert holds(rests(objective, model, Law(1.0)), 0.0) and breaks(rests(objective, model, Law(1.3)), 0.0)


def test_dice_are_no_coins():
    """Categories take no noise of coins."""
    with pytest.raises(un.InputError, match="pass categories=3"):
        EnergyDiscrepancy(Flips(0.1)).init(DICE, jnp.zeros((4, 4), int), key=jax.random.key(0))
