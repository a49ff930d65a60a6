"""Help of commands: options in groups, at the width of the terminal."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

_GROUPS = {
    "Model": (
        "model", "op", "role", "batch", "classes", "optimizer", "input_shape", "micro_batch", "recompute", "layout",
        "run", "gpu_run", "plan", "data", "command", "steps_from", "of", "point", "network",
    ),
    "Budget": (
        "objective", "trials", "kernel_trials", "steps", "seconds", "blocks", "least_seconds", "exhaustive",
        "deadline", "energy_budget", "max_temperature", "memory_limit",
    ),
    "Device": (
        "target", "target_json", "device", "ssh", "emulate", "cluster", "tracker", "key", "cpus", "threads",
        "meter", "gpu_memory", "precision", "platform", "soc",
    ),
    "Output": ("out", "logs", "name", "kind", "html", "json", "wide", "verbose", "quiet", "help"),
}  # fmt: skip
"""The group of each option by its name in Python, as commands share them; those that are not here are advanced."""
_ADVANCED = "Advanced"
_FEW = 8
"""So many options need no groups."""


def group_of(option: str) -> str:
    """The group of an option."""
    return next((name for name, options in _GROUPS.items() if option in options), _ADVANCED)


def _write_options(command: TyperCommand | TyperGroup, context: Any, formatter: Any) -> None:
    arguments, options = [], []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            continue
        if parameter.param_type_name == "argument":
            arguments.append(record)
        else:
            options.append((group_of(parameter.name or ""), record))
    if len(options) <= _FEW:
        sections = {"Options": [record for _, record in options]}
    else:
        sections = {
            name: [record for group, record in options if group == name]
            for name in (*list(_GROUPS)[:-1], _ADVANCED, list(_GROUPS)[-1])
        }
    for title, records in (("Arguments", arguments), *sections.items()):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class Command(TyperCommand):
    """A command whose help has its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and options."""
        _write_options(self, ctx, formatter)


class Group(TyperGroup):
    """A command of commands whose help has its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments, options and commands."""
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)
