"""One harness for every benchmark: callables, timed in turn.

The sides alternate (ours, peer, ours, peer ...), so that a busy machine hits both alike, and the ratio is the median of
the ratios of neighbours, with its quartiles. The first call of a side, which compiles, is timed apart. Each side must
return only when its work is done.
"""

import importlib.metadata
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Report = dict[str, Any]


@dataclass(frozen=True)
class Side:
    """One of the things compared; a call does `steps` units of work."""

    label: str
    call: Callable[[], Any]
    steps: int = 1


@dataclass(frozen=True)
class Bar:
    """What a number should be: at least, or at most, the target. A bar is printed, never enforced."""

    target: float
    at_least: bool = True

    def judge(self, value: float) -> Report:
        """The target and whether the value meets it."""
        met = value >= self.target if self.at_least else value <= self.target
        return {"at_least" if self.at_least else "at_most": self.target, "met": bool(met)}


def say(message: str) -> None:
    """Progress, on stderr; stdout is for the one JSON document."""
    print(message, file=sys.stderr, flush=True)


def _seconds(call: Callable[[], Any]) -> tuple[float, float]:
    """Time on the wall, and processor time of this process."""
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - processor


def _spread(values: Any) -> Report:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {"median": float(middle), "quartiles": [float(low), float(high)]}


def _side(side: Side, first: float, timings: list[tuple[float, float]]) -> Report:
    wall, processor = 1e3 * np.asarray(timings).T / side.steps
    return {
        "label": side.label,
        "first_call_seconds": first,
        "milliseconds": {**_spread(wall), "least": float(wall.min())},
        "processor_milliseconds": float(np.median(processor)),
    }


def compare(name: str, first: Side, *others: Side, repeats: int, bar: Bar | None = None) -> Report:
    """Time the sides in turn; a ratio is other / first, so above 1 the first is the faster.

    A bar must hold against every other side.
    """
    say(f"{name}: {first.label} against {', '.join(side.label for side in others)}")
    sides = (first, *others)
    starts = [_seconds(side.call)[0] for side in sides]
    timings: list[list[tuple[float, float]]] = [[] for _ in sides]
    for _ in range(repeats):
        for side, seen in zip(sides, timings, strict=True):
            seen.append(_seconds(side.call))
    reports = [_side(*parts) for parts in zip(sides, starts, timings, strict=True)]
    wall = [np.array([t for t, _ in seen]) / side.steps for side, seen in zip(sides, timings, strict=True)]
    for report, seconds in zip(reports[1:], wall[1:], strict=True):
        report["ratio"] = _spread(seconds / wall[0])
    result: Report = {"name": name, "first": reports[0], "others": reports[1:]}
    medians = [report["ratio"]["median"] for report in reports[1:]]
    if bar is not None:
        result["bar"] = bar.judge(min(medians) if bar.at_least else max(medians))
    ratios = ", ".join(f"{side.label} / {first.label} = {m:.2f}" for side, m in zip(others, medians, strict=True))
    say(f"  {ratios} {_verdict(result)}")
    return result


def measure(name: str, side: Side, *, repeats: int, bar: Bar | None = None) -> Report:
    """One side alone, with a bar in milliseconds."""
    say(f"{name}: {side.label}")
    first = _seconds(side.call)[0]
    report: Report = {"name": name, "first": _side(side, first, [_seconds(side.call) for _ in range(repeats)])}
    milliseconds = report["first"]["milliseconds"]["median"]
    if bar is not None:
        report["bar"] = bar.judge(milliseconds)
    say(f"  {milliseconds:.1f} ms {_verdict(report)}")
    return report


def count(name: str, value: float, *, bar: Bar) -> Report:
    """A number that was counted rather than timed."""
    report: Report = {"name": name, "count": value, "bar": bar.judge(value)}
    say(f"{name}: {value:g} {_verdict(report)}")
    return report


def skipped(name: str, reason: str) -> Report:
    """A benchmark that could not run here, and why."""
    say(f"{name}: skipped, {reason}")
    return {"name": name, "skipped": reason}


def _verdict(report: Report) -> str:
    if "bar" not in report:
        return ""
    (sense, target), (_, met) = report["bar"].items()
    return f"(bar: {sense.replace('_', ' ')} {target:g}, {'met' if met else 'MISSED'})"


@lru_cache
def _compilations() -> list[str]:
    """One entry for every program XLA compiles from the first call of this function on."""
    import jax

    seen: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return seen


@contextmanager
def compilations() -> Iterator[list[str]]:
    """A list that holds, when the block ends, one entry for every program compiled inside it."""
    inside: list[str] = []
    before = len(_compilations())
    yield inside
    inside.extend(_compilations()[before:])


def torch_is_missing() -> str | None:
    """What to say when the peer cannot be run."""
    if importlib.util.find_spec("torch") is None:
        return 'PyTorch is not installed; pip install "unnorm[bench]"'
    return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def environment() -> Report:
    """What the numbers were measured on."""
    import jax

    packages = ("jax", "jaxlib", "equinox", "optax", "blackjax", "numpy", "torch", "torchebm", "ebmkit")
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(affinity),
        "devices": [str(device) for device in jax.devices()],
        "versions": {package: _version(package) for package in packages},
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }
