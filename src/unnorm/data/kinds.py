"""What every kind of data is: from a file to points of a space, and back to what people wrote.

A kind (tables, bits, pictures) reads what is its own into a `Dataset`: rows as they were written, a condition beside
each where one was asked for, and a `schema`, the way from and to the points of a space. Nobody else asks which kind
it is: they ask the space, and the schema. A run keeps the name of its kind and the schema as plain data.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from unnorm.data.splits import Labels
from unnorm.data.tables import Table, read_table
from unnorm.data.transforms import AbstractTransform
from unnorm.errors import require
from unnorm.spaces import AbstractSpace, Conditioned, WithCondition


@dataclass(frozen=True)
class Asked:
    """What was asked for beside the data: the column that says what belongs together, and those that are conditions."""

    group: str | None = None
    conditions: tuple[str, ...] = ()


class Origin:
    """A file or folder that kinds are asked about, with what was asked for; what was read of it is kept.

    >>> Origin("absent.csv").path.suffix
    '.csv'
    """

    def __init__(self, path: str | Path, asked: Asked | None = None):
        self.path, self.asked = Path(path), asked or Asked()

    @cached_property
    def table(self) -> Table:
        """The file as a table, or one sentence about why it is none."""
        return read_table(self.path, to_fit=False)


class AbstractSchema(ABC):
    """The way between what people wrote and points, and the change of measure that a log density needs.

    Written rows are arrays with a leading axis. A schema just read knows names and formats; `fitted` adds what only
    training rows may say, such as the mean of a column. `columns` are the names of what a written row is made of, if
    its parts have names.
    """

    columns: tuple[str, ...]

    @property
    @abstractmethod
    def space(self) -> AbstractSpace:
        """What a point is."""

    @property
    @abstractmethod
    def condition(self) -> AbstractSpace | None:
        """What the condition beside a point is; None where there is none."""

    @property
    @abstractmethod
    def conditions(self) -> tuple[str, ...]:
        """The names of what a condition is made of."""

    @property
    @abstractmethod
    def log_volume(self) -> float:
        """log p(written) = log p(point) - log_volume, in nats per row."""

    @property
    @abstractmethod
    def rounding(self) -> AbstractTransform | None:
        """Noise that makes a density of points that were rounded to levels; None where nothing was rounded."""

    @abstractmethod
    def fitted(self, rows: Any) -> "AbstractSchema":
        """The schema with what these written training rows say."""

    @abstractmethod
    def to_points(self, written: Any) -> Any:
        """Points of written rows."""

    @abstractmethod
    def to_written(self, points: Any) -> Any:
        """Written rows of points, with every digit."""

    @abstractmethod
    def recorded(self, written: Any) -> Any:
        """Written rows as such rows are recorded: with as many decimals, or in as many levels."""

    @abstractmethod
    def exact(self) -> "AbstractSchema":
        """The schema that records every digit."""

    @abstractmethod
    def condition_points(self, written: Any) -> Any:
        """Points of the condition's space, of written conditions."""

    @abstractmethod
    def rows_of(self, rows: Any) -> Any:
        """Written rows of what is given in Python, or one sentence about why they are none."""

    @abstractmethod
    def given(self, values: Mapping[str, Any]) -> Any:
        """One point of the condition's space, of written values by name."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the kind makes the schema of it again."""

    @property
    def rows_space(self) -> AbstractSpace:
        """What a row is: a point, or a point with its condition beside it."""
        return self.space if self.condition is None else WithCondition(self.space, self.condition)

    def written(self, points: Any) -> Any:
        """Rows of points, recorded as such rows are."""
        return self.recorded(self.to_written(points))

    def to_rows(self, written: Any) -> Any:
        """Rows of written rows: points, with the points of their conditions beside them where there are any."""
        if isinstance(written, Conditioned):
            return Conditioned(self.to_points(written.x), self.condition_points(written.condition))
        return self.to_points(written)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows as they were written, and the way from and to points.

    `together` labels rows that belong together (copies, rows of one person) and must not be parted by a split; None:
    every row is for itself. `remarks` says what was found, `warnings` what the owner should look at.
    """

    points: Any
    schema: AbstractSchema
    kind: "AbstractKind"
    source: str
    condition: Any = None
    together: Labels | None = None
    #: The value of the group's column of every row, where one was asked for.
    owners: np.ndarray | None = None
    #: Whether equal rows are no copies of one another, but points that come up again by chance.
    repeats: bool = False
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def space(self) -> AbstractSpace:
        """What a point is."""
        return self.schema.space

    @property
    def rows(self) -> Any:
        """Written rows with their conditions beside them, where there are any."""
        return self.points if self.condition is None else Conditioned(self.points, self.condition)

    def __len__(self) -> int:
        return count_of(self.rows)


class AbstractKind(ABC):
    """A kind of data: what is its own, how it is read, and how it is written."""

    #: What a person calls it.
    name: ClassVar[str]
    #: Whether rows can be written out as text.
    has_text: ClassVar[bool] = True

    @abstractmethod
    def recognises(self, origin: Origin) -> bool:
        """Whether this looks like data of this kind: by the ending of its name, by what is in it."""

    @abstractmethod
    def read(self, origin: Origin) -> Dataset:
        """The data to fit a model to; whatever is wrong with them is one sentence."""

    @abstractmethod
    def read_like(self, origin: Origin, schema: Any) -> Dataset:
        """Data of the schema of other data (a run's), however few: rows to score or to judge on."""

    @abstractmethod
    def write(self, written: Any, path: Path, schema: Any) -> None:
        """Written rows in a file of the format that the name asks for; whole or not there."""

    @abstractmethod
    def text(self, written: Any, schema: Any) -> str:
        """Written rows for people, where they have a text."""

    @abstractmethod
    def require_writable(self, path: Path) -> None:
        """Refuse the name of a file that rows cannot be written to."""

    @abstractmethod
    def schema_from(self, data: Mapping[str, Any]) -> AbstractSchema:
        """The inverse of a schema's `to_dict`."""


def count_of(rows: Any) -> int:
    """How many rows a PyTree of arrays has along its leading axis."""
    return len(jax.tree.leaves(rows)[0])


def taken(rows: Any, which: Any) -> Any:
    """Some of the rows, by number or slice.

    >>> taken((np.arange(3), np.eye(3)), [2])[0].tolist()
    [2]
    """
    return jax.tree.map(lambda leaf: leaf[which], rows)


def stacked(parts: Sequence[Any]) -> Any:
    """The rows of all parts, one after another.

    >>> stacked([np.arange(2), np.arange(1)]).tolist()
    [0, 1, 0]
    """
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *parts)


def require_conditions(values: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse values that are not one for each condition."""
    strange = [name for name in values if name not in names]
    require(not strange, f"there is no condition {strange[0] if strange else ''!r}; the conditions are {_list(names)}")
    missing = [name for name in names if name not in values]
    require(not missing, f"the condition {missing[0] if missing else ''!r} is not given; give {_list(names)}")


def _list(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
