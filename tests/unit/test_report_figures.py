"""The figures of a report: densities integrate to one in the data's units, and numbers are saved beside drawings."""

import math
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from unnorm.data import Standardiser
from unnorm.data.tabular import TableKind, TableSchema
from unnorm.energies import FunctionEnergy, fit_gaussian
from unnorm.estimate import Estimate, Outcome, OutcomeCode
from unnorm.noises import scales_of
from unnorm.plots import Picture, new_figure, unique
from unnorm.report.curves import learning, roll_backs
from unnorm.report.density import Surface
from unnorm.report.pairs import density_picture, farthest_columns
from unnorm.runs import Assessment, Prepared
from unnorm.runs.findings import Chains, LogZ
from unnorm.samplers import HMC, Trace

EXACT = Estimate(0.0, 0.0, "known exactly")
DONE = Outcome(OutcomeCode.COMPLETED, 30, "all steps were taken")


def known(values: np.ndarray) -> Prepared:
    """Rows whose units are far from one, standardised."""
    standardiser = Standardiser.fit(values)
    unit = standardiser.to_unit(values).astype(np.float32)
    columns = tuple(f"x{k + 1}" for k in range(values.shape[1]))
    schema, scales = TableSchema(columns, standardiser), scales_of(unit, unit[:50])
    return Prepared(unit, unit[:50], unit[50:100], schema, TableKind(), "known", scales)


def mass_of(picture: Picture, prepared: Prepared) -> float:
    """The sum over the plotted lattice, from the saved columns alone."""
    if len(prepared.columns) == 1:
        x, density = (np.asarray(picture.columns[name]) for name in ("x1", "density"))
        return float(density.sum() * (x[1] - x[0]))
    lattice = np.asarray(picture.columns["what"]) == "lattice"
    x, y, log_density = (np.asarray(picture.columns[name])[lattice] for name in ("x1", "x2", "log_density"))
    cell = np.diff(np.unique(x)[:2])[0] * np.diff(np.unique(y)[:2])[0]
    return float(np.exp(log_density).sum() * cell)


@pytest.mark.parametrize("scales", ([1e3], [0.01], [300.0, 0.2], [1.0, 2.0]))
def test_a_plotted_density_integrates_to_one(scales: list[float], monkeypatch: pytest.MonkeyPatch):
    prepared = known(np.random.default_rng(0).normal(5.0, 1.0, size=(2000, len(scales))) * scales)
    model = fit_gaussian(prepared.train)
    draws = prepared.train[:80].reshape(8, 10, -1)
    estimates = Assessment.of(LogZ(EXACT), Chains(Trace(draws, np.ones(8), 0, HMC())))
    assert mass_of(density_picture(model, prepared, estimates), prepared) == pytest.approx(1, abs=0.01)
    # The control: the same without the volume of a unit, and without log Z of a shifted energy.
    shifted = FunctionEnergy(lambda z: model(z) + 0.7, prepared.space)
    assert mass_of(density_picture(shifted, prepared, estimates), prepared) == pytest.approx(math.exp(-0.7), abs=0.01)
    monkeypatch.setattr(Standardiser, "log_volume", property(lambda self: 0.0))
    wrong = mass_of(density_picture(model, prepared, estimates), prepared)
    assert abs(math.log(wrong)) > 0.5
    assert math.log(wrong) == pytest.approx(float(np.log(prepared.schema.standardiser.scale).sum()), abs=0.02)


def test_contours_hold_the_shares_they_claim():
    x = np.linspace(-6, 6, 301)
    square = x[:, None] ** 2 + x**2
    surface = Surface(x, x, -square / 2 - math.log(2 * math.pi), None)
    # A Gaussian in the plane holds the share s where log p > log p(0) + log(1 - s).
    expected = [math.log(1 - share) - math.log(2 * math.pi) for share in (0.99, 0.9, 0.5)]
    assert surface.levels() == pytest.approx(expected, abs=0.02)


def test_of_many_columns_the_worst_are_shown():
    rng = np.random.default_rng(0)
    data, draws = rng.normal(size=(500, 7)), rng.normal(size=(500, 7))
    draws[:, [1, 3, 4, 6]] += 2
    assert farthest_columns(data, draws) == [1, 3, 4, 6]
    assert farthest_columns(data[:, :3], draws[:, :3]) == [0, 1, 2]


def test_roll_backs_are_marked_where_the_run_returned_to():
    history = {
        "step": np.array([10, 20, 30]),
        "loss": np.ones(3),
        "held_out": np.full(3, np.nan),
        "rate_factor": np.array([1.0, 0.25, 0.125]),
    }
    outcome = replace(DONE, retries=4)
    assert roll_backs(history, outcome) == [10, 10, 20, 30]
    assert roll_backs({**history, "rate_factor": np.ones(3)}, DONE) == []
    assert "4 roll-backs" in learning(history, outcome).caption


def test_what_an_objective_says_is_drawn_and_kept():
    history = {
        "step": np.array([10, 20]),
        "loss": np.ones(2),
        "held_out": np.ones(2),
        "rate_factor": np.ones(2),
        "accuracy": np.array([0.5, 0.75]),
    }
    picture = learning(history, DONE)
    below = picture.figure.axes[1]
    assert below.get_ylabel() == "accuracy" and list(below.lines[0].get_ydata()) == [0.5, 0.75]
    assert picture.csv() == b"step,loss,held_out,rate_factor,accuracy\n10,1,1,1,0.5\n20,1,1,1,0.75\n"
    assert "Below: accuracy." in picture.alt
    # More than there is room for are in the file all the same.
    many = learning(history | {f"more {i}": np.ones(2) for i in range(5)}, DONE)
    assert len(many.figure.axes) == 5 and len(many.columns) == 10 and "4 of 6" in many.caption
    # Control: an objective that says nothing leaves one panel.
    del history["accuracy"]
    plain = learning(history, DONE)
    assert len(plain.figure.axes) == 1 and "says" not in plain.caption and "Below" not in plain.alt


def test_saving_leaves_process_settings_and_folder_clean(tmp_path: Path):
    before = dict(mpl.rcParams)
    figure = new_figure(2, 1)
    figure.subplots().plot([1, 2])
    picture = Picture("small", figure, {"a, b": [1, 2], "c": np.array([0.5, np.nan])}, alt="two", caption="")
    picture.save(tmp_path / "figures")
    assert dict(mpl.rcParams) == before
    assert sorted(file.name for file in (tmp_path / "figures").iterdir()) == ["small.csv", "small.png"]
    assert (tmp_path / "figures" / "small.csv").read_text() == '"a, b",c\n1,0.5\n2,nan\n'
    assert (picture.width, picture.height) == (200, 100)


def test_names_stay_apart():
    assert unique(["a", "what", "what_", "a"], ("what",)) == ["a", "what_", "what__", "a_"]
