"""Experiments on lattices and machines: figures that are known, by enumeration."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from known_figures import figure_of, within

from unnorm.energies import RBM, DeepBoltzmann, every_point
from unnorm.evaluation import enumerated
from unnorm.experiments import dbm, ising_exact, machines, rbm_mnist
from unnorm.spaces import Binary

RNG = np.random.default_rng(1)
SIZE = machines.Annealing(chains=64, levels=200, moves=50, rows=400, row_chains=8, row_levels=50)
WEIGHTS = 1.2 * RNG.normal(size=(6, 3))
BIASES = 0.3 * RNG.normal(size=6)


@figure_of("ising-exact")
def test_what_is_known_of_a_torus_is_what_all_its_points_say(monkeypatch):
    monkeypatch.setitem(ising_exact.SHAPES, ising_exact.MIDDLE, (4, 4))
    law = enumerated(ising_exact.model(ising_exact.MIDDLE, 0.7))
    known = ising_exact.truth.__wrapped__(ising_exact.MIDDLE, 0.7)
    shares = 2 * law.points.reshape(len(law.points), -1).mean(axis=1, dtype=np.float64) - 1
    energy = ising_exact.model(ising_exact.MIDDLE, 0.7)
    assert known[ising_exact.LOG_Z] == pytest.approx(law.log_z / 16, rel=1e-5)
    assert known[ising_exact.ENERGY] == pytest.approx(float(law.mean(energy)) / 16, rel=1e-4)
    assert known[ising_exact.MOMENT] == pytest.approx(float(law.probabilities @ shares**2), rel=1e-4)
    # Exact draws have these means within their errors; those of another coupling have not.
    other = enumerated(ising_exact.model(ising_exact.MIDDLE, 0.5))
    for of, right in ((law, True), (other, False)):
        draws = of.draws(4000, seed=0).reshape(8, 500, 4, 4)
        found = ising_exact._means(SimpleNamespace(draws=draws), energy)
        assert within(found[ising_exact.MOMENT], known[ising_exact.MOMENT]) == right
        assert within(found[ising_exact.ENERGY], known[ising_exact.ENERGY]) == right


def machine() -> RBM:
    return RBM(Binary((6,)), WEIGHTS, BIASES, jnp.array([0.2, -0.1, 0.0]))


@figure_of("rbm-mnist")
def test_a_machine_is_judged_between_bounds_that_hold_its_likelihood():
    model = machine()
    law = enumerated(model)
    rows = law.draws(400, seed=2).astype(np.float32)
    exact = float(np.mean(-np.asarray(jax.vmap(model)(rows)))) - law.log_z
    piece = machines.judged(model, rows, rows, SIZE, 0)
    lower, upper = (piece[name]["value"] for name in (machines.LOWER, machines.UPPER))
    # The error of a mean over rows is told too; here the rows are these, so log Z alone is uncertain.
    assert abs(lower - exact) < 0.05 and abs(upper - exact) < 0.05
    worse = machines.judged(RBM(Binary((6,)), -WEIGHTS, BIASES, jnp.zeros(3)), rows, rows, SIZE, 0)
    assert worse[machines.UPPER]["value"] < exact - 0.1
    coins = rbm_mnist._coins(SimpleNamespace(train=rows, test=rows))
    share = (rows.sum(0) + machines.PRIOR) / (len(rows) + 2 * machines.PRIOR)
    assert coins.value == pytest.approx(float(np.mean(rows @ np.log(share) + (1 - rows) @ np.log1p(-share))), abs=1e-5)


@figure_of("dbm")
def test_a_deep_machine_is_judged_by_the_sum_over_its_hidden_layers():
    model = DeepBoltzmann(
        (WEIGHTS, RNG.normal(size=(3, 2))), (BIASES, 0.2 * RNG.normal(size=3), 0.2 * RNG.normal(size=2))
    )
    hidden = jnp.asarray(every_point(Binary((5,))))
    energy = jax.vmap(lambda x: -jax.nn.logsumexp(-jax.vmap(lambda h: model(jnp.concatenate([x, h])))(hidden)))
    points = jnp.asarray(every_point(Binary((6,))))
    logits = -np.asarray(energy(points), np.float64)
    law = np.exp(logits - np.logaddexp.reduce(logits))
    rows = np.asarray(points)[RNG.choice(64, size=400, p=law / law.sum())].astype(np.float32)
    exact = float(np.mean(-np.asarray(energy(jnp.asarray(rows))))) - float(np.logaddexp.reduce(logits))
    piece = machines.judged(model, rows, rows, SIZE, 0)
    for name in (machines.LOWER, machines.UPPER):
        assert abs(piece[name]["value"] - exact) < 0.05
    # Control: without the sum over the upper layer the machine seems another.
    alone = machines.judged(RBM(Binary((6,)), WEIGHTS, BIASES, model.biases[1]), rows, rows, SIZE, 0)
    assert abs(alone[machines.LOWER]["value"] - exact) > 0.02
    # One layer of as many parameters: h (v + 1) + v = 6 * 3 + 3 * 2 + 11 = 35.
    assert dbm.parameters(6, 3, 2) == 35 and dbm.as_large(6, (3, 2)) == 4
