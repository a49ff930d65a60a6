"""Searches over cores and clocks, alone or together with schedules."""

from autotune.jobs.search.searching import Search

__all__ = [
    "Search",
]
