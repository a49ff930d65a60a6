"""Runs as tables for other programs: CSV, and Kernel Tuner's T4 form."""

from autotune.report.tables.csv_table import csv_text
from autotune.report.tables.exports import kernels_csv, kernels_t4, search_csv, search_t4

__all__ = [
    "csv_text",
    "kernels_csv",
    "kernels_t4",
    "search_csv",
    "search_t4",
]
