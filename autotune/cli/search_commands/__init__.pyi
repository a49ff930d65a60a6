from . import (
    cpu_config,
    cpu_config_apply,
    cpu_config_compare,
    joint,
    replay,
)

__all__ = [
    "cpu_config",
    "cpu_config_apply",
    "cpu_config_compare",
    "joint",
    "replay",
]
