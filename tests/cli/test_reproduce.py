"""Experiments: found by name, kept piece by piece, refused in one sentence."""

import importlib
import json

import pytest
from runner import refused, unnorm

from unnorm.catalogue import EXPERIMENTS
from unnorm.cli.reproduce import reproduce_command
from unnorm.errors import InputError
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, exact, over_seeds
from unnorm.plots import new_figure

NAMES = [name for name, _ in EXPERIMENTS if name != "demo"]


@pytest.mark.parametrize("name", NAMES)
def test_every_listed_experiment_exists(name):
    module = importlib.import_module(f"unnorm.experiments.{name.replace('-', '_')}")
    assert module.EXPERIMENT.name == name
    # What it shows, and from where, is said at its head.
    assert len(module.__doc__) > 100


def test_an_unknown_name_and_scale_are_one_sentence(tmp_path):
    assert refused(unnorm("reproduce", "cnce-table9", "--out", tmp_path / "a"), "cnce-table9", "cnce-table1")
    assert refused(unnorm("reproduce", "cnce-table1", "--scale", "huge", "--out", tmp_path / "b"), "quick or paper")
    assert not (tmp_path / "a").exists() and not (tmp_path / "b").exists()


def squares(job: Job, stop_at: int | None = None, seen: list[int] | None = None) -> Result:
    """Three pieces of work; an interruption may come before one of them."""

    def work(i):
        def compute():
            if i == stop_at:
                raise KeyboardInterrupt
            if seen is not None:
                seen.append(i)
            return i**2

        return compute

    found = job.pieces({f"piece-{i}": work(i) for i in range(3)}, "squares")
    figures = {"mean": over_seeds(list(found.values()))}
    return Result("Squares", ("mean",), (Row("ours", figures, {"mean": Published(1.5, 0.1)}),), (Claim("Yes.", True),))


def test_an_interrupted_experiment_goes_on_where_it_stopped(tmp_path):
    job, seen = Job(tmp_path / "out"), []
    job.open("squares")
    with pytest.raises(KeyboardInterrupt):
        squares(job, stop_at=2, seen=seen)
    resumed = squares(job, seen=seen)
    # Nothing was done twice, and the result is that of an undisturbed run.
    assert seen == [0, 1, 2]
    assert resumed.to_dict() == squares(Job(tmp_path / "other")).to_dict()
    assert resumed.row("ours").figures["mean"].value == pytest.approx(5 / 3)


def test_a_damaged_piece_and_a_foreign_folder_are_refused(tmp_path):
    job = Job(tmp_path / "out")
    job.open("squares")
    squares(job)
    (tmp_path / "out" / "pieces" / "piece-1.json").write_text("{")
    with pytest.raises(InputError, match=r"piece-1\.json is damaged"):
        squares(job)
    with pytest.raises(InputError, match="holds squares at scale quick from seed 0"):
        Job(tmp_path / "out", seed=1).open("squares")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not an experiment"):
        Job(tmp_path / "mine").open("squares")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"


def test_pieces_of_other_code_are_not_mixed_in(tmp_path):
    Job(tmp_path / "out").open("squares", "a1")
    Job(tmp_path / "out").open("squares", "a1")
    with pytest.raises(InputError, match="begun by another release of squares"):
        Job(tmp_path / "out").open("squares", "b2")
    # Another module is other code; the same one is not.
    found = [importlib.import_module(f"unnorm.experiments.{name}").EXPERIMENT.code for name in ("blindness", "ozaki")]
    assert found[0] != found[1]
    assert found[0] == importlib.import_module("unnorm.experiments.blindness").EXPERIMENT.code


def test_the_command_prints_ours_beside_the_published(tmp_path, monkeypatch, capsys):
    def draw(result):
        return new_figure(1, 1)

    monkeypatch.setattr("unnorm.cli.reproduce._find", lambda name: Experiment(name, squares, draw))
    reproduce_command("squares", "quick", tmp_path / "out", 0, False, True)
    text = capsys.readouterr().out
    assert "1.5 ± 0.1" in text and "published" in text and "shown      Yes." in text
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["rows"][0]["published"]["mean"] == {"value": 1.5, "error": 0.1}
    assert (tmp_path / "out" / "squares.png").read_bytes()[:4] == b"\x89PNG"


def test_one_seed_knows_nothing_of_the_spread():
    assert over_seeds([1.0]).stderr == float("inf")
    assert over_seeds([1.0, 3.0]).stderr == pytest.approx(1.0)
    assert exact(2.0).stderr == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is damaged; choose another --out"),
        ('{"a": 1}', "is not of this release"),
        ("[1]", "is not of this release"),
    ],
)
def test_a_folder_that_says_something_else_is_refused(tmp_path, content, words):
    (tmp_path / "experiment.json").write_text(content)
    with pytest.raises(InputError, match=words):
        Job(tmp_path).open("squares")


def test_what_a_kill_left_before_the_beginning_is_no_hindrance(tmp_path):
    (tmp_path / ".experiment.json.77.part").write_text("{")
    (tmp_path / ".lock").write_text("")
    Job(tmp_path).open("squares")
    assert (tmp_path / "experiment.json").exists()
