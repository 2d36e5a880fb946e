"""Which kind of data something is: each kind is asked in turn."""

import difflib

from unnorm.data.bits import BitsKind
from unnorm.data.categories import CategoriesKind
from unnorm.data.kinds import AbstractKind, Origin
from unnorm.data.pictures import PictureKind
from unnorm.data.points import PointsKind
from unnorm.data.tabular import TableKind
from unnorm.errors import InputError

#: The first that takes something for its own reads it; the last takes everything.
KINDS: tuple[AbstractKind, ...] = (PictureKind(), BitsKind(), CategoriesKind(), TableKind())


def kind_of(origin: Origin, name: str | None = None) -> AbstractKind:
    """The kind of this name, or else the first that recognises it."""
    return next(kind for kind in KINDS if kind.recognises(origin)) if name is None else kind_named(name)


def kind_named(name: str) -> AbstractKind:
    """The kind that a person, or a run, calls so.

    >>> kind_named("graphs")
    Traceback (most recent call last):
    unnorm.errors.InputError: there is no kind of data called 'graphs'; the kinds are images, bits, categories, table
    """
    for kind in (*KINDS, PointsKind()):
        if kind.name == name:
            return kind
    names = [kind.name for kind in KINDS]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}? Otherwise " if near else ""
    raise InputError(f"there is no kind of data called {name!r}; {hint}the kinds are {', '.join(names)}")
