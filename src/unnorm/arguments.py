"""Numbers that samplers and objectives are made of, refused in one sentence unless they make sense."""

from numbers import Integral, Number
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from unnorm.errors import require


def shown(value: Any) -> str:
    """The value for a sentence: numbers and short texts as they are, anything else by its kind.

    >>> shown(1.5), shown("fast"), shown(None), shown([1, 2]), shown(list)
    ('1.5', "'fast'", 'None', 'a list', 'the class list')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, Number | np.number):
        return str(value)
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, jax.Array | np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    return f"a {type(value).__name__}"


def real_numbers(value: Any) -> np.ndarray | jax.Array | None:
    """The value as an array, or None if it is ragged or holds anything but real numbers."""
    if not isinstance(value, jax.Array):
        try:
            value = np.asarray(value)
        except ValueError:
            return None
    real = any(jnp.issubdtype(value.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_))
    return value if real else None


def positive(value: Any, what: str) -> Array:
    """The value as an array, refused unless positive and finite (a traced value cannot be looked at, and passes).

    >>> positive(float("inf"), "the step")
    Traceback (most recent call last):
    unnorm.errors.InputError: the step must be finite, not inf
    """
    if not isinstance(value, Tracer):
        numbers = real_numbers(value)
        require(numbers is not None, f"{what} must be a number, not {shown(value)}")
        numbers = np.asarray(numbers)
        for wrong, word in ((~(numbers > 0), "positive"), (~np.isfinite(numbers), "finite")):
            require(not wrong.any(), f"{what} must be {word}, not {numbers[wrong][0] if wrong.any() else ''}")
    return jnp.asarray(value, float)


def between_0_and_1(value: Any, what: str) -> None:
    """Refuse what is not a number strictly between 0 and 1.

    >>> between_0_and_1(1.0, "the target acceptance of HMC")
    Traceback (most recent call last):
    unnorm.errors.InputError: the target acceptance of HMC must lie between 0 and 1, not 1.0
    """
    inside = isinstance(value, float | int | np.number) and 0 < value < 1
    require(bool(inside), f"{what} must lie between 0 and 1, not {shown(value)}")


def at_least(least: int, value: Any, sentence: str) -> None:
    """Refuse what is not a whole number of at least `least`: the sentence, and what was given.

    >>> at_least(1, 0, "HMC needs at least one leapfrog step")
    Traceback (most recent call last):
    unnorm.errors.InputError: HMC needs at least one leapfrog step, not 0
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    require(whole, f"{sentence}, and a whole number, not {shown(value)}")
    require(int(value) >= least, f"{sentence}, not {value}")


def whole_number(value: Any, what: str) -> int:
    """The value as an integer, refused unless it is one; numpy's are.

    >>> whole_number(np.int64(3), "steps"), whole_number(1.5, "thin")
    Traceback (most recent call last):
    unnorm.errors.InputError: thin must be a whole number, not 1.5
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    require(whole, f"{what} must be a whole number, not {shown(value)}")
    return int(value)


def named(value: Any) -> str:
    """The value by its name, for sentences that go on with it: numbers and words as they are, all else by its kind.

    >>> named(0.5), named(None), named(jnp.zeros(2)), named(list)
    ('0.5', 'None', 'ArrayImpl', 'list')
    """
    plain = value is None or isinstance(value, bool | int | float | str)
    return repr(value) if plain else value.__name__ if isinstance(value, type) else type(value).__name__


def require_count(number: Any, least: int, what: str) -> None:
    """Refuse what is no whole number, or one below the least.

    >>> require_count(1.5, 1, "directions per point")
    Traceback (most recent call last):
    unnorm.errors.InputError: directions per point must be a whole number from 1 up, not 1.5
    """
    whole = isinstance(number, Integral) and not isinstance(number, bool) and int(number) >= least
    require(whole, f"{what} must be a whole number from {least} up, not {named(number)}")


def _real(number: Any) -> bool:
    return isinstance(number, int | float | np.number) and not isinstance(number, bool)


def require_positive(number: Any, what: str) -> None:
    """Refuse what is no finite positive number."""
    require(
        _real(number) and 0 < float(number) < float("inf"), f"{what} must be positive and finite, not {named(number)}"
    )


def require_weight(number: Any, what: str) -> None:
    """Refuse what is no finite number from 0 up."""
    require(
        _real(number) and 0 <= float(number) < float("inf"),
        f"{what} must be finite and not negative, not {named(number)}",
    )
