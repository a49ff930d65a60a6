"""Pages of runs: whole without anything else, and every plot well-formed."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pages import bare, plots

from autotune.cli.commands.report import report
from autotune.errors import UsageError
from autotune.report.pages.cpu_config import cpu_config_page
from autotune.report.pages.points import heat_maps
from autotune.report.plots.charts import Point, Series, heat_map, lines, scatter
from autotune.report.plots.svg import Axis
from autotune.studies.space.configuration_text import exhaustive_text

EVIL = "<script>alert('x')</script>"


def configuration(cores: int, khz: int) -> dict[str, Any]:
    clusters = {"little": {"cores": 0, "khz": None}, "big": {"cores": cores, "khz": khz}}
    return {"clusters": clusters, "threads": cores}


def trial(number: int, cores: int, khz: int, seconds: float, joules: float) -> dict[str, Any]:
    figures = {"time_s": seconds, "energy_j": joules, "celsius": 30.0, "memory_bytes": None}
    return {
        "event": "trial", "time": 100.0 + number, "status": "ok", "number": number,
        "configuration": configuration(cores, khz), "figures": figures, "reason": "probe", "message": "",
        "marks": [EVIL], "raw": "0.jsonl",
    }  # fmt: skip


TRIALS = [
    trial(0, 4, 2400000, 2.0, 9.0),
    trial(1, 1, 700000, 11.0, 6.0),
    trial(2, 2, 2400000, 3.0, 8.0),
]


def point(number: int) -> dict[str, Any]:
    one = TRIALS[number]
    return {
        **one["configuration"],
        **one["figures"],
        "ci": None,
        "rails": {EVIL: 1.25},
        "marks": [],
    }


RESULT: dict[str, Any] = {
    "objective": "pareto",
    "device": {"model": EVIL, "serial": "s", "emulated": "emulated: x"},
    "best": point(0),
    "points": {"fastest": point(0), "least_energy": point(1)},
    "pareto": [point(0), point(2), point(1)],
    "marks": ["3 of 3 draw 2.35 W: saturated?"],
    "default": {
        "clusters": None, "time_s": 4.0, "energy_j": 12.0, "celsius": None,
        "ci": {"time_s": [3.9, 4.1], "energy_j": [11.0, 13.0]}, "rails": {}, "marks": [EVIL],
    },
    "against_default": {"time_s": {"ratio": 2.0, "ci": [1.9, 2.1], "verdict": "better"}},
    "model_error": {
        "left_out": {"time": 0.05},
        "constants": {"clusters": {"big": {"a_s": 1.0, "b_s_ghz": 2.0}}},
    },
}  # fmt: skip


def test_a_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "0.jsonl").write_text(
        '{"begin": 1.0, "pid": 1, "interval_s": 0.1, "watch": ["/sys/class/thermal/thermal_zone0/temp",'
        ' "/sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq"]}\n'
        '{"sample": [1.0, 1.0, ["30000", "2400000"]]}\n{"sample": [2.0, 2.0, ["31000", null]]}\n'
    )
    big = {"name": "big", "policies": ["/sys/devices/system/cpu/cpufreq/policy4"]}
    zone = {"name": "skin-sensor", "path": "/sys/class/thermal/thermal_zone0"}
    device = {"clusters": [big], "thermal_zones": [zone]}
    about = {"request": {"objective": "pareto"}, "device": device}
    html = cpu_config_page(tmp_path, about, TRIALS, RESULT)
    # Clusters and sensors have their names, not their folders'.
    reported = [plot for plot in plots(html) if "skin-sensor" in plot or ">big<" in plot]
    assert len(reported) == 2
    assert not any(folder in plot for plot in plots(html) for folder in ("policy4", "zone0"))
    assert (
        len(plots(html)) == 8
    )  # History, front, two heat maps; heat and power over the search; heat, clocks.
    assert "emulated: x: times and joules are predicted by a model" in html
    assert "1.9 to 2.1" in html
    assert '<td class="number">1.25</td>' in html
    assert "Doubtful (energy): 3 of 3 draw 2.35 W" in html
    assert "Doubtful (energy of default)" in html


def test_a_plan_per_operator_is_shown(tmp_path: Path) -> None:
    plan = {
        "configurations": [RESULT["best"], RESULT["best"]],
        "phases": {"changes": [], "foretold_gain": 1.0},
        "operators": {
            "changes": [{"call": 3, "name": "conv2 forward", "to": 1}],
            "foretold_gain": 1.04,
        },
        "measured": {"ratio": 1.03, "ci": [1.01, 1.05], "verdict": "better"},
    }
    html = cpu_config_page(tmp_path, {}, TRIALS, RESULT | {"per_operator": plan})
    assert "Per phase: nothing beats the best single configuration" in html
    assert "conv2 forward" in html
    assert "gain 1.03 (1.01 to 1.05): better" in html


def test_how_far_a_search_was_from_the_optimum_is_shown(tmp_path: Path) -> None:
    whole = {"searched": 3, "found_after": 9, "gap": 0.125}
    html = cpu_config_page(tmp_path, {}, TRIALS, {**RESULT, "exhaustive": whole, "space": 10})
    assert (
        "all 10 configurations were measured: the search&#x27;s best of 3 is 12.5% from the optimum, which came "
        "as number 9" in html
    )
    none = exhaustive_text({**whole, "gap": None}, 10)
    assert none.endswith(
        "none of the 3 of the search meets the limits; the optimum came as number 9"
    )
    found = exhaustive_text({"searched": 2, "found_after": 1, "gap": 0.0}, 6)
    assert found == (
        "all 6 configurations were measured: the search had found the optimum, as number 1 of its 2"
    )


def test_what_others_of_a_shared_study_measured_is_shown_and_said(tmp_path: Path) -> None:
    shared = {**RESULT, "others": TRIALS[1:]}
    html = cpu_config_page(tmp_path, {}, TRIALS[:1], shared)
    assert "2 of 3 measurements were made by other processes" in html
    alone = cpu_config_page(tmp_path, {}, TRIALS, RESULT)
    assert "other processes" not in alone
    assert [len(plots(page)) for page in (html, alone)] == [4, 6]


def test_a_search_without_joules_has_a_page(tmp_path: Path) -> None:
    trials = [{**t, "figures": {**t["figures"], "energy_j": None}} for t in TRIALS]
    bare = {**point(0), "energy_j": None}
    result = {
        **RESULT, "best": bare, "points": {"fastest": bare}, "pareto": [], "default": None,
        "model_error": {},
    }  # fmt: skip
    html = cpu_config_page(tmp_path, {}, trials, result)
    assert "No joules were measured" in html
    assert "Too little was measured" in html


def test_a_search_whose_limits_nothing_keeps_has_a_page(tmp_path: Path) -> None:
    result = {
        **RESULT, "best": None, "points": {}, "pareto": [], "against_default": None, "limits": {"time_s": 0.1},
    }  # fmt: skip
    html = cpu_config_page(tmp_path, {}, TRIALS, result)
    assert "Nothing that meets the limits was measured" in html
    assert (
        len(plots(html)) == 5
    )  # Points without a front, two heat maps, heat and power over the search.


def test_a_joint_search_shows_its_plans_and_what_it_gained(tmp_path: Path) -> None:
    def plan(number: int, digests: tuple[str, str]) -> dict[str, Any]:
        calls = [
            {
                "call": n, "kernel": kernel, "operator": "conv2d", "role": role, "device": "cpu",
                "schedule": {"digest": digest, "formulation": "direct"},
                "predicted": {"time_s": 0.5, "energy_j": 1.0},
            }
            for n, (kernel, role, digest) in enumerate(
                zip(("alike", "unlike"), ("forward", EVIL), digests, strict=True)
            )
        ]  # fmt: skip
        return {
            "step": {"micro_batch": 4}, "configuration": TRIALS[number]["configuration"], "calls": calls,
            "memory": {"planned_bytes": 2_500_000}, "predicted": {"time_s": 1.0, "energy_j": 2.0},
            "measured": {"time_s": 1.1, "energy_j": 2.1, "ci": None},
        }  # fmt: skip

    little = {"little": {"cores": 4, "khz": 1}, "big": {"cores": 0, "khz": None}}
    other = plan(1, ("aaaaaaaaaa", "cccccccccc"))
    other["configuration"] = {"clusters": little, "threads": 4}
    plans = {
        "best": plan(0, ("aaaaaaaaaa", "bbbbbbbbbb")),
        "pareto-1": plan(0, ("aaaaaaaaaa", "bbbbbbbbbb")),
        "pareto-2": other,
        "sequential": plan(2, ("dddddddddd", "dddddddddd")),
    }
    ratio = {"ratio": 1.25, "ci": [1.2, 1.3], "verdict": "better"}
    sequential = {
        "measured": 3, "best": point(2), "blocks": 5, "time_s": ratio, "energy_j": None,
        "front": {"dominated": 1.0, "hypervolume_gain": 0.12},
    }  # fmt: skip
    result = {**RESULT, "sequential": sequential, "plans": dict.fromkeys(plans, "")}
    beside = [{**t, "event": "sequential_trial"} for t in TRIALS]
    again = {**TRIALS[0], "event": "round", "number": None, "reason": None}
    about = {"request": {"joint": True}}
    html = cpu_config_page(tmp_path, about, [*TRIALS, again, *beside], result, plans)
    drawn = plots(html)
    # Ratios, history, front, roles of plans, two heat maps, heat and power over the search.
    assert len(drawn) == 8
    assert (
        "time: joint is 1.25x as fast as tuning kernels first, then cores (1.2 to 1.3): better"
        in html
    )
    assert "its hypervolume is 12% larger" in html
    assert drawn[1].count("<polyline") == 2
    assert "kernels first: " in drawn[2]
    assert ">pareto-1</text>" in drawn[2]
    # Plans that are alike are one row; what differs between clusters comes first.
    assert "<td>best, pareto-1</td>" in bare(html)
    assert "1 of 2 kernels, which come first" in html
    assert "<td>sequential</td>" in bare(html)
    assert "dddddddd" not in html
    assert html.index("direct bbbbbbbb") < html.index("direct aaaaaaaa")
    assert "micro-batches of 4" in html
    assert "<td>other schedules</td>" in bare(html)


def test_plots_of_one_point_and_of_equal_points_are_drawn() -> None:
    for values in ([1.0], [3.0, 3.0], [0.0, 5.0]):
        axis = Axis.over("x", values, logarithmic=True)
        points = [Point(v, v, "p") for v in values]
        ElementTree.fromstring(scatter("p", axis, axis, points, [("f", points)]))
        ElementTree.fromstring(lines("p", axis, axis, [Series("a", values, values)]))
        assert all(axis.low <= tick <= axis.high for tick in axis.ticks())
    empty = heat_map("p", ["a"], ["b"], [[None]], column_label="c", row_label="r", unit="s")
    ElementTree.fromstring(empty)


def test_of_settings_that_share_a_cell_the_least_is_shown() -> None:
    """They differ in threads; the last one measured was shown."""
    trials = [
        {
            "configuration": {"clusters": {"big": {"cores": cores, "khz": 1000}}, "threads_per_core": threads},
            "figures": {"time_s": seconds, "energy_j": None},
        }
        for cores, threads, seconds in ((1, 1.0, 4.0), (2, 1.0, 2.0), (2, 2.0, 3.0), (3, 1.0, 1.5))
    ]  # fmt: skip
    ((_, drawn),) = heat_maps(trials)
    assert "2, 1: 2 s" in drawn
    assert "3 s<" not in drawn


def test_ticks_are_round() -> None:
    assert Axis("", 0.0, 100.0).ticks() == [0, 20, 40, 60, 80, 100]
    assert Axis("", 0.8, 120.0, True).ticks() == [1, 2, 5, 10, 20, 50, 100]


def run_folder(path: Path, request: dict[str, Any], events: list[dict[str, Any]]) -> Path:
    path.mkdir()
    (path / "run.json").write_text(
        json.dumps({"schema_version": 1, "request": request, "device": {}})
    )
    (path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return path


def test_other_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run of a known command"):
        report(run_folder(tmp_path / "other", {}, []))
    with pytest.raises(UsageError, match="no run at"):
        report(tmp_path)


def test_a_search_that_was_interrupted_is_shown_as_far_as_it_came(tmp_path: Path) -> None:
    request = {"objective": "pareto", "trials": 9, "deadline": "5s"}
    folder = run_folder(tmp_path / "run", request, TRIALS)
    assert report(folder) == 0
    html = (folder / "report.html").read_text()
    assert "has not ended: 3 of 9 measurements" in html
    assert f"autotune cpu-config --resume {folder}" in html
    assert len(plots(html)) == 6
    # The slowest breaks the deadline, and is not on the front.
    (front,) = re.findall(r"<polyline.*?/>", plots(html)[1])
    assert len(front.split('"')[1].split()) == 2


def test_a_search_without_a_measurement_has_no_page(tmp_path: Path) -> None:
    failed = {**TRIALS[0], "status": "failed", "figures": None}
    folder = run_folder(tmp_path / "run", {"objective": "latency"}, [failed])
    with pytest.raises(UsageError, match="nothing was measured yet") as caught:
        report(folder)
    assert "--resume" in caught.value.hint
