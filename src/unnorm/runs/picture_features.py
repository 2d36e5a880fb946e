"""How draws of pictures look to a classifier trained on their labels, where they have some."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import jax
import numpy as np

from unnorm.data.pictures import PictureSchema
from unnorm.estimate import Estimate
from unnorm.evaluation import FeatureFigures, feature_figures, picture_features
from unnorm.runs.finding import AbstractDraws, AbstractPlainFinding, Arrays
from unnorm.runs.prepare import Prepared, points_of
from unnorm.spaces import AbstractSpace, Categorical, Conditioned

#: Fewer held-out pictures say nothing in 64 features.
LEAST = 50
#: Names of the figures, for people.
NAMES = {
    "frechet": "Frechet distance of features", "score": "Inception-type score", "precision": "precision",
    "recall": "recall",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class FeatureFidelity(AbstractPlainFinding):
    """Frechet distance, Inception-type score, precision and recall of draws, each beside that of halves of the data."""

    name: ClassVar[str] = "feature_fidelity"
    figures: FeatureFigures

    def table(self) -> list[tuple[str, Estimate, Estimate]]:
        """Name, figure of the draws, figure of halves of the held-out pictures."""
        return [(said, getattr(self.figures, name), self.figures.of_data[name]) for name, said in NAMES.items()]

    def fields(self) -> dict[str, Any]:
        own = {f.name: getattr(self.figures, f.name) for f in fields(self.figures) if f.name != "of_data"}
        return {"features": {
            **{name: value.to_dict() for name, value in own.items()},
            "of_data": {name: value.to_dict() for name, value in self.figures.of_data.items()},
        }}  # fmt: skip

    @classmethod
    def restored(cls, fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "FeatureFidelity":
        told = dict(fields["features"])
        of_data = {name: Estimate.from_dict(value) for name, value in told.pop("of_data").items()}
        return FeatureFidelity(
            FeatureFigures(**{name: Estimate.from_dict(value) for name, value in told.items()}, of_data=of_data)
        )


def find_features(prepared: Prepared, rows: Any, draws: AbstractDraws, *, seed: int) -> FeatureFidelity | None:
    """Figures in features; None without labels beside the pictures, or where there are too few."""
    schema, train = prepared.schema, prepared.train
    if not isinstance(schema, PictureSchema) or not isinstance(train, Conditioned) or not isinstance(rows, Conditioned):
        return None
    if not isinstance(schema.condition, Categorical):
        return None
    drawn, held = draws.thinned(), points_of(rows)
    drawn = drawn[np.isfinite(drawn).reshape(len(drawn), -1).all(axis=1)]
    if min(len(drawn), len(held)) < LEAST:
        return None
    found = picture_features(points_of(train), np.asarray(train.condition), classes=schema.condition.categories)
    return FeatureFidelity(feature_figures(found, drawn, held, key=jax.random.key(seed)))
