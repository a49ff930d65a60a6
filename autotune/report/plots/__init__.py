"""Plots as inline SVG, from plain numbers."""

from autotune.report.plots import charts
from autotune.report.plots.bar_charts import Bar, Ratio, Small, bars, intervals, many, stacked
from autotune.report.plots.charts import Band, Point, Series
from autotune.report.plots.svg import BANDS, COLOURS, LEFT, TOP, WIDTH, Axis, label

__all__ = [
    "Axis",
    "Band",
    "BANDS",
    "Bar",
    "bars",
    "charts",
    "COLOURS",
    "intervals",
    "label",
    "LEFT",
    "many",
    "Point",
    "Ratio",
    "Series",
    "Small",
    "stacked",
    "TOP",
    "WIDTH",
]
