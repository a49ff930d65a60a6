"""Common parts of plots: inline SVG with a title, axes, and text that fits.

It loads no script, font or other file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 440, 330
"""Size of a plot in units in which text has 12: a screen of 390 pixels shows such text with 9 pixels at least."""
LEFT, RIGHT, TOP, BOTTOM = 80, 16, 20, 55
COLOURS = 10
"""Number of distinct kinds of lines and marks; `page.py` has their colours."""
BANDS = 10
"""The same for bands behind lines."""
_LETTER = 7.2
"""Width of a letter at 12 pixels in a wide font."""
_LEGEND_COLUMNS = 3
_MOST_TICKS = 9
_EDGE = 4
"""Distance of the texts of an axis from the edge."""


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        label: Its meaning, with the unit.
        low: Its lower end.
        high: Its upper end; above `low`.
        logarithmic: Whether equal ratios have equal distances; both ends are then above zero.
    """

    label: str
    low: float
    high: float
    logarithmic: bool = False

    @classmethod
    def over(cls, label: str, values: Sequence[float], *, logarithmic: bool = False) -> Axis:
        """Returns an axis that contains the values with a little room; from 0 to 1 without values."""
        if not values:
            return cls(label, 0.0, 1.0)
        low, high = min(values), max(values)
        if logarithmic and low > 0:
            room = max((high / low) ** 0.05, 1.02)
            return cls(label, low / room, high * room, True)
        room = 0.05 * (high - low) or 0.1 * abs(high) or 0.5
        return cls(label, low - room, high + room)

    def share(self, value: float) -> float:
        """Returns the position of a value, from 0 at the lower end to 1 at the upper end."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Returns round values along it: three to eight, or some of each power of ten."""
        if self.logarithmic:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            for multiples in ((1, 2, 5), (1, 2, 3, 4, 5, 6, 8), (1,)):
                every = [m * 10.0**e for e in range(first, last + 1) for m in multiples]
                found = [v for v in every if self.low <= v <= self.high]
                if 3 < len(found) <= _MOST_TICKS:
                    return found
            if len(found) > _MOST_TICKS:
                return found[:: -(-len(found) // _MOST_TICKS)]
        # At least three, because two would not show whether the axis is logarithmic.
        most = (self.high - self.low) / 3
        power = 10.0 ** math.floor(math.log10(most))
        step = next(m * power for m in (5, 2, 1) if m * power <= most)
        start = math.ceil(self.low / step)
        return [n * step for n in range(start, math.floor(self.high / step) + 1)]


def x_at(axis: Axis, value: float) -> float:
    """Returns the position of a value on a plot's horizontal axis."""
    return LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT)


def y_at(axis: Axis, value: float) -> float:
    """Returns the position of a value on a plot's vertical axis."""
    return HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - TOP - BOTTOM)


def room_of(text: str) -> float:
    """Returns the approximate greatest width of a text."""
    return _LETTER * len(text)


def fitted(text: str, room: float) -> str:
    """Shortens a text to a width of `room` by leaving out its middle."""
    most = max(int(room / _LETTER), 3)
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]}…{text[len(text) - (most - head - 1) :]}"


def label(x: float, y: float, text: str, kind: str, room: float | None = None) -> str:
    """Draws a text. If it is cut to its room, the whole text is shown under the pointer."""
    shown = text if room is None else fitted(text, room)
    tooltip = f"<title>{escape(text)}</title>" if shown != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{tooltip}{escape(shown)}</text>'


def frame(x: Axis, y: Axis) -> list[str]:
    """Draws two axes with their ticks."""
    parts = axis_labels(x.label, y.label)
    for value in x.ticks():
        at = x_at(x, value)
        parts.append(
            f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" class="grid"/>'
        )
    for at, value in apart([(x_at(x, value), value) for value in x.ticks()]):
        parts.append(label(at, HEIGHT - BOTTOM + 16, f"{value:g}", "tick middle"))
    for value in y.ticks():
        at = y_at(y, value)
        parts.append(
            f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" class="grid"/>'
        )
        parts.append(label(LEFT - 6, at + 4, f"{value:g}", "tick end"))
    return parts


def apart(ticks: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns those ticks of a horizontal axis whose texts are inside of the plot and do not touch.

    Args:
        ticks: Position and value of each, from the left.
    """
    found: list[tuple[float, float]] = []
    end = 0.0
    for at, value in ticks:
        half = room_of(f"{value:g}") / 2
        if at - half > end and at + half < WIDTH - _EDGE:
            found.append((at, value))
            end = at + half + 4
    return found


def axis_labels(horizontal: str, vertical: str) -> list[str]:
    """Draws the labels of a plot's axes."""
    middle_y = (TOP + HEIGHT - BOTTOM) / 2
    return [
        label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, horizontal, "label middle"),
        f'<text transform="translate(16,{middle_y}) rotate(-90)" class="label middle">'
        f"{escape(vertical)}</text>",
    ]


def legend(entries: Sequence[tuple[str, str, int]], top: float) -> tuple[list[str], int]:
    """Draws a legend from names, classes and heights of their marks, and returns it with its height."""
    longest = max((room_of(name) for name, _, _ in entries), default=0.0) + 30
    columns = max(1, min(_LEGEND_COLUMNS, int((WIDTH - LEFT - RIGHT) / longest)))
    room = (WIDTH - LEFT - RIGHT) / columns
    parts = []
    for number, (name, kind, high) in enumerate(entries):
        row, column = divmod(number, columns)
        left, at = LEFT + column * room, top + 18 * row
        parts.append(
            f'<rect x="{left:.1f}" y="{at - 6 - high / 2:g}" width="12" height="{high}" class="{kind}"/>'
        )
        parts.append(label(left + 18, at, name, "label", room - 24))
    return parts, 18 * -(-len(entries) // columns)


def drawing(title: str, description: str, parts: Sequence[str], height: float = HEIGHT) -> str:
    """Returns a plot.

    Args:
        title: Title for people who cannot see it.
        description: Description of its content, also for people who cannot see it.
        parts: Its elements.
        height: Height in the units of `WIDTH`.
    """
    inside = "\n".join(parts)
    return (
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg">\n'
        f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>\n{inside}\n</svg></div>"
    )


def span(values: Sequence[float]) -> str:
    """Returns the ends of some values, in words."""
    return f"{min(values):.4g} to {max(values):.4g}" if values else "none"
