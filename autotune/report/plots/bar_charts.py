"""Plots with rows below each other: bars, stacked bars, intervals; and many small plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from autotune.report.plots.svg import (
    COLOURS,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    apart,
    drawing,
    label,
    legend,
    span,
)

_LEFT, _BAR, _BELOW = 180, 22, 50
_COLUMNS, _SMALL, _GAP, _HEAD = 2, 84, 12, 34


@dataclass(frozen=True)
class Bar:
    """A bar of a chart.

    Attributes:
        label: Text before it.
        value: Its length; nothing is drawn below 0.
        deviation: Standard uncertainty, drawn as a line of one deviation to each side; 0 for none.
        title: Text that is shown under the pointer.
        faint: Whether it is drawn pale because it is uncertain.
    """

    label: str
    value: float
    deviation: float = 0.0
    title: str = ""
    faint: bool = False


@dataclass(frozen=True)
class Ratio:
    """A ratio with its interval.

    Attributes:
        label: Text before it.
        value: The ratio, above 0.
        ends: Ends of its interval; None for none.
        title: Text that is shown under the pointer.
    """

    label: str
    value: float
    ends: Sequence[float] | None
    title: str = ""


@dataclass(frozen=True)
class Small:
    """A small plot among many.

    Attributes:
        label: Text above it.
        description: Text below the label.
        xs: Horizontal values, ascending.
        ys: As many vertical values; they form a stepped line.
        title: Text that is shown under the pointer.
    """

    label: str
    description: str
    xs: Sequence[float]
    ys: Sequence[float]
    title: str = ""


def bars(title: str, unit: str, rows: Sequence[Bar]) -> str:
    """Draws bars from left to right, one below the other.

    Args:
        title: Title of the plot.
        unit: Meaning of the length, with the unit.
        rows: Rows from the top.
    """
    most = max((row.value + row.deviation for row in rows), default=0.0)
    axis = Axis(unit, 0.0, 1.05 * most if most > 0 else 1.0)
    parts = _rows(axis, [row.label for row in rows])
    for number, row in enumerate(rows):
        top = TOP + _BAR * number
        parts.append(
            f'<rect x="{_LEFT}" y="{top + 3}" width="{_at(axis, row.value) - _LEFT:.1f}" '
            f'height="{_BAR - 6}" class="bar c0{" faint" if row.faint else ""}">'
            f"<title>{escape(row.title or row.label)}</title></rect>"
        )
        if row.deviation > 0:
            ends = [_at(axis, row.value + side * row.deviation) for side in (-1, 1)]
            parts.append(_whisker(ends, top))
    description = f"{len(rows)} bars, {span([row.value for row in rows])} {unit}. {_said(rows)}"
    return drawing(title, description, parts, TOP + _BAR * len(rows) + _BELOW)


def stacked(
    title: str, unit: str, names: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]
) -> str:
    """Draws stacked bars with a legend.

    Args:
        title: Title of the plot.
        unit: Meaning of the length, with the unit.
        names: Names of the parts.
        rows: For each row, a label and the length of each part.
    """
    most = max((sum(parts) for _, parts in rows), default=0.0)
    axis = Axis(unit, 0.0, 1.05 * most if most > 0 else 1.0)
    drawn = _rows(axis, [name for name, _ in rows])
    for number, (name, values) in enumerate(rows):
        top, left = TOP + _BAR * number, 0.0
        for kind, (part, value) in enumerate(zip(names, values, strict=True)):
            start, end = _at(axis, left), _at(axis, left + value)
            left += value
            said = f"{name}, {part}: {value:.4g} ({value / (sum(values) or 1):.1%})"
            drawn.append(
                f'<rect x="{start:.1f}" y="{top + 3}" width="{end - start:.1f}" height="{_BAR - 6}" '
                f'class="bar c{kind % COLOURS}"><title>{escape(said)}</title></rect>'
            )
    bottom = TOP + _BAR * len(rows) + _BELOW
    kinds = [(name, f"fill c{number % COLOURS}", 10) for number, name in enumerate(names)]
    below, high = legend(kinds, bottom + 10)
    description = " ".join(
        f"{name}: {', '.join(f'{n} {v:.4g}' for n, v in zip(names, values, strict=True))}."
        for name, values in rows
    )
    return drawing(title, f"{unit}. {description}", [*drawn, *below], bottom + high)


def intervals(title: str, what: str, rows: Sequence[Ratio]) -> str:
    """Draws ratios with their intervals on a logarithmic axis, and a line at 1.

    Args:
        title: Title of the plot.
        what: Numerator and denominator, in words.
        rows: Rows from the top.
    """
    ends = [end for row in rows for end in (row.value, *(row.ends or ())) if end > 0]
    axis = Axis.over(what, [1.0, *ends], logarithmic=True)
    parts = _rows(axis, [row.label for row in rows])
    bottom = TOP + _BAR * len(rows)
    one = _at(axis, 1.0)
    parts.append(f'<line x1="{one:.1f}" y1="{TOP}" x2="{one:.1f}" y2="{bottom}" class="border"/>')
    for number, row in enumerate(rows):
        top = TOP + _BAR * number
        if row.ends:
            parts.append(_whisker([_at(axis, max(end, axis.low)) for end in row.ends], top))
        parts.append(
            f'<circle cx="{_at(axis, row.value):.1f}" cy="{top + _BAR / 2}" r="4.5" class="dot c0">'
            f"<title>{escape(row.title or row.label)}</title></circle>"
        )
    description = f"{len(rows)} ratios, {span([row.value for row in rows])}: {what}. " + " ".join(
        row.title for row in rows[:12]
    )
    return drawing(title, description, parts, bottom + _BELOW)


def many(title: str, x: Axis, y: Axis, plots: Sequence[Small]) -> str:
    """Draws many small plots with the same axes. The ends of the axes are given below.

    Args:
        title: Title of the plots.
        x: Horizontal axis of each.
        y: Vertical axis of each.
        plots: Plots from the left and the top.
    """
    wide = (WIDTH - (_COLUMNS + 1) * _GAP) / _COLUMNS
    parts: list[str] = []
    for number, plot in enumerate(plots):
        row, column = divmod(number, _COLUMNS)
        left, top = _GAP + column * (wide + _GAP), _HEAD + row * (_SMALL + _HEAD + 8)
        parts.append(label(left, top - 19, plot.label, "label", wide))
        parts.append(label(left, top - 4, plot.description, "tick", wide))
        parts.append(
            f'<rect x="{left:.1f}" y="{top}" width="{wide:.1f}" height="{_SMALL}" class="box">'
            f"<title>{escape(plot.title)}</title></rect>"
        )
        path, height = "", None
        for a, b in zip(plot.xs, plot.ys, strict=True):
            at_x = left + x.share(a) * wide
            at_y = top + (1 - y.share(b)) * _SMALL
            path += f"M{at_x:.1f} {at_y:.1f}" if height is None else f"H{at_x:.1f}V{at_y:.1f}"
            height = at_y
        if plots and height is not None:
            parts.append(f'<path d="{path}H{left + wide:.1f}" class="line c0"/>')
    bottom = -(-len(plots) // _COLUMNS) * (_SMALL + _HEAD + 8)
    parts.append(
        label(_GAP, bottom + 12, f"across: {x.label}, {x.low:.4g} to {x.high:.4g}", "tick")
    )
    parts.append(label(_GAP, bottom + 30, f"up: {y.label}, {y.low:.3g} to {y.high:.3g}", "tick"))
    description = f"{len(plots)} small plots of {y.label} over {x.label}. " + " ".join(
        plot.title for plot in plots[:12]
    )
    return drawing(title, description, parts, bottom + 40)


def _rows(axis: Axis, labels: Sequence[str]) -> list[str]:
    """Draws the axis below rows, and the texts before them."""
    bottom = TOP + _BAR * len(labels)
    ticks = [(_at(axis, tick), tick) for tick in axis.ticks()]
    parts = [
        f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}" class="grid"/>'
        for at, _ in ticks
    ]
    parts += [label(at, bottom + 16, f"{tick:g}", "tick middle") for at, tick in apart(ticks)]
    parts += [
        label(_LEFT - 6, TOP + _BAR * number + 15, text, "tick end", _LEFT - 12)
        for number, text in enumerate(labels)
    ]
    middle = _LEFT + (WIDTH - _LEFT - RIGHT) / 2
    parts.append(label(middle, bottom + 38, axis.label, "label middle"))
    return parts


def _at(axis: Axis, value: float) -> float:
    return _LEFT + (WIDTH - _LEFT - RIGHT) * axis.share(max(value, axis.low))


def _whisker(ends: Sequence[float], top: float) -> str:
    middle = top + _BAR / 2
    return f'<path d="M{ends[0]:.1f} {middle - 4}v8m0 -4H{ends[1]:.1f}m0 -4v8" class="whisker"/>'


def _said(rows: Sequence[Bar]) -> str:
    return " ".join(f"{row.label}: {row.value:.4g}." for row in rows[:12])
