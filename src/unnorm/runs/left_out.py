"""What rows that were fitted are worth to a model that was fitted without them.

A model knows its training rows: they seem likelier than rows it has not seen, and an outlier among them does not stand
out. So the whole model is fitted again several times, each time without one share of the rows, which it then judges:
the reference from where it was and by the recipe that was chosen once, then network and log Z. Copies of a row, and
rows of one group, are left out together.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from unnorm.data.kinds import count_of, stacked, taken
from unnorm.data.splits import copies, folds
from unnorm.energies import AbstractEnergy
from unnorm.energies.reference import Chosen
from unnorm.errors import require
from unnorm.estimate import Estimate
from unnorm.evaluation import energies
from unnorm.files import alone
from unnorm.progress import progress as progress_bar
from unnorm.runs.assess import log_z_of_model
from unnorm.runs.build import train
from unnorm.runs.folder import Run
from unnorm.runs.prepare import Prepared
from unnorm.runs.references import references_of
from unnorm.training.checkpoint import load_arrays, save_arrays

#: Shares of the rows that are left out in turn.
FOLDS = 5
#: The numbers of the rows of a share, their unit-coordinate log densities but for log Z, and log Z.
Share = tuple[np.ndarray, np.ndarray, Estimate]


def _numbers(run: Run) -> np.ndarray:
    """The fold of every training and then every validation row."""
    kinds = len(np.unique(run.prepared.labels[: run.prepared.sizes[0]]))
    require(
        kinds >= FOLDS,
        f"the training rows form only {kinds} groups, too few to leave some of them out; score rows that were not "
        "fitted, or fit again with smaller groups",
    )
    return folds(run.prepared.labels, FOLDS, run.settings.seed)


def _without(run: Run, fold: int) -> tuple[Prepared, np.ndarray]:
    """The rows of a run without a fold, and the numbers of those left out.

    Every fold leaves as many rows as the others, so that they share one compiled program.
    """
    prepared, number = run.prepared, _numbers(run)
    n = prepared.sizes[0]
    of_train, of_valid = number[:n], number[n:]
    keep = n - int(np.bincount(of_train, minlength=FOLDS).max())
    keep_valid = max(1, len(of_valid) - int(np.bincount(of_valid, minlength=FOLDS).max()))
    train_rows = taken(prepared.train, np.flatnonzero(of_train != fold)[:keep])
    valid_rows = taken(prepared.valid, np.flatnonzero(of_valid != fold)[:keep_valid])
    if not count_of(valid_rows):  # validation rows of one or two groups can lie in one fold
        tenth = max(1, count_of(train_rows) // 10)
        train_rows, valid_rows = taken(train_rows, slice(-tenth)), taken(train_rows, slice(-tenth, None))
    return replace(prepared, train=train_rows, valid=valid_rows, together=None), np.flatnonzero(number == fold)


def _judged(run: Run, fold: int, chosen: Chosen | None) -> Share:
    """The numbers of the rows of a fold, their unit-coordinate log densities but for log Z, and log Z."""
    rest, rows = _without(run, fold)
    reference = None if chosen is None else chosen.recipe.refit(chosen.density, rest.train)
    fitted = train(run.settings, rest, reference=reference, progress=False)
    require(
        fitted.outcome.ok,
        f"the model diverged when it was fitted without share {fold + 1} of the rows, so that those rows cannot be "
        "scored; fit with a smaller --rate",
    )
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(run.settings.seed), fold), 1)
    assert isinstance(fitted.model, AbstractEnergy)
    log_z = log_z_of_model(fitted.model, rest, references_of(rest, seed=run.settings.seed), key=key)
    assert log_z is not None
    return rows, -energies(fitted.model, taken(stacked((run.prepared.train, run.prepared.valid)), rows)), log_z


def log_densities_left_out(
    run: Run, *, progress: bool = True
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], tuple[str, ...]]:
    """log p of every training and then every validation row in the data's own units, each by a model without it.

    Also the errors of those numbers, and warnings. Each share is kept as soon as it is done.
    """
    count = len(run.prepared.labels)
    values, errors, warnings = np.full(count, np.nan), np.full(count, np.nan), []
    volume = run.prepared.schema.log_volume
    for rows, found, log_z in _shares(run, progress):
        values[rows] = found - log_z.value - volume
        errors[rows] = log_z.stderr
        warnings += log_z.warnings
    return values, errors, tuple(dict.fromkeys(warnings))


def _shares(run: Run, progress: bool) -> list[Share]:
    """All shares: as they were kept, or what is missing made now, by one process at a time."""
    kept = [_kept(run, fold) for fold in range(FOLDS)]
    found = [share for share in kept if share is not None]
    if len(found) == FOLDS:
        return found
    found = []
    with alone(run.path / ".lock", run.path), progress_bar("shares left out", FOLDS, show=progress) as advance:
        chosen = run.reference()
        for fold, share in enumerate(kept):
            found.append(_made(run, fold, chosen) if share is None else share)
            advance(1)
    return found


def _file(run: Run, fold: int) -> tuple[Path, dict[str, Any]]:
    """Where a share is kept, and what tells it from those of other models."""
    return run.path / f"left-out-{fold + 1}.safetensors", {"of": run.identity, "folds": FOLDS}


def _kept(run: Run, fold: int) -> Share | None:
    file, own = _file(run, fold)
    if not file.exists():
        return None
    arrays, notes = load_arrays(file)
    if any(notes.get(name) != value for name, value in own.items()):
        return None
    return arrays["rows"], arrays["values"], Estimate.from_dict(notes["log_z"])


def _made(run: Run, fold: int, chosen: Chosen | None) -> Share:
    file, own = _file(run, fold)
    rows, values, log_z = _judged(run, fold, chosen)
    save_arrays(file, {"rows": rows, "values": values}, {"log_z": log_z.to_dict(), **own})
    return rows, values, log_z


def places_of(run: Run, rows: Any) -> np.ndarray:
    """For each row (a point) the number of the training or validation row that it equals, or -1."""
    labels = copies(stacked((run.prepared.train, run.prepared.valid, rows)))
    n = len(labels) - count_of(rows)
    first = np.full(int(labels.max()) + 1, -1)
    first[labels[:n][::-1]] = np.arange(n)[::-1]
    return first[labels[n:]]
