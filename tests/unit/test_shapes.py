"""Shapes and types are what the annotations say: everything is called once with all of them enforced.

In a process of its own, because the check goes into the library when it is imported (see `shapes_sweep`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from unnorm import catalogue

#: What the sweep's own program hands to LAPACK in batches: by `vmap`, and with a leading axis, in a loop or not.
CONTROL = ("cholesky", "eigh", "qr", "triangular_solve")
SWEEP = Path(__file__).with_name("shapes_sweep.py")


def _swept():
    # Nothing in it runs for long, so its programs are compiled as quickly as can be.
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [sys.executable, str(SWEEP)], capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def test_shapes_and_types_are_what_the_annotations_say(subtests):
    """One test, so that no two workers sweep at once."""
    sweep = _swept()
    with subtests.test("no annotation is false"):
        assert not sweep["false"], "\n\n".join(f"{name}: {message}" for name, message in sweep["false"].items())
    for kind in ("models", "noises", "objectives", "samplers", "generators", "data"):
        with subtests.test("the sweep covers the catalogue", kind=kind):
            found = {*sweep["exercised"], *sweep["false"]}
            assert not {f"{kind}/{name}" for name, _ in catalogue.listing()[kind]} - found
    with subtests.test("the sweep covers the public names"):
        assert not sweep["untouched"]
    # Negative controls: points for rows, rows for points, and a module that does not do what it says.
    with subtests.test("what is wrong is refused"):
        assert len(sweep["refusals"]) == 9
        assert set(sweep["refusals"].values()) == {"TypeCheckError"}, sweep["refusals"]
    with subtests.test("no batch of matrices is handed to LAPACK, which can hang"):
        assert sweep["lapack"]["batched"] == []
        # Some single matrices are, so that something was seen; and the control's batches are seen, each kind of them.
        assert {call.split(": ")[1] for call in sweep["lapack"]["single"]} >= {"eigh", "lu"}
        assert sweep["lapack"]["control"] == [f"control: {name}" for name in CONTROL]
