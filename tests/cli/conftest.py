import numpy as np
import pytest
from runner import unnorm, write_csv


def known_gaussian(n, seed):
    """Two columns in very different units."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]]) * np.array([100.0, 0.05]) + [1000.0, 5.0]


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """600 rows of a known Gaussian."""
    return write_csv(tmp_path_factory.mktemp("data") / "measurements.csv", known_gaussian(600, 0))


@pytest.fixture(scope="session")
def fresh(tmp_path_factory):
    """900 rows of the same Gaussian that no run was fitted to."""
    return write_csv(tmp_path_factory.mktemp("fresh") / "fresh.csv", known_gaussian(900, 1))


@pytest.fixture(scope="session")
def run(table, tmp_path_factory):
    """A small Gaussian model fitted to the table, with its report."""
    path = tmp_path_factory.mktemp("runs") / "run"
    result = unnorm("fit", table, "--model", "gaussian", "--steps", 2000, "--rate", 0.02, "--out", path, "--quiet")
    assert result.code == 0, result.err
    return path
