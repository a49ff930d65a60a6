"""The result on stdout: one JSON object, or a table that fits the terminal."""

from __future__ import annotations

import functools
import inspect
import os
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from autotune.cli.shared.streams import results
from autotune.errors import printable
from autotune.jobs.provenance import Work, command_line_of, named
from autotune.times import rate_text as rate_text
from autotune.times import time_text as time_text
from autotune.times import times_text as times_text

SCHEMA_VERSION = 1
_NARROWEST, _UNKNOWN = 80, 100
"""Least width of a table in characters, and its width if no terminal determines it."""
_GAP = "  "
_SHORTEST = 8
_NAME = 28
"""Least width at which names of kernels can be told apart."""
_NOTHING = ("", "-")
_SHORT_ROLES = {"forward": "fwd", "data_grad": "dgrad", "weight_grad": "wgrad", "update": "upd"}
_WIDE: ContextVar[bool] = ContextVar("wide", default=False)
_WRITTEN: ContextVar[bool] = ContextVar("written", default=False)

Wide = Annotated[bool, typer.Option("--wide", help="Show every column, however wide the table.")]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its heading.
        right: Whether it is right-aligned, as numbers are.
        rank: 0 for a column that is always shown. Of the others, the one with the highest rank is dropped first.
        least: Width to which its cells may be shortened to make room for other columns; 0 for no shortening.
        prose: Whether long cells are wrapped instead of shortened, if dropping columns does not make room.
        whole: Whether it is shown only with `--wide`, where it replaces the column before it, its short form.
        named: Whether its cells are names, whose beginning tells most: they are cut to one line. An eighth of their
            end at most is kept, where they would look alike.
        differing: Whether its rank counts only where it is the same in each row; else it is always shown.
        short: Returns a shorter form of a cell, which is shown where names would have too little room.
    """

    title: str
    right: bool = False
    rank: int = 0
    least: int = 0
    prose: bool = False
    whole: bool = False
    named: bool = False
    differing: bool = False
    short: Callable[[str], str] | None = None


def number(title: str, rank: int = 0) -> Column:
    """Returns a column of numbers."""
    return Column(title, right=True, rank=rank)


def name_of(what: str) -> Column:
    """Returns a column of names, such as those of kernels. Other columns are dropped before these are cut."""
    return Column(what, least=_NAME, named=True, short=lambda name: name.replace("2d ", " ", 1))


def roles() -> Column:
    """Returns a column of the roles of kernels."""
    return Column("role", short=lambda role: _SHORT_ROLES.get(role, role))


def speedups(title: str) -> Column:
    """Returns a column of ratios with intervals, as `speedup_text` writes them."""
    return Column(title, short=_short_speedup)


def _short_speedup(text: str) -> str:
    """Returns a ratio with its interval in two digits and without brackets."""
    ratio, bracket, ends = text.partition(" (")
    try:
        shown = [float(end) for end in ends.removesuffix(")").split("-")]
    except ValueError:
        return text
    interval = "-".join(f"{end:.0f}" if end >= 10 else f"{end:.2g}" for end in shown)
    return f"{ratio} {interval}" if bracket else text


def write_json(content: Mapping[str, Any], work: Work | None = None) -> None:
    """Writes one object to stdout, with its `schema_version` and the names that every result has; see `named`.

    Args:
        content: The result.
        work: What it is about, if it is of a run or of a model.

    Raises:
        RecordError: It has a number that JSON cannot represent.
    """
    from autotune.records import json_text

    _WRITTEN.set(True)
    whole = {"schema_version": SCHEMA_VERSION, **named(content, work)}
    print(json_text(whole, 2), file=results())


def write_error(message: str, hint: str, kind: str) -> None:
    """Writes an error as JSON, unless a result was already written."""
    if not _WRITTEN.get():
        write_json({"error": {"message": message, "hint": hint, "kind": kind}})


def write_next(*words: object) -> None:
    """Prints the next command to stderr, after the result, unless only errors are requested."""
    say_next("autotune", *words)


def say_next(program: str, *words: object) -> None:
    """Like `write_next`, for another program."""
    from autotune.console import is_quiet

    command = printable(" ".join([program, shlex.join(map(str, words))]).rstrip())
    try:
        results().flush()  # So that the command comes last where both streams go to one file.
    except (OSError, ValueError):  # Handled when the command ends.
        return
    if not is_quiet():
        print(f"next: {command}", file=sys.stderr)


@contextmanager
def command_of(arguments: Sequence[str]) -> Iterator[None]:
    """Keeps the command line for results and runs, and tracks whether a result was written."""
    written = _WRITTEN.set(False)
    try:
        with command_line_of(arguments):
            yield
    finally:
        _WRITTEN.reset(written)


def with_wide(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the option `--wide` to a command that prints tables."""

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
    """Returns the width of stdout in characters, by the terminal or `COLUMNS`; None if neither is known."""
    asked = os.environ.get("COLUMNS", "")
    found = int(asked) if asked.isdecimal() else 0
    if found == 0:
        try:
            found = os.get_terminal_size(results().fileno()).columns
        except (OSError, ValueError):
            return None
    return found or None


def write_text(text: str) -> None:
    """Writes text to stdout, wrapped to the terminal's width; not wrapped in a file or a pipe.

    Control characters, which a text from a file may contain, are shown and not sent to the terminal.
    """
    text = printable(text)
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
    """Writes a table to stdout, no wider than the terminal.

    If there is no room, columns are dropped; see `Column`. Then cells have their short forms, and long cells are
    cut: names at their end, others in the middle. A line below the table names the missing columns. Empty columns
    with a rank are dropped too. With `--wide`, everything is shown.

    Args:
        columns: Columns from left to right.
        rows: Cells, one for each column.
    """
    every = [[_one_line(cell) for cell in row] for row in rows]
    natural = _natural(columns, every)
    if _WIDE.get():
        shown = [
            at for at in range(len(columns)) if at + 1 == len(columns) or not columns[at + 1].whole
        ]
        widths: Sequence[int] = natural
        missing: list[str] = []
    else:
        filled = [
            at
            for at, column in enumerate(columns)
            if not column.whole
            and (column.rank == 0 or any(row[at] not in _NOTHING for row in every))
        ]
        room = max(terminal_width() or _UNKNOWN, _NARROWEST)
        same = {at for at in filled if len(every) > 1 and len({row[at] for row in every}) == 1}
        shown, widths, missing = _fitted(columns, natural, filled, same, room)
        if any(columns[at].named and widths[at] < min(natural[at], _NAME) for at in shown):
            every = [_short(columns, row) for row in every]
            shown, widths, missing = _fitted(columns, _natural(columns, every), filled, same, room)
    for line in _lines([columns[at] for at in shown], every, shown, widths):
        print(line.rstrip())
    if missing:
        write_text(f"not shown: {', '.join(missing)}; --wide shows every column")


def _natural(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    """Returns the widths at which no cell is shortened."""
    return [
        max(_cells(text) for text in (column.title, *(row[at] for row in rows)))
        for at, column in enumerate(columns)
    ]


def _short(columns: Sequence[Column], row: Sequence[str]) -> list[str]:
    """Returns the short forms of a row's cells."""
    return [
        column.short(cell) if column.short else cell
        for column, cell in zip(columns, row, strict=True)
    ]


def _fitted(
    columns: Sequence[Column],
    natural: Sequence[int],
    filled: Sequence[int],
    same: Collection[int],
    room: int,
) -> tuple[list[int], list[int], list[str]]:
    """Returns the shown columns, the width of every column, and the titles of columns that are not shown.

    Args:
        columns: Every column.
        natural: Widths at which no cell is shortened.
        filled: Places of the columns with something to show.
        same: Places of the columns that are the same in each row.
        room: Width of the table.
    """
    shown = list(filled)
    least = [
        min(wide, max(column.least, _cells(column.title))) if column.least or column.prose else wide
        for column, wide in zip(columns, natural, strict=True)
    ]
    droppable = [
        at for at in filled if columns[at].rank > 0 and (at in same or not columns[at].differing)
    ]
    droppable.sort(key=lambda at: (columns[at].rank, at))

    def excess(widths: Sequence[int]) -> int:
        return sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1) - room

    missing: list[int] = []
    # Columns are dropped for a row to have one line, if dropping them can make room for that.
    one_line = [
        wide if column.prose else short
        for column, wide, short in zip(columns, natural, least, strict=True)
    ]
    spare = sum(one_line[at] + len(_GAP) for at in droppable)
    while droppable and excess(one_line if excess(one_line) <= spare else least) > 0:
        at = droppable.pop()
        spare -= one_line[at] + len(_GAP)
        shown.remove(at)
        missing.append(at)
    widths = list(natural)
    # Names whose minimum width does not suffice may be shortened further; numbers never are.
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
    cut = [
        _in_one_line([row[at] for row in rows], room, column)
        for column, at, room in zip(columns, shown, wide, strict=True)
    ]
    for row in rows:
        cells = [
            [one_line[row[at]]]
            if row[at] in one_line
            else textwrap.wrap(row[at], room, break_on_hyphens=False)
            for at, room, one_line in zip(shown, wide, cut, strict=True)
        ]
        for number_of in range(max(map(len, cells))):
            yield _GAP.join(
                _padded(cell[number_of] if number_of < len(cell) else "", room, column)
                for cell, room, column in zip(cells, wide, columns, strict=True)
            )


def _in_one_line(texts: Iterable[str], room: int, column: Column) -> dict[str, str]:
    """Returns the texts of a column that are shown in one line, as they are shown; the others are wrapped."""
    whole = {text: text for text in texts if _cells(text) <= room}
    long = [text for text in dict.fromkeys(texts) if text not in whole]
    if column.prose:
        return whole
    if not column.named:
        alike = _alike({text: _cut(text, room) for text in long})
        return whole | {text: _cut(text, room) for text in long if text not in alike}
    cut: dict[str, str] = {}
    for tail in range(room // 8 + 1):
        left = [text for text in long if text not in cut]
        tried = {text: _cut(text, room, tail) for text in left}
        alike = _alike(tried)
        cut |= {text: shown for text, shown in tried.items() if text not in alike}
    return whole | {text: cut.get(text, _cut(text, room, 0)) for text in long}


def _alike(shown: Mapping[str, str]) -> set[str]:
    """Returns the texts that are shown as another one is."""
    count = Counter(shown.values())
    return {text for text, seen in shown.items() if count[seen] > 1}


def _cut(text: str, room: int, tail: int | None = None) -> str:
    """Returns a text with its middle removed.

    Args:
        text: The text.
        room: The width of what is left, in characters.
        tail: The width of its end that is kept; None for a third.
    """
    tail = (room - 1) // 3 if tail is None else tail
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
    """Returns the width of a text on a terminal, in characters."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _one_line(text: str) -> str:
    """Returns a cell's text without line breaks and control characters."""
    return printable(" ".join(text.split()) if "\n" in text or "\t" in text else text)


def speedup_text(value: float | None, ends: Sequence[float] | None = None) -> str:
    """Returns a ratio with its interval, such as `5.67x (3.66-6.78)`; `-` for None."""
    if value is None:
        return "-"
    interval = f" ({_digits(ends[0])}-{_digits(ends[1])})" if ends else ""
    return f"{_digits(value)}x{interval}"


def faster_text(ratio: float, than: str, ends: Sequence[float] | None = None) -> str:
    """Returns the speed of one thing relative to another: `5.67x as fast as untuned (3.66-6.78)`.

    Args:
        ratio: The other's time over its own.
        than: Name of the other.
        ends: Interval of the ratio; None if there is none.
    """
    interval = f" ({_digits(ends[0])}-{_digits(ends[1])})" if ends else ""
    return f"{_digits(ratio)}x as fast as {than}{interval}"


def _digits(value: float) -> str:
    return (
        f"{value:.3g}"
        if 0.01 <= abs(value) < 999.5
        else f"{value:.0f}"
        if abs(value) >= 1
        else f"{value:.2g}"
    )
