"""What a report shows of data of each kind, beside draws of the model."""

from functools import singledispatch

from unnorm.data.bits import BitsSchema
from unnorm.data.kinds import AbstractSchema
from unnorm.data.pictures import PictureSchema
from unnorm.data.tabular import TableSchema
from unnorm.report import pictures
from unnorm.report.bits import shares_picture
from unnorm.report.pairs import density_picture
from unnorm.report.section import Section, Subject
from unnorm.runs.findings import AbstractDraws, LogZ


@singledispatch
def sections_of(schema: AbstractSchema, subject: Subject) -> list[Section]:
    """The sections about the data themselves; none of a kind that nobody draws yet."""
    return []


@sections_of.register
def _(schema: TableSchema, subject: Subject) -> list[Section]:
    known = subject.assessment
    if known.find(AbstractDraws) is None or (len(schema.columns) <= 2 and known.find(LogZ) is None):
        return []
    title = "Data and draws" if len(schema.columns) > 2 else "The learnt density"
    return [Section(title, figures=(density_picture(subject.model, subject.prepared, known),))]


@sections_of.register
def _(schema: PictureSchema, subject: Subject) -> list[Section]:
    return pictures.sections(schema, subject)


@sections_of.register
def _(schema: BitsSchema, subject: Subject) -> list[Section]:
    draws = subject.assessment.find(AbstractDraws)
    if draws is None:
        return []
    return [Section("Data and draws", figures=(shares_picture(subject.prepared, draws),))]
