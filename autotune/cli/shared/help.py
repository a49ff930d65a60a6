"""Help of commands, with options in groups, at the width of the terminal."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from autotune.cli.shared.later import find_all

_GROUPS = {
    "Model": (
        "model", "op", "role", "batch", "classes", "optimizer", "input_shape", "train", "micro_batch", "recompute",
        "layout", "run", "gpu_run", "plan", "data", "command", "steps_from", "of", "point", "network",
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
"""Group of each option, by its Python name, as commands share it. All other options are advanced."""
_ADVANCED = "Advanced"
_FEW = 8
"""Up to this number of options need no groups."""
_AS_IT_IS = "\b"
"""Begins a paragraph that is not reflowed."""
_PROGRAM, _GOES_ON = "autotune ", " \\"
_WORDS = re.compile(r"--\S+ (?:'[^']*'|(?!-)\S+)|'[^']*'|\S+")
"""Words of a command. An option and its value are one word."""
_COLUMN = re.compile(r"\s*\S+\s{2,}")
"""First column of a table, with the space before the next."""


def group_of(option: str) -> str:
    """Returns the group of an option."""
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


def _fitted(text: str, width: int) -> str:
    """Returns help text whose examples and tables, which are not reflowed, fit the width.

    A command continues on the next line in shell syntax. An option is not separated from its value.
    """
    fitted: list[str] = []
    written = False
    for line in text.splitlines():
        written = line.strip() == _AS_IT_IS or (written and bool(line))
        fitted += _broken(line, width) if written and len(line) > width else [line]
    return "\n".join(fitted)


def _broken(line: str, width: int) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    if not line.lstrip().startswith(_PROGRAM):
        column = _COLUMN.match(line)
        hanging = " " * column.end() if column else indent
        return textwrap.wrap(line, width, subsequent_indent=hanging, break_on_hyphens=False)
    first, *words = _WORDS.findall(line)
    lines = [indent + first]
    for word in words:
        if len(lines[-1]) + 1 + len(word) + len(_GOES_ON) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{indent}    {word}")
    return [*(one + _GOES_ON for one in lines[:-1]), lines[-1]]


def _write_text(command: TyperCommand | TyperGroup, formatter: Any) -> None:
    formatter.write_paragraph()
    with formatter.indentation():
        width = formatter.width - formatter.current_indent
        formatter.write_text(_fitted(inspect.cleandoc(command.help or ""), width))


class Command(TyperCommand):
    """A command whose help shows options in groups."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the command line, and then finds the values that depend on other options."""
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:  # As for completion, which uses no values.
            find_all(ctx.params)
        return rest

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Writes the description, with examples."""
        _write_text(self, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and options."""
        _write_options(self, ctx, formatter)


class Group(TyperGroup):
    """A command with subcommands, whose help shows options in groups."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the command line, and then finds the values that depend on other options."""
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:  # As for completion, which uses no values.
            find_all(ctx.params)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Runs the subcommand. Typer would take Ctrl-C for its result, without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupted:
            raise typer.Abort from interrupted

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Writes the description, with examples."""
        _write_text(self, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments, options and commands."""
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)
