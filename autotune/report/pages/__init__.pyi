from .about import device_name
from .comparison import comparison_page
from .cpu_config import cpu_config_page
from .html_page import download, facts, page, table
from .kernel_history import DEFAULT, histories, kernels_so_far, step_history
from .kernels import kernels_page, role_times, step_lines
from .profile import profile_page
from .searches import search_so_far

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
