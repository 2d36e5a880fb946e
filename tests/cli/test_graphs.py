"""A network from the shell: fitted, drawn from, judged, refused, killed and taken up again."""

import json
import shutil
import sys

import networkx
import numpy as np
import pytest
from runner import refused, unnorm
from test_kill import run_until_killed

from unnorm.data.networks import read_network
from unnorm.graphs import fit, florentine, goodness
from unnorm.training.checkpoint import load_arrays

TERMS = "edges,triangle"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The marriages of Florence, with the report: the folder, and what was printed."""
    path = tmp_path_factory.mktemp("graphs") / "florence"
    return path, unnorm("fit", "florentine", "--model", "graph", "--terms", TERMS, "--out", path)


@pytest.fixture(scope="module")
def library():
    """The same in Python."""
    return fit(florentine(), TERMS, key=0)


@pytest.fixture(scope="module")
def degenerate(tmp_path_factory):
    """A model of the karate club that leaps from sparse to dense graphs."""
    path = tmp_path_factory.mktemp("graphs") / "leap"
    return path, unnorm("fit", "karate", "--terms", TERMS, "--out", path, "--quiet")


def edges_of(graphs):
    return [{frozenset(edge) for edge in graph.edges} for graph in graphs]


def test_the_table_is_that_of_the_library(fitted, library):
    path, result = fitted
    assert result.code == 0, result.err
    assert str(library) in result.out and "Believe it as far as this shows" in result.out
    told = json.loads((path / "result.json").read_text())
    assert told["coefficients"] == library.to_dict()["coefficients"]
    # What ergm prints for other seeds lies within a third of the standard error.
    assert abs(told["coefficients"][1]["estimate"] - 0.16) < 0.2 < told["coefficients"][1]["stderr"] / 2
    assert told["log_likelihood"]["value"] == pytest.approx(-54.04, abs=0.02)


def test_the_report_has_the_table_and_pictures_with_their_numbers(fitted):
    path, _ = fitted
    page = (path / "report.html").read_text()
    assert "triangle" in page and "Does it draw graphs like the network?" in page
    assert "unnorm fit florentine --model graph --terms edges,triangle" in page
    for name in ("goodness", "network", "trace"):
        assert (path / "figures" / f"{name}.png").stat().st_size > 5000
        assert len((path / "figures" / f"{name}.csv").read_text().splitlines()) > 20
    before = page
    (path / "report.html").unlink()
    assert unnorm("report", path, "--quiet").code == 0
    assert (path / "report.html").read_text() == before


def test_evaluate_is_the_librarys_goodness_of_fit(fitted, library):
    path, _ = fitted
    result = unnorm("evaluate", path, "--json", "--quiet")
    assert result.code == 0
    assert json.loads(result.out)["goodness"] == goodness(library, key=0).to_dict()
    shown = unnorm("evaluate", path, "--quiet").out
    assert str(goodness(library, key=0)) in shown


@pytest.mark.parametrize("ending", [".graphml", ".gml", ".json", ".csv", ".edges"])
def test_graphs_drawn_are_read_back(ending, fitted, library, tmp_path):
    """One graph in every format is the one that the library draws; with attributes, where the format has them."""
    drawn = library.simulate(1, key=3)
    assert unnorm("sample", fitted[0], "-n", 1, "--seed", 3, "-o", tmp_path / f"one{ending}").code == 0
    found = read_network(tmp_path / f"one{ending}").to_networkx()
    assert edges_of([found]) == edges_of(drawn)
    if ending in (".graphml", ".gml", ".json"):
        assert dict(found.nodes(data="wealth")) == dict(florentine().nodes(data="wealth"))


def test_many_graphs_in_one_file_or_a_folder(fitted, library, tmp_path):
    drawn = edges_of(library.simulate(3, key=0))
    assert unnorm("sample", fitted[0], "-n", 3, "-o", tmp_path / "many").code == 0
    files = sorted((tmp_path / "many").iterdir())
    assert edges_of([networkx.read_graphml(file) for file in files]) == drawn
    lines = unnorm("sample", fitted[0], "-n", 3, "--quiet").out.splitlines()
    assert lines[0] == "graph,from,to"
    cells = [line.split(",") for line in lines[1:]]
    assert [{frozenset(c[1:]) for c in cells if c[0] == str(k)} for k in (1, 2, 3)] == drawn
    assert refused(unnorm("sample", fitted[0], "-n", 3, "-o", tmp_path / "many"), "not empty")
    assert refused(unnorm("sample", fitted[0], "-n", 3, "-o", tmp_path / "three.gml"), "holds one network")
    assert refused(unnorm("sample", fitted[0], "--sampler", "nuts"), "--sampler")


def test_a_degenerate_model_is_said_to_be_one(degenerate):
    """With its evidence, exit code 2, and no figures that might be believed."""
    path, result = degenerate
    assert result.code == 2 and "Do not use this model" in result.out and "leaps over" in result.out
    assert "std. error" not in result.out and "gwesp(0.5)" in result.out
    told = json.loads((path / "result.json").read_text())
    assert told["evidence"]["name"] == "triangle" and told["evidence"]["observed"] == 45
    assert np.max(told["evidence"]["dense"]) > 1000
    assert (path / "figures" / "leap.png").exists() and "Why there is no estimate" in (path / "report.html").read_text()
    assert refused(unnorm("sample", path, "-n", 1), "degenerate")
    assert "Do not use" in unnorm("evaluate", path).out


def test_an_infinite_estimate_is_said_with_its_one_sided_interval(tmp_path):
    result = unnorm("fit", "florentine", "--terms", "edges,nodematch(wealth)", "--out", tmp_path / "r", "--no-report")
    assert result.code == 0
    assert "nodematch(wealth) is 0, the least it can be, so its estimate is -inf" in result.out
    assert "With 95% confidence it is below 2.83" in result.out


REFUSED = {
    "no attribute": (("florentine", "--terms", "edges,nodecov(age)"), "the attributes there are: wealth"),
    "directed term": (("florentine", "--terms", "edges,mutual"), "graphs with directions"),
    "unknown term": (("florentine", "--terms", "edges,squares"), "did you mean"),
    "collinear": (("florentine", "--terms", "isolates,degree(0)"), "cannot be told apart"),
    "no terms": (("florentine", "--terms", ""), "at least one term"),
    "other model": (("florentine", "--model", "mlp"), "the model of a network is graph"),
    "rows": (("florentine", "--objective", "cnce"), "--objective does not apply to a network"),
    "hidden units": (("florentine", "--hidden", "3"), "--hidden does not apply to a network"),
    "method": (("florentine", "--method", "guess"), "the methods are auto"),
    "constraint": (("florentine", "--constraint", "stars"), "the constraints are edges, degrees"),
    "held statistic": (("florentine", "--terms", TERMS, "--constraint", "edges"), "edges is the same in all graphs"),
    "no file": (("absent.graphml",), "there is no file"),
    "no name": (("florentin", "--model", "graph"), "did you mean florentine"),
    "covariate": (("florentine", "--terms", "edges,edgecov(km)"), "--covariate km=FILE"),
    "no nodes": (("florentine", "--nodes", "people.csv"), "comes with its attributes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_sentence_and_nothing_is_left(name, tmp_path):
    arguments, said = REFUSED[name]
    assert refused(unnorm("fit", *arguments, "--out", tmp_path / "run", "--quiet"), said)
    assert not (tmp_path / "run").exists()


def test_a_networks_run_is_refused_where_rows_are_needed(fitted):
    assert refused(unnorm("score", fitted[0], "rows.csv"), "unnorm evaluate tells")
    assert refused(unnorm("evaluate", fitted[0], "--data", "rows.csv"), "--data does not apply")


def test_a_matrix_with_gaps_and_a_decay_that_is_learnt(tmp_path):
    """NA in a matrix is a pair that nobody knows; both kinds of fit come back from their folder as they were."""
    cells = networkx.to_numpy_array(florentine()).astype(int).astype(str)
    cells[2, 5] = cells[5, 2] = "NA"
    (tmp_path / "net.csv").write_text("\n".join(",".join(row) for row in cells))
    gaps, decay = tmp_path / "gaps", tmp_path / "decay"
    terms = ("--terms", "edges,gwesp(0.5)", "--no-report")
    first = unnorm("fit", tmp_path / "net.csv", *terms, "--out", gaps)
    assert first.code == 0 and "1 of 120 pairs is not known" in first.out, first.err
    assert unnorm("evaluate", gaps, "--quiet").code == 0
    second = unnorm("fit", "florentine", "--terms", "edges,gwdegree(free)", "--out", decay, "--no-report")
    assert second.code == 0 and "gwdegree decay" in second.out, second.err
    drawn = fit(florentine(), "edges,gwdegree(free)", key=0).simulate(1, key=0)
    lines = unnorm("sample", decay, "-n", 1, "--quiet").out.splitlines()[1:]
    assert [{frozenset(line.split(",")[1:]) for line in lines}] == edges_of(drawn)


def figures(folder):
    """All that is told of a run."""
    page = (folder / "report.html").read_text().replace(f"{folder.name}-again", "RUN")
    found = {file.name: file.read_bytes() for file in sorted((folder / "figures").glob("*.csv"))}
    arrays = {name: load_arrays(folder / f"{name}.safetensors")[0] for name in ("fit", "draws", "goodness")}
    flat = {f"{name}/{key}": value.tobytes() for name, each in arrays.items() for key, value in each.items()}
    return {"page": page.encode(), **found, **flat}


def test_a_run_that_was_killed_goes_on_to_the_same_bits(fitted, tmp_path):
    """Killed for good when its settings were written; and without the pieces that a later kill would have cost."""
    again = ["fit", "florentine", "--model", "graph", "--terms", TERMS, "--resume", "--quiet"]
    killed, whole = tmp_path / "killed", figures(fitted[0])
    arguments = [sys.executable, "-m", "unnorm", *again, "--out", str(killed)]
    assert run_until_killed(arguments, killed / "run.json", 0.0)
    assert not (killed / "report.html").exists()
    assert unnorm(*again, "--out", killed).code == 0
    assert figures(killed) == whole
    later = shutil.copytree(fitted[0], tmp_path / "later")
    for lost in ("report.html", "goodness.safetensors", "draws.safetensors"):
        (later / lost).unlink()
    assert unnorm(*again, "--out", later).code == 0
    assert figures(later) == whole
    other = unnorm(*again[:4], "--terms", "edges", "--resume", "--out", killed)
    assert refused(other, "started with another list of terms")
