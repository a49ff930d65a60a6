"""Two runs beside each other: figures, what differs, what cannot be compared."""

import json
import math
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import plots

from autotune.cli.commands.compare import compare
from autotune.errors import RecordError, UsageError
from autotune.measurement.statistics import ratio_of_sums
from autotune.records import read_run
from autotune.report.comparing.comparison_data import compared

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "logs" / "samples" / "cpu-matmul"
GOLDEN = ROOT / "tests" / "golden"
FORWARD = "matmul_forward_m8n24k40"
Change = Callable[[dict[str, Any]], None]


def edit(path: Path, change: Change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The sample, and one whose forward kernel takes twice as long, of another seed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    first, second = Path("first"), Path("second")
    for path in (first, second):
        shutil.copytree(SAMPLE, path)
    lines = []
    for line in (second / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "final" and event["task"] == FORWARD:
            winner = event["winner"]
            event["samples"][winner] = [2 * value for value in event["samples"][winner]]
        lines.append(json.dumps(event) + "\n")
    (second / "events.jsonl").write_text("".join(lines))

    def slower(result: dict[str, Any]) -> None:
        result["tasks"][0]["tuned_ms"] *= 2

    edit(second / "result.json", slower)
    edit(second / "run.json", lambda about: about["request"].update(seed=7))
    return first, second


def point(seconds: float, joules: float | None, **more: Any) -> dict[str, Any]:
    return {
        "clusters": {"big": {"cores": 4, "khz": 2400000}}, "threads": 4, "time_s": seconds,
        "energy_j": joules, "ci": None, **more,
    }  # fmt: skip


def search(path: Path, points: list[tuple[float, float]], **request: Any) -> Path:
    path.mkdir()
    about = {
        "schema_version": 1, "device": {"model": "Phone", "serial": path.name}, "versions": {},
        "request": {"objective": "pareto", "step": {"model": "lenet", "batch": 4}, "joint": True, **request},
    }  # fmt: skip
    best = point(
        *points[0], ci={"time_s": [0.9 * points[0][0], 1.1 * points[0][0]], "energy_j": None}
    )
    result = {
        "n_measured": len(points), "best": best, "points": {"fastest": best}, "default": None,
        "pareto": [point(*pair) for pair in points],
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(about))
    (path / "result.json").write_text(json.dumps(result))
    return path


def test_two_kernel_runs_as_a_table(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*runs) == 0
    shown = capsys.readouterr().out
    golden = GOLDEN / "compare_kernels.txt"
    if os.environ.get("AUTOTUNE_UPDATE_GOLDEN"):
        golden.write_text(shown, encoding="utf-8")
    assert shown == golden.read_text(encoding="utf-8")


def test_two_kernel_runs_as_data(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path("both.html")
    assert compare(*runs, json=True, html=page) == 0
    found = json.loads(capsys.readouterr().out)
    forward, data_grad, _ = found["tasks"]
    assert forward["ratio"] == pytest.approx(0.5)
    assert forward["ci"][0] < 0.5 < forward["ci"][1] < 1
    assert (forward["verdict"], data_grad["verdict"]) == ("first", "tie")
    assert found["step"]["untuned"]["ratio"] == pytest.approx(1.0)
    expected = sum(t["count"] * t["first_ms"] for t in found["tasks"])
    assert found["step"]["tuned"]["first_ms"] == pytest.approx(expected)
    assert found["step"]["tuned"]["verdict"] == "first"
    assert found["settings"] == [{"name": "seed", "first": 1, "second": 7}]
    assert found["warnings"] == []
    assert len(plots(page.read_text())) == 3  # History, roles, ratios.


def test_differences_of_devices_and_kernels_are_told(runs: tuple[Path, Path]) -> None:
    def other(about: dict[str, Any]) -> None:
        about["device"]["name"] = "Another"
        about["versions"]["apache-tvm"] = "0.99"

    def stand_in(result: dict[str, Any]) -> None:
        result["stand_in"] = True
        result["tasks"][2]["name"] = "something_else"

    edit(runs[1] / "run.json", other)
    edit(runs[1] / "result.json", stand_in)
    found = compared(*map(read_run, runs))
    assert "the devices differ: AMD EPYC and Another" in found["warnings"]
    assert "only the second run was measured on a stand-in" in found["warnings"]
    assert [one["name"] for one in found["settings"]] == [
        "seed", "version of apache-tvm", "device.name"
    ]  # fmt: skip
    assert found["only_first"] == ["matmul_weight_grad_m8n24k40"]
    assert found["only_second"] == ["something_else"]
    assert len(found["tasks"]) == 2


def test_a_device_that_was_slower_is_told(runs: tuple[Path, Path]) -> None:
    lines = []
    for line in (runs[1] / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "final":
            for digest, samples in event["samples"].items():
                event["samples"][digest] = [value / 3 for value in samples]
        lines.append(json.dumps(event) + "\n")
    (runs[1] / "events.jsonl").write_text("".join(lines))

    def faster(result: dict[str, Any]) -> None:
        for task in result["tasks"]:
            task["default_ms"] /= 3
            task["tuned_ms"] /= 3

    edit(runs[1] / "result.json", faster)
    (warning,) = compared(*map(read_run, runs))["warnings"]
    assert "untuned kernels took 3 times as long in the first run" in warning


def test_without_the_last_timings_no_interval_is_told(runs: tuple[Path, Path]) -> None:
    (runs[1] / "events.jsonl").write_text("")
    found = compared(*map(read_run, runs))
    assert found["tasks"][0]["ratio"] == pytest.approx(0.5)
    assert (found["tasks"][0]["ci"], found["tasks"][0]["verdict"]) == (None, "")
    assert found["step"]["tuned"]["ci"] is None


def test_two_searches_are_compared_by_points_and_fronts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = search(tmp_path / "a", [(1.0, 4.0), (2.0, 2.0), (4.0, 1.0)])
    second = search(tmp_path / "b", [(1.5, 4.0), (2.0, 1.5)], objective="edp")
    assert compare(first, second, json=True, html=tmp_path / "both.html") == 0
    found = json.loads(capsys.readouterr().out)
    best = found["points"][0]
    assert best["time_s"]["ratio"] == pytest.approx(1 / 1.5)
    # Two intervals of ten percent to each side: sqrt(2) times as wide.
    low, high = best["time_s"]["ci"]
    assert (high / low) ** 0.5 == pytest.approx((1.1 / 0.9) ** (0.5 * 2**0.5))
    assert best["energy_j"] == {"ratio": 1.0, "ci": None, "verdict": ""}
    fronts = found["fronts"]
    reference = fronts["reference"]
    assert (reference["time_s"], reference["energy_j"]) == pytest.approx((4.0, 4.0))
    # By hand: of each front one point lies within the worst of both.
    assert fronts["hypervolume"]["first"] == pytest.approx(math.log(2) ** 2)
    assert fronts["hypervolume"]["second"] == pytest.approx(math.log(2) * math.log(4 / 1.5))
    assert fronts["gain"] == pytest.approx(math.log(2) / math.log(4 / 1.5) - 1)
    assert fronts["dominated"] == {"first": pytest.approx(1 / 3), "second": 0.5}
    assert "they searched for pareto and edp" in found["warnings"]
    assert "two devices: a and b" in found["warnings"]
    assert len(plots((tmp_path / "both.html").read_text())) == 2
    # A search whose objective was left at its default has it in its result.
    edit(second / "run.json", lambda about: about["request"].update(objective=None))
    edit(second / "result.json", lambda result: result.update(objective="latency"))
    reported = compared(read_run(first), read_run(second))["warnings"]
    assert "they searched for pareto and latency" in reported
    assert compare(first, second) == 0
    assert "of logarithms, below 4 s and 4 J" in capsys.readouterr().out


def test_searches_without_joules_are_compared_by_time(tmp_path: Path) -> None:
    first, second = (search(tmp_path / name, [(1.0, 4.0)]) for name in "ab")
    for path in (first, second):
        edit(path / "result.json", lambda result: result.update(pareto=[]))
        edit(path / "result.json", lambda result: result["best"].update(energy_j=None))
    found = compared(read_run(first), read_run(second))
    assert found["fronts"] is None
    assert found["points"][0]["energy_j"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about.update(request={"objective": "latency"}), "run of kernels, and second one of cpu"),
        (lambda about: about["request"].update(workload="lenet"), "is of matmul, and second of lenet"),
        (lambda about: about["request"].update(batch=8), "is of matmul, and second of matmul at batch 8"),
        (lambda about: about.update(request={}), "second is not a run that can be compared"),
    ],
)  # fmt: skip
def test_runs_of_other_things_cannot_be_compared(
    runs: tuple[Path, Path], change: Change, message: str
) -> None:
    edit(runs[1] / "run.json", change)
    with pytest.raises(UsageError, match=message):
        compare(*runs)


def test_runs_that_have_not_ended_or_share_nothing_cannot_be_compared(
    runs: tuple[Path, Path],
) -> None:
    def renamed(result: dict[str, Any]) -> None:
        for task in result["tasks"]:
            task["name"] += "_nhwc"

    edit(runs[1] / "result.json", renamed)
    with pytest.raises(UsageError, match="no kernel in common"):
        compare(*runs)
    (runs[1] / "result.json").write_text('{"tasks": 3}')
    with pytest.raises(RecordError, match="damaged"):
        compare(*runs)
    (runs[1] / "result.json").unlink()
    with pytest.raises(UsageError, match="second has not ended") as caught:
        compare(*runs)
    assert "autotune kernels --resume second" in caught.value.hint


def test_the_interval_of_a_ratio_of_sums_holds_the_true_ratio_as_often_as_it_says() -> None:
    draw = random.Random(1)
    held = 0
    for seed in range(200):
        first, second = (
            [[scale * draw.lognormvariate(0, 0.1) for _ in range(11)] for scale in side]
            for side in ((1.0, 4.0), (2.0, 2.0))
        )
        found = ratio_of_sums(first, second, [2, 1], seed=seed)
        held += found.low <= (2 * 1.0 + 4.0) / (2 * 2.0 + 2.0) <= found.high
    assert 0.9 * 200 <= held <= 200
    assert ratio_of_sums([[1.0] * 3], [[2.0] * 9], [1], seed=1).ends is None
    with pytest.raises(ValueError, match="same terms"):
        ratio_of_sums([], [], [], seed=1)
