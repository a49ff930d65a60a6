"""Tables as CSV that are safe to open in spreadsheets: no text cell is taken for a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Any

_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")  # The last four are their full-width forms.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns a table of raw values as CSV; None is an empty cell.

    Text that a spreadsheet would take for a formula gets an apostrophe in front. Numbers are unchanged.
    """
    text = io.StringIO()
    written = csv.writer(text, lineterminator="\n")
    written.writerow(map(_cell, columns))
    written.writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace(
        "\r", "\n"
    )  # Quoted, because a bare one would begin a row.
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text
