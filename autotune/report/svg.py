"""Plots as inline SVG: axes, points, lines, bars and heat maps; no script, no font, nothing to load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 20, 55
_BARS_LEFT, _BAR = 200, 22
_LEGEND_COLUMNS = 3
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")
"""For lines that are told apart; matplotlib's, which many know."""
BANDS = (
    "#aec7e8", "#ffbb78", "#98df8a", "#ff9896", "#c5b0d5", "#c49c94", "#f7b6d2", "#dbdb8d", "#9edae5", "#c7c7c7",
)  # fmt: skip
"""For what lies behind lines: the light halves of matplotlib's pairs."""


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        label: What it shows, with the unit.
        low: Its lower end.
        high: Its upper end; above `low`.
        logarithmic: Whether equal ratios are equally far; both ends are above zero then.
    """

    label: str
    low: float
    high: float
    logarithmic: bool = False

    @classmethod
    def over(cls, label: str, values: Sequence[float], *, logarithmic: bool = False) -> Axis:
        """An axis that holds the values with a little room; of none, from 0 to 1."""
        if not values:
            return cls(label, 0.0, 1.0)
        low, high = min(values), max(values)
        if logarithmic and low > 0:
            room = max((high / low) ** 0.05, 1.02)
            return cls(label, low / room, high * room, True)
        room = 0.05 * (high - low) or 0.5
        return cls(label, low - room, high + room)

    def share(self, value: float) -> float:
        """Where a value lies, from 0 at the lower end to 1 at the upper one."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values along it: about five, or 1, 2 and 5 of each power of ten."""
        if self.logarithmic:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            for multiples in ((1, 2, 5), (1, 2, 3, 4, 5, 6, 8)):
                every = [m * 10.0**e for e in range(first, last + 1) for m in multiples]
                found = [v for v in every if self.low <= v <= self.high]
                if len(found) > 3:
                    break
            return found
        raw = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
        start = math.ceil(self.low / step)
        return [n * step for n in range(start, math.floor(self.high / step) + 1)]


@dataclass(frozen=True)
class Point:
    """A point with what is shown when the pointer is on it.

    Attributes:
        x: Value along the horizontal axis.
        y: Value along the vertical axis.
        title: Text.
        marked: Whether it stands out.
        label: Text beside it.
    """

    x: float
    y: float
    title: str
    marked: bool = False
    label: str = ""


@dataclass(frozen=True)
class Bar:
    """A bar of a chart.

    Attributes:
        label: Text before it.
        value: Its length; none is drawn for less than 0.
        deviation: Standard uncertainty, drawn as a line of one to each side; 0 for none.
        title: What is shown when the pointer is on it.
        faint: Whether it is drawn pale, since little is known of it.
    """

    label: str
    value: float
    deviation: float = 0.0
    title: str = ""
    faint: bool = False


@dataclass(frozen=True)
class Band:
    """A span of time behind lines.

    Attributes:
        start: Its beginning.
        end: Its end.
        kind: For the legend; bands of one kind have one colour.
        title: What is shown when the pointer is on it.
    """

    start: float
    end: float
    kind: str
    title: str


@dataclass(frozen=True)
class Series:
    """A line through points of time.

    Attributes:
        name: For the legend.
        xs: Rising.
        ys: As many.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


def scatter(x: Axis, y: Axis, points: Sequence[Point], joined: Sequence[Point] = ()) -> str:
    """Points, and a line along some of them, such as a Pareto front."""
    parts = _frame(x, y)
    if len(joined) > 1:
        path = " ".join(f"{_x(x, p.x):.1f},{_y(y, p.y):.1f}" for p in joined)
        parts.append(f'<polyline points="{path}" fill="none" stroke="#d62728"/>')
    for point in points:
        colour, size = ("#d62728", 5) if point.marked else ("#1f77b4", 3.5)
        parts.append(
            f'<circle cx="{_x(x, point.x):.1f}" cy="{_y(y, point.y):.1f}" r="{size}" fill="{colour}" '
            f'fill-opacity="0.8"><title>{escape(point.title)}</title></circle>'
        )
        if point.label:
            parts.append(
                f'<text x="{_x(x, point.x) + 7:.1f}" y="{_y(y, point.y) - 6:.1f}" class="label">'
                f"{escape(point.label)}</text>"
            )
    return _svg(parts)


def lines(
    x: Axis,
    y: Axis,
    series: Sequence[Series],
    *,
    bands: Sequence[Band] = (),
    borders: Sequence[float] = (),
) -> str:
    """Lines over time, with a legend below.

    Args:
        x: Time.
        y: What the lines show.
        series: The lines.
        bands: Behind them, such as what ran meanwhile.
        borders: Times at which something ended and something began.
    """
    parts = _frame(x, y)
    kinds = list(dict.fromkeys(band.kind for band in bands))
    shades = {kind: BANDS[number % len(BANDS)] for number, kind in enumerate(kinds)}
    for band in bands:
        left, right = (_x(x, min(max(at, x.low), x.high)) for at in (band.start, band.end))
        parts.append(
            f'<rect x="{left:.2f}" y="{_TOP}" width="{right - left:.2f}" height="{HEIGHT - _TOP - _BOTTOM}" '
            f'fill="{shades[band.kind]}" class="band"><title>{escape(band.title)}</title></rect>'
        )
    parts += [
        f'<line x1="{_x(x, at):.1f}" y1="{_TOP}" x2="{_x(x, at):.1f}" y2="{HEIGHT - _BOTTOM}" class="border"/>'
        for at in borders
        if x.low <= at <= x.high
    ]
    legend = []
    for number, one in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(
            f"{_x(x, a):.1f},{_y(y, b):.1f}" for a, b in zip(one.xs, one.ys, strict=True)
        )
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        legend.append((one.name, colour, 4))
    legend += [(kind, shade, 10) for kind, shade in shades.items()]
    for number, (name, colour, high) in enumerate(legend):
        row, column = divmod(number, _LEGEND_COLUMNS)
        left = _LEFT + column * (WIDTH - _LEFT - _RIGHT) / _LEGEND_COLUMNS
        parts.append(_legend_entry(left, HEIGHT + 10 + 18 * row, name, colour, high))
    return _svg(parts, HEIGHT + 18 * -(-len(legend) // _LEGEND_COLUMNS))


def _legend_entry(left: float, top: float, name: str, colour: str, high: int) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top - 6 - high / 2:g}" width="12" height="{high}" fill="{colour}"/>'
        f'<text x="{left + 18:.1f}" y="{top}" class="label">{escape(name)}</text>'
    )


def bars(label: str, rows: Sequence[Bar]) -> str:
    """Bars from left to right, one below the other.

    Args:
        label: What their length is, with the unit.
        rows: From the top.
    """
    most = max((row.value + row.deviation for row in rows), default=0.0)
    axis = Axis(label, 0.0, 1.05 * most if most > 0 else 1.0)
    bottom = _TOP + _BAR * len(rows)
    wide = WIDTH - _BARS_LEFT - _RIGHT

    def at(value: float) -> float:
        return _BARS_LEFT + wide * axis.share(max(value, 0.0))

    parts = [
        f'<line x1="{at(tick):.1f}" y1="{_TOP}" x2="{at(tick):.1f}" y2="{bottom}" class="grid"/>'
        f'<text x="{at(tick):.1f}" y="{bottom + 16}" class="tick middle">{tick:g}</text>'
        for tick in axis.ticks()
    ]
    for number, row in enumerate(rows):
        top = _TOP + _BAR * number
        parts.append(
            f'<text x="{_BARS_LEFT - 6}" y="{top + 15}" class="tick end">{escape(row.label)}</text>'
            f'<rect x="{_BARS_LEFT}" y="{top + 3}" width="{at(row.value) - _BARS_LEFT:.1f}" height="{_BAR - 6}" '
            f'fill="{COLOURS[0]}" fill-opacity="{0.35 if row.faint else 0.85}">'
            f"<title>{escape(row.title or row.label)}</title></rect>"
        )
        if row.deviation > 0:
            low, high = at(row.value - row.deviation), at(row.value + row.deviation)
            parts.append(
                f'<line x1="{low:.1f}" y1="{top + _BAR / 2}" x2="{high:.1f}" y2="{top + _BAR / 2}" '
                'stroke="#222"/>'
            )
    parts.append(
        f'<text x="{_BARS_LEFT + wide / 2}" y="{bottom + 38}" class="label middle">{escape(label)}</text>'
    )
    return _svg(parts, bottom + 50)


def heat_map(
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    *,
    column_label: str,
    row_label: str,
    unit: str,
) -> str:
    """A table of cells whose colour is their value, the smallest darkest; what was not measured is empty.

    Args:
        columns: Headings.
        rows: Headings, the lowest row first.
        cells: A value for each row and column.
        column_label: What the columns are.
        row_label: What the rows are.
        unit: Of the values.
    """
    known = [value for row in cells for value in row if value is not None and value > 0]
    parts = [_axis_text(column_label, row_label)]
    if not known:
        return _svg(parts)
    colour = Axis.over("", known, logarithmic=True)
    wide = (WIDTH - _LEFT - _RIGHT) / len(columns)
    high = (HEIGHT - _TOP - _BOTTOM) / len(rows)
    for r, row in enumerate(cells):
        top = HEIGHT - _BOTTOM - (r + 1) * high
        parts.append(
            f'<text x="{_LEFT - 6}" y="{top + high / 2 + 4:.1f}" class="tick end">{escape(rows[r])}</text>'
        )
        for c, value in enumerate(row):
            if value is None or value <= 0:
                continue
            light = 30 + 60 * colour.share(value)
            ink = "#fff" if light < 60 else "#000"
            left = _LEFT + c * wide
            told = f"{rows[r]}, {columns[c]}: {value:.4g} {unit}"
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}" '
                f'fill="hsl(210,70%,{light:.0f}%)"><title>{escape(told)}</title></rect>'
                f'<text x="{left + wide / 2:.1f}" y="{top + high / 2 + 4:.1f}" fill="{ink}" '
                f'class="cell">{value:.3g}</text>'
            )
    for c, heading in enumerate(columns):
        parts.append(
            f'<text x="{_LEFT + (c + 0.5) * wide:.1f}" y="{HEIGHT - _BOTTOM + 16}" class="tick middle">'
            f"{escape(heading)}</text>"
        )
    return _svg(parts)


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.share(value) * (WIDTH - _LEFT - _RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - _BOTTOM - axis.share(value) * (HEIGHT - _TOP - _BOTTOM)


def _frame(x: Axis, y: Axis) -> list[str]:
    parts = [_axis_text(x.label, y.label)]
    for value in x.ticks():
        at = _x(x, value)
        parts.append(
            f'<line x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{HEIGHT - _BOTTOM}" class="grid"/>'
            f'<text x="{at:.1f}" y="{HEIGHT - _BOTTOM + 16}" class="tick middle">{value:g}</text>'
        )
    for value in y.ticks():
        at = _y(y, value)
        parts.append(
            f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{WIDTH - _RIGHT}" y2="{at:.1f}" class="grid"/>'
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" class="tick end">{value:g}</text>'
        )
    return parts


def _axis_text(horizontal: str, vertical: str) -> str:
    middle_x = (_LEFT + WIDTH - _RIGHT) / 2
    middle_y = (_TOP + HEIGHT - _BOTTOM) / 2
    return (
        f'<text x="{middle_x}" y="{HEIGHT - 12}" class="label middle">{escape(horizontal)}</text>'
        f'<text transform="translate(16,{middle_y}) rotate(-90)" class="label middle">'
        f"{escape(vertical)}</text>"
    )


def _svg(parts: Sequence[str], height: int = HEIGHT) -> str:
    inside = "\n".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg">\n{inside}\n</svg>'
