"""Models of zeros and ones and of categories from the command line, each on rows whose law is known."""

import json

import numpy as np
import pytest
from runner import refused, unnorm, write_csv

import unnorm as un
from unnorm.data import read_table

RNG = np.random.default_rng(4)
NAMES = tuple("abcdef")
SHORT = ("--set", "model.width=16", "--set", "model.depth=1", "--steps", 300, "--quiet", "--json")


def tied(n: int) -> np.ndarray:
    """Six bits in three pairs; those of a pair are equal nine times in ten."""
    first = RNG.random((n, 3)) < 0.5
    second = np.where(RNG.random((n, 3)) < 0.9, first, ~first)
    return np.stack([first, second], axis=2).reshape(n, 6).astype(float)


#: A pair's log odds ratio, and the entropy of all six bits.
TIED, ENTROPY = 2 * np.log(9.0), 3 * (np.log(2) - 0.9 * np.log(0.9) - 0.1 * np.log(0.1))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("sites") / "bits.csv", tied(3000), NAMES)


def test_without_options_bits_are_learnt_by_a_tilted_mixture_of_products(file, tmp_path):
    out = tmp_path / "run"
    result = unnorm("fit", file, "--out", out, *SHORT)
    assert result.code == 0, result.err
    found = json.loads(result.out)["assessment"]
    model, alone = found["log_likelihood"], found["baselines"]["independent columns"]
    # The truth is -ENTROPY on average; independent columns are worse by what the pairs share, and some.
    assert abs(model["value"] + ENTROPY) < 4.5 * model["stderr"] + 0.03 and alone["value"] < -ENTROPY - 1
    fitted = un.load(out)
    assert type(fitted.model).__name__ == "Tilted" and type(fitted.model.reference).__name__ == "SiteMixture"
    every = np.array([[int(bit) for bit in f"{i:06b}"] for i in range(64)], float)
    assert np.exp(fitted.log_prob(every)).sum() == pytest.approx(1, abs=1e-4)
    drawn = json.loads(unnorm("sample", out, "-n", 4000, "-o", tmp_path / "d.csv", "--quiet", "--json").out)
    draws = read_table(tmp_path / "d.csv").values
    equal = (draws[:, 0] == draws[:, 1]).mean()
    assert drawn["sampler"] == "independent" and abs(equal - 0.9) < 4.5 * np.sqrt(0.09 / 2400) + 0.01
    assert abs((draws[:, 0] == draws[:, 2]).mean() - 0.5) < 4.5 * np.sqrt(0.25 / 2400) + 0.01
    assert (out / "figures" / "couplings.csv").exists()


def test_a_markov_network_shows_which_columns_go_together(file, tmp_path):
    out = tmp_path / "run"
    result = unnorm("fit", file, "--model", "markov", "--steps", 100, "--out", out, "--quiet", "--json")
    assert result.code == 0, result.err
    network = un.load(out).model
    strengths = np.asarray(network.strengths())
    pairs = strengths[[0, 2, 4], [1, 3, 5]]
    others = strengths[np.triu_indices(6, 1)].sum() - pairs.sum()
    # The error of a log odds ratio of 2,400 rows: each cell's count is near 1080 or 120.
    error = np.sqrt(2 / 1080 + 2 / 120)
    assert np.all(np.abs(pairs - TIED) < 4.5 * error) and others < 12 * 3 * error
    assert "Which columns go together" in (out / "report.html").read_text()
    listed = [line.split(",") for line in (out / "figures" / "couplings.csv").read_text().splitlines()[1:]]
    of = {name: float(value) for name, value in listed}
    assert of["a b"] == pytest.approx(float(strengths[0, 1]), abs=1e-3) and len(of) == 15


@pytest.mark.parametrize(
    ("options", "kind"),
    [(("--model", "rbm", "--hidden", 5), "RBM"), (("--model", "ising", "--lattice", "3x2"), "Ising")],
    ids=["rbm", "ising"],
)
def test_machines_and_lattices_take_their_sizes_from_the_command(file, tmp_path, options, kind):
    out = tmp_path / "run"
    result = unnorm("fit", file, *options, "--steps", 60, "--out", out, "--no-report", "--quiet")
    assert result.code == 0, result.err
    model = un.load(out).model
    assert type(model).__name__ == kind
    sizes = {"RBM": lambda: model.hidden.shape == (5,), "Ising": lambda: model.sites.edges.tolist()[0] == [0, 1]}
    assert sizes[kind]()
    assert refused(unnorm("fit", file, "--model", "ising", "--lattice", "3y2", "--out", tmp_path / "no"), "3y2", "4x5")


def test_categories_are_whole_numbers_where_they_are_asked_for(tmp_path):
    first = RNG.integers(0, 3, size=800)
    rows = np.stack([first, np.where(RNG.random(800) < 0.8, first, RNG.integers(0, 3, size=800))], axis=1)
    file, out = write_csv(tmp_path / "c.csv", rows, ("a", "b")), tmp_path / "run"
    command = ("fit", file, "--kind", "categories", *SHORT[:4], "--steps", 100, "--no-report", "--quiet")
    result = unnorm(*command, "--out", out)
    assert result.code == 0, result.err
    fitted = un.load(out)
    every = np.array([[i, j] for i in range(3) for j in range(3)], float)
    chances = np.exp(fitted.log_prob(every)).reshape(3, 3)
    assert chances.sum() == pytest.approx(1, abs=1e-4)
    known = (0.8 * np.eye(3) + 0.2 / 3) / 3
    assert np.abs(chances - known).max() < 4.5 * np.sqrt(known.max() / 640) < np.abs(chances - 1 / 9).max()
    half = write_csv(tmp_path / "h.csv", np.where(rows == 1, 1.5, rows), ("a", "b"))
    refusal = unnorm("fit", half, "--kind", "categories", "--out", tmp_path / "no")
    assert refused(refusal, "holds 1.5", "the whole numbers 0 to 2", "--kind table")
