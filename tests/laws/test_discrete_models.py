"""Models of zeros and ones and of categories: their energies, their recovery from draws, their likelihood."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import networkx
import numpy as np
import pytest
from discrete import COLOURS, FEW, truth
from harness import breaks, holds

import unnorm as un
from unnorm.energies import (
    ExponentialFamily,
    Ising,
    MarkovNetwork,
    SiteMixture,
    best_site_mixture,
    blocks_of,
    critical_coupling,
    every_point,
    fit_markov_network,
    fit_site_mixture,
    fit_sites,
    lattice,
    mlp_on_sites,
    pair_couplings,
    site_graph,
    tilt,
)
from unnorm.evaluation import enumerated
from unnorm.objectives import EnumeratedLikelihood
from unnorm.samplers import Gibbs
from unnorm.spaces import Binary, Categorical, Graph

RNG = np.random.default_rng(30)


def symmetric(n: int, free: int, scale: float) -> np.ndarray:
    half = scale * RNG.normal(size=(n, free, n, free))
    return half + half.transpose(2, 3, 0, 1)


# ------------------------------------------------------------------------------------------------------------ energies


def test_the_ising_model_is_what_the_formula_says():
    """alpha sum y_i + beta sum_{i~j} 1[y_i = y_j], on a lattice, round its edges, and on a graph of networkx."""
    graph = networkx.path_graph(4)
    graph.add_edge(0, 3)
    for sites in (lattice((2, 3)), lattice((3, 3), periodic=True), site_graph(graph)):
        model = Ising(sites, 0.3, 0.9)
        points = every_point(model.space)[:: max(1, 2**sites.size // 60)]
        flat = points.reshape(len(points), -1)
        equal = flat[:, sites.edges[:, 0]] == flat[:, sites.edges[:, 1]]
        expected = -(0.3 * flat.sum(1) + 0.9 * equal.sum(1))
        assert np.allclose(un.evaluation.energies(model, points), expected, atol=1e-4)
        theta = ExponentialFamily(model.space, model.statistics, [0.3, 0.9])
        assert np.allclose(un.evaluation.energies(theta, points), expected, atol=1e-4)


def test_lattices_have_the_edges_they_should():
    for shape in ((3, 4), (2, 5), (4, 3, 3)):
        ours = {tuple(edge) for edge in lattice(shape).edges.tolist()}
        grid = networkx.grid_graph(shape[::-1])
        numbers = {vertex: int(np.ravel_multi_index(vertex, shape)) for vertex in grid}
        assert ours == {tuple(sorted((numbers[a], numbers[b]))) for a, b in grid.edges}
    assert len(lattice((4, 4), periodic=True).edges) == 32 and len(lattice((2, 2), periodic=True).edges) == 4
    for sites, colours in (
        (lattice((5, 6)), 2),
        (lattice((4, 4), periodic=True), 2),
        (lattice((3, 3), periodic=True), 3),
    ):
        assert len(sites.colours) == colours or (colours == 3 and len(sites.colours) <= 5)
        of = np.empty(sites.size, int)
        for colour, members in enumerate(sites.colours):
            of[members] = colour
        assert np.all(of[sites.edges[:, 0]] != of[sites.edges[:, 1]])
    assert lattice((3, 4)) == lattice((3, 4)) != lattice((4, 3)) and hash(lattice((2, 2))) == hash(lattice((2, 2)))


def test_onsager_and_the_critical_coupling():
    """A periodic lattice of 4 x 4 at the critical coupling: log Z by the transfer matrix."""
    beta = critical_coupling()
    rows = every_point(Binary((4,)))
    within = (rows == np.roll(rows, 1, axis=1)).sum(1)
    across = (rows[:, None] == rows[None]).sum(2)
    transfer = np.exp(beta * (0.5 * (within[:, None] + within[None]) + across))
    known = math.log(np.trace(np.linalg.matrix_power(transfer, 4)))
    assert un.evaluation.enumerated(Ising(lattice((4, 4), periodic=True), 0.0, beta)).log_z == pytest.approx(
        known, rel=1e-5
    )
    assert critical_coupling(3) == pytest.approx(math.log(1 + math.sqrt(3)))


@pytest.mark.parametrize("space", [Binary((5,)), Categorical((3,), 3)])
def test_markov_networks_know_their_sites(space):
    n, free = space.size, (1 if isinstance(space, Binary) else 2)
    model = MarkovNetwork(space, RNG.normal(size=(n, free)), symmetric(n, free, 0.5))
    x = jnp.asarray(truth(model).draws(1)[0])
    plain = un.energies.FunctionEnergy(model, space)
    for site in range(n):
        ours, theirs = (un.energies.site_logits(e, site, x) for e in (model, plain))
        assert np.allclose(ours - ours[0], theirs - theirs[0], atol=1e-4)
    assert np.allclose(
        jax.nn.log_softmax(un.energies.every_site(model, x)),
        jax.nn.log_softmax(un.energies.every_site(plain, x)),
        atol=1e-4,
    )
    along = MarkovNetwork(space, model.fields, model.couplings, site_graph(networkx.path_graph(n)))
    assert len(blocks_of(along).sites) == 2 and float(along.strengths()[0, 2]) == 0


def test_graphs_are_enumerated_too():
    edges = un.energies.FunctionEnergy(lambda x: -0.7 * x.sum() / 2, Graph(4))
    law = enumerated(edges)
    assert law.log_z == pytest.approx(6 * math.log1p(math.exp(0.7)), abs=1e-5)
    assert law.mean(lambda x: x.sum() / 2) == pytest.approx(6 / (1 + math.exp(-0.7)), abs=1e-5)
    directed = enumerated(un.energies.FunctionEnergy(lambda x: -0.7 * x.sum(), Graph(3, directed=True)))
    assert directed.log_z == pytest.approx(6 * math.log1p(math.exp(0.7)), abs=1e-5)


def test_what_the_enumerated_law_says_of_itself():
    law, other = truth(FEW), enumerated(0.7 * FEW)
    assert law.probabilities.sum() == pytest.approx(1) and law.divergence(law) == 0
    direct = float((law.probabilities * (np.log(law.probabilities) - np.log(other.probabilities))).sum())
    assert law.divergence(other) == pytest.approx(direct) and direct > 0
    mean_energy = law.mean(FEW)
    assert law.entropy() == pytest.approx(float(mean_energy) + law.log_z, abs=1e-4)


def test_couplings_of_any_energy_are_those_of_a_pairwise_network():
    model = MarkovNetwork(Binary((5,)), RNG.normal(size=(5, 1)), symmetric(5, 1, 0.5))
    rows = truth(model).draws(7)
    expected = np.asarray(0.5 * (model.couplings + model.couplings.transpose(2, 3, 0, 1)))[:, 0, :, 0]
    expected = expected * (1 - np.eye(5))
    assert np.allclose(pair_couplings(model, rows), expected, atol=1e-4)
    spins = Ising(lattice((2, 3)), 0.3, 0.7)
    tied = pair_couplings(spins, truth(spins).draws(3))
    assert np.allclose(tied[tuple(spins.sites.edges.T)], 2 * 0.7, atol=1e-4) and tied.sum() == pytest.approx(14 * 1.4)
    dice = MarkovNetwork(Categorical((3,), 3), RNG.normal(size=(3, 2)), symmetric(3, 2, 0.5))
    assert np.allclose(pair_couplings(dice, truth(dice).draws(4)), dice.strengths(), atol=1e-4)
    # Control: a coupling of three sites is one of two whose size the third decides.
    three = un.energies.FunctionEnergy(lambda x: -2.0 * x[0] * x[1] * x[2], Binary((3,)))
    assert pair_couplings(three, np.ones((1, 3)))[0, 1] == 2 and pair_couplings(three, np.zeros((1, 3)))[0, 1] == 0


# ----------------------------------------------------------------------------------------------- structure from a table


def planted(seed: int, n: int = 1500):
    """Rows of a network of eight columns of which seven pairs are tied."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)]
    signs = np.random.default_rng(9).choice([-1.5, 1.5], size=7)
    couplings = np.zeros((8, 1, 8, 1))
    for (i, j), value in zip(edges, signs, strict=True):
        couplings[i, 0, j, 0] = couplings[j, 0, i, 0] = value
    model = MarkovNetwork(Binary((8,)), -0.5 * couplings.sum(axis=(2, 3)), couplings)
    return model, truth(model).draws(n, seed=seed)


def test_pairs_that_are_tied_are_found():
    model, rows = planted(1)
    tied = np.asarray(model.strengths()) > 0
    fit = fit_markov_network(Binary((8,)), rows[::2], rows[1::2])
    found = np.asarray(fit.model.strengths())
    assert found[tied].min() > 3 * found[~tied].max()
    # Rows that were held out choose a penalty between none and all, and the law is nearer for it.
    assert 0 < fit.strength < fit.strengths[0] and fit.held_out[0] < max(fit.held_out)

    def gap(m):
        return truth(model).divergence(enumerated(m))

    plain = fit_markov_network(Binary((8,)), rows[::2], rows[1::2], shares=(0.0,))
    assert gap(fit.model) < gap(plain.model) < gap(un.energies.markov_network(Binary((8,))))
    ridge = fit_markov_network(Binary((8,)), rows[::2], rows[1::2], penalty="l2")
    assert gap(ridge.model) < gap(un.energies.markov_network(Binary((8,)))) / 10


def test_without_a_penalty_it_is_maximum_pseudo_likelihood():
    """The slope of the pseudo-likelihood vanishes at what is found; one of too few steps does not pass."""
    _, rows = planted(2, 400)
    objective = un.objectives.PseudoLikelihood()

    def steepest(steps):
        model = fit_markov_network(Binary((8,)), rows, rows, shares=(0.0,), steps=steps).model
        slope = jax.grad(lambda m: objective(m, None, jnp.asarray(rows), key=jax.random.key(0))[0])(model)
        return max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(slope))

    assert steepest(600) < 2e-4 < steepest(5)


def test_categories_are_found_as_well():
    couplings = np.zeros((4, 2, 4, 2))
    couplings[0, :, 1, :] = [[1.5, 0.0], [0.0, 1.5]]
    couplings = couplings + couplings.transpose(2, 3, 0, 1)
    model = MarkovNetwork(Categorical((4,), 3), np.zeros((4, 2)), couplings)
    rows = truth(model).draws(2000, seed=3)
    found = np.asarray(fit_markov_network(model.space, rows[::2], rows[1::2]).model.strengths())
    assert found[0, 1] > 3 * np.max(np.delete(found[np.triu_indices(4, 1)], 0))


# ------------------------------------------------------------------------------------- references, and what tilts them


def test_a_mixture_of_products_is_normalised_and_found_again():
    chances = np.array([[0.9, 0.8, 0.9, 0.1, 0.2], [0.1, 0.3, 0.2, 0.8, 0.9]])
    tables = np.log(np.stack([1 - chances, chances], axis=-1))
    model = SiteMixture(Binary((5,)), np.log([0.3, 0.7]), tables)
    law = enumerated(model)
    assert abs(law.log_z) < 1e-5
    draws = np.asarray(model.samples(4000, key=jax.random.key(0)))
    assert holds(draws, law.mean(lambda x: x)) and breaks(draws, np.full(5, 0.5))
    fitted = fit_site_mixture(Binary((5,)), law.draws(4000, seed=1), 2, key=jax.random.key(1))
    n_kl = 2 * 4000 * law.divergence(enumerated(fitted))
    # Eleven free numbers: twice the rows times the divergence is chi-square with as many degrees of freedom.
    assert n_kl < 11 + 4.5 * math.sqrt(22)
    alone = fit_sites(Binary((5,)), law.draws(4000, seed=1))
    assert 2 * 4000 * law.divergence(enumerated(alone)) > 200
    assert (
        len(
            best_site_mixture(
                Binary((5,)), law.draws(800, seed=2), law.draws(800, seed=3), key=jax.random.key(2)
            ).logits
        )
        >= 2
    )


def test_em_never_goes_down():
    rows = truth(COLOURS).draws(500, seed=4)
    values = []
    for count in (1, 2, 4):
        fitted = fit_site_mixture(COLOURS.space, rows, count, prior=1e-3, key=jax.random.key(3))
        values.append(-float(np.mean(un.evaluation.energies(fitted, rows))))
    assert values == sorted(values) and values[-1] > values[0] + 0.05


@pytest.mark.parametrize("space", [Binary((6,)), Categorical((4,), 3)])
def test_a_tilted_reference_learns_what_the_reference_misses(space):
    model = un.energies.FunctionEnergy(lambda x: -1.5 * jnp.sum(x[:-1] == x[1:]), space)
    law = truth(model)
    rows = law.draws(3000, seed=5)
    reference = fit_sites(space, rows)
    tilted = tilt(reference, width=32, depth=1, key=jax.random.key(4))
    assert np.allclose(enumerated(tilted).probabilities, enumerated(reference).probabilities, atol=1e-6)
    fitted = un.fit(
        tilted, EnumeratedLikelihood(), rows, steps=400, rate=1e-2, key=jax.random.key(5), progress=False
    ).model
    before, after = (law.divergence(enumerated(m)) for m in (reference, fitted))
    assert after < before / 10
    same = jax.tree.map(lambda a, b: bool(jnp.all(a == b)), fitted.reference, reference)
    assert all(jax.tree.leaves(eqx.filter(same, lambda leaf: isinstance(leaf, bool))))


@pytest.mark.parametrize("space", [Binary((4,)), Categorical((3,), 3)])
def test_a_network_on_sites_is_an_energy_like_any_other(space):
    network = mlp_on_sites(space, width=8, depth=1, key=jax.random.key(6))
    trace = un.sample(network, Gibbs(), chains=32, steps=5, key=jax.random.key(7), progress=False)
    assert space.accepts(trace.draws[0, 0])
    assert np.isfinite(un.log_partition(network, key=jax.random.key(8)).value)
