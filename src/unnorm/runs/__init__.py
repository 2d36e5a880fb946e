"""Saved runs: a data set made ready, a model fitted to it, and what is known about the result."""

from unnorm.runs.assess import assess as assess
from unnorm.runs.findings import Assessment as Assessment
from unnorm.runs.fitted import Fitted as Fitted
from unnorm.runs.fitted import load as load
from unnorm.runs.folder import Run as Run
from unnorm.runs.prepare import Prepared as Prepared
from unnorm.runs.prepare import prepare as prepare
from unnorm.runs.prepare import ready as ready
from unnorm.runs.settings import Named as Named
from unnorm.runs.settings import RunSettings as RunSettings
from unnorm.runs.settings import Training as Training
from unnorm.runs.settings import settings_of as settings_of
