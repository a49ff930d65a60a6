from .csv_table import csv_text
from .exports import kernels_csv, kernels_t4, search_csv, search_t4

__all__ = [
    "csv_text",
    "kernels_csv",
    "kernels_t4",
    "search_csv",
    "search_t4",
]
