"""Tables whose values are no quantities but states: zeros and ones, categories."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from unnorm.data.columns import ConditionColumns, about_groups, require_different, shared_out
from unnorm.data.kinds import AbstractKind, AbstractSchema, Dataset, Origin
from unnorm.data.splits import copies
from unnorm.data.tables import require_to_fit
from unnorm.data.tabular import read_columns_like, rows_by_column
from unnorm.data.writing import csv_text, require_format, write_table
from unnorm.spaces import Conditioned


@dataclass(frozen=True, eq=False)
class AbstractSitesSchema(AbstractSchema):
    """Columns of whole numbers that name states, which are points as they stand."""

    columns: tuple[str, ...]
    beside: ConditionColumns = field(default_factory=ConditionColumns)

    @abstractmethod
    def check(self, values: np.ndarray, shown: str) -> None:
        """Refuse values that are none of the states."""

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

    def fitted(self, rows: Any) -> "AbstractSitesSchema":
        return replace(self, beside=self.beside.fitted(rows.condition)) if isinstance(rows, Conditioned) else self

    def to_points(self, written: Any) -> Shaped[np.ndarray, "... d"]:
        return np.asarray(written).astype(self.space.struct().dtype)

    def to_written(self, points: Any) -> Shaped[np.ndarray, "... d"]:
        return np.asarray(points, np.float64)

    def recorded(self, written: Any) -> Shaped[np.ndarray, "... d"]:
        return np.asarray(written, np.float64)

    def exact(self) -> "AbstractSitesSchema":
        return self

    def condition_points(self, written: Any) -> Shaped[np.ndarray, "... k"]:
        return self.beside.to_points(written)

    def rows_of(self, rows: Any) -> Any:
        found = rows_by_column(rows, self.columns, self.conditions)
        self.check(found.x if isinstance(found, Conditioned) else found, "the table")
        return found

    def given(self, values: Mapping[str, Any]) -> Shaped[np.ndarray, " k"]:
        return self.beside.given(values)

    def columns_to_dict(self) -> dict[str, Any]:
        """What all such schemas have, as plain data."""
        return {"columns": list(self.columns), "conditions": self.beside.to_dict()}


class AbstractSitesKind(AbstractKind):
    """A table of states. Rows that are equal are no copies: they repeat by chance."""

    @abstractmethod
    def schema(self, names: tuple[str, ...], values: np.ndarray, beside: ConditionColumns, source: str) -> Any:
        """The schema of a table that was read, or one sentence about why it is none of this kind."""

    @abstractmethod
    def about(self, schema: Any, values: np.ndarray) -> str:
        """What was found, in a sentence."""

    def read(self, origin: Origin) -> Dataset:
        table, asked = require_to_fit(origin.table, constant=True), origin.asked
        found = shared_out(table, asked)
        schema = self.schema(found.names, found.values, ConditionColumns(asked.conditions), table.source)
        same = copies(found.values)
        n, different = len(same), int(same.max()) + 1
        remarks = [self.about(schema, found.values)]
        if different < n:
            remarks.append(
                f"{n - different:,} of {n:,} rows equal an earlier one. Rows of {self.name} repeat by chance, and are "
                "split as they come; if one person has several, name their column by --group."
            )
        together = None
        if found.owners is None:
            require_different(n, table.source)
        else:
            together, said = about_groups(found.owners, asked.group)
            remarks.append(said)
        return Dataset(
            found.values, schema, self, table.source, found.condition, together, found.owners, repeats=True,
            remarks=tuple(remarks),
        )  # fmt: skip

    def read_like(self, origin: Origin, schema: AbstractSitesSchema) -> Dataset:
        found = read_columns_like(self, origin, schema)
        schema.check(found.points, repr(found.source))
        return found

    def write(self, written: Any, path: Path, schema: AbstractSitesSchema) -> None:
        write_table(path, schema.columns, written, (0,) * len(schema.columns))

    def text(self, written: Any, schema: AbstractSitesSchema) -> str:
        return csv_text(schema.columns, written, (0,) * len(schema.columns))

    def require_writable(self, path: Path) -> None:
        require_format(path)
