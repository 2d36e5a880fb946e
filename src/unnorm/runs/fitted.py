"""A saved run as one thing in Python: what it says of rows, and draws like them, in the units of its own table."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from unnorm.arguments import require_count, whole_number
from unnorm.energies import AbstractEnergy
from unnorm.errors import require
from unnorm.estimate import Estimate
from unnorm.runs.drawing import draw
from unnorm.runs.findings import Assessment, Likelihood, LogZ
from unnorm.runs.flows import between, codes_of, completed, rows_of_codes
from unnorm.runs.folder import Run
from unnorm.runs.generating import conditions_for
from unnorm.runs.scoring import Scores, log_densities, log_z_of, scores_of
from unnorm.scores import LevelledScore
from unnorm.words import Facts, lines, model_words, table

#: JAX makes keys of the last 32 bits of a seed: larger ones would repeat smaller ones.
SEEDS = 2**32


@dataclass(frozen=True, eq=False, repr=False)
class Fitted:
    """The fitted model of a run, in the units and by the columns of its own data.

    `rows` of a table are an array whose columns are those of the run in their order, or anything with named columns: a
    frame of pandas or polars, a mapping. Made by `load`. If the run was trained on since then, what its folder knows is
    of another model, and is refused.
    """

    run: Run
    identity: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the model was fitted to."""
        return self.run.prepared.columns

    @property
    def model(self) -> AbstractEnergy | LevelledScore:
        """The energy or the score, of points; a table's are in unit coordinates (`run.prepared.schema.to_points`)."""
        return self.run.model

    @cached_property
    def log_z(self) -> Estimate:
        """log Z of `model`: that of the run's assessment, or else estimated at the first call."""
        self._require_same()
        return log_z_of(self.run)

    @cached_property
    def assessment(self) -> Assessment:
        """What is known of the model on its own test rows; found out at the first call and kept in the folder."""
        self._require_same()
        return self.run.assessment(progress=False)

    def log_prob(self, rows: Any) -> Float[np.ndarray, " n"]:
        """log p(x) of every row, by the model itself: -E(z) - log Z - sum_j log scale_j, with z in unit coordinates.

        A row that the model was fitted to seems likelier to it than a new one; `scores` judges such rows fairly.
        """
        return log_densities(self.run, self._points(rows), self.log_z)[1]

    def scores(self, rows: Any, *, progress: bool = True) -> Scores:
        """What `unnorm score` says of every row; one that was fitted is judged by a model that was fitted without it.

        If any was, that takes as long as five fits the first time; it is kept in the folder.
        """
        self._require_same()
        return scores_of(self.run, self._points(rows), log_z=self.log_z, progress=progress)

    def outliers(self, rows: Any, *, progress: bool = True) -> Float[np.ndarray, " n"]:
        """The rank of every row among them by `scores`: 1 is the least likely."""
        return self.scores(rows, progress=progress).rank

    def sample(
        self,
        n: int,
        *,
        given: Mapping[str, Any] | None = None,
        seed: int = 0,
        exact: bool = False,
        progress: bool = True,
    ) -> Float[np.ndarray, "n ..."]:
        """n draws, those of `unnorm sample` by the same seed, as the data have their rows.

        Values are rounded as they were recorded, unless `exact`. `given` has a value for every condition of a model
        that was fitted with some, by its name and in its own units. What is wrong with the draws is a `UserWarning`.
        """
        require_count(n, 1, "the number of draws")
        require(0 <= whole_number(seed, "the seed") < SEEDS, f"a seed must lie between 0 and 2^32 - 1, not at {seed}")
        drawn = draw(self.run, int(n), given=given, seed=int(seed), progress=progress)
        for sentence in drawn.warnings:
            warnings.warn(sentence, stacklevel=2)
        return self._written(drawn.rows[:], exact)

    def encode(self, rows: Any, *, tolerance: float = 1e-4) -> Float[np.ndarray, "n ..."]:
        """The code of every row under a diffusion: noise of the shape of a point, from which `decode` leads back.

        By the probability flow, without any chance; a model with conditions takes them from the rows.
        """
        return codes_of(self.run, self._points(rows), tolerance)[0]

    def decode(
        self, codes: Any, *, given: Mapping[str, Any] | None = None, exact: bool = False, tolerance: float = 1e-4
    ) -> Float[np.ndarray, "n ..."]:
        """The row of every code, in the data's own units; `given` as for `sample`, and needed where there are some."""
        prepared = self.run.prepared
        require(
            prepared.schema.condition is None or bool(given), "a model with conditions decodes under some; pass given="
        )
        conditions = conditions_for(prepared, len(codes), given or {}, seed=0)
        return self._written(rows_of_codes(self.run, codes, conditions, tolerance), exact)

    def interpolate(
        self, rows: Any, n: int = 5, *, exact: bool = False, tolerance: float = 1e-4
    ) -> Float[np.ndarray, "n ..."]:
        """n + 2 rows from the first of two to the second: along the arc between their codes, decoded."""
        return self._written(between(self.run, self._points(rows), n, tolerance), exact)

    def inpaint(
        self,
        row: Any,
        known: Any,
        n: int = 1,
        *,
        given: Mapping[str, Any] | None = None,
        steps: int = 200,
        corrections: int = 4,
        seed: int = 0,
        exact: bool = False,
    ) -> Float[np.ndarray, "n ..."]:
        """n draws of a row of which only the part is known where the mask `known` is true (`generators.impute`).

        `row` is one row along a first axis. A mask with fewer axes than a point, such as height x width x 1 for
        pictures in colour, holds for all of the missing ones. Without corrections draws would be biased, and with one
        at a level they still are, towards what is likely without the known part.
        """
        require(corrections >= 1, "imputation without corrections is biased; ask for one at least")
        points = completed(self.run, self._points(row), known, n, given or {}, steps, corrections, seed)
        return self._written(points, exact)

    def _written(self, points: np.ndarray, exact: bool) -> Float[np.ndarray, "n ..."]:
        schema = self.run.prepared.schema
        return (schema.exact() if exact else schema).written(points)

    def _require_same(self) -> None:
        require(
            self.run.identity == self.identity,
            f"{self.run.path} has been trained further since it was loaded; load it again",
        )

    def _points(self, rows: Any) -> Any:
        schema = self.run.prepared.schema
        return schema.to_rows(schema.rows_of(rows))

    def _words(self) -> tuple[str, Facts]:
        run, prepared = self.run, self.run.prepared
        same = run.identity == self.identity
        known = run.saved_assessment(run.settings.seed) if same else None
        sizes = [f"{size:,}" for size in prepared.sizes]
        facts = [
            ("model", model_words(self.model)),
            ("learnt by", run.settings.objective.name),
            ("columns", _some(self.columns)) if self.columns else ("points", str(prepared.space)),
            ("rows", f"{sizes[0]} to learn from, {sizes[1]} to choose by, {sizes[2]} new; of {run.settings.source}"),
            ("outcome", str(run.record()[2]) if same else "trained on since it was loaded; load it again"),
        ]
        if known is None:
            facts.append(("log-likelihood", "not assessed yet; .assessment does it"))
        else:
            facts += [("log-likelihood", f"{found.model.number()} nats per new row") for found in known.all(Likelihood)]
            facts += [("log Z", str(found.estimate)) for found in known.all(LogZ)]
            facts += [("warning", sentence) for sentence in known.warnings]
        return f"Fitted run {run.path}", facts

    def __repr__(self) -> str:
        return f"unnorm.load({str(self.run.path)!r})"

    def __str__(self) -> str:
        return lines(*self._words())

    def _repr_html_(self) -> str:
        return table(*self._words())


def _some(names: Sequence[str], limit: int = 8) -> str:
    """How many names, and the first few of them."""
    more = ", ..." if len(names) > limit else ""
    return f"{len(names)}: {', '.join(names[:limit])}{more}"


def load(path: str | os.PathLike[str]) -> Fitted:
    """The fitted model of a run that `unnorm fit DATA --out RUN` saved.

    >>> load("absent")
    Traceback (most recent call last):
    unnorm.errors.InputError: absent is not a folder with a run; make one with: unnorm fit DATA --out absent
    """
    run = Run.open(Path(path))
    # A run that was not trained yet says so now, and not at the first question.
    _ = run.model
    return Fitted(run, run.identity)
