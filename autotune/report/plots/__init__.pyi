from . import charts
from .bar_charts import Bar, Ratio, Small, bars, intervals, many, stacked
from .charts import Band, Point, Series
from .svg import BANDS, COLOURS, TOP, WIDTH, Axis, label

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
    "many",
    "Point",
    "Ratio",
    "Series",
    "Small",
    "stacked",
    "TOP",
    "WIDTH",
]
