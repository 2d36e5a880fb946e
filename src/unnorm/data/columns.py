"""The columns of a table shared out: those of the model, those that are conditions, the one of the groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from unnorm.data.kinds import Asked, require_conditions
from unnorm.data.splits import Labels, copies, in_order, joined
from unnorm.data.standardise import Standardiser
from unnorm.data.tables import MINIMUM_ROWS, Table
from unnorm.errors import require
from unnorm.spaces import Real


@dataclass(frozen=True, eq=False)
class Columns:
    """Names and values of the columns to model, the conditions beside them, and the group of every row."""

    names: tuple[str, ...]
    values: Float[np.ndarray, "n d"]
    condition: Float[np.ndarray, "n k"] | None
    owners: np.ndarray | None


def shared_out(table: Table, asked: Asked) -> Columns:
    """The columns of a table as they were asked for."""
    _require_there(table, (asked.group,) if asked.group is not None else (), "to group by")
    _require_there(table, asked.conditions, "to condition on")
    twice = [name for i, name in enumerate(asked.conditions) if name in (*asked.conditions[:i], asked.group)]
    require(not twice, f"the column {twice[0] if twice else ''!r} is named twice; a column has one role")
    kept = [j for j, name in enumerate(table.columns) if name != asked.group and name not in asked.conditions]
    if asked.conditions:
        require(len(kept) > 0, f"all columns of {table.source} are conditions or groups; leave one to be modelled")
    else:
        require(len(kept) > 0, f"{table.source} has no column but {asked.group!r}, which is that of the groups")
    values = table.values if len(kept) == len(table.columns) else table.values[:, kept]
    condition = table.values[:, [table.columns.index(name) for name in asked.conditions]] if asked.conditions else None
    return Columns(tuple(table.columns[j] for j in kept), values, condition, owners_of(table, asked.group))


def owners_of(table: Table, group: str | None) -> np.ndarray | None:
    """The values of the group's column, if the table has it."""
    if group is None or group not in table.columns:
        return None
    return table.values[:, table.columns.index(group)]


def _require_there(table: Table, names: Sequence[str], what: str) -> None:
    for name in names:
        require(
            name in table.columns,
            f"{table.source} has no column {name!r} {what}; its columns are {', '.join(table.columns[:12])}",
        )


def columns_of(table: Table, wanted: Sequence[str], source: str) -> np.ndarray:
    """The wanted columns of a table: by name where it has them, by place where it has no names."""
    if set(wanted) <= set(table.columns):
        return table.values[:, [table.columns.index(name) for name in wanted]]
    unnamed = table.columns == tuple(f"x{i + 1}" for i in range(len(table.columns)))
    missing = [name for name in wanted if name not in table.columns]
    require(
        unnamed and len(table.columns) == len(wanted),
        f"{source} lacks the column {missing[0]!r} that the model was fitted to; its columns are "
        f"{', '.join(table.columns[:8])}",
    )
    return table.values


def require_different(different: int, source: str) -> None:
    """Refuse data of which so few rows differ that a split would say nothing."""
    require(
        different >= MINIMUM_ROWS,
        f"{source} has only {different} different rows, but training, validation and test together need at least "
        f"{MINIMUM_ROWS}; add data",
    )


def about_groups(owners: np.ndarray, group: str | None) -> tuple[Labels, str]:
    """The labels of the groups, checked, and what is to be said of them."""
    groups = in_order(owners)
    count, n = int(groups.max()) + 1, len(groups)
    require(
        count >= 3, f"the column {group!r} has {count} different value{'s' * (count > 1)}; a split needs at least 3"
    )
    require(count < n, f"the column {group!r} differs in every row, so it groups nothing; leave --group out")
    return groups, f"Rows with the same {group!r} ({count:,} of them) lie in one part of the split."


def copies_and_groups(rows: Any, owners: np.ndarray | None, group: str | None, source: str):
    """Which rows belong together, copies among them, and what is to be said of it."""
    same = copies(rows)
    n, different = len(same), int(same.max()) + 1
    remarks = []
    if different < n:
        remarks.append(
            f"{n - different:,} of {n:,} rows are exact copies of an earlier row. Copies lie in one part of the split, "
            "so that no test row was seen in training."
        )
    if owners is None:
        require_different(different, source)
        return same, tuple(remarks)
    groups, said = about_groups(owners, group)
    return joined(same, groups), (*remarks, said)


@dataclass(frozen=True, eq=False)
class ConditionColumns:
    """Columns that are conditions, standardised by the training rows as the others are.

    >>> ConditionColumns(("year",)).fitted(np.array([[1.0], [3.0]])).given({"year": 4.0}).tolist()
    [2.0]
    """

    names: tuple[str, ...] = ()
    standardiser: Standardiser | None = None

    @property
    def space(self) -> Real | None:
        return Real((len(self.names),)) if self.names else None

    def fitted(self, values: Any) -> "ConditionColumns":
        return ConditionColumns(self.names, Standardiser.fit(values)) if self.names else self

    def to_points(self, values: Any) -> Float[np.ndarray, "n k"]:
        unit = values if self.standardiser is None else self.standardiser.to_unit(values)
        return np.asarray(unit).astype(np.float32)

    def given(self, values: Mapping[str, Any]) -> Float[np.ndarray, " k"]:
        require_conditions(values, self.names)
        for name, value in values.items():
            number = isinstance(value, int | float | np.number) and np.isfinite(value)
            require(bool(number), f"the condition {name!r} is a finite number, not {value!r}")
        return self.to_points(np.array([float(values[name]) for name in self.names]))

    def to_dict(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "standardiser": None if self.standardiser is None else self.standardiser.to_dict(),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "ConditionColumns":
        made = data["standardiser"]
        return ConditionColumns(tuple(data["names"]), None if made is None else Standardiser.from_dict(made))
