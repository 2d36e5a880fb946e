"""A name, its options, and how to build what it names."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import PRNGKeyArray
from pydantic import BaseModel, ConfigDict, ValidationError

from unnorm.energies import AbstractNormalised
from unnorm.energies.reference import Chosen
from unnorm.errors import InputError, require
from unnorm.noises import Scales
from unnorm.spaces import Real

Built = TypeVar("Built")


class Options(BaseModel):
    """Options of one entry; a field left out takes its default, `None` means `chosen from the data`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, eq=False)
class Context:
    """What a builder may look at besides its options."""

    space: Real
    scales: Scales
    key: PRNGKeyArray
    train: np.ndarray | None = None
    valid: np.ndarray | None = None
    #: The density to start from, for a model that has one (`Entry.reference`).
    reference: AbstractNormalised | None = None

    def rows(self, what: str) -> tuple[np.ndarray, np.ndarray]:
        """Training and validation rows, for a builder that fits something first."""
        require(self.train is not None and self.valid is not None, f"{what} is fitted to rows, and there are none")
        assert self.train is not None and self.valid is not None
        return self.train, self.valid


@dataclass(frozen=True)
class Entry(Generic[Built]):
    """A name, what it is, and how to build it.

    `makes` is what a model is made of: the class of the energy, and that of its network. `learns` is what an objective
    needs a model to be made of: nothing special, if it is empty.

    `reference` fits the density that the thing is built on, with a bar if told so: it is fitted once, saved, and handed
    to `build` in the context.
    """

    name: str
    summary: str
    options: type[Options]
    build: Callable[[Any, Context], Built]
    makes: tuple[type, ...] = ()
    learns: tuple[type, ...] = ()
    reference: Callable[[Any, Context, bool], Chosen] | None = None

    def suits(self, model: "Entry[Any]") -> bool:
        """Whether the objective of this entry learns the model of that one."""
        return all(any(issubclass(made, kind) for made in model.makes) for kind in self.learns)


def chosen(value: float | None, default: float) -> float:
    """An option, or what the data suggest."""
    return default if value is None else value


def find(entries: tuple[Entry[Built], ...], name: str, what: str) -> Entry[Built]:
    """The entry of this name, or a sentence with the nearest one."""
    for entry in entries:
        if entry.name == name:
            return entry
    names = [entry.name for entry in entries]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InputError(f"there is no {what} called {name!r}; {hint}The choices are {', '.join(names)}.")


def read_options(entry: Entry[Any], given: dict[str, Any]) -> Options:
    """The entry's options from what was given, or a sentence about the first thing wrong with it."""
    try:
        return entry.options.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = ", ".join(entry.options.model_fields) or "none"
            raise InputError(f"{entry.name} has no option {where!r}; its options are: {known}") from None
        raise InputError(f"option {where!r} of {entry.name} is {first['input']!r}: {first['msg'].lower()}") from None
