"""Reports for people: one self-contained page per run, each figure beside the numbers it shows."""

from unnorm.report.demo import write_demo_report as write_demo_report
from unnorm.report.html import write_report as write_report
