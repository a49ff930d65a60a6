"""Outcomes of measurements and the statistics over them."""

from autotune.measurement.outcome import Outcome, Status
from autotune.measurement.statistics import Interval, median, paired_speedup

__all__ = ["Interval", "Outcome", "Status", "median", "paired_speedup"]
