"""Counts as they come from outside: integers of Python or NumPy."""

from typing import Any

from unnorm.arguments import whole_number


def whole_numbers(**counts: Any) -> tuple[int, ...]:
    """Each count as an integer of Python, which alone a program can be compiled for; refused unless it is whole.

    >>> import numpy as np
    >>> whole_numbers(chains=np.int64(64), moves=1)
    (64, 1)
    >>> whole_numbers(draws=2e4)
    Traceback (most recent call last):
    unnorm.errors.InputError: draws must be a whole number, not 20000.0
    """
    return tuple(whole_number(count, name) for name, count in counts.items())
