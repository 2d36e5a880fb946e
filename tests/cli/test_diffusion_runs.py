"""What a diffusion's run can do from the shell and in Python: solvers by name, temperatures, codes, what is missing."""

import json

import numpy as np
import pytest
from runner import refused, unnorm

import unnorm as un
from unnorm.estimate import Estimate
from unnorm.evaluation import FeatureFigures
from unnorm.runs.findings import FINDINGS, Assessment
from unnorm.runs.picture_features import FeatureFidelity
from unnorm.spaces import Real

SHORT = ("--steps", 300, "--set", "model.width=16", "--set", "model.depth=1", "--no-report", "--quiet")


@pytest.fixture(scope="module")
def tabled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diffusion")
    generator = np.random.default_rng(0)
    first = generator.normal(size=400)
    rows = np.stack([10 + 2 * first, 5 - first + 0.5 * generator.normal(size=400)], axis=1)
    np.savetxt(folder / "rows.csv", rows, delimiter=",", header="a,b", comments="")
    result = unnorm("fit", folder / "rows.csv", "--model", "diffusion", "--out", folder / "run", *SHORT)
    assert result.code == 0, result.err
    return folder / "run", rows


def test_solvers_are_named_and_walks_cooled(tabled):
    out, rows = tabled

    def drawn(*options) -> dict:
        result = unnorm("sample", out, "-n", 400, "--json", "--quiet", *options)
        assert result.code == 0, result.err
        return json.loads(result.out)

    found = drawn("--solver", "adaptive", "--set", "sampler.tolerance=0.01")
    assert found["solver"] == "adaptive" and 20 < found["evaluations"] < 200
    warm = np.std(found["draws"], axis=0)
    assert np.all(np.abs(warm / rows.std(axis=0) - 1) < 0.3)
    for solver in ("adaptive", "ancestral"):
        told = ("--set", "sampler.tolerance=0.01") if solver == "adaptive" else ("--steps", 100)
        cold = np.std(drawn("--solver", solver, "--temperature", 0.25, *told)["draws"], axis=0)
        assert np.all(cold < 0.75 * rows.std(axis=0))
    assert refused(unnorm("sample", out, "-n", 4, "--solver", "adaptive", "--set", "sampler.order=2"), "order")


def test_codes_lead_back_and_what_is_known_stays(tabled):
    out, rows = tabled
    run = un.load(out)
    codes = run.encode(rows[:50])
    assert codes.shape == (50, 2) and np.all(np.abs(codes.mean(0)) < 0.8)
    np.testing.assert_allclose(run.decode(codes, exact=True), rows[:50], atol=0.02)
    assert np.abs(run.decode(codes[::-1], exact=True) - rows[:50]).max() > 1  # another's code is another row
    between = run.interpolate(rows[:2], n=3, exact=True)
    np.testing.assert_allclose(between[[0, -1]], rows[:2], atol=0.02)
    assert between.shape == (5, 2)
    # What the model itself has where a is 14, by draws that came near; so short a fit is not the truth there (3).
    draws = run.sample(20_000)
    own = draws[np.abs(draws[:, 0] - 14) < 0.25, 1]
    filled = {
        n: run.inpaint(np.array([[14.0, 0.0]]), [True, False], 400, steps=100, corrections=n, exact=True)
        for n in (1, 4)
    }
    np.testing.assert_allclose(filled[4][:, 0], 14.0, atol=1e-3)
    error = np.hypot(own.std() / len(own) ** 0.5, filled[4][:, 1].std() / 20)
    off = {n: abs(rows[:, 1].mean() - own.mean()) for n, rows in filled.items()}
    assert off[4] < 4 * error + 0.05
    # Controls: a single correction leaves much of the bias of replacing, and with a not known b is about 5.
    assert off[1] > 4 * error + 0.05 and draws[:, 1].mean() - own.mean() > 1
    with pytest.raises(un.InputError, match="without corrections is biased"):
        run.inpaint(rows[:1], [True, False], corrections=0)
    with pytest.raises(un.InputError, match="points lie between two rows, not 3"):
        run.interpolate(rows[:3])


def test_figures_in_features_are_saved_and_read_back():
    values = [Estimate(float(i), 0.1, "by hand") for i in range(9)]
    figures = FeatureFigures(
        *values[:5], dict(zip(("frechet", "score", "precision", "recall"), values[5:], strict=True))
    )
    found = FeatureFidelity(figures)
    assert FeatureFidelity in FINDINGS
    again = FeatureFidelity.restored(json.loads(json.dumps(found.fields())), {}, Real((1,)))
    assert again.figures == figures and again.table()[0][1:] == (values[1], values[5])
    assert "features" in Assessment.of(found).to_dict()
