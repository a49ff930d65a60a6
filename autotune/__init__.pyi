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
from .workloads import Step

__version__: str
DISTRIBUTION: str

__all__ = [
    "AutotuneError",
    "Callback",
    "DISTRIBUTION",
    "KernelsResult",
    "SearchResult",
    "Step",
    "__version__",
    "cpu_config",
    "joint",
    "load_run",
    "tune_kernels",
]
