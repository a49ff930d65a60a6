from .api import (
    Callback,
    KernelsResult,
    SearchResult,
    cpu_config,
    joint,
    load_run,
    tune_kernels,
)
from .errors import AutotuneError

__version__: str
DISTRIBUTION: str

__all__ = [
    "AutotuneError",
    "Callback",
    "DISTRIBUTION",
    "KernelsResult",
    "SearchResult",
    "__version__",
    "cpu_config",
    "joint",
    "load_run",
    "tune_kernels",
]
