"""Rows handed over in Python that are points of a space as they stand: any PyTree of arrays, of any space."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from unnorm.data.columns import copies_and_groups
from unnorm.data.kinds import AbstractKind, AbstractSchema, Dataset, Origin, require_conditions
from unnorm.errors import InputError, require
from unnorm.spaces import AbstractSpace, Binary, Categorical, Conditioned, Graph, Mixed, Real, WithCondition

#: The spaces that plain data can name.
SPACES: tuple[type[AbstractSpace], ...] = (Real, Binary, Categorical, Graph, Mixed)


def space_to_dict(space: AbstractSpace) -> dict[str, Any]:
    """A space as plain data.

    >>> space_to_dict(Mixed((Real((2,)), Categorical((), 3))))["parts"][1]
    {'is': 'Categorical', 'shape': [], 'categories': 3}
    """
    found: dict[str, Any] = {"is": type(space).__name__}
    if isinstance(space, Mixed):
        return {**found, "parts": [space_to_dict(part) for part in space.parts]}
    require(isinstance(space, SPACES), f"a run cannot store {space}; it stores {', '.join(k.__name__ for k in SPACES)}")
    for field in fields(space):
        value = getattr(space, field.name)
        found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def space_from_dict(data: Mapping[str, Any]) -> AbstractSpace:
    """The inverse of `space_to_dict`.

    >>> space_from_dict(space_to_dict(Graph(3, directed=True)))
    Graph(n=3, directed=True)
    """
    values: dict[str, Any] = {name: value for name, value in data.items() if name != "is"}
    if data["is"] == "Mixed":
        return Mixed(tuple(space_from_dict(part) for part in values["parts"]))
    kind = next((kind for kind in SPACES if kind.__name__ == data["is"]), None)
    if kind is None:
        raise InputError(f"no space called {data['is']!r} is known to this release")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


@dataclass(frozen=True, eq=False)
class PointsSchema(AbstractSchema):
    """Points that nobody wrote otherwise; the condition beside them goes by one name.

    >>> PointsSchema(Real((2,))).log_volume
    0.0
    """

    of: AbstractSpace
    beside: AbstractSpace | None = None
    name: str = "condition"
    columns: tuple[str, ...] = ()

    @property
    def space(self) -> AbstractSpace:
        return self.of

    @property
    def condition(self) -> AbstractSpace | None:
        return self.beside

    @property
    def conditions(self) -> tuple[str, ...]:
        return () if self.condition is None else (self.name,)

    @property
    def log_volume(self) -> float:
        return 0.0

    @property
    def rounding(self) -> None:
        return None

    def fitted(self, rows: Any) -> "PointsSchema":
        return self

    def to_points(self, written: Any) -> Any:
        return jax.tree.map(np.asarray, self.space.cast(written, "these"))

    def to_written(self, points: Any) -> Any:
        return points

    def recorded(self, written: Any) -> Any:
        return written

    def exact(self) -> "PointsSchema":
        return self

    def condition_points(self, written: Any) -> Any:
        assert self.condition is not None
        return jax.tree.map(np.asarray, self.condition.cast(written, "the conditions of these"))

    def rows_of(self, rows: Any) -> Any:
        return rows if self.condition is None else Conditioned(*rows)

    def given(self, values: Mapping[str, Any]) -> Any:
        require_conditions(values, self.conditions)
        one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], values[self.name])
        return jax.tree.map(lambda leaf: leaf[0], self.condition_points(one))

    def to_dict(self) -> dict[str, Any]:
        condition = None if self.condition is None else space_to_dict(self.condition)
        return {"space": space_to_dict(self.space), "condition": condition, "name": self.name}


class PointsKind(AbstractKind):
    """Points given in Python; no file holds them."""

    name: ClassVar[str] = "points"
    has_text: ClassVar[bool] = False

    def recognises(self, origin: Origin) -> bool:
        return False

    def read(self, origin: Origin) -> Dataset:
        raise InputError(f"points are given in Python, and not read from {origin.path}; leave --kind points out")

    def read_like(self, origin: Origin, schema: Any) -> Dataset:
        return self.read(origin)

    def write(self, written: Any, path: Path, schema: Any) -> None:
        self.require_writable(path)

    def text(self, written: Any, schema: Any) -> str:
        raise InputError("points of any space have no text; take them from unnorm.load(run).sample(n)")

    def require_writable(self, path: Path) -> None:
        raise InputError(f"points of any space are written to no file such as {path}; take them from unnorm.load(run)")

    def schema_from(self, data: Mapping[str, Any]) -> PointsSchema:
        beside = data["condition"]
        return PointsSchema(
            space_from_dict(data["space"]), None if beside is None else space_from_dict(beside), data["name"]
        )


def dataset_of(
    rows: Any,
    space: AbstractSpace,
    *,
    groups: np.ndarray | None = None,
    repeats: bool = False,
    source: str = "points given in Python",
    condition: str = "condition",
) -> Dataset:
    """Points of a space as a data set: an array or a PyTree of arrays with a leading axis.

    On a `WithCondition` space rows are `Conditioned`, and `condition` names what stands beside a point. Equal rows are
    copies, which a split holds together, unless `repeats` says that points come up again by chance.

    >>> rows = Conditioned(np.zeros((30, 2)), np.arange(30) % 3)
    >>> dataset_of(rows, WithCondition(Real((2,)), Categorical((), 3)), repeats=True).schema.conditions
    ('condition',)
    """
    cast = jax.tree.map(np.asarray, space.cast(rows, "these"))
    parts = (space.space, space.condition) if isinstance(space, WithCondition) else (space, None)
    schema = PointsSchema(parts[0], parts[1], condition)
    together, remarks = (None, ()) if repeats else copies_and_groups(cast, groups, "groups", source)
    points, beside = (cast.x, cast.condition) if isinstance(cast, Conditioned) else (cast, None)
    return Dataset(
        points, schema, PointsKind(), source, beside, together, groups, repeats=repeats, remarks=remarks
    )  # fmt: skip
