"""Pictures go through the commands: the digits that are shipped, folders, sheets of draws."""

import json

import numpy as np
import pytest
from runner import refused, unnorm

import unnorm as un
from unnorm.runs import Run

SHORT = ("--steps", 30, "--model", "mlp", "--set", "model.width=8", "--set", "model.depth=1", "--quiet")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    out = tmp_path_factory.mktemp("digits") / "run"
    result = unnorm("fit", "digits", "--out", out, *SHORT, "--json")
    assert result.code == 0, result.err
    return out, json.loads(result.out)


def test_the_digits_are_fitted_and_reported_on(digits):
    out, told = digits
    assert told["remarks"][0].startswith("1,797 pictures of 8 x 8, grey, 17 levels")
    assert "mmd" in told["assessment"] and "log_z" not in told["assessment"]
    page = (out / "report.html").read_text()
    assert page.index("Draws beside data") < page.index("Nearest training pictures") < page.index("Draws and whether")
    for name in ("sheet", "neighbours"):
        header, *rows = (out / "figures" / f"{name}.csv").read_text().splitlines()
        assert rows and all(len(row.split(",")) == len(header.split(",")) for row in rows)
    prepared = Run.open(out).prepared
    assert prepared.space == un.spaces.Real((8, 8, 1)) and sum(prepared.sizes) == 1797
    # The numbers of the sheet are those of the pictures: the first is the first of the training rows.
    first = [line.split(",") for line in (out / "figures" / "sheet.csv").read_text().splitlines()[1:65]]
    assert [float(cells[-1]) for cells in first] == prepared.schema.written(prepared.train[0]).ravel().tolist()


def test_draws_are_written_in_the_levels_of_the_pictures(digits, tmp_path):
    out, _ = digits
    quick = ("-n", 64, "--sampler", "langevin", "--quiet", "-o")
    for name in ("d.npz", "d.npy", "d.png"):
        assert unnorm("sample", out, *quick, tmp_path / name).code == 0
    draws = np.load(tmp_path / "d.npy")
    assert draws.shape == (64, 8, 8) and draws.dtype == np.uint8 and draws.max() <= 16
    assert np.array_equal(np.load(tmp_path / "d.npz")["x"], draws)
    assert un.load(out).sample(3, progress=False).shape == (3, 8, 8, 1)
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")
    assert unnorm("sample", out, *quick, tmp_path / "e.npy", "--exact").code == 0
    assert not np.array_equal(np.load(tmp_path / "e.npy"), draws)
    assert refused(unnorm("sample", out, "-n", 4), "no text", "--out")
    assert refused(unnorm("sample", out, "-n", 4, "-o", tmp_path / "d.csv"), ".npz", ".png")


def test_a_run_on_pictures_goes_on_to_the_same_bits(digits, tmp_path):
    out, _ = digits
    again = unnorm("fit", "digits", "--out", tmp_path / "run", "--no-report", *SHORT)
    assert again.code == 0
    assert Run.open(tmp_path / "run").identity == Run.open(out).identity
    before = (out / "checkpoint.safetensors").read_bytes()
    assert unnorm("fit", "digits", "--out", out, "--resume", "--no-report", *SHORT).code == 0
    assert (out / "checkpoint.safetensors").read_bytes() == before
    assert refused(unnorm("fit", "digits", "--out", out, "--resume", *SHORT, "--seed", 1), "another data")


def test_what_does_not_work_on_pictures_names_what_does(digits, tmp_path):
    no = tmp_path / "no"
    assert refused(unnorm("fit", "digits", "--model", "tilted", "--out", no), "tilted", "diffusion, mlp, resnet")
    assert refused(unnorm("fit", "digits", "--objective", "cnce", "--model", "mlp", "--out", no), "cnce", "dsm")
    assert refused(unnorm("fit", "digits", "--group", "a", "--out", no), "leave --group out")
    assert refused(unnorm("fit", "digits", "--condition", "digit", "--out", no), "called label")
    assert refused(unnorm("score", digits[0], "digits"), "log Z")
    assert refused(unnorm("fit", digits[0], "--out", no), "folder")
    assert not no.exists()


def test_a_diffusion_is_what_pictures_are_fitted_by(tmp_path):
    """Unless told otherwise; it is trained, judged, drawn from and reported on like any other model."""
    seen = np.random.default_rng(0).integers(0, 4, size=(90, 4, 4)).astype(np.uint8)
    np.savez(tmp_path / "small.npz", x=seen, y=np.array(["a", "b", "c"])[np.arange(90) % 3])
    tiny = ("--steps", 20, "--set", "model.channels=4", "--condition", "label", "--quiet", "--json")
    result = unnorm("fit", tmp_path / "small.npz", "--out", tmp_path / "run", *tiny)
    assert result.code == 0, result.err
    told = json.loads(result.out)["assessment"]
    assert {"flow_log_likelihood", "log_likelihood_bound", "bits_per_dimension", "frechet", "nearness"} <= told.keys()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Draws beside data" in page and "bits" in page
    quick = ("--solver", "ddim", "--steps", 3, "--given", "label=c", "--guidance", 2, "--quiet", "-o")
    assert unnorm("sample", tmp_path / "run", "-n", 5, *quick, tmp_path / "d.npy").code == 0
    draws = np.load(tmp_path / "d.npy")
    assert draws.shape == (5, 4, 4) and draws.dtype == np.uint8 and draws.max() <= 3
    assert refused(unnorm("sample", tmp_path / "run", "-n", 5, *quick, tmp_path / "e.npy", "--solver", "dim"), "ddim")
    # In a folder draws come in lots: one that is cut short goes on, and is the same to the last bit.
    more = ("--solver", "ddim", "--steps", 3, "--seed", 4, "--quiet", "-o")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert unnorm("sample", tmp_path / "run", "-n", 300, *more, whole).code == 0
    assert sorted(file.name for file in whole.iterdir()) == [
        "lot-1.safetensors", "lot-2.safetensors", "table.npy",
    ]  # fmt: skip
    broken.mkdir()
    (broken / "lot-1.safetensors").write_bytes((whole / "lot-1.safetensors").read_bytes())
    assert unnorm("sample", tmp_path / "run", "-n", 300, *more, broken).code == 0
    assert (broken / "table.npy").read_bytes() == (whole / "table.npy").read_bytes()
    # Control: lots of another seed are made again.
    assert unnorm("sample", tmp_path / "run", "-n", 300, *more, broken, "--seed", 5, "--force").code == 0
    assert (broken / "table.npy").read_bytes() != (whole / "table.npy").read_bytes()
