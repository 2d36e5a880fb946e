"""From a file or a name to rows ready for training: split, standardised, measured."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unnorm.data import PROBLEMS, Problem, Standardiser, Table, load, read_table
from unnorm.data.recorded import Decimals, decimals_of, suggested_group
from unnorm.data.splits import copies, in_order, joined, parts
from unnorm.data.tables import MINIMUM_ROWS
from unnorm.errors import InputError, require
from unnorm.noises import Scales, scales_of
from unnorm.spaces import Real


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows in unit coordinates (mean 0, standard deviation 1 per column) and the way back.

    `together` labels the training and then the validation rows, `test_together` the test rows: those of one label are
    copies or of one group.
    `remarks` says what was found in the table, `warnings` what its owner should look at.
    """

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    columns: tuple[str, ...]
    source: str
    standardiser: Standardiser
    scales: Scales
    problem: Problem | None
    together: np.ndarray | None = None
    test_together: np.ndarray | None = None
    decimals: Decimals = ()
    group: str | None = None
    test_source: str | None = None
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def space(self) -> Real:
        return Real((self.train.shape[1],))

    @property
    def labels(self) -> np.ndarray:
        """`together`, or copies alone where nothing was said of groups."""
        return copies(np.concatenate([self.train, self.valid])) if self.together is None else self.together

    @property
    def fingerprint(self) -> str:
        """A hash of every row and of what belongs together, so that a resumed run knows its data."""
        digest = hashlib.sha256()
        for part in (self.train, self.valid, self.test, self.labels.astype(np.int64)):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()


def problem_named(source: str) -> Problem | None:
    """The built-in problem of this name, if there is one and no file is in its way."""
    return load(source) if source in PROBLEMS and not Path(source).exists() else None


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


def prepare(source: str, seed: int, *, group: str | None = None, test: str | None = None) -> Prepared:
    """Read a table or a built-in problem, split it 8:1:1, and standardise it by its training rows.

    Copies of a row, and rows with the same value in the column `group`, stay in one part; that column is none of the
    model's. With `test`, a table of its own, the test rows are those of it that are no copies of rows fitted to. A
    problem brings its own split.
    """
    problem = problem_named(source)
    if problem is not None:
        require(
            group is None and test is None,
            f"{source} is a built-in problem with a split of its own; --group and --test are for tables",
        )
        columns = tuple(f"x{i + 1}" for i in range(problem.train.shape[1]))
        return _made_ready((problem.train, problem.valid, problem.test), columns, source, problem=problem)
    if Path(source).suffix == "" and not Path(source).exists():
        raise InputError(
            f"{source!r} is neither a file nor a built-in data set; the built-in ones are {', '.join(PROBLEMS)}"
        )
    table = read_table(source)
    columns, values, owners = _without(table, group)
    labels, remarks = _together(values, owners, group, table)
    warnings = (*_about_copies(values), *(() if group is not None else _suggestion(table)))
    train, valid, judged = parts(labels, seed)
    judged_labels = in_order(labels[judged])
    if test is None:
        rows = (values[train], values[valid], values[judged])
    else:
        train = np.concatenate([train, judged])
        fresh, judged_labels, remark = _apart(test, columns, values[np.concatenate([train, valid])], group, owners)
        rows, remarks = (values[train], values[valid], fresh), (*remarks, remark)
    return _made_ready(
        rows, columns, source, together=in_order(labels[np.concatenate([train, valid])]),
        test_together=judged_labels,
        decimals=decimals_of(values), group=group, test_source=test, remarks=remarks, warnings=warnings,
    )  # fmt: skip


def _made_ready(rows: Sequence[np.ndarray], columns: tuple[str, ...], source: str, problem=None, **more) -> Prepared:
    standardiser = Standardiser.fit(rows[0])
    train, valid, test = (standardiser.to_unit(part).astype(np.float32) for part in rows)
    return Prepared(train, valid, test, columns, source, standardiser, scales_of(train, valid), problem, **more)


def _without(table: Table, group: str | None) -> tuple[tuple[str, ...], np.ndarray, np.ndarray | None]:
    """Names and values of the columns to model, and the group of every row."""
    if group is None:
        return table.columns, table.values, None
    require(
        group in table.columns,
        f"{table.source} has no column {group!r} to group by; its columns are {', '.join(table.columns[:12])}",
    )
    place = table.columns.index(group)
    require(len(table.columns) > 1, f"{table.source} has no column but {group!r}, which is that of the groups")
    kept = [j for j in range(len(table.columns)) if j != place]
    return tuple(table.columns[j] for j in kept), table.values[:, kept], table.values[:, place]


def _together(
    values: np.ndarray, owners: np.ndarray | None, group: str | None, table: Table
) -> tuple[np.ndarray, tuple[str, ...]]:
    """What belongs together, and what is to be said of it."""
    same = copies(values)
    n, different = len(values), int(same.max()) + 1
    remarks = []
    if different < n:
        remarks.append(
            f"{n - different:,} of {n:,} rows are exact copies of an earlier row. Copies lie in one part of the split, "
            "so that no test row was seen in training."
        )
    require(
        different >= MINIMUM_ROWS or owners is not None,
        f"{table.source} has only {different} different rows, but training, validation and test together need at "
        f"least {MINIMUM_ROWS}; add data",
    )
    if owners is None:
        return same, tuple(remarks)
    groups = in_order(owners)
    count = int(groups.max()) + 1
    require(
        count >= 3, f"the column {group!r} has {count} different value{'s' * (count > 1)}; a split needs at least 3"
    )
    require(count < n, f"the column {group!r} differs in every row, so it groups nothing; leave --group out")
    remarks.append(f"Rows with the same {group!r} ({count:,} of them) lie in one part of the split.")
    return joined(same, groups), tuple(remarks)


def _about_copies(values: np.ndarray) -> tuple[str, ...]:
    """A table of few different rows is one of categories, which a density of real numbers is not made for."""
    n, different = len(values), int(copies(values).max()) + 1
    if 2 * different >= n:
        return ()
    return (
        f"Only {different:,} of {n:,} rows are different: the columns look like categories, and a density of real "
        "numbers says little of them. Copies lie in one part of the split, so that most test rows are of kinds never "
        "seen in training.",
    )


def _suggestion(table: Table) -> tuple[str, ...]:
    name = suggested_group(table.values, table.columns)
    if name is None:
        return ()
    return (
        f"The column {name!r} looks like the number of a person or series, with many rows of each: unless rows of one "
        f"stay together (--group {name!r}), the test rows are not new and the figures flatter the model.",
    )


def _apart(
    test: str, columns: tuple[str, ...], fitted: np.ndarray, group: str | None, owners: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, str]:
    """The rows of a table to judge on that are no copies of rows fitted to, nor of their groups; and their labels."""
    table = read_table(test, to_fit=False)
    values = columns_of(table, columns, test)
    # Labels of both together: a test row that shares one with a fitted row is none to judge on.
    labels = copies(np.concatenate([fitted, values]))
    own = labels[len(fitted) :]
    seen = np.isin(own, labels[: len(fitted)])
    if owners is not None and group in table.columns:
        of_table = table.values[:, table.columns.index(group)]
        seen |= np.isin(of_table, owners)
        own = joined(in_order(own), in_order(of_table))
    require(not seen.all(), f"every row of {test} is a copy of a row that is fitted to, or of its group")
    words = f"The test rows are {int((~seen).sum()):,} of the {len(values):,} rows of {test}"
    more = f"{words}; {int(seen.sum()):,} that copy fitted rows or belong to their groups are left out."
    return values[~seen], in_order(own[~seen]), more
