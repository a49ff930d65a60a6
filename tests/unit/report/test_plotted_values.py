"""What plots show: their values, read off against their axes, are those that were measured."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pages import curves, dots, lengths, monotone, plot_of, ratios

from autotune.cli.commands.compare import compare
from autotune.cli.commands.report import report
from autotune.records import Result, read_run
from autotune.report.pages.conditions import over_run
from autotune.report.pages.searches import history, over_search
from autotune.report.plots.bar_charts import Bar, Ratio, Small, bars, intervals, many, stacked
from autotune.report.plots.charts import Point, Series, heat_map, lines, scatter
from autotune.report.plots.svg import Axis

SAMPLE = Path(__file__).parents[3] / "logs" / "samples" / "cpu-matmul"
NEAR = 0.01
"""Relative: places are rounded to a tenth of a pixel."""


def trial(number: int, seconds: float | None, joules: float | None = None) -> dict[str, Any]:
    figures = {
        "time_s": seconds,
        "energy_j": joules,
        "celsius": 30.0 + number,
        "memory_bytes": None,
    }
    return {
        "event": "trial", "time": 100.0 + 10 * number, "number": number, "marks": [], "message": "",
        "configuration": {"clusters": {"big": {"cores": 1, "khz": 1000}}, "threads": 1},
        "figures": None if seconds is None else figures,
    }  # fmt: skip


def searched(objective: str, **limits: float) -> dict[str, Any]:
    return {"objective": objective, "limits": limits}


@given(
    st.lists(
        st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)) | st.none(), min_size=1, max_size=12
    ),
    st.sampled_from(["latency", "energy", "edp", "pareto"]),
)
# A last trial that is slower than the first one, and one that is faster.
@example([(1.0, 2.0), (3.0, 4.0)], "latency")
@example([(3.0, 4.0), (1.0, 2.0), (2.0, 1.0)], "edp")
# An axis with two round numbers of a power of ten.
@example([(1.125, 0.3125), (0.375, 0.3125)], "edp")
# More than three powers of ten.
@example([(24.0, 0.1015625), (59.0, 62.875)], "edp")
def test_the_best_so_far_never_gets_worse(
    found: list[tuple[float, float] | None], objective: str
) -> None:
    trials = [trial(n, *(one or (None, None))) for n, one in enumerate(found)]
    known = [one for one in found if one is not None]
    html = history(trials, searched(objective))
    if not known:
        assert "<svg" not in html
        return
    pareto = objective == "pareto"
    title = "Hypervolume of the front so far" if pareto else "Best so far"
    best = curves(plot_of(html, title))["best so far"]
    assert monotone(best, higher=pareto)
    of = {"latency": lambda t, _: t, "energy": lambda _, j: j, "edp": lambda t, j: t * j}
    end = 100.0 if pareto else min(of[objective](*one) for one in known)
    # A tenth of a unit of the plot, read between ticks of an axis of six powers of ten.
    assert best[-1][1] == pytest.approx(end, rel=3 * NEAR)
    assert best[-1][0] == pytest.approx(len(trials), abs=0.05 + NEAR * len(trials))


def test_the_best_so_far_is_of_those_that_keep_the_limits_and_the_dots_are_all() -> None:
    trials = [trial(0, 2.0, 5.0), trial(1, 1.0, 50.0), trial(2, None), trial(3, 4.0, 4.0)]
    html = history(
        trials, searched("latency", energy_j=10.0), [trial(0, 3.0, 5.0), trial(1, 6.0, 5.0)]
    )
    found = curves(plot_of(html, "Best so far"))
    assert found["a trial"] == [
        (pytest.approx(n, abs=NEAR), pytest.approx(s, rel=NEAR))
        for n, s in ((1, 2), (2, 1), (4, 4))
    ]
    assert {round(value, 1) for _, value in found["best so far"]} == {2.0}
    assert {round(value, 1) for _, value in found["kernels first, then cores"]} == {3.0}


def test_heat_and_power_over_a_search() -> None:
    reported = dict(over_search([trial(0, 2.0, 5.0), trial(1, 1.0, 4.0), trial(2, 4.0, 2.0)]))
    heat, power = (
        next(
            iter(
                curves(
                    plot_of(reported[f"{what} over the search"], f"{what} over the search")
                ).values()
            )
        )
        for what in ("Temperature", "Power")
    )
    assert heat == [
        (pytest.approx(t, abs=0.1), pytest.approx(c, rel=NEAR))
        for t, c in ((0, 30), (10, 31), (20, 32))
    ]
    assert power == [
        (pytest.approx(t, abs=0.1), pytest.approx(w, abs=0.02))
        for t, w in ((0, 2.5), (10, 4), (20, 0.5))
    ]


def test_a_scatter_and_its_line_are_where_their_values_are() -> None:
    points = [Point(0.01, 5.0, "a"), Point(0.1, 2.0, "b"), Point(3.0, 0.5, "c")]
    x = Axis.over("s", [p.x for p in points], logarithmic=True)
    y = Axis.over("J", [p.y for p in points], logarithmic=True)
    plot = scatter("p", x, y, points, [("front", points[:2]), ("other", points[1:])])
    assert dots(plot) == [
        (p.title, pytest.approx(p.x, rel=NEAR), pytest.approx(p.y, rel=NEAR)) for p in points
    ]
    assert curves(plot)["other"] == [
        (pytest.approx(p.x, rel=NEAR), pytest.approx(p.y, rel=NEAR)) for p in points[1:]
    ]


def test_lines_are_where_their_values_are_also_below_zero() -> None:
    series = [Series("a", [0, 1, 5], [-3.0, 0.0, 40.0]), Series("b", [2, 5], [7.0, 9.0], dots=True)]
    x, y = Axis.over("s", [0, 5]), Axis.over("C", [-3.0, 40.0])
    found = curves(lines("p", x, y, series))
    for one in series:
        assert found[one.name] == [
            (pytest.approx(a, abs=0.02), pytest.approx(b, abs=0.1))
            for a, b in zip(one.xs, one.ys, strict=True)
        ]


def test_bars_and_parts_are_as_long_as_their_values() -> None:
    plain = lengths(bars("p", "ms", [Bar("a", 4.0), Bar("b", 0.5), Bar("c", 0.0), Bar("d", -1.0)]))
    assert [end for _, _, end in plain] == pytest.approx([4.0, 0.5, 0.0, 0.0], abs=0.01)
    rows = [("untuned", [6.0, 3.0]), ("tuned", [1.0, 2.0])]
    parts = lengths(stacked("p", "ms", ["forward", "backward"], rows))
    assert [(low, high) for _, low, high in parts] == [
        (pytest.approx(a, abs=0.03), pytest.approx(b, abs=0.03))
        for a, b in ((0, 6), (6, 9), (0, 1), (1, 3))
    ]
    assert parts[1][0] == "untuned, backward: 3 (33.3%)"


def test_ratios_and_their_intervals_are_where_their_values_are() -> None:
    rows = [Ratio("a", 2.0, (1.5, 2.5)), Ratio("b", 0.25, None), Ratio("c", 30.0, (10.0, 90.0))]
    found = ratios(intervals("p", "a / b", rows))
    for (_, value, ends), row in zip(found, rows, strict=True):
        assert value == pytest.approx(row.value, rel=NEAR)
        assert ends == (None if row.ends is None else pytest.approx(tuple(row.ends), rel=NEAR))


def test_small_plots_rise_by_the_values_of_their_steps() -> None:
    x, y = Axis("trials", 0.0, 10.0), Axis("speed-up", 0.5, 8.0, True)
    plot = many("p", x, y, [Small("a", "", [0, 4, 6], [1.0, 2.0, 4.0])])
    (box,) = re.findall(r'<rect x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)" class="box"', plot)
    left, top, wide, high = map(float, box)
    (path,) = re.findall(r'<path d="M(\S+) (\S+)H(\S+)V(\S+)H(\S+)V(\S+)H(\S+)"', plot)
    places = [float(at) for at in path]
    assert [(at - left) / wide * 10 for at in (*places[0::2],)][:4] == pytest.approx(
        [0, 4, 6, 10], abs=0.02
    )
    drawn = [0.5 * 16 ** (1 - (at - top) / high) for at in places[1::2]]
    assert drawn == pytest.approx([1.0, 2.0, 4.0], rel=NEAR)


def test_cells_of_a_heat_map_have_their_values_and_the_smallest_is_darkest() -> None:
    cells = [[1.0, None], [4.0, 2.0]]
    plot = heat_map(
        "p", ["500", "900"], ["1", "2"], cells, column_label="MHz", row_label="cores", unit="s"
    )
    found = re.findall(r'fill="hsl\(210,70%,(\d+)%\)"><title>(.*?)</title>', plot)
    light = {title: int(value) for value, title in found}
    assert list(light) == ["1, 500: 1 s", "2, 500: 4 s", "2, 900: 2 s"]
    assert light["1, 500: 1 s"] < light["2, 900: 2 s"] < light["2, 500: 4 s"]


def test_heat_and_the_same_kernel_over_a_kernel_run() -> None:
    seen = [{"celsius": c, "zone": "skin", "clocks": []} for c in (31.0, 33.0)]
    events = [
        {"event": "reference", "time": 50.0, "task": "k", "samples_s": [0.002, 0.004, 0.003], "conditions": seen},
        {"event": "reference", "time": 90.0, "task": "k", "samples_s": [0.005], "conditions": seen[:1]},
    ]  # fmt: skip
    reported = dict(over_run(events))
    heat = curves(plot_of(reported["Temperature over the run"], "Temperature over the run"))["skin"]
    assert heat == [
        (pytest.approx(0, abs=0.1), pytest.approx(33, abs=0.02)),
        (pytest.approx(40, abs=0.2), pytest.approx(31, abs=0.02)),
    ]
    name = "The same kernel over the run"
    same = curves(plot_of(reported[name], name))["k"]
    assert [ms for _, ms in same] == pytest.approx([3.0, 5.0], rel=NEAR)


def test_the_plots_of_a_recorded_kernel_run(tmp_path: Path) -> None:
    run = Path(shutil.copytree(SAMPLE, tmp_path / "run"))
    assert report(run) == 0
    html = (run / "report.html").read_text()
    result = Result.from_json(read_run(run).result or {})
    (best,) = curves(plot_of(html, "Time of a step with the best kernels so far")).values()
    assert monotone(best, higher=False)
    assert best[0][1] > best[-1][1]
    by_role = lengths(plot_of(html, "Time of a step by role, untuned and tuned"))
    for word, tuned in (("untuned", False), ("tuned", True)):
        whole = max(end for title, _, end in by_role if title.startswith(f"{word},"))
        assert whole == pytest.approx(result.step_ms(tuned=tuned), rel=0.03)
    shares = lengths(plot_of(html, "Time of the tuned step by role and operator"))
    assert sum(end for _, _, end in shares) == pytest.approx(result.step_ms(tuned=True), rel=0.03)
    faster = [task for task in result.tasks if task.digest != "default"]
    shown = ratios(plot_of(html, "Speed-up of each kernel"))
    assert [value for _, value, _ in shown] == pytest.approx([t.speedup for t in faster], rel=NEAR)
    assert [ends for *_, ends in shown] == [pytest.approx(t.ci, rel=NEAR) for t in faster]


def test_the_plots_of_two_runs_beside_each_other(tmp_path: Path) -> None:
    page = tmp_path / "both.html"
    assert compare(SAMPLE, SAMPLE, json=True, html=page) == 0
    html = page.read_text()
    lined = curves(plot_of(html, "Time of a step with the best kernels so far"))
    assert lined["first"] == lined["second"]
    assert monotone(lined["first"], higher=False)
    assert [value for _, value, _ in ratios(plot_of(html, "Time of each kernel"))] == pytest.approx(
        [1.0] * 3, rel=NEAR
    )
