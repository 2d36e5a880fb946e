"""How arguments and results are checked against their annotations: ints count as floats, and what was checked is noted.

`jaxtyping.install_import_hook("unnorm", "checking.checked")`, before the library is imported, puts it on everything.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from beartype import BeartypeConf, beartype

#: Module and name of every function that was called under the hook.
CALLED: set[tuple[str, str]] = set()
CONF = BeartypeConf(is_pep484_tower=True)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its annotations enforced."""
    enforced = beartype(conf=CONF)(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        CALLED.add((function.__module__, function.__qualname__))
        return enforced(*args, **kwargs)

    return call
