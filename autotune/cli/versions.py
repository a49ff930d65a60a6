"""The versions that results and runs were made with."""

from __future__ import annotations

import platform
from importlib.metadata import version

from autotune import __version__

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "optuna")


def versions() -> dict[str, str]:
    """Versions of autotune, Python and the packages that results depend on, by name."""
    return {
        "autotune": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }
