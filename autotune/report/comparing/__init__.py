"""Two runs beside each other: as data, as tables, as a page."""

from autotune.report.comparing import text
from autotune.report.comparing.comparison_data import compared
from autotune.report.comparing.page import compare_page

__all__ = [
    "compare_page",
    "compared",
    "text",
]
