"""Restoring pictures: the exact minimum against enumeration, and what approaches it."""

from functools import cache

import jax
import numpy as np
import pytest
from discrete import truth
from harness import SIGMAS

import unnorm as un
from unnorm.energies import Ising, SiteGraph, every_point, lattice
from unnorm.spaces import Binary
from unnorm.tasks import anneal, flipped_posterior, graph_cut, icm, marginal_modes

RNG = np.random.default_rng(7)
SQUARE = lattice((3, 3))
#: Neighbours in all eight directions: not a checkerboard.
EIGHT = SiteGraph(
    (3, 3), np.array([(i, j) for i in range(9) for j in range(i) if max(abs(i // 3 - j // 3), abs(i % 3 - j % 3)) == 1])
)
NOISY = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0]])


def sixteen() -> Ising:
    sites = lattice((4, 4))
    return Ising(sites, 1.5 * RNG.normal(size=(4, 4)), RNG.gamma(1.0, size=len(sites.edges)))


#: One coupling and the field of a noisy picture; pixels not seen; fields and couplings of every site and edge.
CASES = {
    "3 x 3": flipped_posterior(Ising(SQUARE, 0.1, 1.0), NOISY, 0.1),
    "unseen": flipped_posterior(Ising(SQUARE, -0.2, 1.0), NOISY, np.where(np.eye(3) > 0, 0.5, 0.2)),
    "eight neighbours": Ising(EIGHT, RNG.normal(size=(3, 3)), RNG.gamma(0.5, size=len(EIGHT.edges))),
    **{f"4 x 4, {i}": sixteen() for i in range(6)},
}


@cache
def _energies(number: int) -> np.ndarray:
    model = SEEN[number]
    points = every_point(model.space).astype(np.float64).reshape(-1, model.sites.size)
    equal = points[:, model.sites.edges[:, 0]] == points[:, model.sites.edges[:, 1]]
    field = np.broadcast_to(np.asarray(model.field, np.float64), model.sites.shape).ravel()
    coupling = np.broadcast_to(np.asarray(model.coupling, np.float64), len(model.sites.edges))
    return -(points @ field + equal @ coupling)


SEEN: dict[int, Ising] = {}


def energies(model: Ising) -> np.ndarray:
    """Of all pictures, in double precision and by definition; found once for each model."""
    SEEN[id(model)] = model
    return _energies(id(model))


def of_picture(model: Ising, picture: np.ndarray) -> float:
    flat = picture.astype(int).ravel()
    return energies(model)[int("".join(map(str, flat)), 2)]


def test_the_posterior_is_prior_times_likelihood():
    """p(x | y) by Bayes, summed over all 512 pictures."""
    prior, e = Ising(SQUARE, 0.3, 0.8), np.linspace(0.05, 0.5, 9).reshape(3, 3)
    points = every_point(prior.space)
    same = points == NOISY
    logs = np.log(np.where(same, 1 - e, e)).sum((1, 2)) - energies(prior)
    wanted = np.exp(logs - logs.max())
    found = truth(flipped_posterior(prior, NOISY, e)).probabilities
    assert np.allclose(found, wanted / wanted.sum(), atol=2e-6)
    # Control: the field of the other values.
    assert np.abs(truth(flipped_posterior(prior, 1 - NOISY, e)).probabilities - wanted / wanted.sum()).max() > 0.01


@pytest.mark.parametrize("name", CASES)
def test_a_cut_is_the_minimum_of_all_pictures(name):
    model = CASES[name]
    every = energies(model)
    found = graph_cut(model)
    assert found.energy == pytest.approx(every.min(), abs=1e-9)
    assert of_picture(model, found.picture) == pytest.approx(found.energy, abs=1e-9)
    # What rounding is said to do at most is next to nothing, and not less than what it does.
    assert found.energy - every.min() - 1e-9 <= found.above < 1e-6
    # Control: source and sink in each other's place.
    swapped = graph_cut(Ising(model.sites, -model.field, model.coupling))
    assert of_picture(model, swapped.picture) > every.min() + 0.1


def test_of_several_minima_a_cut_has_the_fewest_ones():
    tied = Ising(lattice((1, 2)), 0.0, 1.0)
    assert np.allclose(np.sort(energies(tied))[:2], -1.0) and graph_cut(tied).picture.sum() == 0


def test_couplings_that_no_cut_has_are_refused_in_one_sentence():
    with pytest.raises(un.InputError, match=r"couplings from 0 up, and one is -0\.5, which anneal takes"):
        graph_cut(Ising(SQUARE, 0.0, np.where(np.arange(12) == 3, -0.5, 1.0)))
    # What a cut made of them by their size would be is no minimum.
    model = Ising(SQUARE, np.array(RNG.normal(size=(3, 3))), -0.7)
    wrong = graph_cut(Ising(SQUARE, model.field, 0.7)).picture
    least = energies(model).min()
    assert of_picture(model, wrong) > least + 0.1
    assert anneal(model, 200, key=jax.random.key(0)).energy == pytest.approx(least, abs=1e-5)


def flips(model: Ising, picture: np.ndarray) -> np.ndarray:
    """What each single flip would add to the energy."""
    here, found = of_picture(model, picture), []
    for i in range(picture.size):
        there = picture.copy().reshape(-1)
        there[i] = 1 - there[i]
        found.append(of_picture(model, there.reshape(picture.shape)) - here)
    return np.array(found)


def test_conditional_modes_end_where_no_flip_betters_and_never_below_the_cut():
    above = []
    for name, model in CASES.items():
        cut = graph_cut(model)
        for start in (None, *(np.random.default_rng(k).integers(0, 2, model.sites.shape) for k in range(4))):
            found = icm(model, start)
            assert flips(model, found.picture).min() > -1e-5, name
            assert found.energy > cut.energy - 1e-9
            above.append(found.energy - cut.energy)
    # They are no exact method: some starts end higher up.
    assert np.max(above) > 0.5 and np.min(above) < 1e-6
    # Control: one sweep of all sites at once is no descent; the two sites of a pair change places for ever.
    pair = Ising(lattice((1, 2)), 0.0, 1.0)
    both = np.asarray(un.energies.every_site(pair, np.array([[0.0, 1.0]]))).argmax(1)
    assert flips(pair, both.reshape(1, 2).astype(float)).min() < -0.5
    assert flips(pair, icm(pair, [[0, 1]]).picture).min() > 0.5


def test_annealing_reaches_the_cut_where_conditional_modes_do_not():
    models = [CASES[f"4 x 4, {i}"] for i in range(6)]
    far = [icm(model).energy - graph_cut(model).energy for model in models]
    slow = [anneal(model, 1000, key=jax.random.key(3)).energy - graph_cut(model).energy for model in models]
    assert np.max(far) > 0.05 and np.max(slow) < 1e-6
    # Control: one chain that has no time to cool stays where chance left it.
    hot = [anneal(m, [50.0], chains=1, key=jax.random.key(3)).energy - graph_cut(m).energy for m in models]
    assert np.max(hot) > 0.05


def test_marginal_modes_are_those_of_the_enumerated_law():
    model = CASES["3 x 3"]
    law = truth(model)
    known = np.tensordot(law.probabilities, law.points, 1)
    found = marginal_modes(model, chains=32, sweeps=400, warmup=100, key=jax.random.key(5))
    assert np.abs((found.probability - known) / found.stderr).max() < SIGMAS + 0.5  # 31 degrees of freedom, 9 sites
    assert np.array_equal(found.picture, known > 0.5) and found.stderr.max() < 0.01
    # Control: the law of the prior alone.
    prior = truth(Ising(SQUARE, 0.1, 1.0))
    assert np.abs((found.probability - np.tensordot(prior.probabilities, prior.points, 1)) / found.stderr).max() > 20


def test_counts_may_be_of_any_library_and_walks_without_warm_up():
    model, key, two = CASES["3 x 3"], jax.random.key(0), np.int64(2)
    assert anneal(model, two, chains=two, key=key).energy == anneal(model, 2, chains=2, key=key).energy
    found = marginal_modes(model, chains=two, sweeps=two, warmup=np.int64(0), key=key).probability
    assert np.array_equal(found, marginal_modes(model, chains=2, sweeps=2, warmup=0, key=key).probability)


def test_what_is_wrong_is_said():
    prior = Ising(SQUARE, 0.0, 1.0)
    for call, words in (
        (lambda: flipped_posterior(prior, NOISY + 1, 0.1), "zeros and ones only"),
        (lambda: flipped_posterior(prior, NOISY[:2], 0.1), "the noisy one has shape"),
        (lambda: flipped_posterior(prior, NOISY, 0.0), "between 0 and 1"),
        (lambda: flipped_posterior(un.energies.uniform(Binary((3, 3))), NOISY, 0.1), "Ising model"),
        (lambda: graph_cut(un.energies.uniform(Binary((3, 3)))), "Ising model"),
        (lambda: graph_cut(Ising(SQUARE, np.nan, 1.0)), "not finite"),
        (lambda: icm(prior, np.full((3, 3), 2)), "zeros and ones"),
        (lambda: anneal(prior, 0, key=jax.random.key(0)), "from 1 up, not 0"),
        (lambda: anneal(prior, [1.0, 0.0], key=jax.random.key(0)), "positive and finite"),
        (lambda: marginal_modes(prior, chains=1, key=jax.random.key(0)), "from 2 up, not 1"),
    ):
        with pytest.raises(un.InputError, match=words):
            call()
