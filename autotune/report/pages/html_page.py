"""The page around plots and tables: self-contained HTML that can be read offline, in dark mode and in print."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import Any

from autotune.records import json_text
from autotune.report.plots import BANDS, COLOURS, TOP, WIDTH, label
from autotune.report.tables import csv_text

_LIGHT = """--ink: #222; --soft: #555; --grid: #e2e2e2; --rule: #888; --paper: #fff; --box: #f5f5f5;
  --link: #0b57d0; --notice: #fff3cd; --c0: #1f77b4; --c1: #d62728; --c2: #2ca02c; --c3: #9467bd; --c4: #d96c00;
  --c5: #8c564b; --c6: #c2479c; --c7: #6b6b6b; --c8: #8a8b00; --c9: #0f8fa0;
  --b0: #aec7e8; --b1: #ffbb78; --b2: #98df8a; --b3: #ff9896; --b4: #c5b0d5; --b5: #c49c94; --b6: #f7b6d2;
  --b7: #dbdb8d; --b8: #9edae5; --b9: #c7c7c7;"""
_DARK = """--ink: #e8e8e8; --soft: #b0b0b0; --grid: #3a3a3a; --rule: #999; --paper: #161616; --box: #222;
  --link: #8ab4f8; --notice: #4a3c00; --c0: #5aa9e6; --c1: #ff6b6b; --c2: #5cc86a; --c3: #b893e8; --c4: #ffa24d;
  --c5: #cfa193; --c6: #f08ad0; --c7: #adadad; --c8: #d6d750; --c9: #4fd6e6;
  --b0: #234a73; --b1: #7a4a12; --b2: #2c5c24; --b3: #7a2b2b; --b4: #4b3a66; --b5: #57382f; --b6: #6b2f50;
  --b7: #5c5c1e; --b8: #1e5a66; --b9: #4a4a4a;"""
_PLOT_STYLE = f"""svg text {{ font: 12px system-ui, sans-serif; fill: var(--ink); }}
svg .tick {{ fill: var(--soft); }} svg .light {{ fill: #fff; }} svg .dark {{ fill: #000; }}
.end {{ text-anchor: end; }} .middle, .cell {{ text-anchor: middle; }}
.grid {{ stroke: var(--grid); }} .border {{ stroke: var(--rule); stroke-width: 0.5; }}
.line {{ fill: none; stroke: var(--of); stroke-width: 1.5; }} .fill {{ fill: var(--of); }}
.bar {{ fill: var(--of); fill-opacity: 0.9; }} .bar.faint {{ fill-opacity: 0.35; }}
.dot {{ fill: var(--of); fill-opacity: 0.85; }}
.dots {{ fill: none; stroke: var(--of); stroke-width: 5; stroke-linecap: round; stroke-opacity: 0.6; }}
.whisker {{ fill: none; stroke: var(--ink); }} .box {{ fill: var(--box); }}
.band {{ fill: var(--of); opacity: 0.7; stroke: var(--paper); stroke-width: 0.4; }}
{" ".join(f".c{n} {{ --of: var(--c{n}); }}" for n in range(COLOURS))}
{" ".join(f".b{n} {{ --of: var(--b{n}); }}" for n in range(BANDS))}
"""
_STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem;
  color: var(--ink); background: var(--paper); }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.2rem; margin-top: 2.5rem; }} a {{ color: var(--link); }}
.wide {{ overflow-x: auto; }} .wide, .plot {{ margin: 1rem 0; }}
table {{ border-collapse: collapse; }}
td, th {{ padding: 0.2rem 0.8rem 0.2rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--grid); max-width: 26rem; overflow-wrap: break-word; }}
td.long {{ min-width: 15rem; overflow-wrap: anywhere; }}
th.number, td.number {{ text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }}
svg {{ display: block; width: 100%; max-width: 32rem; height: auto; }}
{_PLOT_STYLE}.downloads {{ display: inline-block; margin: 0.3rem 1.2rem 0.3rem 0; }}
.notice {{ background: var(--notice); border-left: 4px solid #e0a800; padding: 0.5rem 1rem; }}
@media screen and (max-width: 40rem) {{ body {{ margin: 1rem auto; padding: 0 0.7rem; }}
  td, th {{ padding-right: 0.5rem; max-width: none; }} td, td.long {{ min-width: 0; overflow-wrap: anywhere; }}
  table {{ font-size: 13px; }} .more, .stacked thead {{ display: none; }}
  .stacked, .stacked tbody, .stacked tr, .stacked td:first-child {{ display: block; }}
  .stacked tr {{ border-bottom: 1px solid var(--grid); padding: 0.3rem 0; }}
  .stacked td, .stacked td.number {{ display: inline-block; border: 0; padding: 0 0.9rem 0 0; max-width: 100%;
    text-align: left; white-space: normal; }}
  .stacked tr td:empty {{ display: none; }}
  .stacked td::before {{ content: attr(data-of) " "; color: var(--soft); }}
  h1 {{ font-size: 1.25rem; overflow-wrap: anywhere; }} }}
@media print {{ :root {{ {_LIGHT} }} body {{ max-width: none; margin: 0; font-size: 11px; }}
  .downloads {{ display: none; }}  .wide {{ overflow: visible; }}
  svg, tr, .notice {{ break-inside: avoid; }} h2 {{ break-after: avoid; }}
  td, th, th.number {{ white-space: normal; overflow-wrap: anywhere; padding-right: 0.35rem; }}
  td.long {{ min-width: 0; }} table.many {{ font-size: 8px; }} * {{ print-color-adjust: exact; }} }}
"""
_LONG_CELL, _MANY_COLUMNS, _FEW_COLUMNS = 40, 8, 3
_EDGE = 6
"""Room at both ends of a picture's heading."""
# A page may load nothing. Browsers enforce this.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, notices: Sequence[str], sections: Sequence[tuple[str, str]]) -> str:
    """Returns a whole page.

    Args:
        title: Its heading.
        notices: Important notices, such as that a model stands in; empty ones are left out.
        sections: Headings, with the HTML below each.
    """
    body = "\n".join(
        f"<section>\n<h2>{escape(heading)}</h2>\n{html}\n</section>" for heading, html in sections
    )
    warnings = "".join(f'<p class="notice">{escape(notice)}</p>\n' for notice in notices if notice)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{warnings}{body}\n</main>\n</body>\n</html>\n"
    )


def picture(plot: str, heading: str) -> str:
    """Returns a plot as a separate SVG file. Its background is light or dark, as the viewer prefers.

    Args:
        plot: A plot from `charts`.
        heading: A line above the plot.
    """
    root, inside = plot[plot.index("<svg") : plot.index("</svg>")].split("\n", 1)
    style = (
        f":root {{ {_LIGHT} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}\n"
        f"{_PLOT_STYLE}"
    )
    return (
        f"{root}\n<style>{style}</style>\n"
        '<rect width="100%" height="100%" style="fill: var(--paper)"/>\n'
        f"{label(_EDGE, TOP - 6, heading, 'label', WIDTH - 2 * _EDGE)}\n{inside}</svg>\n"
    )


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[str] = (),
    narrow: Sequence[str] = (),
) -> str:
    """Returns a table.

    Args:
        columns: Headings.
        rows: Cells, one for each column.
        numbers: Columns that are aligned right.
        narrow: Columns that a narrow screen shows; empty for all. Then a row of more than three columns becomes a
            block there, with each cell after its heading.
    """
    stacked = not narrow and len(columns) > _FEW_COLUMNS
    kinds = [
        ["number"] * (column in numbers) + ["more"] * (bool(narrow) and column not in narrow)
        for column in columns
    ]
    head = "".join(
        f'<th scope="col"{_class(kind)}>{escape(column)}</th>'
        for column, kind in zip(columns, kinds, strict=True)
    )
    lines = []
    for row in rows:
        cells = "".join(
            f"<td{_class([*kind, *_long(cell, kind)])}{_of(column, stacked)}>{escape(cell)}</td>"
            for column, cell, kind in zip(columns, row, kinds, strict=True)
        )
        lines.append(f"<tr>{cells}</tr>")
    body = "\n".join(lines)
    kind = _class(["many"] * (len(columns) > _MANY_COLUMNS) + ["stacked"] * stacked)
    return f'<div class="wide"><table{kind}>\n<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>\n</table></div>'


def _long(cell: str, kind: Sequence[str]) -> Sequence[str]:
    return ("long",) if len(cell) > _LONG_CELL and "number" not in kind else ()


def _of(column: str, stacked: bool) -> str:
    """Returns the attribute that holds a cell's heading, which a narrow screen shows before it."""
    return f' data-of="{escape(column)}"' if stacked and column else ""


def _class(names: Sequence[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """Returns a table of names and values. Empty values are left out."""
    lines = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in rows
        if value
    )
    return f'<div class="wide"><table><tbody>\n{lines}\n</tbody></table></div>'


def download(name: str, content: Any) -> str:
    """Returns a link that contains data as JSON."""
    return _link(name, "application/json", json_text(content, 1))


def download_table(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns a link that contains a table of raw values as CSV; None is an empty cell."""
    return _link(name, "text/csv;charset=utf-8", csv_text(columns, rows))


def _link(name: str, kind: str, text: str) -> str:
    data = base64.b64encode(text.encode()).decode()
    return (
        f'<p class="downloads"><a download="{escape(name)}" href="data:{kind};base64,{data}">'
        f"{escape(name)}</a></p>"
    )
