"""A plot as a file of its own, and the one that the README shows."""

from pathlib import Path
from xml.etree import ElementTree

from autotune.report.pages.html_page import picture
from autotune.report.plots.charts import Axis, Point, scatter

README_PICTURE = Path(__file__).parents[3] / "docs" / "joint-fronts.svg"
SVG = "{http://www.w3.org/2000/svg}"


def check(text: str, heading: str, points: int) -> None:
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    style = root.findtext(f"{SVG}style") or ""
    assert "prefers-color-scheme: dark" in style
    assert all(f"{name}:" in style for name in ("--ink", "--paper", "--c0", "--c1"))
    first = next(iter(root.iter(f"{SVG}rect")))
    assert (first.get("width"), first.get("style")) == ("100%", "fill: var(--paper)")
    assert any(heading in (one.text or "") for one in root.iter(f"{SVG}text"))
    assert len(list(root.iter(f"{SVG}circle"))) == points


def test_a_plot_is_a_file_with_its_own_ground_and_both_sets_of_colours() -> None:
    points = [Point(1, 2, "a < b"), Point(2, 1, "c")]
    plot = scatter("fronts", Axis.over("s", [1, 2]), Axis.over("J", [1, 2]), points)
    check(picture(plot, "this & that"), "this & that", 2)


def test_the_readmes_picture_says_that_it_is_of_a_model() -> None:
    text = README_PICTURE.read_text(encoding="utf-8")
    check(text, "a MODEL of a phone", text.count("<circle"))
    assert text.count("<polyline") == 2
