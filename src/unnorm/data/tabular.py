"""Tables of real numbers: every column standardised by the training rows, and written back as it was recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from unnorm.data.columns import ConditionColumns, columns_of, copies_and_groups, owners_of, shared_out
from unnorm.data.kinds import AbstractKind, AbstractSchema, Dataset, Origin
from unnorm.data.recorded import Decimals, as_recorded, decimals_of, suggested_group
from unnorm.data.splits import copies
from unnorm.data.standardise import Standardiser
from unnorm.data.tables import ENDINGS, require_to_fit, table_of
from unnorm.data.writing import csv_text, require_format, write_table
from unnorm.errors import require
from unnorm.spaces import Conditioned, Real


@dataclass(frozen=True, eq=False)
class TableSchema(AbstractSchema):
    """Columns of real numbers: z = (x - mean) / scale, and the decimals that each is written with.

    >>> schema = TableSchema(("a",), Standardiser(np.array([1.0]), np.array([2.0])), (0,))
    >>> schema.to_points([[5.0]]).tolist(), schema.recorded(schema.to_written([[2.2]])).tolist()
    ([[2.0]], [[5.0]])
    """

    columns: tuple[str, ...]
    made: Standardiser | None = None
    decimals: Decimals = ()
    beside: ConditionColumns = field(default_factory=ConditionColumns)

    @property
    def standardiser(self) -> Standardiser:
        """The standardiser of the training rows."""
        require(self.made is not None, "these columns were not standardised yet; a schema is fitted to training rows")
        assert self.made is not None
        return self.made

    @property
    def space(self) -> Real:
        return Real((len(self.columns),))

    @property
    def condition(self) -> Real | None:
        return self.beside.space

    @property
    def conditions(self) -> tuple[str, ...]:
        return self.beside.names

    @property
    def log_volume(self) -> float:
        return self.standardiser.log_volume

    @property
    def rounding(self) -> None:
        return None

    def fitted(self, rows: Any) -> "TableSchema":
        if isinstance(rows, Conditioned):
            return replace(self, made=Standardiser.fit(rows.x), beside=self.beside.fitted(rows.condition))
        return replace(self, made=Standardiser.fit(rows))

    def to_points(self, written: Any) -> Float[np.ndarray, "... d"]:
        return self.standardiser.to_unit(written).astype(np.float32)

    def to_written(self, points: Any) -> Float[np.ndarray, "... d"]:
        return self.standardiser.to_raw(points)

    def recorded(self, written: Any) -> Float[np.ndarray, "... d"]:
        return as_recorded(written, self.places)

    def exact(self) -> "TableSchema":
        return replace(self, decimals=())

    @property
    def places(self) -> Decimals:
        """The decimals of every column; None where values have no end."""
        return self.decimals or (None,) * len(self.columns)

    def condition_points(self, written: Any) -> Float[np.ndarray, "... k"]:
        return self.beside.to_points(written)

    def rows_of(self, rows: Any) -> Any:
        return rows_by_column(rows, self.columns, self.conditions)

    def given(self, values: Mapping[str, Any]) -> Float[np.ndarray, " k"]:
        return self.beside.given(values)

    def to_dict(self) -> dict[str, Any]:
        return {
            "columns": list(self.columns),
            "standardiser": self.standardiser.to_dict(),
            "decimals": list(self.decimals),
            "conditions": self.beside.to_dict(),
        }


def rows_by_column(rows: Any, columns: tuple[str, ...], conditions: tuple[str, ...]) -> Any:
    """The columns of rows given in Python, those of the conditions beside them."""
    values = table_of(rows, (*columns, *conditions)).values
    return Conditioned(values[:, : len(columns)], values[:, len(columns) :]) if conditions else values


class TableKind(AbstractKind):
    """A .csv, .tsv, .npy, .npz or .parquet file with rows and columns of numbers."""

    name: ClassVar[str] = "table"

    def recognises(self, origin: Origin) -> bool:
        """Whatever no other kind takes: what is wrong with a file is said as of a table."""
        return True

    def read(self, origin: Origin) -> Dataset:
        table, asked = require_to_fit(origin.table), origin.asked
        found = shared_out(table, asked)
        rows = found.values if found.condition is None else Conditioned(found.values, found.condition)
        together, remarks = copies_and_groups(rows, found.owners, asked.group, table.source)
        suggested = () if asked.group is not None else _suggestion(found.values, found.names)
        schema = TableSchema(found.names, None, decimals_of(found.values), ConditionColumns(asked.conditions))
        return Dataset(
            found.values, schema, self, table.source, found.condition, together, found.owners, remarks=remarks,
            warnings=(*_about_copies(rows, len(found.values)), *suggested),
        )  # fmt: skip

    def read_like(self, origin: Origin, schema: TableSchema) -> Dataset:
        return read_columns_like(self, origin, schema)

    def write(self, written: Any, path: Path, schema: TableSchema) -> None:
        write_table(path, schema.columns, written, schema.places)

    def text(self, written: Any, schema: TableSchema) -> str:
        return csv_text(schema.columns, written, schema.places)

    def require_writable(self, path: Path) -> None:
        require_format(path)

    def schema_from(self, data: Mapping[str, Any]) -> TableSchema:
        made = Standardiser.from_dict(data["standardiser"])
        return TableSchema(
            tuple(data["columns"]), made, tuple(data["decimals"]), ConditionColumns.from_dict(data["conditions"])
        )


def read_columns_like(kind: AbstractKind, origin: Origin, schema: AbstractSchema) -> Dataset:
    """The columns of a schema in another table, and its groups if it has them."""
    table, name = origin.table, str(origin.path)
    values = columns_of(table, (*schema.columns, *schema.conditions), name)
    d = len(schema.columns)
    condition = values[:, d:] if schema.conditions else None
    owners = owners_of(table, origin.asked.group)
    return Dataset(values[:, :d] if schema.conditions else values, schema, kind, name, condition, None, owners)


def is_table(origin: Origin) -> bool:
    """Whether the name is that of a file that may hold a table."""
    return origin.path.suffix.lower() in ENDINGS and origin.path.is_file()


def _about_copies(rows: Any, n: int) -> tuple[str, ...]:
    """A table of few different rows is one of categories, which a density of real numbers is not made for."""
    different = int(copies(rows).max()) + 1
    if 2 * different >= n:
        return ()
    return (
        f"Only {different:,} of {n:,} rows are different: the columns look like categories, and a density of real "
        "numbers says little of them (--kind categories reads whole numbers from 0 as such). Copies lie in one part of "
        "the split, so that most test rows are of kinds never seen in training.",
    )


def _suggestion(values: np.ndarray, columns: tuple[str, ...]) -> tuple[str, ...]:
    name = suggested_group(values, columns)
    if name is None:
        return ()
    return (
        f"The column {name!r} looks like the number of a person or series, with many rows of each: unless rows of one "
        f"stay together (--group {name!r}), the test rows are not new and the figures flatter the model.",
    )
