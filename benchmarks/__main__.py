"""`python -m benchmarks [names...] [--repeats N] [--out results.json]`: one JSON document on stdout."""

import argparse
import importlib
import json
import sys
import time
from pathlib import Path

from benchmarks.harness import environment, say

NAMES = (
    "training", "objectives", "convolutions", "unet", "langevin", "samplers", "hessians", "kde", "graphs", "lattices",
    "start",
)  # fmt: skip


def main() -> None:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--repeats", type=int, default=7, help="how often each pair is timed (default 7)")
    parser.add_argument("--out", type=Path, help="also write the document to this file")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; the names are {', '.join(NAMES)}")
    if options.repeats < 1:
        parser.error(f"at least one repeat is needed, not {options.repeats}")
    began, before = time.monotonic(), environment()
    results = []
    for name in options.names or NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        results.extend(module.run(repeats=options.repeats))
    document = {
        "environment": before,
        "load_average_after": environment()["load_average"],
        "seconds": time.monotonic() - began,
        "repeats": options.repeats,
        "results": results,
    }
    text = json.dumps(document, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    missed = [r["name"] for r in results if not r.get("bar", {"met": True})["met"]]
    say(f"{sum('bar' in r for r in results)} bars, missed: {', '.join(missed) or 'none'}")
    print(text)


if __name__ == "__main__":
    sys.exit(main())
