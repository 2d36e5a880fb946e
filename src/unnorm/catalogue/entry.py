"""A name, its options, and how to build what it names."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import PRNGKeyArray
from pydantic import BaseModel, ConfigDict, ValidationError

from unnorm.energies import AbstractEnergy
from unnorm.energies.reference import Chosen
from unnorm.errors import InputError, require
from unnorm.noises import Scales
from unnorm.spaces import AbstractSpace, Binary, Categorical, Real

Built = TypeVar("Built")


def on_vectors(space: AbstractSpace) -> bool:
    """Vectors of real numbers: tables.

    >>> on_vectors(Real((3,))), on_vectors(Real((8, 8, 1))), on_vectors(Binary((3,)))
    (True, False, False)
    """
    return isinstance(space, Real) and len(space.shape) == 1


def on_reals(space: AbstractSpace) -> bool:
    """Arrays of real numbers of any shape: tables, pictures."""
    return isinstance(space, Real)


def on_bits(space: AbstractSpace) -> bool:
    """Arrays of zeros and ones."""
    return isinstance(space, Binary)


def on_sites(space: AbstractSpace) -> bool:
    """Arrays of zeros and ones or of categories.

    >>> on_sites(Binary((3,))), on_sites(Categorical((3,), 4)), on_sites(Real((3,)))
    (True, True, False)
    """
    return isinstance(space, Binary | Categorical)


def on_vectors_and_sites(space: AbstractSpace) -> bool:
    """Vectors of real numbers, and arrays of zeros and ones or of categories."""
    return on_vectors(space) or on_sites(space)


def on_reals_and_sites(space: AbstractSpace) -> bool:
    """Arrays of real numbers, of zeros and ones, or of categories."""
    return on_reals(space) or on_sites(space)


class Options(BaseModel):
    """Options of one entry; a field left out takes its default, `None` means `chosen from the data`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, eq=False)
class Context:
    """What a builder may look at besides its options."""

    space: AbstractSpace
    lengths: Scales | None
    key: PRNGKeyArray
    train: Any = None
    valid: Any = None
    #: The density to start from, for a model that has one (`Entry.reference`).
    reference: AbstractEnergy | None = None
    #: What stands beside a point, where something does.
    condition: AbstractSpace | None = None
    #: What the model is made of (`Entry.makes`), for an objective whose chains depend on it.
    makes: tuple[type, ...] = ()

    @property
    def scales(self) -> Scales:
        """How long steps and kernels should be; only real numbers have lengths."""
        require(self.lengths is not None, f"{self.space} has no lengths to choose a step by; name one with --set")
        assert self.lengths is not None
        return self.lengths

    def rows(self, what: str) -> tuple[np.ndarray, np.ndarray]:
        """Training and validation rows, for a builder that fits something first."""
        require(self.train is not None and self.valid is not None, f"{what} is fitted to rows, and there are none")
        assert self.train is not None and self.valid is not None
        return self.train, self.valid


@dataclass(frozen=True)
class Entry(Generic[Built]):
    """A name, what it is, and how to build it.

    `makes` is what a model is made of: the class of the energy, and that of its network. `learns` is what an objective
    or a sampler needs a model to be made of: an energy of any kind, if it is empty.

    `works` says on which spaces it works, and `conditional` whether it takes a condition beside a point.

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
    works: Callable[[AbstractSpace], bool] = lambda space: on_vectors(space)
    conditional: bool = False
    #: How such a model is best trained on points of a space, where it is not as others are.
    training: Callable[[AbstractSpace], Mapping[str, Any]] = lambda space: {}
    #: The objective that such a model is learnt by when none is named; none: the first that works and suits.
    objective: str | None = None
    #: Refuses options that do not suit a space, before anything is written.
    check: Callable[[Any, AbstractSpace], None] = lambda options, space: None

    def suits(self, model: "Entry[Any]") -> bool:
        """Whether the objective of this entry learns the model of that one, or its sampler draws from it."""
        needs = self.learns or (AbstractEnergy,)
        return all(any(issubclass(made, kind) for made in model.makes) for kind in needs)


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


def first_for(
    entries: tuple[Entry[Built], ...],
    space: AbstractSpace,
    condition: AbstractSpace | None = None,
    model: Entry[Any] | None = None,
) -> Entry[Built]:
    """The entry that is taken on this space when none is named: the first that works there, for this model."""
    for entry in entries:
        fits = entry.works(space) and (condition is None or entry.conditional)
        if fits and (model is None or entry.suits(model)):
            return entry
    beside = "" if condition is None else f" given {condition}"
    raise InputError(f"nothing that can be named works on {space}{beside} yet; build it in Python and call unnorm.fit")


def require_works(
    entries: tuple[Entry[Any], ...], entry: Entry[Any], space: AbstractSpace, condition: AbstractSpace | None, what: str
) -> None:
    """Refuse an entry on a space where it does not work, or beside a condition, by naming those that do."""
    there = [one for one in entries if one.works(space)]
    names = ", ".join(one.name for one in there)
    others = f"what works there: {names}" if there else f"no {what} that can be named works there yet"
    require(entry.works(space), f"the {what} {entry.name} does not work on {space}; {others}")
    taking = ", ".join(one.name for one in there if one.conditional)
    others = f"the {what}s that do there: {taking}" if taking else f"no {what} that can be named does there yet"
    require(condition is None or entry.conditional, f"the {what} {entry.name} takes no condition; {others}")


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
