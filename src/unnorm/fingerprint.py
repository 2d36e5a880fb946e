"""What was asked for, as a number: equal for equal arguments, in this process and in the next."""

import functools
import hashlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unnorm.errors import require

#: Where an object lies in memory is no part of what it is.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def _pieces(value: Any, within: tuple[int, ...]):
    """Bytes that tell this value from others, piece by piece."""
    if id(value) in within:  # a function that holds itself
        return
    within = (*within, id(value))
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        array = np.ascontiguousarray(value)
        yield f"{array.dtype.str}{array.shape}".encode()
        yield array.tobytes()
        return
    yield type(value).__qualname__.encode()
    if isinstance(value, Mapping):
        parts = [part for pair in value.items() for part in pair]
    elif isinstance(value, list | tuple):
        parts = list(value)
    elif isinstance(value, CodeType):
        parts = [value.co_code, value.co_names, value.co_varnames, value.co_consts]
    elif isinstance(value, MethodType):
        parts = [value.__func__, value.__self__]
    elif isinstance(value, functools.partial):
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        parts = [value.__module__, value.__qualname__, value.__code__, value.__defaults__, value.__kwdefaults__, cells]
    elif hasattr(value, "__wrapped__"):  # a compiled function is what it compiles
        parts = [inspect.unwrap(value)]
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [part for field in fields(value) for part in (field.name, getattr(value, field.name, None))]
    elif type(value).__repr__ is object.__repr__:  # which says where it lies, and nothing of what it holds
        parts = [part for name in sorted(getattr(value, "__dict__", {})) for part in (name, vars(value)[name])]
    else:
        yield _ADDRESS.sub("", repr(value)).encode()
        return
    for part in parts:
        yield b"("
        yield from _pieces(part, within)
        yield b")"


def fingerprint(value: Any) -> str:
    """A SHA-256 of arrays, modules and functions, which are known by their name, their code and what they enclose.

    Global variables that a function reads are not looked at.

    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 1), fingerprint(1.0) == fingerprint(2.0)
    (True, False)
    """
    digest = hashlib.sha256()
    for piece in _pieces(value, ()):
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
    return digest.hexdigest()


def require_same(asked: Mapping[str, Any], saved: Mapping[str, Any], what: str, advice: str) -> None:
    """Refuse to go on with other arguments than something was begun with, by their names.

    >>> require_same({"rate": 1}, {"rate": 1, "older": 2}, "it holds a run", "take another")
    """
    other = [name for name, value in asked.items() if saved.get(name) != value]
    require(not other, f"{what} with another {' and another '.join(other)}; {advice}")
