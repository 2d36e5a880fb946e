"""Objectives on zeros and ones and on categories: at rest at the truth, and planted parameters come back."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from discrete import COLOURS, FEW, MACHINE, SPINS, gradients, kl, parameters, truth
from harness import breaks, holds

import unnorm as un
from unnorm.energies import Ising, Shifted, fit_sites, lattice, rbm, uniform
from unnorm.evaluation import enumerated
from unnorm.noises import Flips, OneSite
from unnorm.noises.flips import AbstractSymmetricNoise
from unnorm.objectives import (
    CD,
    CNCE,
    NCE,
    PCD,
    EnergyDiscrepancy,
    EnumeratedLikelihood,
    Pooling,
    PseudoLikelihood,
    RatioMatching,
)
from unnorm.samplers import Gibbs, GibbsWithGradients
from unnorm.spaces import Binary

#: Six spins, each edge with a coupling of its own.
PLANTED = Ising(lattice((2, 3)), 0.3, jnp.asarray([0.9, -0.5, 0.7, 0.2, 0.8, -0.3, 0.6]))


# ------------------------------------------------------------------------------------------ conditionals, by all points


def population_gradient(objective, model, law):
    """The gradient of the expected loss under a law: all points with their probabilities."""
    flat, build = parameters(model)
    points, weights = jnp.asarray(law.points), jnp.asarray(law.probabilities, jnp.float32)

    def loss(theta):
        each = jax.vmap(lambda x: objective(build(theta), None, x[None], key=jax.random.key(0))[0])(points)
        return weights @ each

    return np.abs(np.asarray(jax.grad(loss)(flat))).max()


EXACT = [PseudoLikelihood(), RatioMatching(), EnumeratedLikelihood()]


@pytest.mark.parametrize("model", [PLANTED, COLOURS, MACHINE], ids=["spins", "colours", "machine"])
@pytest.mark.parametrize(
    "objective", [PseudoLikelihood(), RatioMatching(), EnumeratedLikelihood()], ids=lambda o: type(o).__name__
)
def test_the_expected_loss_is_least_at_the_truth(objective, model):
    law = truth(model)
    assert population_gradient(objective, model, law) < 2e-5
    # Negative control: the law at another temperature.
    assert population_gradient(objective, model, enumerated(0.7 * model)) > 1e-3


def test_some_sites_stand_for_all():
    model, x = PLANTED, jnp.asarray(truth(PLANTED).draws(1)[0])
    keys = jax.random.split(jax.random.key(1), 2000)
    for all_of_them, some in (
        (PseudoLikelihood(), PseudoLikelihood(sites=2)),
        (RatioMatching(), RatioMatching(sites=2)),
    ):
        whole = float(all_of_them(model, None, x[None], key=jax.random.key(0))[0])
        few = jax.vmap(lambda k, o=some: o(model, None, x[None], key=k)[0])(keys)
        assert holds(few, whole) and breaks(0.9 * few, whole)


def test_the_losses_are_their_formulas():
    model, x = FEW, jnp.asarray(truth(FEW).draws(1, seed=1)[0])
    chances = []
    for i in range(6):
        flipped = x.reshape(-1).at[i].set(1 - x.reshape(-1)[i]).reshape(x.shape)
        chances.append(1 / (1 + np.exp(float(model(x) - model(flipped)))))
    loss = {o: float(o()(model, None, x[None], key=jax.random.key(0))[0]) for o in (PseudoLikelihood, RatioMatching)}
    assert loss[PseudoLikelihood] == pytest.approx(-np.log(chances).sum(), rel=1e-4)
    assert loss[RatioMatching] == pytest.approx(((1 - np.array(chances)) ** 2).sum(), rel=1e-4)


# ------------------------------------------------------------------------------------------------- contrasts with noise


class OneWay(AbstractSymmetricNoise):
    """Sites that are 0 become 1 now and then, and none goes back: not symmetric, whatever it says."""

    @property
    def makes_real_numbers(self):
        return False

    def check(self, space):
        pass

    def sample(self, t, x, *, key):
        return jnp.maximum(x, jax.random.bernoulli(key, 0.3, x.shape).astype(x.dtype))

    def log_prob(self, t, y, x):
        return jnp.zeros(())


AT_REST = {
    "CNCE by flips": CNCE(Flips(0.2)),
    "CNCE by one site": CNCE(OneSite(), draws=3),
    "discrepancy by flips": EnergyDiscrepancy(Flips(0.2), draws=4),
    "discrepancy by flips, one draw": EnergyDiscrepancy(Flips(0.2), draws=1),
    "discrepancy by one site": EnergyDiscrepancy(OneSite(), draws=8),
    "discrepancy by pooling": EnergyDiscrepancy(Pooling((2, 1)), draws=3),
    "PCD by blocks": PCD(Gibbs(), chains=128, moves=2),
    "CD by gradients": CD(GibbsWithGradients(), moves=3),
}
MOVED = {
    "noise that is not symmetric": CNCE(OneWay()),
    "a discrepancy with noise that is not symmetric": EnergyDiscrepancy(OneWay(), draws=4),
    "a discrepancy without its stabiliser": EnergyDiscrepancy(Flips(0.2), draws=2, stabiliser=0.0),
    "a discrepancy with too much of it": EnergyDiscrepancy(Flips(0.2), draws=4, stabiliser=4.0),
}


@pytest.mark.parametrize("name", AT_REST)
def test_gradients_vanish_at_the_truth(name):
    # Some of them are 0 but for rounding.
    assert holds(gradients(AT_REST[name], PLANTED, truth(PLANTED)), 0.0, bias=1e-6)
    assert breaks(gradients(AT_REST[name], PLANTED, enumerated(0.5 * PLANTED)), 0.0)


@pytest.mark.parametrize("name", MOVED)
def test_wrong_contrasts_are_not_at_rest(name):
    assert breaks(gradients(MOVED[name], PLANTED, truth(PLANTED), repeats=600), 0.0)


def test_noise_contrastive_estimation_learns_the_constant():
    law = truth(PLANTED)
    model = Shifted(PLANTED, law.log_z)
    for noise in (uniform(PLANTED.space), fit_sites(PLANTED.space, law.draws(100))):
        assert holds(gradients(NCE(noise), model, law), 0.0)
    assert breaks(gradients(NCE(uniform(PLANTED.space)), Shifted(PLANTED, law.log_z + 0.2), law), 0.0)


@pytest.mark.parametrize("categories", [2, 3])
def test_flips_are_what_they_say(categories):
    model = PLANTED if categories == 2 else COLOURS
    x = jnp.asarray(truth(model).draws(1, seed=3)[0])
    noise = Flips(0.3, categories)
    draws = jax.vmap(lambda k: noise.sample(0.0, x, key=k))(jax.random.split(jax.random.key(0), 4000))
    every = jnp.asarray(truth(model).points)
    chances = np.exp(np.asarray(jax.vmap(lambda y: noise.log_prob(0.0, y, x))(every), np.float64))
    assert chances.sum() == pytest.approx(1, abs=1e-5)
    mean = np.tensordot(chances, np.asarray(every), axes=1)
    assert holds(draws, mean) and breaks(draws, mean + 0.1)
    neighbours = np.exp(np.asarray(jax.vmap(lambda y: OneSite(categories).log_prob(0.0, y, x))(every), np.float64))
    assert neighbours.sum() == pytest.approx(1, abs=1e-5) and (neighbours > 0).sum() == x.size * (categories - 1)


# -------------------------------------------------------------------------------------------------- energy discrepancy


def kernel(noise, points) -> np.ndarray:
    """q(y | x) for all pairs of points."""
    xs = jnp.asarray(points)
    return np.exp(np.asarray(jax.vmap(lambda x: jax.vmap(lambda y: noise.log_prob(0.0, y, x))(xs))(xs), np.float64))


def discrepancy(energies: np.ndarray, data: np.ndarray, q: np.ndarray) -> float:
    """ED_q = E[U(x)] - E E_q(y | x)[U_q(y)], U_q(y) = -log sum_x' exp(-U(x')) q(y | x')."""
    contrast = -np.log(np.exp(-energies) @ q)
    return float(data @ energies - data @ q @ contrast)


@pytest.mark.parametrize("noise", [Flips(0.05), Flips(0.3), OneSite()], ids=["few", "many", "one site"])
def test_the_discrepancy_is_a_difference_of_divergences(noise):
    """ED_q(U) - ED_q(-log p_d) = KL(p_d, p) - KL(q p_d, q p), and it is not negative."""
    data, model = truth(PLANTED).probabilities, enumerated(0.4 * FEW)
    q = kernel(noise, model.points)
    energies = -np.log(model.probabilities) - 1.7  # the constant of an energy does not matter
    gap = discrepancy(energies, data, q) - discrepancy(-np.log(data), data, q)
    assert gap == pytest.approx(kl(data, model.probabilities) - kl(data @ q, model.probabilities @ q), abs=1e-6)
    assert gap > 1e-3
    # Negative control: another kernel for the way back than for the way there.
    other = kernel(Flips(0.15), model.points)
    mixed = float(data @ energies + data @ q @ np.log(np.exp(-energies) @ other))
    assert abs(mixed - discrepancy(energies, data, q)) > 1e-4


def test_at_a_rate_of_one_half_it_is_maximum_likelihood():
    data, model = truth(PLANTED).probabilities, enumerated(0.4 * FEW)
    q = kernel(Flips(0.5), model.points)
    energies = -np.log(model.probabilities)
    gap = discrepancy(energies, data, q) - discrepancy(-np.log(data), data, q)
    assert gap == pytest.approx(kl(data, model.probabilities), rel=1e-6)
    fewer = kernel(Flips(0.2), model.points)
    assert discrepancy(energies, data, fewer) - discrepancy(-np.log(data), data, fewer) < 0.9 * gap


@pytest.mark.parametrize("noise", [Flips(0.2), OneSite()], ids=["flips", "one site"])
def test_many_draws_estimate_it(noise):
    model = 0.4 * FEW
    energies = un.evaluation.energies(model, truth(PLANTED).points)
    known = discrepancy(energies, truth(PLANTED).probabilities, kernel(noise, truth(PLANTED).points))
    rows = jnp.asarray(truth(PLANTED).draws(200 * 64, seed=5)).reshape(200, 64, 2, 3)
    keys = jax.random.split(jax.random.key(2), 200)

    def losses(draws, stabiliser):
        objective = EnergyDiscrepancy(noise, draws=draws, stabiliser=stabiliser)
        return np.asarray(jax.vmap(lambda b, k: objective(model, None, b, key=k)[0])(rows, keys))

    assert holds(losses(256, 0.0), known, bias=0.005)
    assert breaks(losses(1, 0.0), known, bias=0.005)


def test_the_stabiliser_bounds_the_loss():
    """One draw and no stabiliser: the loss is linear in the energy, and falls without end where w = 1 has a bound."""
    law = truth(PLANTED)
    rows = jnp.asarray(law.draws(2000, seed=6))
    rising = un.energies.FunctionEnergy(lambda x: PLANTED(x), PLANTED.space)

    def loss(scale, stabiliser):
        objective = EnergyDiscrepancy(Flips(0.3), draws=1, stabiliser=stabiliser)
        return float(objective(scale * rising, None, rows, key=jax.random.key(3))[0])

    free = [loss(scale, 0.0) for scale in (1.0, 10.0, 100.0)]
    assert free[1] == pytest.approx(10 * free[0], rel=1e-4) and free[2] == pytest.approx(100 * free[0], rel=1e-4)
    assert free[0] < 0
    bounded = [loss(scale, 1.0) for scale in (0.0, 1.0, 10.0, 100.0)]
    assert min(bounded) > 0 and bounded[1] < bounded[0] and bounded[2] > bounded[1]
    spread = {
        w: gradients(EnergyDiscrepancy(Flips(0.3), draws=2, stabiliser=w), PLANTED, law).std(0) for w in (0.0, 1.0)
    }
    assert np.all(spread[1.0] < spread[0.0])


def test_pooling_keeps_what_is_pooled_and_nothing_else():
    x = jnp.asarray([[1.0, 0, 0, 1], [1, 0, 0, 0]])
    draws = np.asarray(
        jax.vmap(lambda k: Pooling((2, 2)).backward(x, key=k))(jax.random.split(jax.random.key(4), 3000))
    )
    windows = draws.reshape(3000, 2, 2, 2).sum((1, 3))
    assert np.all(windows == np.asarray(x).reshape(2, 2, 2).sum((0, 2)))
    assert holds(draws[:, :, :2], 0.5) and holds(draws[:, :, 2:], 0.25) and breaks(draws[:, :, :2], 0.25)
    with pytest.raises(un.InputError, match="do not tile"):
        EnergyDiscrepancy(Pooling((2, 2))).init(PLANTED, x, key=jax.random.key(0))


def test_noise_for_other_values_is_refused():
    with pytest.raises(un.InputError, match="pass categories=3"):
        CNCE(Flips(0.1)).init(COLOURS, jnp.zeros((4, 2, 2), int), key=jax.random.key(0))
    with pytest.raises(un.InputError, match="neither"):
        EnergyDiscrepancy(OneSite()).init(un.energies.standard_gaussian(2), jnp.zeros((4, 2)), key=jax.random.key(0))


# ------------------------------------------------------------------------------------------------- planted parameters


def estimated(objective, model, rows, state=None, seed: int = 0, start=None):
    """The estimate by Newton's method on all rows, each with noise of its own, and its standard errors (a sandwich)."""
    flat, build = parameters(model)
    keys = jax.random.split(jax.random.key(seed), len(rows))

    def of_row(theta, x, key):
        return objective(build(theta), state, x[None], key=key)[0]

    def loss(theta):
        return jnp.mean(jax.vmap(lambda x, k: of_row(theta, x, k))(rows, keys))

    slope, curvature = jax.jit(jax.grad(loss)), jax.jit(jax.hessian(loss))
    theta = flat if start is None else start
    for _ in range(12):
        theta = theta - np.linalg.solve(np.asarray(curvature(theta)), np.asarray(slope(theta)))
    each = np.asarray(jax.jit(jax.vmap(jax.grad(of_row), in_axes=(None, 0, 0)))(theta, rows, keys), np.float64)
    inverse = np.linalg.inv(np.asarray(curvature(theta), np.float64))
    covariance = inverse @ (each.T @ each / len(rows)) @ inverse / len(rows)
    return np.asarray(theta), np.sqrt(np.diag(covariance))


ESTIMATORS = {
    "likelihood": EnumeratedLikelihood(),
    "pseudo-likelihood": PseudoLikelihood(),
    "ratio matching": RatioMatching(),
    "discrepancy": EnergyDiscrepancy(Flips(0.2), draws=4),
    "CNCE": CNCE(OneSite(), draws=4),
    "NCE": NCE(uniform(SPINS.space)),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_couplings_of_twelve_spins_come_back(name):
    objective, law = ESTIMATORS[name], truth(SPINS)
    model = Shifted(SPINS, law.log_z) if name == "NCE" else SPINS
    count = 3000 if name == "likelihood" else 4000
    rows = jnp.asarray(law.draws(count, seed=7))
    if name == "likelihood":  # the constant is summed once, not for every row
        objective = EnumeratedOnce(law.points)
    state = objective.init(model, rows, key=jax.random.key(0))
    theta, errors = estimated(objective, model, rows, state)
    z = (theta - np.asarray(parameters(model)[0])) / errors
    # Some thirty parameters: none is off by more than 4.5 errors, and on average their squares are 1.
    assert np.abs(z).max() < 4.5 and (z**2).mean() < 1 + 4.5 * math.sqrt(2 / len(z))
    # Negative control: rows of another temperature.
    other, errors = estimated(objective, model, jnp.asarray(enumerated(0.7 * SPINS).draws(count, seed=8)), state)
    assert np.abs((other - np.asarray(parameters(model)[0])) / errors).max() > 4.5


class EnumeratedOnce(EnumeratedLikelihood):
    """The likelihood of one row after the other, by sufficient statistics of an Ising model."""

    points: np.ndarray

    def __call__(self, model, state, batch, *, key):
        energies = jax.vmap(model)(jnp.asarray(self.points))
        return jnp.mean(jax.vmap(model)(batch)) + jax.nn.logsumexp(-energies), (None, {})


def nats_lost(model, law, count: int) -> float:
    """Twice the rows times the divergence: chi-square with as many degrees of freedom as parameters at the maximum."""
    return 2 * count * law.divergence(enumerated(model))


def test_persistent_chains_find_the_spins():
    law, blank = truth(SPINS), Ising(lattice((3, 4)), jnp.zeros((3, 4)), jnp.zeros(17))
    fitted = un.fit(
        blank, PCD(Gibbs(), chains=512, moves=2), law.draws(4000, seed=9), steps=1500, rate=0.02, batch=512,
        key=jax.random.key(5), progress=False,
    ).model  # fmt: skip
    assert nats_lost(fitted, law, 4000) < 29 + 4.5 * math.sqrt(58)
    assert nats_lost(blank, law, 4000) > 1000


@pytest.mark.parametrize("name", ["likelihood", "PCD", "pseudo-likelihood"])
def test_a_machine_finds_the_law_of_a_machine(name):
    law = truth(MACHINE)
    objective = {"likelihood": EnumeratedLikelihood(), "PCD": PCD(Gibbs(), chains=512, moves=2)}.get(
        name, PseudoLikelihood()
    )
    blank = rbm(Binary((6,)), 3, scale=0.5, key=jax.random.key(6))
    rows = law.draws(4000, seed=10)
    fitted = un.fit(
        blank, objective, rows, steps=2500, rate=0.02, batch=512, key=jax.random.key(7), progress=False
    ).model
    assert nats_lost(fitted, law, 4000) < 27 + 4.5 * math.sqrt(54)
    assert nats_lost(blank, law, 4000) > 1000
