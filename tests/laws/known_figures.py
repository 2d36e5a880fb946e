"""What the laws of the experiments share: a list of those with a figure that is known, and a training that is done."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from unnorm.estimate import Estimate

#: Names of experiments of which a test knows a figure.
KNOWN: set[str] = set()


def figure_of(name: str) -> Callable[[Callable], Callable]:
    """Marks a test as one that knows a figure of this experiment."""

    def mark(test: Callable) -> Callable:
        KNOWN.add(name)
        return test

    return mark


def learns(model: Any) -> Callable[..., Any]:
    """A `fit` that ends with this model, whatever it is given: what is measured of it is then known."""
    history = {"step": np.zeros(1, int), "held_out": np.zeros(1)}
    outcome = SimpleNamespace(ok=True, code=SimpleNamespace(value="finished"), message="done")
    fitted = SimpleNamespace(model=model, history=history, outcome=outcome, state=SimpleNamespace(best_loss=0.0))
    return lambda *_, **__: fitted


def within(estimate: Estimate | dict, truth: float, slack: float = 0.0) -> bool:
    """Whether a figure is the known one to 4.5 of its standard errors, and a slack for what is rounded."""
    found = Estimate.from_dict(estimate) if isinstance(estimate, dict) else estimate
    return abs(found.value - truth) <= 4.5 * found.stderr + slack
