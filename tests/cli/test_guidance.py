"""Digits given their labels, from the shell: fitted with labels, drawn given one, judged by nearest neighbours."""

import numpy as np
import pytest
from runner import unnorm

from unnorm.runs import prepare
from unnorm.spaces import Conditioned

LABELS = range(10)


def draws_of(run, folder, guidance, n=40):
    """Pictures given each label."""
    found = []
    for label in LABELS:
        out = folder / f"{guidance}-{label}.npy"
        given = ("--given", f"label={label}", "--guidance", guidance, "--steps", 20)
        assert unnorm("sample", run, "-n", n, *given, "--quiet", "--exact", "-o", out).code == 0
        found.append(np.load(out).reshape(n, -1))
    return np.stack(found)


def named_by_neighbours(pictures, rows: Conditioned, neighbours=5):
    """The label that most of the nearest training pictures have."""
    known, labels = np.asarray(rows.x, np.float64).reshape(len(rows.x), -1), np.asarray(rows.condition)
    known = (known + 1) * 8
    far = (pictures**2).sum(1)[:, None] - 2 * pictures @ known.T + (known**2).sum(1)
    near = labels[np.argsort(far, axis=1)[:, :neighbours]]
    return np.array([np.bincount(row, minlength=10).argmax() for row in near])


def shares_right(draws, rows):
    return np.array([np.mean(named_by_neighbours(draws[label], rows) == label) for label in LABELS])


def test_the_neighbours_know_digits_and_tell_labels_apart():
    prepared = prepare("digits", 0, conditions=("label",))
    held = prepared.test
    named = named_by_neighbours((np.asarray(held.x, np.float64).reshape(len(held.x), -1) + 1) * 8, prepared.train)
    assert np.mean(named == held.condition) > 0.95
    assert np.mean(named == (np.asarray(held.condition) + 1) % 10) < 0.05


@pytest.mark.thorough
def test_digits_given_a_label_are_of_that_label(tmp_path):
    """Nearly all at weight 1, and more of them at weight 2; at weight 0 the label plays no part."""
    run = tmp_path / "run"
    assert unnorm("fit", "digits", "--condition", "label", "--out", run, "--no-report", "--quiet").code == 0
    rows = prepare("digits", 0, conditions=("label",)).train
    shares = {weight: shares_right(draws_of(run, tmp_path, weight), rows) for weight in (0, 1, 2)}
    print({weight: found.round(3).tolist() for weight, found in shares.items()})
    assert shares[1].mean() > 0.85 and shares[2].mean() >= shares[1].mean() - 0.02 and shares[2].mean() > 0.9
    # Control: without guidance at all one in ten is right by chance.
    assert shares[0].mean() < 0.25
