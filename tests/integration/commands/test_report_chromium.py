"""Pages of runs, as a browser without a network shows them."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import autotune
from common.browser import Browser, Seen, chromium, offline_browser
from common.sample_runs import sample_runs

from autotune.report.pages.html_page import page
from autotune.report.plots import bar_charts, charts
from autotune.report.plots.charts import Point
from autotune.report.plots.svg import Axis

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="no Chromium: apt-get install chromium"),
]
# Plots of each kind of page, at least: that none is lost.
PLOTS = {
    "kernels": 6, "kernels of another cluster": 6, "joint": 6, "cpu-config": 6, "profile": 7, "comparison": 3,
    "kernels, interrupted": 6, "joint, interrupted": 4, "cpu-config, interrupted": 3,
}  # fmt: skip
SAMPLE = Path(__file__).parents[3] / "logs" / "samples" / "cpu-matmul"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return sample_runs(tmp_path_factory.mktemp("runs"), (24, 6))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with offline_browser() as found:
        yield found


def page_of(run: Path, folder: Path) -> Path:
    page = folder / "page.html"
    done = autotune("report", run, "--out", page)
    assert done.returncode == 0, done.stderr
    return page


def downloads(seen: Seen) -> dict[str, str]:
    """The files that links of a page hold."""
    found = {}
    for link in seen.look["downloads"]:
        head, _, data = link["href"].partition(";base64,")
        assert head.startswith("data:")
        found[link["name"]] = base64.b64decode(data, validate=True).decode()
    return found


@pytest.mark.parametrize("kind", PLOTS)
def test_a_page_shows_every_plot_without_a_complaint(
    kind: str, runs: dict[str, Path], browser: Browser, tmp_path: Path
) -> None:
    page = page_of(runs[kind], tmp_path)
    for dark in (False, True):
        seen = browser.open(page, dark=dark)
        assert seen.faults() == []
        assert len(seen.look["plots"]) >= PLOTS[kind]
    narrow = browser.open(page, width=390)
    assert narrow.faults() == []
    assert narrow.look["narrow"]
    if kind.startswith("kernels"):
        kernels = next(columns for columns in narrow.look["seen_columns"] if "kernel" in columns)
        assert kernels == ["no.", "kernel", "untuned", "tuned", "speed-up"]
        assert not [reported for reported in narrow.look["wide_tables"] if "untuned" in reported]
        assert "formulation" in str(seen.look["seen_columns"])
    # A sheet of A4 between its margins; in light colours, whatever the screen has.
    assert browser.open(page, width=718, dark=True, printed=True).faults() == []
    held = downloads(seen)
    assert json.loads(held["run.json"]) == json.loads((runs[kind] / "run.json").read_text())
    result = runs[kind] / "result.json"
    assert ("result.json" in held) == result.exists()
    if result.exists():
        assert json.loads(held["result.json"]) == json.loads(result.read_text())
    for name, text in held.items():
        if name.endswith(".csv"):
            rows = list(csv.reader(io.StringIO(text)))
            assert len(rows) > 1
            assert {len(row) for row in rows} == {len(rows[0])}
    interrupted = "interrupted" in kind
    assert ("has not ended" in page.read_text()) == interrupted


def test_tables_of_raw_data_hold_what_was_measured(
    runs: dict[str, Path], browser: Browser, tmp_path: Path
) -> None:
    held = downloads(browser.open(page_of(runs["kernels"], tmp_path)))
    result = json.loads((runs["kernels"] / "result.json").read_text())
    kernels = list(csv.DictReader(io.StringIO(held["kernels.csv"])))
    assert [float(row["tuned ms"]) for row in kernels] == [t["tuned_ms"] for t in result["tasks"]]
    assert len(held["trials.csv"].splitlines()) == 1 + result["trials"]
    assert len(held["pools.csv"].splitlines()) == 1 + sum(len(t["pool"]) for t in result["tasks"])
    held = downloads(browser.open(page_of(runs["joint"], tmp_path)))
    plans = json.loads((runs["joint"] / "result.json").read_text())["plans"]
    for name, file in plans.items():
        plan = json.loads((runs["joint"] / file).read_text())
        assert json.loads(held[f"{name}.json"]) == plan


@pytest.mark.parametrize(
    "pair",
    [
        ("kernels", "kernels of another cluster"), ("joint", "joint"), ("cpu-config", "cpu-config"),
        ("profile", "profile"),
    ],
)  # fmt: skip
def test_two_runs_beside_each_other_are_a_page(
    pair: tuple[str, str], runs: dict[str, Path], browser: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "both.html"
    done = autotune("compare", runs[pair[0]], runs[pair[1]], "--json", "--html", page)
    assert done.returncode == 0, done.stderr
    seen = browser.open(page)
    assert seen.faults() == []
    assert seen.look["plots"]
    assert json.loads(downloads(seen)["comparison.json"]).items() <= json.loads(done.stdout).items()
    assert browser.open(page, width=390).faults() == []


def test_a_recorded_run_of_this_host_has_a_page(browser: Browser, tmp_path: Path) -> None:
    assert browser.open(page_of(SAMPLE, tmp_path)).faults() == []


@pytest.mark.parametrize(
    "values",
    [
        [1e-9, 2e-9, 3e-9], [1e9, 2e9, 7e9], [1e-6, 1.0, 1e6], [5.0, 5.0, 5.0], [0.001721, 0.001722, 0.001723],
        [123456.0, 123457.0, 123458.0], [-3.0, 0.0, 40.0], [7.0],
    ],
)  # fmt: skip
def test_plots_of_any_values_and_names_keep_to_their_boxes(
    values: list[float], browser: Browser, tmp_path: Path
) -> None:
    xs, name = (
        list(range(len(values))),
        "a name that is much longer than there is room for it, by far",
    )
    axis = Axis.over("values", values, logarithmic=True)
    above = [abs(value) + 1e-12 for value in values]
    points = [Point(v, v, name, True, f"{name[:20]} {n}") for n, v in enumerate(values)]
    whole = Axis.over("trials", [*xs, 2000.0])
    drawn = [
        charts.scatter("points", axis, axis, points, [(name, points), ("other", points)]),
        charts.lines("lines", whole, axis, [charts.Series(name, xs, values)] * 4),
        charts.heat_map(
            "cells", [f"{v:g}" for v in values] * 7, [name, "b"], [values * 7, [None] * 7 * len(values)],
            column_label="MHz", row_label="cores", unit="s",
        ),
        bar_charts.bars("bars", "ms", [bar_charts.Bar(name, v, abs(v)) for v in values]),
        bar_charts.stacked("parts", "ms", [name] * len(values), [(name, above), ("short", above)]),
        bar_charts.intervals("ratios", "a / b", [bar_charts.Ratio(name, v, [v / 3, v * 3]) for v in above]),
        bar_charts.many(
            "many", whole, axis, [bar_charts.Small(name, name, xs, values, name)] * 9
        ),
    ]  # fmt: skip
    page_file = tmp_path / "page.html"
    page_file.write_text(page("Any values", [], [("Plots", "".join(drawn))]))
    assert browser.open(page_file).faults() == []
    narrow = browser.open(page_file, width=390)
    assert narrow.faults() == []
    assert narrow.look["narrow"]


BAD: dict[str, tuple[str, str]] = {
    "a script that fails": ("<script>missing()</script>", "exception"),
    "a message": ("<script>console.error('no')</script>", "console: no"),
    "a picture from elsewhere": ("<img src='http://192.0.2.1/a.png'>", "asks for http"),
    "a style from elsewhere": (
        "<link rel=stylesheet href='https://example.org/a.css'>",
        "asks for",
    ),
    "a wide page": ("<div style='width:3000px'>x</div>", "too wide"),
    "pale text": ("<p style='color:#ccc'>x</p>", "contrast"),
}


def svg(inside: str, style: str = "width:300px;height:200px") -> str:
    return (
        f'<svg viewBox="0 0 300 200" style="{style}"><title>t</title><desc>d</desc>'
        f'<rect x="1" y="1" width="9" height="9"/>{inside}</svg>'
    )


BAD_PLOTS: dict[str, tuple[str, str]] = {
    "no number": (svg('<line x1="NaN" x2="3"/>'), "numbers that are none"),
    "a mark outside": (svg('<circle cx="400" cy="9" r="3"/>'), "1 marks outside"),
    "a text outside": (svg('<text x="280" y="50">a long text</text>'), "text outside: a long text"),
    "texts on texts": (
        svg('<text x="9" y="50">one</text><text x="12" y="52">two</text>'), "texts overlap: one | two"
    ),
    "no box": (svg("", "width:0;height:0"), "drawn 0 x 0"),
    "no description": ("<svg><rect width='9' height='9'/></svg>", "no description"),
    "nothing in it": ("<svg><title>t</title><desc>d</desc></svg>", "is empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*BAD, *BAD_PLOTS])
def test_what_is_wrong_with_a_page_is_seen(name: str, browser: Browser, tmp_path: Path) -> None:
    html, complaint = {**BAD, **BAD_PLOTS}[name]
    page = tmp_path / "page.html"
    style = "body { background: #fff; color: #000 }"
    page.write_text(f"<!DOCTYPE html><title>t</title><style>{style}</style><p>x</p>{html}")
    found: Any = browser.open(page).faults()
    assert any(complaint in fault for fault in found), found


def test_a_good_page_has_no_fault(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    style = "body { background: #fff; color: #000 }"
    page.write_text(
        f"<!DOCTYPE html><title>t</title><style>{style}</style><p>x</p>{svg('<text x=9 y=90>one</text>')}"
    )
    assert browser.open(page).faults() == []
