"""unnorm: learn, sample and evaluate unnormalised models, p(x) = exp(-E(x)) / Z.

Names load on first use, so that `import unnorm` and `unnorm --help` do not wait for a compiler.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from unnorm import data as data
    from unnorm import energies as energies
    from unnorm import evaluation as evaluation
    from unnorm import generators as generators
    from unnorm import graphs as graphs
    from unnorm import networks as networks
    from unnorm import noises as noises
    from unnorm import objectives as objectives
    from unnorm import samplers as samplers
    from unnorm import scores as scores
    from unnorm import spaces as spaces
    from unnorm import tasks as tasks
    from unnorm import training as training
    from unnorm.errors import InputError as InputError
    from unnorm.estimate import Estimate as Estimate
    from unnorm.estimate import Outcome as Outcome
    from unnorm.evaluation import log_likelihood as log_likelihood
    from unnorm.evaluation import log_partition as log_partition
    from unnorm.runs import Fitted as Fitted
    from unnorm.runs import load as load
    from unnorm.samplers import sample as sample
    from unnorm.training import fit as fit

_MODULES = (
    "data",
    "energies",
    "evaluation",
    "generators",
    "graphs",
    "networks",
    "noises",
    "objectives",
    "samplers",
    "scores",
    "spaces",
    "tasks",
    "training",
)
_NAMES = {
    "InputError": "unnorm.errors",
    "Estimate": "unnorm.estimate",
    "Outcome": "unnorm.estimate",
    "Fitted": "unnorm.runs",
    "load": "unnorm.runs",
    "fit": "unnorm.training",
    "sample": "unnorm.samplers",
    "log_partition": "unnorm.evaluation",
    "log_likelihood": "unnorm.evaluation",
}
__all__ = [*_MODULES, *_NAMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"unnorm.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'unnorm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
