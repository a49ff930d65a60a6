"""One page a kind of run, self-contained HTML."""

from autotune.report.pages.about import device_name
from autotune.report.pages.comparison import comparison_page
from autotune.report.pages.cpu_config import cpu_config_page
from autotune.report.pages.html_page import download, facts, page, table
from autotune.report.pages.kernel_history import DEFAULT, histories, kernels_so_far, step_history
from autotune.report.pages.kernels import kernels_page, role_times, step_lines
from autotune.report.pages.profile import profile_page
from autotune.report.pages.searches import search_so_far

__all__ = [
    "comparison_page",
    "cpu_config_page",
    "DEFAULT",
    "device_name",
    "download",
    "facts",
    "histories",
    "kernels_page",
    "kernels_so_far",
    "page",
    "profile_page",
    "role_times",
    "search_so_far",
    "step_history",
    "step_lines",
    "table",
]
