"""Tables of zeros and ones: points of a `Binary` space, and no numbers between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unnorm.data.columns import ConditionColumns, shared_out
from unnorm.data.kinds import Origin
from unnorm.data.sites import AbstractSitesKind, AbstractSitesSchema
from unnorm.data.tabular import is_table
from unnorm.errors import InputError
from unnorm.spaces import Binary


@dataclass(frozen=True, eq=False)
class BitsSchema(AbstractSitesSchema):
    """Columns of zeros and ones, which are points as they stand.

    >>> BitsSchema(("a", "b")).to_points([[0.0, 1.0]]).tolist()
    [[0.0, 1.0]]
    """

    @property
    def space(self) -> Binary:
        return Binary((len(self.columns),))

    def check(self, values: np.ndarray, shown: str) -> None:
        good = (values == 0) | (values == 1)
        if not good.all():
            row, column = np.argwhere(~good)[0]
            raise InputError(
                f"{shown} holds {values[row, column]:g} in row {row + 1}, column {column + 1}, and bits are 0 and 1; "
                "write the two states as 0 and 1, or read it by --kind table or --kind categories"
            )

    def to_dict(self) -> dict[str, Any]:
        return self.columns_to_dict()


class BitsKind(AbstractSitesKind):
    """A table that holds nothing but 0 and 1. Rows that are equal are no copies: they repeat by chance."""

    name: ClassVar[str] = "bits"

    def recognises(self, origin: Origin) -> bool:
        if not is_table(origin):
            return False
        try:
            values = shared_out(origin.table, origin.asked).values
        except InputError:  # what is wrong with it is said by the kind that reads it
            return False
        return bool(((values == 0) | (values == 1)).all() and values.any() and not values.all())

    def schema(self, names: tuple[str, ...], values: np.ndarray, beside: ConditionColumns, source: str) -> BitsSchema:
        made = BitsSchema(names, beside)
        made.check(values, repr(source))
        return made

    def about(self, schema: BitsSchema, values: np.ndarray) -> str:
        return f"All {values.size:,} values are 0 or 1: rows are read as bits (--kind table: as real numbers)."

    def schema_from(self, data: Mapping[str, Any]) -> BitsSchema:
        return BitsSchema(tuple(data["columns"]), ConditionColumns.from_dict(data["conditions"]))
