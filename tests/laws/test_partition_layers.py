"""log Z of Boltzmann machines by their layers: stated errors hold the enumerated truth, from both sides."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from discrete import MACHINE, truth, z_score
from harness import covers, halved, holds

import unnorm as un
from unnorm.energies import RBM, DeepBoltzmann, enumerated_log_z, fit_sites
from unnorm.evaluation import layered_ais, layered_bracket, layered_smc, unnormalised_evidence
from unnorm.spaces import Binary

RNG = np.random.default_rng(3)


def part(*shape):
    return 0.9 * RNG.normal(size=shape)


#: Four layers: the fold of a deep machine has blocks of zeros.
DEEP = DeepBoltzmann((part(5, 3), part(3, 2), part(2, 2)), (part(5), part(3), part(2), part(2)))


def test_a_deep_machine_is_an_rbm_of_its_odd_layers():
    folded = DEEP.folded()
    assert folded.weights.shape == (5, 7)
    assert float(enumerated_log_z(folded)) == pytest.approx(truth(DEEP).log_z, abs=1e-5)
    # Control: without the last layer it is another machine.
    assert (
        abs(float(enumerated_log_z(DeepBoltzmann(DEEP.weights[:2], DEEP.biases[:3]).folded())) - truth(DEEP).log_z)
        > 0.1
    )
    # The law of the odd layers is that of the fold.
    means = truth(folded).mean(lambda x: x)
    assert np.allclose(truth(DEEP).mean(DEEP.odd), means, atol=1e-5)


#: Draws of the law, uniform and fitted bases.
CASES = {"RBM": (MACHINE, MACHINE), "deep": (DEEP, DEEP.folded())}


@pytest.mark.parametrize("name", CASES)
def test_layers_find_the_enumerated_constant(name):
    model, machine = CASES[name]
    known, base = truth(model).log_z, fit_sites(machine.space, truth(machine).draws(100, seed=1))
    found = []
    for seed in range(3):
        both = layered_bracket(
            model, truth(model).draws(256, seed=seed), base, chains=256, levels=30, key=jax.random.key(seed)
        )
        by_smc = layered_smc(model, base, islands=16, particles=32, levels=30, key=jax.random.key(seed))
        found += [both.lower, both.upper, by_smc]
    scores = [z_score(estimate, known) for estimate in found]
    assert max(map(abs, scores)) < 4.5 and max(e.stderr for e in found) < 0.1
    # Negative controls: another constant, and another machine on the same path.
    assert max(abs(z_score(estimate, known + 0.5)) for estimate in found) > 4.5
    other = eqx.tree_at(lambda m: m.hidden, machine, machine.hidden + 0.5)
    assert abs(z_score(layered_ais(other, base, chains=256, levels=30, key=jax.random.key(0)), known)) > 4.5


def test_fair_coins_are_the_base_where_none_is_given():
    found = layered_ais(MACHINE, chains=256, levels=30, key=jax.random.key(5))
    assert abs(z_score(found, truth(MACHINE).log_z)) < 4.5 and found.diagnostics["levels"] == 30


def test_the_sum_over_hidden_layers_is_the_enumerated_one():
    rows = np.asarray(truth(DEEP).draws(12, seed=9))[:, :5]
    values, errors = unnormalised_evidence(DEEP, rows, chains=64, levels=30, key=jax.random.key(6))
    exact = [float(DEEP.biases[0] @ x + enumerated_log_z(DEEP.above(jnp.asarray(x)))) for x in rows]
    assert holds((values - exact) / np.hypot(errors, 1e-5), 0.0) and np.abs((values - exact) / errors).max() < 4.5
    # Control: the sum without the tilt of the visible units.
    assert not np.abs((values - exact + rows @ np.asarray(DEEP.biases[0])) / errors).max() < 4.5
    assert values.max() - math.log(2) < truth(DEEP).log_z


def test_other_models_and_bases_are_refused():
    with pytest.raises(un.InputError, match="layers are those of an RBM or a DeepBoltzmann, not of Ising"):
        layered_ais(un.energies.Ising(un.energies.lattice((2, 2))), key=jax.random.key(0))
    with pytest.raises(un.InputError, match="the base of the layers is a law of sites on Binary"):
        layered_ais(MACHINE, un.energies.uniform(Binary((5,))), key=jax.random.key(0))
    with pytest.raises(un.InputError, match="hidden units that are independent"):
        MACHINE.joint().above(jnp.zeros(6))


@pytest.mark.thorough
def test_stated_intervals_cover():
    known = truth(MACHINE).log_z
    found = [layered_ais(MACHINE, chains=256, levels=20, key=jax.random.key(seed)) for seed in range(200)]
    assert covers(found, known) and not covers(halved(found), known)
    assert isinstance(MACHINE, RBM)
