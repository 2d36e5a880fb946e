"""Shapes and types are what the annotations say: everything is called once with all of them enforced.

In a process of its own, because the check goes into the library when it is imported (see `shapes_sweep`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unnorm import catalogue

SWEEP = Path(__file__).with_name("shapes_sweep.py")


@pytest.fixture(scope="module")
def sweep():
    # Nothing in it runs for long, so its programs are compiled as quickly as can be.
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [sys.executable, str(SWEEP)], capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def test_no_annotation_is_false(sweep):
    assert not sweep["false"], "\n\n".join(f"{name}: {message}" for name, message in sweep["false"].items())


@pytest.mark.parametrize("kind", ["models", "noises", "objectives", "samplers", "generators", "data"])
def test_the_sweep_covers_the_catalogue(sweep, kind):
    missing = {f"{kind}/{name}" for name, _ in catalogue.listing()[kind]} - {*sweep["exercised"], *sweep["false"]}
    assert not missing


def test_the_sweep_covers_the_public_names(sweep):
    assert not sweep["untouched"]


def test_what_is_wrong_is_refused(sweep):
    """Negative controls: points for rows, rows for points, and a module that does not do what it says."""
    assert len(sweep["refusals"]) == 9
    assert set(sweep["refusals"].values()) == {"TypeCheckError"}, sweep["refusals"]
