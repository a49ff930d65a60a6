"""The result on stdout: one JSON object, or a table that fits the terminal."""

from __future__ import annotations

import functools
import inspect
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from autotune.cli.shared.streams import results
from autotune.jobs.provenance import command_line_of

SCHEMA_VERSION = 1
_NARROWEST, _UNKNOWN = 80, 100
"""Columns of characters that a table takes at least, and where no terminal says how many there are."""
_GAP = "  "
_SHORTEST = 8
_NOTHING = ("", "-")
_WIDE: ContextVar[bool] = ContextVar("wide", default=False)
_WRITTEN: ContextVar[bool] = ContextVar("written", default=False)

Wide = Annotated[bool, typer.Option("--wide", help="Show every column, however wide the table.")]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its heading.
        right: Whether it is flushed right, as numbers are.
        rank: 0 for a column that is always shown; of the others, the one of highest rank goes first.
        least: Characters that its cells may be cut to, so that other columns have room; 0 for no cutting.
        prose: Whether long cells go on in the next line in place of being cut.
        whole: Shown with `--wide` only, in place of the column before it, which is short for it.
    """

    title: str
    right: bool = False
    rank: int = 0
    least: int = 0
    prose: bool = False
    whole: bool = False


def number(title: str, rank: int = 0) -> Column:
    """A column of numbers."""
    return Column(title, right=True, rank=rank)


def write_json(content: Mapping[str, Any]) -> None:
    """Writes one object with its `schema_version` to stdout.

    Raises:
        RecordError: It has a number that JSON does not have.
    """
    from autotune.records import json_text

    _WRITTEN.set(True)
    print(json_text({"schema_version": SCHEMA_VERSION, **content}, 2), file=results())


def write_error(message: str, hint: str, kind: str) -> None:
    """Writes an error as JSON, unless a result was written."""
    if not _WRITTEN.get():
        write_json({"error": {"message": message, "hint": hint, "kind": kind}})


def write_next(*words: object) -> None:
    """Says on stderr which command comes next; not where only errors are asked for."""
    say_next("autotune", *words)


def say_next(program: str, *words: object) -> None:
    """The same of another program."""
    from autotune.console import is_quiet

    command = " ".join([program, shlex.join(map(str, words))]).rstrip()
    if not is_quiet():
        print(f"next: {command}", file=sys.stderr)


@contextmanager
def command_of(arguments: Sequence[str]) -> Iterator[None]:
    """Keeps what the command line was, for results and runs, and what was written of the result."""
    written = _WRITTEN.set(False)
    try:
        with command_line_of(arguments):
            yield
    finally:
        _WRITTEN.reset(written)


def with_wide(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command that prints tables the option `--wide`."""

    @functools.wraps(command)
    def wrapper(*args: Any, wide: bool = False, **options: Any) -> Any:
        before = _WIDE.set(wide)
        try:
            return command(*args, **options)
        finally:
            _WIDE.reset(before)

    signature = inspect.signature(command, eval_str=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    extra = inspect.Parameter("wide", kind, annotation=Wide, default=False)
    parameters = [*signature.parameters.values(), extra]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # what inspect reads
    return wrapper


def terminal_width() -> int | None:
    """Characters in a line of stdout, as the terminal or `COLUMNS` says; None where neither does."""
    asked = os.environ.get("COLUMNS", "")
    found = int(asked) if asked.isdecimal() else 0
    if found == 0:
        try:
            found = os.get_terminal_size(results().fileno()).columns
        except (OSError, ValueError):
            return None
    return found or None


def write_text(text: str) -> None:
    """Writes sentences to stdout, broken between words where the terminal ends; whole into a file or a pipe."""
    width = terminal_width()
    if width is None:
        print(text)
        return
    for line in text.splitlines() or [""]:
        lines = textwrap.wrap(
            line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        print("\n".join(lines))


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Writes a table to stdout, no line of which is wider than the terminal.

    Where there is no room for all of it, columns are left out by their rank, and long cells are cut in the middle;
    a line below the table names the columns that are missing. Ranked columns with nothing in them are left out too.
    With `--wide` all of it is shown.

    Args:
        columns: From the left.
        rows: Cells, one for each column.
    """
    every = [[_one_line(cell) for cell in row] for row in rows]
    natural = [
        max(_cells(text) for text in (column.title, *(row[at] for row in every)))
        for at, column in enumerate(columns)
    ]
    if _WIDE.get():
        shown = [
            at for at in range(len(columns)) if at + 1 == len(columns) or not columns[at + 1].whole
        ]
        widths: Sequence[int] = natural
        missing: list[str] = []
    else:
        told = [
            at
            for at, column in enumerate(columns)
            if not column.whole
            and (column.rank == 0 or any(row[at] not in _NOTHING for row in every))
        ]
        room = max(terminal_width() or _UNKNOWN, _NARROWEST)
        shown, widths, missing = _fitted(columns, natural, told, room)
    for line in _lines([columns[at] for at in shown], every, shown, widths):
        print(line.rstrip())
    if missing:
        write_text(f"not shown: {', '.join(missing)}; --wide shows every column")


def _fitted(
    columns: Sequence[Column], natural: Sequence[int], told: Sequence[int], room: int
) -> tuple[list[int], list[int], list[str]]:
    """The columns that are shown, how wide each of all columns is, and the names of those that are not shown."""
    shown = list(told)
    least = [
        min(wide, max(column.least, _cells(column.title))) if column.least or column.prose else wide
        for column, wide in zip(columns, natural, strict=True)
    ]

    def excess(widths: Sequence[int]) -> int:
        return sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1) - room

    missing: list[int] = []
    while excess(least) > 0:
        at = max(shown, key=lambda one: (columns[one].rank, one))
        if columns[at].rank == 0:
            break
        shown.remove(at)
        missing.append(at)
    widths = list(natural)
    # Names that need not be cut at most widths may have to be; numbers never are.
    shortest = [
        wide if column.right else min(wide, _SHORTEST)
        for column, wide in zip(columns, natural, strict=True)
    ]
    for floor in (least, shortest):
        while (over := excess(widths)) > 0:
            longest = max(shown, key=lambda one: widths[one] - floor[one])
            spare = widths[longest] - floor[longest]
            if spare <= 0:
                break
            widths[longest] -= min(over, spare)
    return shown, widths, [columns[at].title for at in sorted(missing) if columns[at].title]


def _lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    shown: Sequence[int],
    widths: Sequence[int],
) -> Iterable[str]:
    wide = [widths[at] for at in shown]
    yield _GAP.join(
        _padded(column.title, room, column) for column, room in zip(columns, wide, strict=True)
    )
    yield "─" * (sum(wide) + len(_GAP) * (len(wide) - 1))
    for row in rows:
        cells = [
            _broken(row[at], room, column)
            for column, at, room in zip(columns, shown, wide, strict=True)
        ]
        for number_of in range(max(map(len, cells))):
            yield _GAP.join(
                _padded(cell[number_of] if number_of < len(cell) else "", room, column)
                for cell, room, column in zip(cells, wide, columns, strict=True)
            )


def _broken(text: str, room: int, column: Column) -> list[str]:
    """A cell's lines."""
    if _cells(text) <= room:
        return [text]
    if column.prose:
        return textwrap.wrap(text, room, break_on_hyphens=False)
    return [_cut(text, room)]


def _cut(text: str, room: int) -> str:
    """A text without its middle."""
    tail = (room - 1) // 3
    head = room - 1 - tail
    while _cells(text[:head]) > room - 1 - tail:
        head -= 1
    end = text[len(text) - tail :] if tail else ""
    while _cells(end) > tail:
        end = end[1:]
    return f"{text[:head]}…{end}"


def _padded(text: str, room: int, column: Column) -> str:
    if _cells(text) > room:
        text = _cut(text, room)
    space = " " * (room - _cells(text))
    return space + text if column.right else text + space


def _cells(text: str) -> int:
    """How many characters wide a text is on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _one_line(text: str) -> str:
    return " ".join(text.split()) if "\n" in text or "\t" in text else text


def time_text(seconds: float | None) -> str:
    """A time with three digits in the unit in which it reads best; `-` for none."""
    if seconds is None:
        return "-"
    scale, unit = _unit(seconds)
    return f"{_fixed(seconds * scale)} {unit}"


def _unit(seconds: float) -> tuple[float, str]:
    """The unit in which a time is below 1000, if there is one."""
    for scale, unit in ((1e6, "us"), (1e3, "ms")):
        if float(f"{seconds * scale:.3g}") < 1000:
            return scale, unit
    return 1.0, "s"


def _fixed(value: float) -> str:
    """Three digits, without an exponent where that can be."""
    value = float(f"{value:.3g}")
    if 0 < value < 0.1:
        return f"{value:.3g}"
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def rate_text(value: float) -> str:
    """A rate, such as samples a second, with three digits and without an exponent."""
    return _fixed(value)


def times_text(ends: Sequence[float] | None) -> str:
    """An interval of seconds, in the unit of its upper end where both read well in it; empty for none."""
    if not ends:
        return ""
    scale, unit = _unit(max(ends))
    if ends[0] * scale < 0.01 * min(1.0, ends[1] * scale):
        return f"{time_text(ends[0])} to {time_text(ends[1])}"
    return f"{_fixed(ends[0] * scale)} to {_fixed(ends[1] * scale)} {unit}"


def speedup_text(value: float | None, ends: Sequence[float] | None = None) -> str:
    """A ratio with its interval, such as `5.67x (3.66-6.78)`; `-` for none."""
    if value is None:
        return "-"
    told = f" ({_digits(ends[0])}-{_digits(ends[1])})" if ends else ""
    return f"{_digits(value)}x{told}"


def faster_text(ratio: float, than: str, ends: Sequence[float] | None = None) -> str:
    """How fast something is beside another: `5.67x as fast as untuned (3.66-6.78)`.

    Args:
        ratio: The other's time over its own.
        than: The other.
        ends: Interval of the ratio; None for none.
    """
    told = f" ({_digits(ends[0])}-{_digits(ends[1])})" if ends else ""
    return f"{_digits(ratio)}x as fast as {than}{told}"


def _digits(value: float) -> str:
    return (
        f"{value:.3g}"
        if 0.01 <= abs(value) < 999.5
        else f"{value:.0f}"
        if abs(value) >= 1
        else f"{value:.2g}"
    )
