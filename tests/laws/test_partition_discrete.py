"""log Z of energies on zeros and ones and on categories: stated errors hold the enumerated truth."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from discrete import COLOURS, DICE, MACHINE, SPINS, TIED, truth, z_score

import unnorm as un
from unnorm.energies import Shifted, fit_sites, uniform
from unnorm.evaluation import ais, bracket, bridge, enumerated, importance, reverse_ais, smc, thermodynamic
from unnorm.samplers import AbstractSampler, Gibbs, Info, TemperedSMC
from unnorm.spaces import Binary, Categorical

JOINT = MACHINE.joint()
TARGETS = {"spins": SPINS, "machine": JOINT, "tied coins": TIED, "dice": DICE, "colours": COLOURS}
METHODS = {
    "AIS": lambda target, base, key: ais(target, base, chains=256, levels=40, key=key),
    "SMC": lambda target, base, key: smc(target, base, islands=16, particles=64, key=key),
    "thermodynamic": lambda target, base, key: thermodynamic(target, base, chains=64, levels=20, moves=8, key=key),
}


@pytest.mark.parametrize("target", ["spins", "machine", "dice"])
@pytest.mark.parametrize("method", METHODS)
def test_annealing_by_gibbs_finds_the_enumerated_constant(method, target):
    energy = TARGETS[target]
    base, known = uniform(energy.space), truth(TARGETS[target]).log_z
    found = [METHODS[method](energy, base, jax.random.key(seed)) for seed in range(5)]
    scores = [z_score(estimate, known) for estimate in found]
    assert max(map(abs, scores)) < 4.5 and abs(np.mean(scores)) < 4.5 / math.sqrt(5)
    assert max(estimate.stderr for estimate in found) < 0.1
    # Negative control: the constant of a base that is not normalised.
    lifted = known + 0.5
    assert max(abs(z_score(estimate, lifted)) for estimate in found) > 4.5


def test_a_base_of_fitted_sites_and_one_target_of_each_kind():
    for energy in (TIED, COLOURS):
        base = fit_sites(energy.space, truth(energy).draws(200, seed=1))
        for estimate in (
            ais(energy, base, chains=256, levels=40, key=jax.random.key(7)),
            importance(energy, base, draws=4000, key=jax.random.key(8)),
            bridge(energy, base, truth(energy).draws(2000, seed=2), key=jax.random.key(9)),
            reverse_ais(energy, base, truth(energy).draws(256, seed=3), levels=40, key=jax.random.key(10)),
            TemperedSMC(base, islands=16, particles=64)(energy, key=jax.random.key(11)).log_z,
        ):
            assert abs(z_score(estimate, truth(energy).log_z)) < 4.5
            assert abs(z_score(estimate, truth(energy).log_z + 0.5)) > 4.5


def test_both_ways_bracket_the_constant():
    found = bracket(SPINS, uniform(SPINS.space), truth(SPINS).draws(512, seed=4), levels=40, key=jax.random.key(12))
    assert abs(z_score(found.lower, truth(SPINS).log_z)) < 4.5 and abs(z_score(found.upper, truth(SPINS).log_z)) < 4.5


class Biased(AbstractSampler):
    """Gibbs at another temperature: it leaves another law invariant."""

    power: float = eqx.field(static=True)

    def check(self, target):
        pass

    def init(self, target, x):
        return x

    def step(self, target, state, *, key):
        moved, _ = Gibbs().step(self.power * target, state, key=key)
        return moved, Info(jnp.ones(()), jnp.asarray(False))

    def position(self, state):
        return state


@pytest.mark.parametrize("method", [ais, smc, thermodynamic])
def test_moves_that_leave_another_law_invariant_give_another_constant(method):
    """The sampler that is given is the one that moves: Gibbs is right, and wrong moves are seen."""
    base, known = uniform(SPINS.space), truth(SPINS).log_z
    assert abs(z_score(method(SPINS, base, sampler=Gibbs(6), key=jax.random.key(13)), known)) < 4.5
    assert abs(z_score(method(SPINS, base, sampler=Biased(1.5), key=jax.random.key(13)), known)) > 4.5


def test_small_spaces_are_summed_and_others_estimated():
    exact = un.log_partition(SPINS, key=jax.random.key(0))
    assert exact.method == "enumeration" and exact.stderr == 0 and exact.value == pytest.approx(truth(SPINS).log_z)
    weights = 0.3 * np.random.default_rng(5).normal(size=(18, 18))
    large = un.energies.FunctionEnergy(lambda x: -(x @ jnp.asarray(weights) @ x), Binary((18,)))
    known = enumerated(large).log_z
    for seed in range(3):
        estimate = un.log_partition(large, key=jax.random.key(seed))
        assert estimate.method != "enumeration" and abs(z_score(estimate, known)) < 4.5
        assert abs(z_score(estimate, known + 0.5)) > 4.5


def test_machines_with_few_hidden_units_are_summed_over_those():
    """Twenty visible units have a million states; four hidden ones have sixteen."""
    rng = np.random.default_rng(6)
    model = un.energies.RBM(Binary((20,)), rng.normal(size=(20, 4)), rng.normal(size=20), rng.normal(size=4))
    found = un.log_partition(model, key=jax.random.key(0))
    assert found.method == "enumeration" and found.diagnostics["points"] == 16
    assert found.value == pytest.approx(enumerated(model).log_z, abs=1e-4)


def test_machines_with_many_units_are_annealed_layer_by_layer():
    rng = np.random.default_rng(7)
    visible, hidden = rng.normal(size=20), rng.normal(size=20)
    weights = 0.3 * rng.normal(size=(20, 20))
    model = un.energies.RBM(Binary((20,)), weights, visible, hidden)
    known = enumerated(model).log_z
    found = un.log_partition(model, key=jax.random.key(1))
    assert found.method != "enumeration" and abs(z_score(found, known)) < 4.5 and found.stderr < 0.1


def test_a_constant_in_the_energy_is_a_constant_in_the_answer():
    lifted = Shifted(SPINS, 2.5)
    estimate = ais(lifted, uniform(SPINS.space), chains=256, levels=40, key=jax.random.key(14))
    assert abs(z_score(estimate, truth(SPINS).log_z - 2.5)) < 4.5 < abs(z_score(estimate, truth(SPINS).log_z))


def test_particles_are_draws():
    """The population of tempered SMC has the moments of the law."""
    found = TemperedSMC(uniform(SPINS.space), islands=32, particles=128)(SPINS, key=jax.random.key(15))
    mean = found.mean(lambda x: x.reshape(len(x), -1).mean(axis=1))
    known = float(truth(SPINS).mean(jnp.mean))
    assert abs(z_score(mean, known)) < 4.5 < abs(z_score(mean, known + 0.05))


def test_the_base_is_normalised():
    for base in (uniform(Categorical((4,), 3)), fit_sites(DICE.space, truth(DICE).draws(50))):
        assert abs(enumerated(base).log_z) < 1e-5
        draws = np.asarray(base.samples(4000, key=jax.random.key(16)))
        expected = enumerated(base).mean(lambda x: x)
        assert np.all(np.abs(draws.mean(0) - expected) < 4.5 * draws.std(0) / math.sqrt(4000))
