"""What tests of pages share: whether their tags are closed, and their plots."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree


class Balanced(HTMLParser):
    """Counts tags that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.scripts += tag == "script"
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def bare(html: str) -> str:
    """A page whose cells do not hold their headings, which are shown on narrow screens."""
    return re.sub(r' data-of="[^"]*"', "", html)


def plots(html: str) -> list[str]:
    """The plots of a page that is whole and loads nothing; each is well-formed."""
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    assert parser.scripts == 0
    assert not re.search(r'(src|href)="(?!data:)', html)
    found = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    for plot in found:
        ElementTree.fromstring(plot)
    return found


Curve = list[tuple[float, float]]


def plot_of(html: str, title: str) -> str:
    """The one plot of a page that has a title."""
    (found,) = [plot for plot in plots(html) if f"<title>{title}</title>" in plot]
    return found


def _scale(ticks: Curve) -> Callable[[float], float]:
    """What a place along an axis stands for, from the places and numbers of its ticks."""
    (a, low), *_, (b, high) = sorted(ticks)

    def linear(at: float) -> float:
        return low + (at - a) / (b - a) * (high - low)

    def logarithmic(at: float) -> float:
        return float(low * (high / low) ** ((at - a) / (b - a)))

    for scale in (linear, logarithmic):
        # Places are rounded to a tenth of a pixel, numbers to six digits.
        room = abs(scale(b) - scale(b - 0.3)) + abs(scale(a) - scale(a + 0.3))
        if all(abs(scale(at) - value) <= room for at, value in ticks):
            return scale
    raise AssertionError(f"ticks along no axis: {ticks}")


def _axes(root: ElementTree.Element) -> tuple[Callable[[float], float], Callable[[float], float]]:
    texts = [e for e in root.iter() if e.tag.endswith("text")]
    across = [
        (float(e.get("x", 0)), float(e.text or ""))
        for e in texts
        if e.get("class") == "tick middle"
    ]
    up = [
        (float(e.get("y", 0)) - 4, float(e.text or ""))
        for e in texts
        if e.get("class") == "tick end"
    ]
    return _scale(across), _scale(up)


def curves(plot: str) -> dict[str, Curve]:
    """What the lines and dots of a plot show by their names in the legend, read off against its axes."""
    root = ElementTree.fromstring(plot)
    x, y = _axes(root)
    colours = {}
    for mark, text in pairwise(root.iter()):
        if mark.get("class", "").startswith("fill ") and text.tag.endswith("text"):
            colours[mark.get("class", "").removeprefix("fill ")] = "".join(text.itertext())
    found = {}
    for element in root.iter():
        kind, _, colour = element.get("class", "").partition(" ")
        if kind == "line" and element.get("points"):
            places = [pair.split(",") for pair in element.get("points", "").split()]
        elif kind == "dots":
            places = [list(pair) for pair in re.findall(r"M(\S+) (\S+?)h0", element.get("d", ""))]
        else:
            continue
        name = colours.get(colour, "")
        found[name] = [(x(float(a)), y(float(b))) for a, b in places]
    return found


def dots(plot: str) -> list[tuple[str, float, float]]:
    """What the points of a plot show: what the pointer is told of each, and its place along both axes."""
    root = ElementTree.fromstring(plot)
    x, y = _axes(root)
    return [
        (e[0].text or "", x(float(e.get("cx", 0))), y(float(e.get("cy", 0))))
        for e in root.iter()
        if e.tag.endswith("circle")
    ]


def lengths(plot: str) -> list[tuple[str, float, float]]:
    """The bars of a chart: what the pointer is told of each, and the values of its two ends."""
    root = ElementTree.fromstring(plot)
    x = _across(root)
    return [
        (
            e[0].text or "",
            x(float(e.get("x", 0))),
            x(float(e.get("x", 0)) + float(e.get("width", 0))),
        )
        for e in root.iter()
        if e.get("class", "").startswith("bar ")
    ]


def ratios(plot: str) -> list[tuple[str, float, tuple[float, float] | None]]:
    """The ratios of a plot of intervals: what the pointer is told of each, its value, the ends of its interval."""
    root = ElementTree.fromstring(plot)
    x = _across(root)
    whiskers = {}
    for element in root.iter():
        if element.get("class") == "whisker":
            drawn = re.fullmatch(r"M(\S+) (\S+)v8m0 -4H(\S+?)m0 -4v8", element.get("d", ""))
            assert drawn is not None
            low, top, high = map(float, drawn.groups())
            whiskers[top + 4] = (x(low), x(high))
    return [
        (e[0].text or "", x(float(e.get("cx", 0))), whiskers.get(float(e.get("cy", 0))))
        for e in root.iter()
        if e.tag.endswith("circle")
    ]


def _across(root: ElementTree.Element) -> Callable[[float], float]:
    return _scale(
        [
            (float(e.get("x", 0)), float(e.text or ""))
            for e in root.iter()
            if e.get("class") == "tick middle"
        ]
    )


def monotone(curve: Curve, *, higher: bool) -> bool:
    """Whether the values of a line never get worse, and it goes on to the right."""
    pairs = list(pairwise(curve))
    return all(b[0] >= a[0] for a, b in pairs) and all(
        (b[1] >= a[1]) if higher else (b[1] <= a[1]) for a, b in pairs
    )
