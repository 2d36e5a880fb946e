"""What a report shows of data of each kind, beside draws of the model."""

from functools import singledispatch

from unnorm.data.kinds import AbstractSchema
from unnorm.data.pictures import PictureSchema
from unnorm.data.sites import AbstractSitesSchema
from unnorm.data.tabular import TableSchema
from unnorm.energies import AbstractEnergy
from unnorm.report import pictures
from unnorm.report.bits import couplings_section, shares_picture
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
def _(schema: AbstractSitesSchema, subject: Subject) -> list[Section]:
    draws, found = subject.assessment.find(AbstractDraws), list[Section]()
    if draws is not None:
        found.append(Section("Data and draws", figures=(shares_picture(subject.prepared, draws),)))
    if isinstance(subject.model, AbstractEnergy) and subject.model.space == schema.space:
        found.append(couplings_section(subject.model, subject.prepared))
    return found
