"""From a file, a name or a data set to rows ready for training: split, made points, measured."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from unnorm.data import PROBLEMS, Problem, load
from unnorm.data.kinds import AbstractKind, AbstractSchema, Asked, Dataset, Origin, count_of, stacked, taken
from unnorm.data.named_pictures import NAMED
from unnorm.data.recognise import kind_of
from unnorm.data.splits import copies, in_order, joined, parts
from unnorm.data.standardise import Standardiser
from unnorm.data.tabular import TableKind, TableSchema
from unnorm.errors import InputError, require
from unnorm.noises import Scales, scales_of
from unnorm.spaces import AbstractSpace, Conditioned, Real


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows that are points (with their conditions beside them, where there are any), and the way back.

    Columns of a table are in unit coordinates: mean 0, standard deviation 1. `together` labels the training and then
    the validation rows, `test_together` the test rows: those of one label are copies or of one group. `scales` are
    those of real numbers. `remarks` says what was found in the data, `warnings` what its owner should look at.
    """

    train: Any
    valid: Any
    test: Any
    schema: AbstractSchema
    kind: AbstractKind
    source: str
    scales: Scales | None
    problem: Problem | None = None
    together: np.ndarray | None = None
    test_together: np.ndarray | None = None
    group: str | None = None
    test_source: str | None = None
    #: Whether the kind was named, and not recognised.
    forced: bool = False
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def space(self) -> AbstractSpace:
        """What a point is."""
        return self.schema.space

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, where points have some."""
        return self.schema.columns

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many rows there are to train, to choose and to judge."""
        return count_of(self.train), count_of(self.valid), count_of(self.test)

    @property
    def asked(self) -> Asked:
        """What was asked for beside the data."""
        return Asked(self.group, self.schema.conditions)

    @property
    def labels(self) -> np.ndarray:
        """`together`, or copies alone where nothing was said of groups."""
        return copies(stacked((self.train, self.valid))) if self.together is None else self.together

    @property
    def fingerprint(self) -> str:
        """A hash of every row and of what belongs together, so that a resumed run knows its data."""
        digest = hashlib.sha256()
        for part in (self.train, self.valid, self.test, self.labels.astype(np.int64)):
            for leaf in jax.tree.leaves(part):
                digest.update(np.ascontiguousarray(leaf).tobytes())
        return digest.hexdigest()


def points_of(rows: Any) -> Any:
    """The points of rows, without the conditions beside them."""
    return rows.x if isinstance(rows, Conditioned) else rows


def table_schema(prepared: Prepared) -> TableSchema:
    """The schema of rows that are known to be those of a table of real numbers."""
    assert isinstance(prepared.schema, TableSchema)
    return prepared.schema


def problem_named(source: str) -> Problem | None:
    """The built-in problem of this name, if there is one and no file is in its way."""
    return load(source) if source in PROBLEMS and not Path(source).exists() else None


def prepare(
    source: str,
    seed: int,
    *,
    group: str | None = None,
    test: str | None = None,
    conditions: Sequence[str] = (),
    kind: str | None = None,
) -> Prepared:
    """Read data of any kind or a built-in problem, split them 8:1:1, and make them points by the training rows.

    Rows that belong together (copies, and rows with the same value in the column `group`, which is none of the model's)
    stay in one part. The columns of `conditions` stand beside the points and are not modelled. With `test`, data of
    their own, the test rows are those of it that do not belong to rows fitted to. `kind` forces one reading. A problem
    brings its own split.
    """
    problem = problem_named(source)
    if problem is not None:
        require(
            group is None and test is None and not conditions and kind is None,
            f"{source} is a built-in problem with a split of its own; --group, --test, --condition and --kind are for "
            "files",
        )
        return prepared_problem(problem, source)
    if Path(source).suffix == "" and not Path(source).exists() and source not in NAMED:
        names = ", ".join((*PROBLEMS, *NAMED))
        raise InputError(f"{source!r} is neither a file nor a built-in data set; the built-in ones are {names}")
    asked = Asked(group, tuple(conditions))
    found = Origin(source, asked)
    dataset = kind_of(found, kind).read(found)
    prepared = ready(dataset, seed, group=group, test=None if test is None else Origin(test, asked))
    return replace(prepared, forced=kind is not None)


def prepared_problem(problem: Problem, source: str) -> Prepared:
    """A problem with the split it brings, standardised by its training rows."""
    columns = tuple(f"x{i + 1}" for i in range(problem.train.shape[1]))
    schema = TableSchema(columns, Standardiser.fit(problem.train))
    train, valid, test = (schema.to_points(part) for part in (problem.train, problem.valid, problem.test))
    return Prepared(train, valid, test, schema, TableKind(), source, _scales(schema.space, train, valid), problem)


def ready(dataset: Dataset, seed: int, *, group: str | None = None, test: Origin | None = None) -> Prepared:
    """A data set split 8:1:1, and its rows made points of its space by what the training rows say."""
    rows = dataset.rows
    labels = np.arange(len(dataset)) if dataset.together is None else dataset.together
    train, valid, judged = parts(labels, seed)
    judged_labels, remarks = in_order(labels[judged]), dataset.remarks
    if test is None:
        fresh = taken(rows, judged)
    else:
        train = np.concatenate([train, judged])
        fresh, judged_labels, remark = _apart(test, dataset, taken(rows, np.concatenate([train, valid])))
        remarks = (*remarks, remark)
    schema = dataset.schema.fitted(taken(rows, train))
    learnt, chosen, judged = (schema.to_rows(part) for part in (taken(rows, train), taken(rows, valid), fresh))
    scales = _scales(schema.space, points_of(learnt), points_of(chosen))
    return Prepared(
        learnt, chosen, judged, schema, dataset.kind, dataset.source, scales,
        together=in_order(labels[np.concatenate([train, valid])]), test_together=judged_labels, group=group,
        test_source=None if test is None else str(test.path), remarks=remarks, warnings=dataset.warnings,
    )  # fmt: skip


def _scales(space: AbstractSpace, train: Any, valid: Any) -> Scales | None:
    """How long steps and kernels should be, which only real numbers have."""
    if not isinstance(space, Real):
        return None
    return scales_of(train.reshape(len(train), -1), valid.reshape(len(valid), -1))


def _apart(test: Origin, dataset: Dataset, fitted: Any) -> tuple[Any, np.ndarray, str]:
    """The rows of other data to judge on that do not belong to rows that are fitted to; and their labels."""
    other = dataset.kind.read_like(test, dataset.schema)
    n, fitted_n = len(other), count_of(fitted)
    own, seen = np.arange(n), np.zeros(n, bool)
    if not dataset.repeats:
        # Labels of both together: a test row that shares one with a fitted row is none to judge on.
        labels = copies(stacked((fitted, other.rows)))
        own = labels[fitted_n:]
        seen = np.isin(own, labels[:fitted_n])
    if dataset.owners is not None and other.owners is not None:
        seen |= np.isin(other.owners, dataset.owners)
        own = joined(in_order(own), in_order(other.owners))
    words = f"The test rows are {int((~seen).sum()):,} of the {n:,} rows of {test.path}"
    require(not seen.all(), f"every row of {test.path} is a copy of a row that is fitted to, or of its group")
    more = f"{words}; {int(seen.sum()):,} that copy fitted rows or belong to their groups are left out."
    return taken(other.rows, ~seen), in_order(own[~seen]), more
