"""The reference of every command, as Markdown, from the command line itself.

`python -m autotune.cli.reference > docs/commands.md` writes it anew; `make docs` does, too.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from autotune.cli.main import app

_HEAD = """\
# Commands

Written by `make docs` from the command line itself: change the commands, not this file. `--help` after any command
tells the same. [README](../README.md#what-it-does) says what the commands are for.

`--json` prints one JSON object with a `schema_version`; standard output then has nothing else. What is told while a
command works goes to standard error, and so does all that a model's code prints. An error is an object too, with
the same exit code: `{"schema_version": 1, "error": {"message": ..., "hint": ..., "kind": ...}}`, where `kind` is
`usage`, `record`, `device`, `toolchain`, `nothing_measured`, `failed`, `interrupted` or `bug`.

Tables are as wide as the terminal, or `COLUMNS`, and 100 columns in a pipe: what does not fit is left out and named
below; `--wide` shows all of it. Wherever a run is taken, `latest` is the newest one that the command can take
(`autotune runs` lists them). A command that makes something ends with the next command to type, on standard error;
`-q` leaves that out.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | something failed; `verify`: something is wrong |
| 2 | the command line or a file that it names is wrong; the message says what, where and how to fix it |
| 3 | a device is missing, gone, or held by another run |
| 4 | a tool is missing; `autotune doctor` says which |
| 5 | nothing was measured with success, or nothing keeps the limits |
| 130 | Ctrl-C; what was measured is kept |
"""
_PROSE_END = "\x08"
"""What begins a block in a docstring that keeps its lines."""


def markdown() -> str:
    """The whole reference."""
    top = typer.main.get_command(app)
    parts = [_HEAD]
    assert isinstance(top, TyperGroup)
    parts += [_section(path, command) for path, command in commands("autotune", top)]
    return "\n".join(parts)


def commands(
    path: str, command: TyperCommand | TyperGroup
) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    """A command and those below it with their whole names, in the order of `--help`."""
    yield path, command
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from commands(f"{path} {name}", below)  # type: ignore[arg-type]  # typer makes no others


def _section(path: str, command: TyperCommand | TyperGroup) -> str:
    context = typer.Context(command, info_name=path, **app.info.context_settings or {})
    pieces = " ".join(command.collect_usage_pieces(context))
    lines = [f"## {path}", "", f"    {path} {pieces}", ""]
    lines += _told(inspect.cleandoc(command.help or ""))
    records: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            records[parameter.param_type_name].append(record)
    lines += _table("argument", records["argument"])
    lines += _table("option", records["option"])
    if isinstance(command, TyperGroup):
        below = [(name, one.get_short_help_str(200)) for name, one in command.commands.items()]
        lines += _table("command", below)
    return "\n".join(lines)


def _told(text: str) -> list[str]:
    """A docstring's paragraphs; blocks that keep their lines are code."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith(_PROSE_END):
            title, *block = paragraph.removeprefix(_PROSE_END).strip().splitlines()
            lines += [title, "", *(f"    {line.strip()}" for line in block), ""]
        else:
            lines += [*paragraph.strip().splitlines(), ""]
    return lines


def _table(kind: str, records: list[tuple[str, str]]) -> list[str]:
    if not records:
        return []
    rows = [f"| `{_cell(name)}` | {_cell(what)} |" for name, what in records]
    return [f"| {kind} | |", "|---|---|", *rows, ""]


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", r"\|")


if __name__ == "__main__":
    sys.stdout.write(markdown())
