from . import text
from .comparison_data import check_comparable, compared
from .page import compare_page

__all__ = [
    "check_comparable",
    "compare_page",
    "compared",
    "text",
]
