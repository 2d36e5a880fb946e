"""What a report is a list of: sections with sentences, figures that carry their numbers, and tables.

A kind of data and each finding bring sections of their own (`report.of_data`, `report.of_findings`); the page only lays
them out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unnorm.estimate import Outcome
from unnorm.plots import Picture
from unnorm.report.tables import Table
from unnorm.runs import Assessment, Prepared, RunSettings
from unnorm.runs.references import References


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a page: sentences, facts, tables, figures and notes, in this order.

    `beside` puts tables to the right of the figures; `folded` is the line behind which they are hidden.
    """

    title: str
    sentences: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    code: str = ""
    beside: bool = False
    folded: str = ""


@dataclass(frozen=True, eq=False)
class Subject:
    """What a report tells of: data, a model, how it was learnt, and what was found out about it.

    `settings` are those of a run; None for a model that was fitted in Python.
    """

    prepared: Prepared
    model: Any
    assessment: Assessment
    history: Mapping[str, np.ndarray]
    outcome: Outcome
    events: Sequence[str]
    seconds: float
    settings: RunSettings | None = None
    references: References | None = None
    #: The name of the folder that the run lies in.
    folder: str = ""
