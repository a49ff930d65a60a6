"""Plots with two axes: points, lines over time, heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from autotune.report.plots.svg import (
    BANDS,
    BOTTOM,
    COLOURS,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    axis_labels,
    drawing,
    frame,
    label,
    legend,
    room_of,
    span,
    x_at,
    y_at,
)

_LINE = 14


@dataclass(frozen=True)
class Point:
    """A point with a text that is shown under the pointer.

    Attributes:
        x: Value along the horizontal axis.
        y: Value along the vertical axis.
        title: Text.
        marked: Whether it stands out.
        label: Text beside it; left out if there is no room.
        kind: Number of its colour. Marked points have the second colour by default.
    """

    x: float
    y: float
    title: str
    marked: bool = False
    label: str = ""
    kind: int | None = None


@dataclass(frozen=True)
class Band:
    """A span of time behind lines.

    Attributes:
        start: Its beginning.
        end: Its end.
        kind: Its kind for the legend; bands of one kind have one colour.
        title: Text that is shown under the pointer.
    """

    start: float
    end: float
    kind: str
    title: str


@dataclass(frozen=True)
class Series:
    """A line through points.

    Attributes:
        name: Its name in the legend.
        xs: Horizontal values, ascending.
        ys: As many vertical values.
        dots: Whether points are drawn instead of a line.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    dots: bool = False

    @classmethod
    def of(cls, name: str, points: Sequence[tuple[float, float]], *, dots: bool = False) -> Series:
        """Returns a line through pairs."""
        return cls(name, [x for x, _ in points], [y for _, y in points], dots)

    @classmethod
    def best_so_far(
        cls, name: str, points: Sequence[tuple[float, float]], last: float, *, higher: bool
    ) -> Series:
        """Returns the best value so far as a stepped line.

        Args:
            name: Its name in the legend.
            points: Positions along the axis, ascending, with the value found at each; at least one.
            last: Where the line ends.
            higher: Whether a higher value is better instead of a lower one.
        """
        (first, best), *later = points
        xs, ys = [first], [best]
        for at, value in later:
            better = max(best, value) if higher else min(best, value)
            xs += [at, at]
            ys += [best, better]
            best = better
        return cls(name, [*xs, last], [*ys, best])


def scatter(
    title: str,
    x: Axis,
    y: Axis,
    points: Sequence[Point],
    joined: Sequence[tuple[str, Sequence[Point]]] = (),
) -> str:
    """Draws points, and lines along some of them, such as Pareto fronts.

    Args:
        title: Title of the plot.
        x: Horizontal axis.
        y: Vertical axis.
        points: The points.
        joined: Lines with their names. If there are several, a legend shows the names.
    """
    parts = frame(x, y)
    colours = [1] if len(joined) == 1 else list(range(len(joined)))
    for colour, (_, along) in zip(colours, joined, strict=True):
        if len(along) > 1:
            path = " ".join(f"{x_at(x, p.x):.1f},{y_at(y, p.y):.1f}" for p in along)
            parts.append(f'<polyline points="{path}" class="line c{colour}"/>')
    taken: list[tuple[float, float, float, float]] = []
    texts = []
    for point in points:
        kind = point.kind if point.kind is not None else int(point.marked)
        size = 5 if point.marked else 3.5
        at_x, at_y = x_at(x, point.x), y_at(y, point.y)
        parts.append(
            f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="{size}" class="dot c{kind}">'
            f"<title>{escape(point.title)}</title></circle>"
        )
        if point.label:
            texts.append((at_x, at_y, point.label))
            taken.append((at_x - 6, at_y - 6, at_x + 6, at_y + 6))
    for at_x, at_y, text in texts:
        parts += _beside(at_x, at_y, text, taken)
    named = [(n, f"fill c{c}", 4) for c, (n, _) in zip(colours, joined, strict=True)]
    below, high = legend(named, HEIGHT + 10) if len(joined) > 1 else ([], 0)
    description = (
        f"{len(points)} points; {x.label} {span([p.x for p in points])}; "
        f"{y.label} {span([p.y for p in points])}."
    )
    return drawing(title, description, [*parts, *below], HEIGHT + high)


def _beside(
    x: float, y: float, text: str, taken: list[tuple[float, float, float, float]]
) -> list[str]:
    """Draws a text beside a point at a free place; nothing if there is none."""
    wide = room_of(text)
    for left, base in (
        (x + 8, y - 6), (x + 8, y + 14), (x - 8 - wide, y - 6), (x - 8 - wide, y + 14),
        (x - wide / 2, y - 12), (x - wide / 2, y + 20), (x + 8, y - 22), (x + 8, y + 28),
    ):  # fmt: skip
        box = (left, base - _LINE + 3, left + wide, base + 3)
        inside = box[0] >= LEFT and box[2] <= WIDTH and box[1] >= 0 and box[3] <= HEIGHT - BOTTOM
        if inside and not any(
            box[0] < o[2] and o[0] < box[2] and box[1] < o[3] and o[1] < box[3] for o in taken
        ):
            taken.append(box)
            return [label(left, base, text, "label")]
    return []


def lines(
    title: str,
    x: Axis,
    y: Axis,
    series: Sequence[Series],
    *,
    bands: Sequence[Band] = (),
    borders: Sequence[float] = (),
) -> str:
    """Draws lines over time, with a legend below.

    Args:
        title: Title of the plot.
        x: Time, or another axis of progress.
        y: Meaning of the lines.
        series: The lines.
        bands: Bands behind them, such as what ran at that time.
        borders: Times at which one thing ended and another began.
    """
    parts = frame(x, y)
    kinds = list(dict.fromkeys(band.kind for band in bands))
    shades = {kind: f"b{number % BANDS}" for number, kind in enumerate(kinds)}
    for band in bands:
        left, right = (x_at(x, min(max(at, x.low), x.high)) for at in (band.start, band.end))
        parts.append(
            f'<rect x="{left:.2f}" y="{TOP}" width="{right - left:.2f}" height="{HEIGHT - TOP - BOTTOM}" '
            f'class="band {shades[band.kind]}"><title>{escape(band.title)}</title></rect>'
        )
    parts += [
        f'<line x1="{x_at(x, at):.1f}" y1="{TOP}" x2="{x_at(x, at):.1f}" y2="{HEIGHT - BOTTOM}" class="border"/>'
        for at in borders
        if x.low <= at <= x.high
    ]
    entries = []
    for number, one in enumerate(series):
        colour = f"c{number % COLOURS}"
        at = [
            (f"{x_at(x, a):.1f}", f"{y_at(y, b):.1f}") for a, b in zip(one.xs, one.ys, strict=True)
        ]
        if one.dots:
            marks = "".join(f"M{a} {b}h0" for a, b in at)
            parts.append(f'<path d="{marks}" class="dots {colour}"/>')
        else:
            path = " ".join(f"{a},{b}" for a, b in at)
            parts.append(f'<polyline points="{path}" class="line {colour}"/>')
        entries.append((one.name, f"fill {colour}", 4))
    entries += [(kind, f"fill {shade}", 10) for kind, shade in shades.items()]
    below, high = legend(entries, HEIGHT + 10)
    description = (
        "; ".join(f"{one.name}: {span(one.ys)}" for one in series)
        + f" ({y.label}); {x.label} {x.low:.4g} to {x.high:.4g}."
    )
    return drawing(title, description, [*parts, *below], HEIGHT + high)


def heat_map(
    title: str,
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    *,
    column_label: str,
    row_label: str,
    unit: str,
) -> str:
    """Draws a table of cells coloured by value, the smallest darkest. Cells without a measurement are empty.

    Args:
        title: Title of the plot.
        columns: Headings.
        rows: Headings, the lowest row first.
        cells: A value for each row and column.
        column_label: Meaning of the columns.
        row_label: Meaning of the rows.
        unit: Unit of the values.
    """
    known = [value for row in cells for value in row if value is not None and value > 0]
    description = f"{len(known)} values in {unit}, {span(known)}; {column_label} by {row_label}."
    parts = axis_labels(column_label, row_label)
    if not known:
        return drawing(title, description, parts)
    colour = Axis.over("", known, logarithmic=True)
    wide = (WIDTH - LEFT - RIGHT) / len(columns)
    high = (HEIGHT - TOP - BOTTOM) / len(rows)
    # If headings would touch, every other one is left out.
    every = -(-(max(map(room_of, columns)) + 4) // wide)
    for r, row in enumerate(cells):
        top = HEIGHT - BOTTOM - (r + 1) * high
        parts.append(label(LEFT - 6, top + high / 2 + 4, rows[r], "tick end", LEFT - 30))
        for c, value in enumerate(row):
            if value is None or value <= 0:
                continue
            light = 30 + 60 * colour.share(value)
            left = LEFT + c * wide
            shown, said = f"{value:.3g}", f"{rows[r]}, {columns[c]}: {value:.4g} {unit}"
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}" '
                f'fill="hsl(210,70%,{light:.0f}%)"><title>{escape(said)}</title></rect>'
            )
            if room_of(shown) < wide and high >= _LINE:
                ink = "light" if light < 50 else "dark"
                middle = left + wide / 2
                parts.append(label(middle, top + high / 2 + 4, shown, f"cell {ink}"))
    for c, heading in enumerate(columns):
        middle = LEFT + (c + 0.5) * wide
        if c % every == 0 and middle + room_of(heading) / 2 < WIDTH:
            parts.append(label(middle, HEIGHT - BOTTOM + 16, heading, "tick middle"))
    return drawing(title, description, parts)
