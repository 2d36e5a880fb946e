"""Tables of categories written as whole numbers: points of a `Categorical` space."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unnorm.data.columns import ConditionColumns
from unnorm.data.kinds import Origin
from unnorm.data.sites import AbstractSitesKind, AbstractSitesSchema
from unnorm.errors import InputError, require
from unnorm.spaces import Categorical

#: More categories than this are hardly categories.
MOST = 64


@dataclass(frozen=True, eq=False)
class CategoriesSchema(AbstractSitesSchema):
    """Columns of whole numbers 0 .. categories - 1, in no order.

    >>> CategoriesSchema(("a", "b"), categories=3).to_points([[0.0, 2.0]]).tolist()
    [[0, 2]]
    """

    categories: int = 2

    @property
    def space(self) -> Categorical:
        return Categorical((len(self.columns),), self.categories)

    def check(self, values: np.ndarray, shown: str) -> None:
        good = (values >= 0) & (values < self.categories) & (values == np.round(values))
        if not good.all():
            row, column = np.argwhere(~good)[0]
            raise InputError(
                f"{shown} holds {values[row, column]:g} in row {row + 1}, column {column + 1}, and categories are "
                f"the whole numbers 0 to {self.categories - 1}; number them so, or read it by --kind table"
            )

    def to_dict(self) -> dict[str, Any]:
        return {**self.columns_to_dict(), "categories": self.categories}


class CategoriesKind(AbstractSitesKind):
    """A table whose columns hold categories as whole numbers from 0; only where it is asked for by its name.

    Counts and years are whole numbers too, so nothing is taken for categories by its looks.
    """

    name: ClassVar[str] = "categories"

    def recognises(self, origin: Origin) -> bool:
        return False

    def schema(
        self, names: tuple[str, ...], values: np.ndarray, beside: ConditionColumns, source: str
    ) -> CategoriesSchema:
        count = int(max(2.0, values.max() + 1))
        require(
            count <= MOST,
            f"{source!r} holds a category {values.max():g}, and at most {MOST} are taken, numbered from 0; number "
            "them anew, or read it by --kind table",
        )
        made = CategoriesSchema(names, beside, count)
        made.check(values, repr(source))
        return made

    def about(self, schema: CategoriesSchema, values: np.ndarray) -> str:
        fewer = [
            name for name, top in zip(schema.columns, values.max(axis=0), strict=True) if top + 1 < schema.categories
        ]
        said = f"Values are read as categories 0 to {schema.categories - 1}, in no order."
        if not fewer:
            return said
        some = "1 column holds" if len(fewer) == 1 else f"{len(fewer)} columns hold"
        return (
            f"{said} {some} fewer of them ({fewer[0]!r} first); the model has the others there too, as unlikely as the "
            "rows say."
        )

    def schema_from(self, data: Mapping[str, Any]) -> CategoriesSchema:
        beside = ConditionColumns.from_dict(data["conditions"])
        return CategoriesSchema(tuple(data["columns"]), beside, data["categories"])
