"""The commands that search over cores and clocks: `cpu-config`, `joint`, `replay`."""

from autotune.cli.search_commands import (
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
