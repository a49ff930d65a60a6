"""The result on stdout: one JSON object, or a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

SCHEMA_VERSION = 1
_NARROWEST = 80
_UNBROKEN = 10_000


def write_json(content: Mapping[str, Any]) -> None:
    """Writes one object with its `schema_version` to stdout.

    Raises:
        RecordError: It has a number that JSON does not have.
    """
    from autotune.records.json_text import json_text

    print(json_text({"schema_version": SCHEMA_VERSION, **content}, 2))


def write_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Iterable[str] = (),
    whole: bool = False,
) -> None:
    """Writes a table to stdout.

    It is as wide as the terminal or `COLUMNS` says, and 80 columns at least; into a file or a
    pipe, no line is broken.

    Args:
        columns: Headings; the first column holds names, which are not broken either.
        rows: Cells, one for each column.
        numbers: Headings of the columns that are flushed right.
        whole: Never break a line, not even on a terminal that is too narrow: for tables that would lose
            whole columns there.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    flushed_right = set(numbers)
    for column in columns:
        right = column in flushed_right
        justify: Literal["right", "left"] = "right" if right else "left"
        unbroken = right or column == columns[0]
        table.add_column(column, justify=justify, no_wrap=unbroken, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(markup=False, highlight=False, emoji=False)
    fitted = sys.stdout.isatty() or "COLUMNS" in os.environ
    console.width = max(console.width, _NARROWEST) if fitted and not whole else _UNBROKEN
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    print("\n".join(lines).strip("\n"))
