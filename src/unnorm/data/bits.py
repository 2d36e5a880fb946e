"""Tables of zeros and ones: points of a `Binary` space, and no numbers between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from unnorm.data.columns import ConditionColumns, about_groups, require_different, shared_out
from unnorm.data.kinds import AbstractKind, AbstractSchema, Dataset, Origin
from unnorm.data.splits import copies
from unnorm.data.tables import require_to_fit
from unnorm.data.tabular import is_table, read_columns_like, rows_by_column
from unnorm.data.writing import csv_text, require_format, write_table
from unnorm.errors import InputError
from unnorm.spaces import Binary, Conditioned


@dataclass(frozen=True, eq=False)
class BitsSchema(AbstractSchema):
    """Columns of zeros and ones, which are points as they stand.

    >>> BitsSchema(("a", "b")).to_points([[0.0, 1.0]]).tolist()
    [[0.0, 1.0]]
    """

    columns: tuple[str, ...]
    beside: ConditionColumns = field(default_factory=ConditionColumns)

    @property
    def space(self) -> Binary:
        return Binary((len(self.columns),))

    @property
    def condition(self):
        return self.beside.space

    @property
    def conditions(self) -> tuple[str, ...]:
        return self.beside.names

    @property
    def log_volume(self) -> float:
        """A probability needs no change of measure."""
        return 0.0

    @property
    def rounding(self) -> None:
        return None

    def fitted(self, rows: Any) -> "BitsSchema":
        return replace(self, beside=self.beside.fitted(rows.condition)) if isinstance(rows, Conditioned) else self

    def to_points(self, written: Any) -> Float[np.ndarray, "... d"]:
        return np.asarray(written).astype(np.float32)

    def to_written(self, points: Any) -> Float[np.ndarray, "... d"]:
        return np.asarray(points, np.float64)

    def recorded(self, written: Any) -> Float[np.ndarray, "... d"]:
        return np.asarray(written, np.float64)

    def exact(self) -> "BitsSchema":
        return self

    def condition_points(self, written: Any) -> Float[np.ndarray, "... k"]:
        return self.beside.to_points(written)

    def rows_of(self, rows: Any) -> Any:
        found = rows_by_column(rows, self.columns, self.conditions)
        _require_bits(found.x if isinstance(found, Conditioned) else found, "the table")
        return found

    def given(self, values: Mapping[str, Any]) -> Float[np.ndarray, " k"]:
        return self.beside.given(values)

    def to_dict(self) -> dict[str, Any]:
        return {"columns": list(self.columns), "conditions": self.beside.to_dict()}


class BitsKind(AbstractKind):
    """A table that holds nothing but 0 and 1. Rows that are equal are no copies: they repeat by chance."""

    name: ClassVar[str] = "bits"

    def recognises(self, origin: Origin) -> bool:
        if not is_table(origin):
            return False
        try:
            values = shared_out(origin.table, origin.asked).values
        except InputError:  # what is wrong with it is said by the kind that reads it
            return False
        return bool(_is_bits(values) and values.any() and not values.all())

    def read(self, origin: Origin) -> Dataset:
        table, asked = require_to_fit(origin.table, constant=True), origin.asked
        found = shared_out(table, asked)
        _require_bits(found.values, repr(table.source))
        same = copies(found.values)
        n, different = len(same), int(same.max()) + 1
        remarks = [
            f"All {found.values.size:,} values are 0 or 1: rows are read as bits (--kind table: as real numbers)."
        ]
        if different < n:
            remarks.append(
                f"{n - different:,} of {n:,} rows equal an earlier one. Rows of bits repeat by chance, and are split "
                "as they come; if one person has several, name their column by --group."
            )
        together = None
        if found.owners is None:
            require_different(n, table.source)
        else:
            together, said = about_groups(found.owners, asked.group)
            remarks.append(said)
        schema = BitsSchema(found.names, ConditionColumns(asked.conditions))
        return Dataset(
            found.values, schema, self, table.source, found.condition, together, found.owners, repeats=True,
            remarks=tuple(remarks),
        )  # fmt: skip

    def read_like(self, origin: Origin, schema: BitsSchema) -> Dataset:
        found = read_columns_like(self, origin, schema)
        _require_bits(found.points, repr(found.source))
        return found

    def write(self, written: Any, path: Path, schema: BitsSchema) -> None:
        write_table(path, schema.columns, written, (0,) * len(schema.columns))

    def text(self, written: Any, schema: BitsSchema) -> str:
        return csv_text(schema.columns, written, (0,) * len(schema.columns))

    def require_writable(self, path: Path) -> None:
        require_format(path)

    def schema_from(self, data: Mapping[str, Any]) -> BitsSchema:
        return BitsSchema(tuple(data["columns"]), ConditionColumns.from_dict(data["conditions"]))


def _is_bits(values: np.ndarray) -> bool:
    return bool(((values == 0) | (values == 1)).all())


def _require_bits(values: np.ndarray, shown: str) -> None:
    good = (values == 0) | (values == 1)
    if not good.all():
        row, column = np.argwhere(~good)[0]
        raise InputError(
            f"{shown} holds {values[row, column]:g} in row {row + 1}, column {column + 1}, and bits are 0 and 1; "
            "write the two states as 0 and 1, or read it by --kind table"
        )
