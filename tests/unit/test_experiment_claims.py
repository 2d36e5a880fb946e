"""Claims of experiments are shown by figures that bear them out, and by no others."""

import numpy as np

from unnorm.experiments import implicit_vae, nice_mnist

RNG = np.random.default_rng(0)


def rows(mean: float) -> np.ndarray:
    return mean + RNG.normal(size=200)


def flows(**losses: float) -> dict[str, dict[str, np.ndarray]]:
    """The published figures, but for the SM losses given."""
    figures = nice_mnist.PUBLISHED | {name: (losses[name], nice_mnist.PUBLISHED[name][1]) for name in losses}
    return {name: {"sm": rows(sm), "log_likelihood": rows(ll)} for name, (sm, ll) in figures.items()}


def held(measured: dict[str, dict[str, np.ndarray]]) -> list[bool]:
    return [claim.holds for claim in nice_mnist._said(measured, {"sigma = 0.1": measured["DSM (grid)"]})]


def test_what_is_said_of_flows_holds_of_the_published_figures():
    assert held(flows()) == [True] * 4
    assert all(claim.holds for claim in nice_mnist._printed_order(flows()))


def test_what_is_said_of_flows_can_fail():
    assert held(flows(**{"SSM-VR": -100.0})) == [False, True, True, True]
    assert held(flows(**{"DSM (heuristic)": -4000.0})) == [True, False, True, True]
    assert held(flows(**{"approx BP, as released": 80.0})) == [True, True, True, False]
    assert [claim.holds for claim in nice_mnist._printed_order(flows(MLE=-2000.0))].count(False) == 1


def test_a_better_autoencoder_is_told_from_one_that_is_not():
    found = {name: [{"rows": rows(mean)}, {"rows": rows(mean)}] for name, mean in (("a", 10.0), ("b", 12.0))}
    better, worse = (implicit_vae._claims((pair,), found, "Printed order: ")[0] for pair in (("a", "b"), ("b", "a")))
    assert (better.holds, worse.holds) == (True, False)
    assert better.sentence.startswith("Printed order: a is better than b (by ")
    assert not implicit_vae._claims((("a", "a"),), found)[0].holds
    assert implicit_vae._claims((("a", "not run"),), found) == []


def test_the_published_order_of_autoencoders_is_its_figures():
    for a, b in (*implicit_vae.SAID, *implicit_vae.PRINTED_ORDER):
        assert implicit_vae.PUBLISHED[a] < implicit_vae.PUBLISHED[b]
