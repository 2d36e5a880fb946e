"""The seeds' tables and figures, each a command."""

from unnorm.experiments.demo import Demo as Demo
from unnorm.experiments.demo import run_demo as run_demo
