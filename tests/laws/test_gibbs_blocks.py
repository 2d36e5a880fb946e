"""Gibbs sampling has the enumerated law, site by site and block by block, and blocks are what is independent."""

import equinox as eqx
import jax
import jax.numpy as jnp
import networkx
import numpy as np
import pytest
from discrete import COLOURS, DICE, FEW, MACHINE, TIED, agrees, settled, truth
from harness import breaks, holds

import unnorm as un
from unnorm.energies import (
    AbstractFactorised,
    AbstractSitewise,
    DeepBoltzmann,
    GaussianRBM,
    IndependentSites,
    Ising,
    Potts,
    blocks_of,
    lattice,
    site_graph,
    site_logits,
    uniform,
)
from unnorm.evaluation import enumerated
from unnorm.samplers import Gibbs, ParallelTempering
from unnorm.spaces import Binary, Categorical, Real

WEIGHTS = jnp.asarray(np.random.default_rng(1).normal(size=(3, 2)))
DEEP = DeepBoltzmann((WEIGHTS, 0.8 * WEIGHTS[:2, :1]), (jnp.array([0.2, -0.3, 0.1]), jnp.zeros(2), jnp.ones(1)))
ODD = Ising(site_graph(networkx.cycle_graph(5)), 0.3, 1.1)
CHANCES = IndependentSites(Categorical((2, 2), 3), np.random.default_rng(2).normal(size=(2, 2, 3)))
MODELS = {
    "Ising": FEW,
    "Ising on a ring of five": ODD,
    "Potts": COLOURS,
    "RBM": MACHINE,
    "deep machine": DEEP,
    "any energy of coins": un.energies.FunctionEnergy(lambda x: jnp.sin(3 * x.sum()) + x[0] * x[2], Binary((4,))),
    "any energy of categories": DICE,
    "half a Potts model and sites": 0.5 * COLOURS + CHANCES,
}


@pytest.mark.parametrize("name", MODELS)
def test_gibbs_has_the_enumerated_law(name):
    model = MODELS[name]
    known = truth(model)
    assert agrees(settled(model, Gibbs()), known, model.space)
    # Negative control: the same chains at another temperature.
    assert not agrees(settled(1.3 * model, Gibbs()), known, model.space)


@pytest.mark.parametrize("name", ["Ising", "Potts", "any energy of categories"])
def test_random_sites_have_it_too(name):
    model = MODELS[name]
    assert agrees(settled(model, Gibbs(3), steps=120), truth(model), model.space)
    assert not agrees(settled(model, Gibbs(1), steps=3), truth(model), model.space)


def log_conditionals(model, x) -> np.ndarray:
    """log p(x_i = c | rest) of every site by energies of whole points: the definition."""
    k = 2 if isinstance(model.space, Binary) else model.space.categories
    flat = x.reshape(-1)
    rows = [[-model(flat.at[i].set(c).reshape(x.shape)) for c in range(k)] for i in range(flat.size)]
    return np.asarray(jax.nn.log_softmax(jnp.asarray(rows)))


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if blocks_of(model)])
def test_blocks_know_the_law_of_their_sites(name):
    model = MODELS[name]
    found = blocks_of(model)
    assert np.array_equal(np.sort(np.concatenate(found.sites)), np.arange(model.space.size))
    for x in truth(model).draws(5, seed=3):
        x = jnp.asarray(x)
        expected = log_conditionals(model, x)
        for block, sites in enumerate(found.sites):
            logits = jax.nn.log_softmax(found.logits(block, x))
            assert np.allclose(logits, expected[sites], atol=1e-5)
            # Independent given the rest: their law does not change when one of them does.
            other = x.reshape(-1).at[sites[0]].set(1 - x.reshape(-1)[sites[0]] % 2).reshape(x.shape)
            assert np.allclose(found.logits(block, other), found.logits(block, x), atol=1e-5)
        for site in range(model.space.size):
            assert np.allclose(jax.nn.log_softmax(site_logits(model, site, x)), expected[site], atol=1e-5)


class Rushed(AbstractFactorised):
    """All sites of an Ising model at once, as if they were independent."""

    model: Ising
    space: Binary = eqx.field(static=True, default=Binary((2, 3)))

    def __call__(self, x):
        return self.model(x)

    @property
    def blocks(self):
        return (np.arange(6),)

    def conditional_logits(self, block, x):
        return jax.vmap(lambda site: self.model.site_logits(site, x))(jnp.arange(6))


def test_sites_that_are_not_independent_must_take_turns():
    assert not agrees(settled(Rushed(FEW), Gibbs()), truth(FEW), FEW.space)


def test_parts_say_what_their_sum_knows():
    """The colours of a lattice survive a power, a constant and a base; an energy that knows nothing takes them away."""
    assert len(blocks_of(FEW).sites) == 2 and len(blocks_of(ODD).sites) == 3
    assert len(blocks_of(0.3 * FEW + 0.7 * uniform(FEW.space)).sites) == 2
    assert len(blocks_of(un.energies.Shifted(FEW, 1.0)).sites) == 2
    anything = un.energies.FunctionEnergy(lambda x: x.sum() ** 2, FEW.space)
    assert blocks_of(FEW + anything) is None
    across = Ising(un.energies.SiteGraph((2, 3), np.array([[0, 4], [1, 3]])), 0.0, 1.0)
    both = FEW + across
    assert len(blocks_of(both).sites) > 2
    assert agrees(settled(both, Gibbs()), truth(both), FEW.space)


def test_hidden_units_of_a_gaussian_machine():
    """Chains have the mean and variance of the mixture of 2^hidden Gaussians."""
    weights = jnp.array([[1.5, -1.0], [0.5, 2.0]])
    model = GaussianRBM(
        Real((2,)), weights, jnp.array([0.3, -0.2]), jnp.array([-0.5, 0.2]), jnp.log(jnp.array([0.8, 1.2]))
    )
    hidden = enumerated(model.equivalents()[0])
    means = np.asarray(model.visible) + hidden.points @ np.asarray(weights).T
    mean = hidden.probabilities @ means
    draws = settled(model, Gibbs(), chains=4000, steps=40)
    assert holds(draws, mean)
    second = hidden.probabilities @ means**2 + np.array([0.8, 1.2]) ** 2
    assert holds(draws**2, second) and breaks(draws**2, second - np.array([0.8, 1.2]) ** 2 + 1)
    # Z by quadrature.
    axis = np.linspace(-12, 12, 241)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2).astype(np.float32)
    by_grid = np.log(np.exp(-un.evaluation.energies(model, grid)).sum() * 0.01)
    assert abs(hidden.log_z - by_grid) < 1e-3 < abs(hidden.log_z - np.log(2 * np.pi) - by_grid)
    assert abs(un.log_partition(model, key=jax.random.key(0)).value - by_grid) < 1e-3


def test_replicas_are_handed_down_on_discrete_spaces():
    """A strong coupling holds sweeps back; the ladder of temperatures does not mind."""
    strong = Ising(lattice((3, 3)), 0.0, 3.0)
    start = np.zeros((400, 3, 3), np.float32)
    options = {"chains": 400, "steps": 1, "start": start, "warmup": 0, "progress": False, "key": jax.random.key(4)}
    ladder = un.sample(strong, ParallelTempering(6, 0.1), thin=100, **options).draws[:, 0].mean((1, 2))
    alone = un.sample(strong, Gibbs(), thin=100, **options).draws[:, 0].mean((1, 2))
    assert holds(ladder, 0.5) and breaks(alone, 0.5)


def test_a_site_by_itself_agrees_with_its_energy():
    """Models that know their sites do not ask for energies: they give the same chain as one that must ask."""
    for model in (FEW, COLOURS):
        assert isinstance(model, AbstractSitewise)
        plain = un.energies.FunctionEnergy(model, model.space)
        x = jnp.asarray(truth(model).draws(1)[0])
        for site in range(model.space.size):
            ours, theirs = site_logits(model, site, x), site_logits(plain, site, x)
            assert np.allclose(ours - ours[0], theirs - theirs[0], atol=1e-5)
    two = Potts(lattice((2, 3)), 2, [0.0, 0.4], 0.7)
    assert abs(truth(two).log_z - truth(FEW).log_z) < 1e-5
    assert np.allclose(truth(two).probabilities, truth(FEW).probabilities, atol=1e-6)


def test_tied_coins_take_turns():
    assert blocks_of(TIED) is None
    draws = settled(TIED, Gibbs(), chains=4000, steps=60)
    assert holds(draws, truth(TIED).mean(lambda x: x))
    assert breaks(settled(TIED, Gibbs(), chains=4000, steps=1), truth(TIED).mean(lambda x: x))
