import numpy as np
import pytest
from runner import unnorm, write_csv


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """600 rows of two columns in very different units: a known Gaussian."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(600, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]]) * np.array([100.0, 0.05]) + [1000.0, 5.0]
    return write_csv(tmp_path_factory.mktemp("data") / "measurements.csv", values)


@pytest.fixture(scope="session")
def run(table, tmp_path_factory):
    """A small Gaussian model fitted to the table, with its report."""
    path = tmp_path_factory.mktemp("runs") / "run"
    result = unnorm("fit", table, "--model", "gaussian", "--steps", 2000, "--rate", 0.02, "--out", path, "--quiet")
    assert result.code == 0, result.err
    return path
