"""What rows are worth to the model of a run: density, error, rank.

`unnorm score` writes it to files, and `Fitted.scores` hands it over.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from unnorm.data.kinds import count_of
from unnorm.data.recorded import Decimals
from unnorm.errors import InputError
from unnorm.estimate import Estimate
from unnorm.evaluation import energies
from unnorm.runs.assess import has_log_z, log_z_of_model
from unnorm.runs.findings import LogZ
from unnorm.runs.folder import Run
from unnorm.runs.left_out import log_densities_left_out, places_of

#: Takes a remark while one waits.
Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Scores:
    """Of every row: its energy, log p in the table's own units, the error of that, its rank (1 is the least likely),
    the share of held-out rows that are less likely, and whether it was fitted, so that a model without it judged it.

    >>> no = np.zeros(1)
    >>> Scores(no, no, no, no + 1, no, no > 0, Estimate(0.0, 0.0, "exact"), ()).table()[1].tolist()
    [[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]]
    """

    energy: Float[np.ndarray, " n"]
    log_density: Float[np.ndarray, " n"]
    stderr: Float[np.ndarray, " n"]
    rank: Float[np.ndarray, " n"]
    less_likely: Float[np.ndarray, " n"]
    fitted: Bool[np.ndarray, " n"]
    log_z: Estimate
    warnings: tuple[str, ...]

    def table(self) -> tuple[tuple[str, ...], np.ndarray, Decimals]:
        """Names, values and decimals of the columns, as `unnorm score` writes them."""
        columns = ("energy", "log_density", "log_density_stderr", "outlier_rank", "less_likely_share", "fitted")
        parts = (self.energy, self.log_density, self.stderr, self.rank, self.less_likely, self.fitted)
        return columns, np.column_stack(parts), (None, None, None, 0, None, 0)


def log_z_of(run: Run, *, seed: int | None = None, tell: Tell | None = None) -> Estimate:
    """log Z from the saved assessment if it is of this model, or computed now."""
    seed = run.settings.seed if seed is None else seed
    saved = run.saved_assessment(seed)
    known = None if saved is None else saved.find(LogZ)
    if known is not None:
        return known.estimate
    require_same_space(run)
    references = run.baselines()
    if not has_log_z(run.energy, references):
        raise InputError(f"nothing here estimates log Z on {run.prepared.space}, so rows have no log density yet")
    if tell is not None:
        tell("Estimating log Z ...")
    found = log_z_of_model(run.energy, run.prepared, references, key=jax.random.key(seed + 1))
    assert found is not None
    return found


def require_same_space(run: Run) -> None:
    """Refuse to ask a model given conditions for the density of points alone."""
    if run.model.space != run.prepared.space:
        names = ", ".join(repr(name) for name in run.prepared.schema.conditions)
        raise InputError(f"the model of {run.path} is one given {names}, whose log Z differs from row to row")


def log_densities(run: Run, rows: Any, log_z: Estimate) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The energies of points, and log p in the data's own units, by the model itself."""
    found = energies(run.energy, rows)
    return found, -found - log_z.value - run.prepared.schema.log_volume


def scores_of(
    run: Run,
    rows: Any,
    *,
    seed: int | None = None,
    log_z: Estimate | None = None,
    tell: Tell | None = None,
    progress: bool = True,
) -> Scores:
    """The scores of points; those that were fitted are judged by models fitted without them."""
    log_z = log_z_of(run, seed=seed, tell=tell) if log_z is None else log_z
    found, density = log_densities(run, rows, log_z)
    error, warnings = np.full(count_of(rows), log_z.stderr), log_z.warnings
    places = places_of(run, rows)
    fitted = places >= 0
    if fitted.any():
        if tell is not None:
            tell(
                f"{int(fitted.sum())} of {count_of(rows)} rows were fitted: each is scored by a model fitted without "
                f"it (kept in {run.path}) ..."
            )
        values, errors, more = log_densities_left_out(run, progress=progress)
        density[fitted], error[fitted] = values[places[fitted]], errors[places[fitted]]
        warnings = tuple(dict.fromkeys((*warnings, *more)))
    _, of_test = log_densities(run, run.prepared.test, log_z)
    held_out = np.sort(of_test)
    rank = np.empty(len(found))
    rank[np.argsort(density, kind="stable")] = np.arange(1, len(found) + 1)
    less_likely = np.searchsorted(held_out, density, side="left") / len(held_out)
    return Scores(found, density, error, rank, less_likely, fitted, log_z, warnings)
