"""The house's rule: nothing that is implemented is overridden. A method is abstract, or it is final."""

import importlib
import inspect
import pkgutil
from abc import abstractmethod
from collections.abc import Iterable

import equinox as eqx
import jax

import unnorm

#: Defaults over many points, which a class may better: they say what many numbers cost, and no other numbers. And what
#: an objective takes for a row, which is the model's own unless it says otherwise.
BETTERED = {"propose_each", "of_rows", "samples", "rows"}
#: Dunder methods that are the library's own words; the others are Python's and equinox's, which wrap and chain them
#: (every `__check_init__` of a class's bases is run, whoever has one).
WORDS = {"__call__", "__add__", "__rmul__", "__mul__", "__len__", "__getitem__", "__str__"}


def classes_of_the_library() -> list[type]:
    """Every class that a module of the library defines."""
    found: dict[type, None] = {}
    for module in pkgutil.walk_packages(unnorm.__path__, "unnorm."):
        if not module.name.endswith("__main__"):  # which would run the command
            values = vars(importlib.import_module(module.name)).values()
            found |= {v: None for v in values if inspect.isclass(v) and v.__module__ == module.name}
    return list(found)


def implemented(owner: type) -> set[str]:
    """The methods and properties that a class defines itself, with a body that is meant to run."""
    return {
        name
        for name, value in vars(owner).items()
        if (name in WORDS or not (name.startswith("__") and name.endswith("__")))
        and (callable(value) or isinstance(value, property | staticmethod | classmethod))
        and not inspect.isclass(value)
        and not getattr(value, "__isabstractmethod__", False)
    }


def overridden(classes: Iterable[type], allowed: set[str] = BETTERED) -> list[str]:
    """Methods of these classes that replace what a base among them has implemented."""
    classes = list(classes)
    return sorted(
        f"{owner.__qualname__}.{name} replaces that of {base.__qualname__}"
        for owner in classes
        for base in owner.__mro__[1:]
        if base in classes
        for name in (implemented(owner) & implemented(base)) - allowed
    )


def test_nothing_that_is_implemented_is_overridden():
    classes = classes_of_the_library()
    assert len(classes) > 200
    assert overridden(classes) == []


def test_the_exceptions_are_needed():
    """Each of them is overridden somewhere; without the list the rule is broken by these and by nothing else."""
    found = overridden(classes_of_the_library(), set())
    assert {line.split(" ")[0].split(".")[-1] for line in found} == BETTERED


class AbstractThing(eqx.Module):
    """What the walk must see through: methods of a module, wrapped as equinox wraps them."""

    @abstractmethod
    def open(self) -> int: ...

    def settled(self, x: jax.Array) -> jax.Array:
        return x

    @property
    def width(self) -> int:
        return 1

    def __call__(self, x: jax.Array) -> jax.Array:
        return x


class Sound(AbstractThing):
    def open(self) -> int:
        return 1


class Unsound(Sound):
    def settled(self, x: jax.Array) -> jax.Array:
        return -x

    @property
    def width(self) -> int:
        return 2

    def __call__(self, x: jax.Array) -> jax.Array:
        return -x


def test_an_overriding_class_is_found():
    assert overridden([AbstractThing, Sound]) == []
    found = overridden([AbstractThing, Sound, Unsound])
    assert found == [f"Unsound.{name} replaces that of AbstractThing" for name in ("__call__", "settled", "width")]
