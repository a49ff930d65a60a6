"""The page around plots and tables: self-contained HTML, readable offline and in print."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: 0.2rem 0.8rem 0.2rem 0; text-align: left;
  border-bottom: 1px solid #ddd; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; max-width: 44rem; height: auto; } svg text { font: 12px system-ui, sans-serif; }
.grid { stroke: #e4e4e4; } .end { text-anchor: end; } .middle, .cell { text-anchor: middle; } .tick { fill: #555; }
.band { opacity: 0.6; stroke: #fff; stroke-width: 0.4; } .border { stroke: #888; stroke-width: 0.5; }
.notice { background: #fff3cd; border-left: 4px solid #e0a800; padding: 0.5rem 1rem; }
"""


def page(title: str, notice: str, sections: Sequence[tuple[str, str]]) -> str:
    """A whole page.

    Args:
        title: Its heading.
        notice: What must not be overlooked, such as that a model stands in; empty for nothing.
        sections: Headings, and HTML below each.
    """
    body = "\n".join(f"<h2>{escape(heading)}</h2>\n{html}" for heading, html in sections)
    told = f'<p class="notice">{escape(notice)}</p>\n' if notice else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{escape(title)}</h1>\n{told}{body}\n</body>\n</html>\n"
    )


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()
) -> str:
    """A table; columns of numbers are flushed right."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = []
    for row in rows:
        cells = "".join(
            f'<td class="number">{escape(cell)}</td>'
            if column in numbers
            else f"<td>{escape(cell)}</td>"
            for column, cell in zip(columns, row, strict=True)
        )
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>\n<tr>{head}</tr>\n" + "\n".join(lines) + "\n</table>"


def download(name: str, content: Any) -> str:
    """A link that holds data as JSON."""
    data = base64.b64encode(json.dumps(content, indent=1).encode()).decode()
    return f'<p><a download="{escape(name)}" href="data:application/json;base64,{data}">{escape(name)}</a></p>'
