"""Black-and-white pictures restored from the command line."""

import json

import numpy as np
import pytest
from PIL import Image
from runner import refused, unnorm

from unnorm.energies import Ising, lattice
from unnorm.tasks import flipped_posterior, graph_cut

RNG = np.random.default_rng(11)
CLEAN = np.zeros((20, 24))
CLEAN[4:16, 6:18] = 1
NOISY = np.where(RNG.random(CLEAN.shape) < 0.1, 1 - CLEAN, CLEAN)


@pytest.fixture
def noisy(tmp_path):
    path = tmp_path / "noisy.png"
    Image.fromarray((255 * NOISY).astype(np.uint8)).save(path)
    return path


def pixels(path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("L"))


def test_without_options_the_picture_is_the_exact_cut(noisy, tmp_path):
    result = unnorm("restore", noisy)
    assert result.code == 0, result.err
    found = pixels(tmp_path / "noisy-restored.png")
    wanted = graph_cut(flipped_posterior(Ising(lattice(CLEAN.shape), 0.0, 1.2), NOISY, 0.1))
    assert np.array_equal(found, 255 * wanted.picture)
    assert np.mean(found / 255 != CLEAN) < np.mean(NOISY != CLEAN) / 3
    # What was assumed, and what came of it, is said.
    assert "10% of the pixels flipped, coupling 1.2" in result.err
    changed = np.mean(wanted.picture != NOISY)
    assert f"{changed:.1%} of the pixels changed" in result.out and "no picture has a lower energy" in result.out


@pytest.mark.parametrize("method", ["cut", "icm", "anneal", "modes"])
def test_every_method_says_its_energy_as_json(noisy, tmp_path, method):
    out = tmp_path / f"{method}.png"
    asked = ("restore", noisy, "-o", out, "--method", method, "--flips", 0.15, "--coupling", 1.0, "--seed", 3)
    result = unnorm(*asked, "--json", "--quiet")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    cut = graph_cut(flipped_posterior(Ising(lattice(CLEAN.shape), 0.0, 1.0), NOISY, 0.15))
    assert found["energy"] >= cut.energy - 1e-6 and (found["method"], found["flips"]) == (method, 0.15)
    assert (found["above"] is None) == (method != "cut") and found["changed"] == np.mean(pixels(out) / 255 != NOISY)
    # The same seed gives the same picture; a file that is there is left alone.
    first = out.read_bytes()
    assert refused(unnorm(*asked), "already exists", "--force")
    assert unnorm(*asked, "--force", "--quiet").code == 0 and out.read_bytes() == first


def test_colours_that_stand_for_black_and_white_come_back(tmp_path):
    """Two shades of any kind are two values; the restored picture has them again."""
    ink = np.where(NOISY[..., None] > 0, [250, 240, 200], [20, 30, 90]).astype(np.uint8)
    Image.fromarray(ink).save(tmp_path / "ink.png")
    assert unnorm("restore", tmp_path / "ink.png", "-o", tmp_path / "out.png", "--quiet").code == 0
    found = np.asarray(Image.open(tmp_path / "out.png"))
    assert {tuple(c) for c in found.reshape(-1, 3).tolist()} == {(250, 240, 200), (20, 30, 90)}
    assert np.mean((found[..., 0] == 250) != CLEAN) < 0.05
    # So do arrays.
    np.save(tmp_path / "bits.npy", NOISY.astype(bool))
    assert unnorm("restore", tmp_path / "bits.npy", "-o", tmp_path / "out.npy", "--quiet").code == 0
    assert np.array_equal(np.load(tmp_path / "out.npy"), found[..., 0] == 250)


def test_grey_pictures_are_refused_until_a_threshold_is_given(tmp_path):
    grey = np.clip(255 * NOISY + RNG.normal(0, 20, NOISY.shape), 0, 255).astype(np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    assert refused(unnorm("restore", tmp_path / "grey.png", "--quiet"), "shades", "--threshold")
    result = unnorm("restore", tmp_path / "grey.png", "-o", tmp_path / "out.png", "--threshold", 0.5)
    assert result.code == 0 and set(np.unique(pixels(tmp_path / "out.png"))) == {0, 255}
    assert np.mean((pixels(tmp_path / "out.png") > 0) != CLEAN) < 0.05


def test_what_cannot_be_restored_is_refused_in_one_sentence(noisy, tmp_path):
    Image.fromarray(np.full((5, 5), 255, np.uint8)).save(tmp_path / "white.png")
    (tmp_path / "broken.png").write_bytes(noisy.read_bytes()[:60])
    for arguments, words in (
        ((tmp_path / "white.png",), ("one shade",)),
        ((tmp_path / "missing.png",), ("no file",)),
        ((tmp_path / "broken.png",), ("no whole picture",)),
        ((noisy, "--method", "luck"), ("cut, icm or anneal",)),
        ((noisy, "--flips", 1.5), ("between 0 and 1/2",)),
        ((noisy, "--coupling", "-1"), ("coupling", "negative")),
        ((noisy, "--threshold", 2), ("between 0 and 1",)),
        ((noisy, "-o", tmp_path / "out.jpg"), (".png",)),
        ((noisy, "-o", tmp_path / "none" / "out.png"), ("does not exist",)),
    ):
        assert refused(unnorm("restore", *arguments, "--quiet"), *words), arguments
    assert not (tmp_path / "white-restored.png").exists()
