"""Tables and figures of the literature, each a command."""

from unnorm.experiments.demo import Demo as Demo
from unnorm.experiments.demo import run_demo as run_demo
