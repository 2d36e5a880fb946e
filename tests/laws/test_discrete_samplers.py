"""Informed moves and clusters have the enumerated law, and proposals without their correction have not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from discrete import COLOURS, DICE, FEW, MACHINE, SPINS, agrees, settled, truth, z_score
from harness import breaks, holds
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

import unnorm as un
from unnorm.energies import Ising, Potts, fit_sites, lattice, mlp_on_sites, uniform
from unnorm.evaluation import ais, smc
from unnorm.samplers import DiscreteLangevin, Gibbs, GibbsWithGradients, Info, ParallelTempering, SwendsenWang
from unnorm.samplers.clusters import clusters
from unnorm.samplers.informed import differences
from unnorm.spaces import Binary, Categorical

NETWORK = mlp_on_sites(Categorical((3,), 3), width=8, depth=1, key=jax.random.key(0))
NETWORK = eqx.tree_at(lambda e: e.network.layers[-1].weight, NETWORK, replace_fn=lambda w: 6 * w)
COINS = mlp_on_sites(Binary((4,)), width=8, depth=1, key=jax.random.key(1))
COINS = eqx.tree_at(lambda e: e.network.layers[-1].weight, COINS, replace_fn=lambda w: 6 * w)
CURVED = un.energies.FunctionEnergy(lambda x: 0.7 * x.sum() ** 2 - 2 * x[0] * x[1] * x[2], Binary((4,)))
PLAIN = Potts(lattice((2, 2)), 3, [0.0, 0.4, -0.3], 0.9)
MODELS = {
    "Ising": FEW, "Potts": COLOURS, "RBM": MACHINE, "categories": DICE, "network of categories": NETWORK,
    "network of coins": COINS, "function of coins": CURVED, "half an Ising model and sites": 0.5 * FEW + fit_sites(
        FEW.space, truth(FEW).draws(20)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_gibbs_with_gradients_has_the_enumerated_law(name):
    model = MODELS[name]
    assert agrees(settled(model, GibbsWithGradients(), chains=4000, steps=60), truth(model), model.space)


@pytest.mark.parametrize("name", MODELS)
def test_discrete_langevin_has_the_enumerated_law(name):
    model = MODELS[name]
    assert agrees(settled(model, DiscreteLangevin(0.3), chains=4000, steps=80), truth(model), model.space)


class Unchecked(GibbsWithGradients.__base__):
    """The same proposals, all of them accepted."""

    proposer: GibbsWithGradients

    def check(self, target):
        pass

    def init(self, target, x):
        return x

    def step(self, target, state, *, key):
        chosen = jax.random.categorical(key, self.proposer._proposal(target, state))
        k = 2 if isinstance(target.space, Binary) else target.space.categories
        y = state.reshape(-1).at[chosen // k].set((chosen % k).astype(state.dtype)).reshape(state.shape)
        return y, Info(jnp.ones(()), jnp.asarray(False))

    def position(self, state):
        return state


@pytest.mark.parametrize("name", ["Ising", "network of categories"])
def test_proposals_without_their_correction_have_another_law(name):
    model = MODELS[name]
    for wrong in (Unchecked(GibbsWithGradients()), DiscreteLangevin(1.0, corrected=False)):
        assert not agrees(settled(model, wrong, chains=4000, steps=61), truth(model), model.space)


def test_differences_are_exact_where_an_energy_knows_its_sites_and_first_order_elsewhere():
    for model in (FEW, COLOURS, DICE, 0.5 * FEW + uniform(FEW.space)):
        x = jnp.asarray(truth(model).draws(1)[0])
        found, flat = differences(model, x), x.reshape(-1)
        for site in range(flat.size):
            for value in range(found.shape[1]):
                exact = model(x) - model(flat.at[site].set(value).reshape(x.shape))
                assert abs(found[site, value] - exact) < 1e-5
    x = jnp.asarray(truth(CURVED).draws(1, seed=2)[0])
    slope = np.asarray(jax.grad(CURVED)(x))
    assert np.allclose(differences(CURVED, x)[:, 1], -slope * (1 - np.asarray(x)), atol=1e-5)


# ----------------------------------------------------------------------------------------------------------- clusters


def test_clusters_are_connected_components():
    sites = lattice((6, 7))
    rng = np.random.default_rng(3)
    for share in (0.2, 0.5, 0.8):
        bonds = rng.random(len(sites.edges)) < share
        ours = np.asarray(clusters(jnp.asarray(bonds), sites.edges, 42))
        kept = sites.edges[bonds]
        graph = coo_matrix((np.ones(len(kept)), kept.T), shape=(42, 42))
        _, theirs = connected_components(graph, directed=False)
        first = np.array([np.flatnonzero(theirs == label)[0] for label in theirs])
        assert np.array_equal(ours, first)


@pytest.mark.parametrize("name", ["Ising", "Potts"])
def test_clusters_have_the_enumerated_law(name):
    model = MODELS[name]
    assert agrees(settled(model, SwendsenWang(), steps=15), truth(model), model.space)
    # Negative control: bonds as if the coupling were half as strong again, fields as they are.
    stronger = eqx.tree_at(lambda m: m.coupling, model, 1.5 * model.coupling)
    assert not agrees(settled(stronger, SwendsenWang(), steps=15), truth(model), model.space)


def test_clusters_cross_where_single_sites_freeze():
    strong = Ising(lattice((3, 3)), 0.0, 3.0)
    options = {"chains": 400, "steps": 1, "start": np.zeros((400, 3, 3)), "progress": False, "key": jax.random.key(4)}
    whole = un.sample(strong, SwendsenWang(), thin=3, **options).draws[:, 0].mean((1, 2))
    single = un.sample(strong, Gibbs(), thin=3, **options).draws[:, 0].mean((1, 2))
    assert holds(whole, 0.5) and breaks(single, 0.5)


def test_couplings_of_the_wrong_sign_and_other_models_are_refused():
    for target, said in ((Ising(lattice((2, 2)), 0.0, -1.0), "some couplings are negative"), (MACHINE, "not of RBM")):
        with pytest.raises(un.InputError, match=said):
            un.sample(target, SwendsenWang(), chains=4, steps=2, key=jax.random.key(0), progress=False)
    with pytest.raises(un.InputError, match="changes zeros and ones or categories"):
        un.sample(un.energies.standard_gaussian(2), GibbsWithGradients(), chains=4, steps=2, key=jax.random.key(0))


# ------------------------------------------------------------------------------------------------- as moves of others


@pytest.mark.parametrize(
    "moves", [GibbsWithGradients(), DiscreteLangevin(0.3), SwendsenWang()], ids=lambda s: type(s).__name__
)
def test_replicas_and_annealing_move_by_any_of_them(moves):
    ladder = ParallelTempering(4, 0.2, moves=moves)
    assert agrees(settled(FEW, ladder, chains=1500, steps=25), truth(FEW), FEW.space)
    for method in (ais, smc):
        small = {"chains": 256, "levels": 20, "moves": 4} if method is ais else {"islands": 16, "particles": 64}
        found = method(FEW, uniform(FEW.space), sampler=moves, key=jax.random.key(5), **small)
        assert abs(z_score(found, truth(FEW).log_z)) < 4.5 < abs(z_score(found, truth(FEW).log_z + 0.3))


def test_informed_moves_reach_further_than_random_sites():
    """From an unlikely point of a sharp law a step of Gibbs with gradients gains more than one random site does."""
    sharp = 3.0 * SPINS
    far = truth(-1.0 * sharp).draws(500, seed=6)
    options = {"chains": 500, "steps": 1, "thin": 6, "start": far, "progress": False, "key": jax.random.key(7)}
    ours = un.sample(sharp, GibbsWithGradients(), **options).draws[:, 0]
    theirs = un.sample(sharp, Gibbs(1), **options).draws[:, 0]
    gain = un.evaluation.energies(sharp, theirs) - un.evaluation.energies(sharp, ours)
    assert breaks(gain, 0.0) and gain.mean() > 0
