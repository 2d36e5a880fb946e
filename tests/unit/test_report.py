"""Reports: a page stands alone, its numbers are those of the assessment, its densities integrate to one."""

import csv
import html
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from report_cases import DONE, EVENT, EXACT, ODD, WARNING, Case, case_of, table, with_likelihood

from unnorm.data import load
from unnorm.energies import AbstractEnergy, FunctionEnergy
from unnorm.errors import InputError
from unnorm.estimate import Estimate, Outcome, OutcomeCode, mean_estimate
from unnorm.evaluation import energies
from unnorm.report import write_demo_report
from unnorm.report.density import log_density, surface_of
from unnorm.report.html import all_warnings, command_line, duration
from unnorm.report.pairs import density_picture
from unnorm.report.verdict import COMBINED, PAIRED, gains, judge
from unnorm.runs import Assessment, Prepared
from unnorm.runs.assess import in_unit_coordinates
from unnorm.runs.findings import Chains, LogZ, ModeWeights
from unnorm.runs.prepare import prepared_problem
from unnorm.training import Fit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def plane(folder: Path) -> Case:
    problem = load("bimodal", n_train=400, n_valid=100, n_test=200)
    return case_of(folder / "plane", prepared_problem(problem, "bimodal"), weights=True)


@pytest.fixture(scope="module")
def columns3(folder: Path) -> Case:
    return case_of(folder / "three & <i>", table(folder, "three", (ODD, "price in $ or $$_{", "what")))


@pytest.fixture(scope="module")
def column1(folder: Path) -> Case:
    return case_of(folder / "one", table(folder, "one", ("time",)))


@pytest.fixture(scope="module")
def pages(plane: Case, columns3: Case, column1: Case) -> Mapping[str, tuple[Case, str]]:
    return {"plane": (plane, plane.write()), "three": (columns3, columns3.write()), "one": (column1, column1.write())}


CASES = pytest.mark.parametrize("name", ("plane", "three", "one"))


class Tags(HTMLParser):
    """Every tag of a page with its attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@CASES
def test_a_page_stands_alone(pages, name: str):
    case, page = pages[name]
    tags = Tags(page).found
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in tags}
    assert "http://" not in page and "https://" not in page and "url(" not in page and "@import" not in page
    for tag, attributes in tags:
        source = attributes.get("src")
        assert source is None or source.startswith("data:image/png;base64,"), tag
        if "href" in attributes:
            href = attributes["href"] or ""
            assert href.startswith(("#", "figures/"))
            assert (case.path / href).exists()


@CASES
def test_every_image_says_what_it_shows(pages, name: str):
    _, page = pages[name]
    images = [attributes for tag, attributes in Tags(page).found if tag == "img"]
    assert len(images) >= 5
    assert all((image["alt"] or "").strip() for image in images)


@CASES
def test_every_figure_has_its_numbers(pages, name: str):
    case, page = pages[name]
    figures = sorted(file.stem for file in (case.path / "figures").glob("*.png"))
    assert figures == sorted(file.stem for file in (case.path / "figures").glob("*.csv"))
    assert not list((case.path / "figures").glob(".*"))
    density = "pairs" if name == "three" else "density"
    assert {density, "learning", "likelihood", "mixing", "traces"} <= set(figures)
    assert ("weights" in figures) == (name == "plane")
    for figure in figures:
        assert f'href="figures/{figure}.csv"' in page
        header, *rows = read(case, figure)
        assert len(set(header)) == len(header) and rows
        assert all(len(row) == len(header) for row in rows)


def read(case: Case, figure: str) -> list[list[str]]:
    with open(case.path / "figures" / f"{figure}.csv", newline="") as stream:
        return list(csv.reader(stream))


def test_columns_are_named_as_the_data_are(pages):
    three, plane, one = (pages[name][0] for name in ("three", "plane", "one"))
    # A column that is called as one of the table's own gets a dash below.
    assert read(three, "pairs")[0] == ["what", ODD, "price in $ or $$_{", "what_"]
    assert [row[0] for row in read(three, "mixing")[1:]] == list(three.prepared.columns)
    assert read(plane, "density")[0] == ["what", "x1", "x2", "log_density", "true_log_density"]
    assert {row[0] for row in read(plane, "density")[1:]} == {"lattice", "data", "draw"}
    assert read(one, "density")[0] == ["time", "density", "data", "draws"]
    assert read(one, "traces")[0] == ["chain", "draw", "time"]
    assert read(one, "learning")[0] == ["step", "loss", "held_out", "rate_factor", "accuracy"]


@CASES
def test_log_likelihoods_are_those_of_the_assessment(pages, name: str):
    case, page = pages[name]
    found = case.assessment
    for estimate in (found.log_likelihood, *found.baselines.values(), *([found.truth] if found.truth else [])):
        assert estimate.number() in page
    header, *rows = read(case, "likelihood")
    assert header == ["model", "log_likelihood", "stderr"]
    shown = {row[0]: float(row[1]) for row in rows}
    assert shown["this model"] == pytest.approx(found.log_likelihood.value)
    assert all(shown[name] == pytest.approx(value.value) for name, value in found.baselines.items())
    assert ("truth" in shown) == (found.truth is not None)
    assert found.mmd.number() in page


@CASES
def test_warnings_and_events_are_shown_and_escaped(pages, name: str):
    _, page = pages[name]
    assert html.escape(WARNING) in page
    assert html.escape(EVENT) in page and EVENT not in page
    assert page.index(html.escape(WARNING)) < page.index("What was fitted")


def test_names_are_text_and_not_markup(pages):
    _, page = pages["three"]
    assert ODD not in page
    assert html.escape(ODD) in page
    assert "<i>" not in page and html.escape("three & <i>") in page


def test_mode_weights_are_shown(pages):
    case, page = pages["plane"]
    assert all(learnt.number() in page for _, learnt in case.assessment.weights)
    assert read(case, "weights")[1:] == [["1", "0.8", "0.7512", "0.0123"], ["2", "0.2", "0.2488", "0.0123"]]


def test_weights_carried_by_few_draws_are_a_warning(plane: Case):
    weights = tuple(
        (truth, replace(learnt, diagnostics={"effective_samples": 5.4})) for truth, learnt in plane.assessment.weights
    )
    doubtful = all_warnings(DONE, (), plane.assessment.replacing(ModeWeights(weights)))
    assert doubtful[0] == WARNING and "Only 5 effective draws" in doubtful[1]
    assert all_warnings(DONE, (), plane.assessment) == (WARNING,)


def test_a_run_that_diverged_says_so_first(column1: Case):
    outcome = Outcome(OutcomeCode.DIVERGED, 12, "the loss was not finite", "Try a smaller rate.", 6)
    empty = {name: np.zeros(0) for name in column1.fit.history}
    nothing = with_likelihood(column1.assessment, model=Estimate(math.nan, math.nan, "broken"))
    page = column1.write(outcome=outcome, history=empty, assessment=nothing)
    assert "Training diverged: do not use this model." in page
    assert html.escape(f"Training {outcome}") in page


@CASES
def test_broken_chains_and_energies_still_make_a_report(pages, name: str):
    case, _ = pages[name]
    found = case.assessment
    broken = found.replacing(Chains(replace(found.sampled, draws=np.full_like(found.sampled.draws, np.nan))))
    model = FunctionEnergy(lambda z: z.sum() * np.nan, case.prepared.space)
    picture = density_picture(model, case.prepared, broken)
    assert picture.png().startswith(b"\x89PNG") and picture.csv()
    draws = found.sampled.draws.reshape(-1, found.sampled.draws.shape[2])
    assert f"{len(draws)} of {len(draws)} draws lie outside" in picture.caption


def test_the_command_makes_the_run_again(plane: Case):
    settings = plane.settings.model_copy(update={"source": "my data's.csv"})
    words = shlex.split(command_line(settings, "run"))
    assert words[:3] == ["unnorm", "fit", "my data's.csv"]
    assert words[words.index("--steps") + 1] == "30"
    assert words[words.index("--out") + 1] == "run-again"
    assert "model.width=8" in words and "--patience" not in words
    assert duration(0.04) == "0.0 s" and duration(59.7) == "1 min 0 s"


def test_learnt_and_true_surfaces_are_on_one_footing(plane: Case):
    log_z = plane.assessment.log_z
    surface = surface_of(plane.fit.model, plane.prepared, log_z.value)
    assert surface.truth is not None
    assert surface.mass(surface.truth) == pytest.approx(1, abs=0.01)
    assert surface.mass(surface.model) == pytest.approx(1, abs=0.03 + 5 * log_z.stderr)
    truth = in_unit_coordinates(plane.prepared.problem.truth, plane.prepared)  # pyright: ignore
    # The truth as a model of unit coordinates has log Z = -log_volume: the volume is then counted once, not twice.
    again = log_density(truth, plane.prepared, -plane.prepared.schema.log_volume, surface.points)
    assert np.allclose(again, surface.truth.ravel(), atol=1e-3)
    assert surface.points[1] == pytest.approx([surface.x[1], surface.y[0]])


def test_differences_are_paired(plane: Case):
    found = gains(plane.fit.model, plane.prepared, plane.assessment, plane.references)
    rows, log_z = plane.prepared.test, plane.assessment.log_z
    apart = mean_estimate(
        energies(plane.references.baselines["mixture of 2"], rows) - energies(plane.fit.model, rows), "rows"
    )
    assert found["mixture of 2"].value == pytest.approx(apart.value - log_z.value, abs=1e-4)
    assert found["mixture of 2"].stderr == pytest.approx(math.hypot(apart.stderr, log_z.stderr))
    assert {value.method for value in found.values()} == {PAIRED}
    expected = plane.assessment.log_likelihood.value - plane.assessment.truth.value  # pyright: ignore
    assert found["truth"].value == pytest.approx(expected)


def test_a_model_beats_itself_by_nothing(plane: Case):
    itself = with_likelihood(plane.assessment, model=plane.assessment.baselines["mixture of 2"]).replacing(LogZ(EXACT))
    same = gains(plane.references.baselines["mixture of 2"], plane.prepared, itself, plane.references)["mixture of 2"]
    assert (same.value, same.stderr) == (0.0, 0.0)


def test_errors_are_combined_where_rows_are_not_at_hand(plane: Case):
    # As if it were of other rows.
    other = replace(plane.assessment.log_likelihood, value=plane.assessment.log_likelihood.value + 1.0)
    for assessment, references in (
        (plane.assessment, None),
        (with_likelihood(plane.assessment, model=other), plane.references),
    ):
        gain = gains(plane.fit.model, plane.prepared, assessment, references)["mixture of 2"]
        first, second = assessment.log_likelihood, assessment.baselines["mixture of 2"]
        assert gain.method == COMBINED
        assert gain.stderr == pytest.approx(math.hypot(first.stderr, second.stderr))


@pytest.mark.parametrize(
    "value, stderr, tone, words",
    (
        (0.12, 0.01, "good", "The model beats the best Gaussian mixture (2 components) by 0.120 ± 0.010 nats per row."),
        (0.12, 0.10, "open", "does not beat the best Gaussian mixture (2 components): the difference of 0.12 ± 0.10"),
        (-0.12, 0.01, "bad", "does not beat the best Gaussian mixture (2 components): it is worse by 0.120 ± 0.010"),
        (0.12, math.inf, "open", "may be chance"),
    ),
)
def test_the_verdict_follows_the_error(plane: Case, value: float, stderr: float, tone: str, words: str):
    baselines = {"one Gaussian": Estimate(-2.0, 0.1, "test"), "mixture of 2": Estimate(-1.0, 0.1, "test")}
    assessment = with_likelihood(plane.assessment, baselines=baselines)
    difference = {"one Gaussian": Estimate(1.0, 0.1, "test"), "mixture of 2": Estimate(value, stderr, PAIRED)}
    verdict = judge(assessment, DONE, difference)
    assert words in verdict.headline and verdict.tone == tone
    assert any(PAIRED in sentence for sentence in verdict.details)


def test_a_doubtful_log_z_is_never_good_news(plane: Case):
    log_z = Estimate(0.0, 0.1, "AIS", {}, ("Only 3 of 100 weights are effective.",))
    difference = {name: Estimate(5.0, 0.1, PAIRED) for name in plane.assessment.baselines}
    assert judge(plane.assessment.replacing(LogZ(log_z)), DONE, difference).tone == "open"
    assert judge(plane.assessment, DONE, difference).tone == "good"


def test_above_the_truth_is_suspicious(plane: Case):
    difference = {name: Estimate(5.0, 0.1, PAIRED) for name in plane.assessment.baselines}
    assert "suspect" in judge(plane.assessment, DONE, {**difference, "truth": Estimate(0.5, 0.1, PAIRED)}).details[-1]
    words = judge(plane.assessment, DONE, {**difference, "truth": Estimate(-0.5, 0.1, PAIRED)}).details[-1]
    assert words == "It falls short of the true density by 0.50 ± 0.10 nats per row."


@dataclass(frozen=True, eq=False)
class Demo:
    prepared: Prepared
    fits: Mapping[str, Fit[AbstractEnergy]]
    assessments: Mapping[str, Assessment]
    verdict: str


def test_a_comparison_is_shown_side_by_side(plane: Case, tmp_path: Path):
    names = ("dsm", "cnce <b>")
    demo = Demo(
        plane.prepared, dict.fromkeys(names, plane.fit), dict.fromkeys(names, plane.assessment), "CNCE & co. <win>."
    )
    path = write_demo_report(tmp_path / "demo", demo)
    page = path.read_text()
    assert html.escape(demo.verdict) in page and demo.verdict not in page and "cnce <b>" not in page
    # The right mode is the one of weight 0.2.
    assert plane.assessment.weights[1][1].number() in page
    assert plane.assessment.log_likelihood.number() in page and html.escape(WARNING) in page
    tags = Tags(page).found
    assert all((a["src"] or "").startswith("data:") and a["alt"] for tag, a in tags if tag == "img")
    assert "http" not in page.replace("http-equiv", "")
    with open(tmp_path / "demo" / "figures" / "demo.csv", newline="") as stream:
        header = next(csv.reader(stream))
    assert header == ["what", "x1", "x2", "true_log_density", "log_density_dsm", "log_density_cnce <b>"]


def test_a_comparison_needs_the_plane(column1: Case, tmp_path: Path):
    demo = Demo(column1.prepared, {"dsm": column1.fit}, {"dsm": column1.assessment}, "")
    with pytest.raises(InputError, match="has 1 columns"):
        write_demo_report(tmp_path / "demo", demo)
    assert not (tmp_path / "demo").exists()
