"""What a thing is, in a few lines a person can read: models by their parts, results as a short table of facts."""

import dataclasses
import html
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from unnorm.parts import trainable
from unnorm.spaces import AbstractSpace as Space

#: Up to so many parts of one kind are named one by one.
MOST = 4
#: What is known of a thing, by name.
Facts = Sequence[tuple[str, str]]


def lines(title: str, facts: Facts) -> str:
    """A title, and under it one line for each fact.

    >>> print(lines("A walk", [("steps", "7"), ("mean", "0.1")]))
    A walk
      steps  7
      mean   0.1
    """
    width = max((len(name) for name, _ in facts), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in facts)])


def table(title: str, facts: Facts) -> str:
    """The same as a small table in HTML; nothing in the words is taken for markup.

    >>> table("A walk", [("steps", "< 7")])
    '<table><caption>A walk</caption><tr><th>steps</th><td>&lt; 7</td></tr></table>'
    """
    rows = [f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in facts]
    return f"<table><caption>{html.escape(title)}</caption>{''.join(rows)}</table>"


def model_words(model: Any) -> str:
    """A model by its name, and its parts by theirs, each with how many numbers of it are learnt and how many fixed.

    >>> import unnorm as un
    >>> model_words(un.energies.tilt(un.energies.standard_gaussian(2), width=8, depth=1, key=jax.random.key(0)))
    'Tilted on Real((2,)): GaussianDensity (fixed, 6 numbers), MLP 2-8-1 (33 learnt)'
    """
    learnt = trainable(model)
    told = [words for name, value in _fields(model) for words in _parts(name, value, getattr(learnt, name))]
    spaces = [value for field in dataclasses.fields(model) if isinstance(value := getattr(model, field.name), Space)]
    place = f" on {str(spaces[0]).replace('shape=', '')}" if spaces else ""
    return f"{type(model).__name__}{place}: {', '.join(told) or 'no numbers'}"


def _fields(module: eqx.Module) -> list[tuple[str, Any]]:
    """The fields that may hold parts or numbers, in their order."""
    fields = [field for field in dataclasses.fields(module) if not field.metadata.get("static")]
    return [(field.name, getattr(module, field.name)) for field in fields]


def _parts(name: str, value: Any, learnt: Any) -> list[str]:
    """A field that holds numbers: modules by their class, arrays by the field's name; many modules by their number."""
    if _are_modules(value) and len(value) <= MOST:
        return [words for one, own in zip(value, learnt, strict=True) for words in _parts(name, one, own)]
    numbers = _numbers(value, learnt)
    if not numbers:
        return []
    if isinstance(value, eqx.Module):
        return [f"{_name(value)} ({numbers})"]
    return [f"{len(value)} {name} ({numbers})" if _are_modules(value) else f"{name} ({numbers})"]


def _are_modules(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) > 0 and all(isinstance(one, eqx.Module) for one in value)


def _name(module: eqx.Module) -> str:
    """The class, with the sizes of its layers and the number of what it has several of: MLP 2-8-1, Blend of 3 parts."""
    words = type(module).__name__
    for name, value in _fields(module):
        if not _are_modules(value):
            continue
        if all(isinstance(layer, eqx.nn.Linear) for layer in value):
            words += f" {'-'.join(str(size) for size in (value[0].in_features, *(v.out_features for v in value)))}"
        else:
            words += f" of {len(value)} {name}"
    return words


def _numbers(value: Any, learnt: Any) -> str:
    """How many numbers are learnt and how many fixed; nothing where there are none."""
    sizes = [
        (math.prod(leaf.shape), bool(own))
        for leaf, own in zip(jax.tree.leaves(value), jax.tree.leaves(learnt), strict=True)
        if isinstance(leaf, jax.Array | np.ndarray)
    ]
    count, fixed = (sum(size for size, own in sizes if own is which) for which in (True, False))
    if not count:
        return f"fixed, {fixed:,} number{'s' * (fixed > 1)}" if fixed else ""
    return f"{count:,} learnt, {fixed:,} fixed" if fixed else f"{count:,} learnt"
