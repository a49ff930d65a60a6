from . import text
from .comparison_data import compared
from .page import compare_page

__all__ = [
    "compare_page",
    "compared",
    "text",
]
