"""The UCI tables and MNIST: what is kept, and what the preparation does to it."""

import os

import numpy as np
import pytest

from unnorm.data.local import local_file
from unnorm.data.mnist import mean_pool, mnist, parse_idx
from unnorm.data.uci import UCI_TABLES, dequantise, distinct_columns, uci, uci_table, whiten
from unnorm.errors import InputError

FOLDER = os.environ.get("UNNORM_DATA", "")


def needs(relative):
    return pytest.mark.skipif(
        not os.path.isfile(os.path.join(FOLDER, relative)), reason=f"UNNORM_DATA names no folder with {relative}"
    )


with_uci = needs("uci/parkinsons_updrs.data")
with_mnist = needs("mnist/train-images-idx3-ubyte.gz")


@with_uci
@pytest.mark.parametrize(
    ("name", "shape"), [("redwine", (1599, 11)), ("whitewine", (4898, 11)), ("parkinsons", (5875, 15))]
)
def test_tables_have_the_columns_as_printed(name, shape):
    table = uci_table(name)
    assert table.values.shape == shape and len(table.columns) == shape[1]
    correlations = np.corrcoef(table.values, rowvar=False) - np.eye(shape[1])
    assert np.abs(correlations).max() <= 0.98
    assert not {"quality", "subject#", "age", "sex"} & set(table.columns)


@with_uci
@pytest.mark.parametrize("name", UCI_TABLES)
def test_preparation(name):
    """Whitened on the training rows, these have the covariance (1 + 0.05^2) I; fitted on all rows they do not."""
    split, rows = uci(name), len(uci_table(name).values)
    d = len(split.columns)
    assert len(split.test) == min(rows // 10, 1000) and len(split.train) + len(split.valid) + len(split.test) == rows
    quiet = uci(name, noise=0.0)
    assert np.allclose(np.cov(quiet.train, rowvar=False), np.eye(d), atol=1e-4)
    assert not np.allclose(np.cov(uci(name, noise=0.0, whitening="all").train, rowvar=False), np.eye(d), atol=1e-3)
    difference = split.train - quiet.train
    assert abs(difference.std() / 0.05 - 1) < 4.5 / np.sqrt(2 * difference.size)
    assert np.array_equal(split.train, uci(name).train) and not np.array_equal(split.train, uci(name, seed=1).train)


@with_uci
def test_without_whitening_the_rows_are_those_of_the_table():
    plain = uci("parkinsons", whitening="none", noise=0.0)
    rows = np.concatenate([plain.train, plain.valid, plain.test])
    values = uci_table("parkinsons").values.astype(np.float32)
    assert np.array_equal(rows[np.lexsort(rows.T)], values[np.lexsort(values.T)])


@with_mnist
def test_mnist():
    digits = mnist(14)
    assert digits.train.images.shape == (60000, 14, 14) and digits.test.images.shape == (10000, 14, 14)
    assert digits.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    # The mean of all pixels of the training set is known, and pooling does not change it.
    assert abs(float(digits.train.images.mean(dtype=np.float64)) - 0.1306604762738429) < 1e-6


def test_columns_that_say_the_same_are_dropped_one_by_one():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 500))
    table = np.stack([a, b, a + 0.01 * rng.normal(size=500), -a, a + b], axis=1)
    assert distinct_columns(table) == [1, 3, 4]


def test_dequantised_values_fill_their_cells():
    """U[-d, d] has variance d^2 / 3."""
    grid = np.repeat(np.array([[0.0, 0.0], [0.5, 3.0], [1.0, 6.0]]), 3000, axis=0)
    moved = dequantise(grid, np.random.default_rng(0)) - grid
    assert np.all(np.abs(moved) <= [0.5, 3.0])
    variances = moved.var(axis=0) / (np.array([0.5, 3.0]) ** 2 / 3)
    assert np.all(np.abs(variances - 1) < 4.5 * np.sqrt(0.8 / len(grid)))


def test_one_sentence_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.delenv("UNNORM_DATA", raising=False)
    with pytest.raises(InputError, match=r"not shipped; get it from https.* set UNNORM_DATA"):
        uci_table("redwine")
    monkeypatch.setenv("UNNORM_DATA", str(tmp_path))
    with pytest.raises(InputError, match="there is no file"):
        local_file("uci/winequality-red.csv", "https://example.org")
    with pytest.raises(InputError, match="no UCI table is called 'wine'"):
        uci_table("wine")
    with pytest.raises(InputError, match="whitening must be train, all or none"):
        uci("redwine", whitening="most")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="side 28"):
        mnist(10)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"not gzip")
    with pytest.raises(InputError, match="is damaged"):
        mnist()


def test_bad_arrays_are_refused():
    with pytest.raises(InputError, match="lie in a plane"):
        whiten(np.ones((5, 2)), np.stack([np.arange(5.0)] * 2, axis=1))
    with pytest.raises(InputError, match="not an idx file"):
        parse_idx(b"\0\0\x0d\1", "x")
    with pytest.raises(InputError, match="holds 1 numbers where its header says 2"):
        parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5]), "x")
    with pytest.raises(InputError, match="cannot be pooled"):
        mean_pool(np.zeros((1, 3, 3)), 2)
