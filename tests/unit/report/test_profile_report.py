"""The page of a profile, and the power over time that it draws from raw records."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pages import bare, curves, plot_of, plots

from autotune.cli.commands.report import report
from autotune.errors import RecordError, UsageError
from autotune.measurement.timelines import timeline
from autotune.power.channels import Channel, Meter
from autotune.report.pages.profile import profile_page
from autotune.report.plots.bar_charts import Bar, bars
from autotune.report.plots.charts import Band, Series, lines
from autotune.report.plots.svg import Axis

EVIL = "<script>alert('x')</script>"
VOLTS, AMPERES = "/sys/class/hwmon/hwmon0/in1_input", "/sys/class/hwmon/hwmon0/curr1_input"
CLOCK = "/sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq"
TEMPERATURE = "/sys/class/thermal/thermal_zone0/temp"
METER = Meter("hwmon", (Channel("VDD_IN", "hwmon", "watts", (VOLTS, AMPERES), scale=1e-6),))
STEP_S, STEPS = 0.5, 6


def record(begin_s: float, watts: float, *, steps: int = 0, length_s: float = 4.0) -> str:
    """A record of a device that draws so much at 5 V, and of the steps' calls: a half, and two quarters."""
    watch = [VOLTS, AMPERES, CLOCK, TEMPERATURE]
    entries: list[dict[str, Any]] = [
        {"begin": begin_s, "pid": 1, "interval_s": 0.1, "watch": watch}
    ]
    for n in range(round(length_s / 0.1)):
        at, texts = begin_s + 0.1 * n, ["5000", f"{200 * watts:.0f}", "2035200", "36500"]
        entries.append({"sample": [at, at, texts]})
    for n in range(steps):
        ends = begin_s + STEP_S * (n + 1)
        calls = f"calls {ends - STEP_S:.6f} 250000.0 125000.0 125000.0"
        entries += [{"line": [ends, calls]}, {"line": [ends, f"step {n + 1}"]}]
    entries.append({"end": begin_s + length_s, "exit": 0})
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


RECORDS = [record(0.0, 2.0), record(10.0, 7.0, steps=STEPS), record(20.0, 3.0)]


def figures(seconds: float, joules: float | None, *, apart: bool = True) -> dict[str, Any]:
    return {
        "time_s": seconds, "share": seconds / STEP_S, "energy_j": joules,
        "deviation_j": None if joules is None else 0.1 * joules,
        "watts": None if joules is None else joules / seconds, "apart": apart, "busy": {"0": 0.5, "1": 1.0},
        "khz": {"little": 2035200.0}, "celsius": 36.5, "rss_bytes": None, "live_bytes": 2_000_000,
    }  # fmt: skip


def result(*, metered: bool = True) -> dict[str, Any]:
    joules = (1.25, 0.625, 0.625) if metered else (None, None, None)
    calls = [("a conv2d forward", "forward"), (EVIL, "weight_grad"), ("c", "weight_grad")]
    cluster = {"name": "little", "policies": ["/sys/devices/system/cpu/cpufreq/policy0"]}
    return {
        "kind": "profile", "emulated": True, "meter": "hwmon" if metered else None,
        "device": {"model": EVIL, "serial": "s", "emulated": "emulated: x", "clusters": [cluster]},
        "cpus": None, "threads": 2, "khz": {"little": None}, "step_s": STEP_S, "steps": STEPS - 2,
        "energy_j": 2.5 if metered else None, "deviation_j": 0.1 if metered else None,
        "marks": [EVIL], "memory_bytes": None, "intervals": 20,
        "operators": [
            {"name": name, "operator": "conv2d", "role": role, **figures(s, j, apart=n != 2)}
            for n, ((name, role), s, j) in enumerate(zip(calls, (0.25, 0.125, 0.125), joules, strict=True))
        ],
        "roles": [
            {"operator": "conv2d", "role": "forward", "calls": 1, **figures(0.25, joules[0])},
            {"operator": "conv2d", "role": EVIL, "calls": 2, **figures(0.25, joules[1], apart=False)},
        ],
    }  # fmt: skip


ABOUT: dict[str, Any] = {"schema_version": 1, "request": {"profile": {"model": "m", "batch": 4}}}


def run_folder(path: Path, *, metered: bool = True) -> Path:
    path.mkdir()
    (path / "run.json").write_text(json.dumps(ABOUT))
    (path / "result.json").write_text(json.dumps(result(metered=metered)))
    for number, text in enumerate(RECORDS if metered else RECORDS[1:2]):
        (path / f"record-{number}.jsonl").write_text(text)
    if metered:
        event = {"event": "meter", "time": 1.0, "meter": asdict(METER), "settle_s": 1.0}
        (path / "events.jsonl").write_text(json.dumps(event) + "\n")
    return path


def test_power_and_calls_over_time_are_read_from_records() -> None:
    found = timeline(RECORDS, METER, 1.0)
    assert found.power is not None
    assert found.power.watts == pytest.approx(7.0)
    assert found.power.times_s[:3] == pytest.approx([0.0, 0.1, 0.2])
    assert found.idle_w == pytest.approx(2.5)
    assert found.calls is not None
    assert found.calls.times_s.shape == (STEPS, 4)
    assert found.calls.times_s[1] == pytest.approx([0.5, 0.75, 0.875, 1.0])


def test_without_a_meter_there_are_the_calls() -> None:
    found = timeline(RECORDS[1:2], None, 0.0)
    assert (found.power, found.idle_w) == (None, None)
    assert len(found.to_json()["steps"]) == STEPS


def test_a_meter_is_read_back_from_json() -> None:
    assert Meter.from_json(json.loads(json.dumps(asdict(METER)))) == METER


def test_the_page_of_a_profile_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    assert report(folder) == 0
    html = (folder / "report.html").read_text()
    # Energy, roles, time, power over the run and over its first steps, temperature, clocks.
    drawn = plots(html)
    assert len(drawn) == 7
    assert "emulated: x: times and joules are predicted by a model" in html
    assert "Profile of m, batch 4 on" in html
    assert '<td class="number">~625</td>' in bare(html)
    assert "too short to separate: the power of 1 of 3 calls" in html
    assert "first 4 steps that count" in html
    bands = [
        e for e in ElementTree.fromstring(drawn[4]).iter() if e.get("class", "").startswith("band")
    ]
    assert len(bands) == 3 * (STEPS - 2)
    borders = [e for e in ElementTree.fromstring(drawn[3]).iter() if e.get("class") == "border"]
    assert len(borders) == STEPS + 1
    for name in ("result.json", "power.json", "run.json"):
        assert f'download="{name}"' in html
    assert ">little<" in drawn[6]


def test_a_profile_without_joules_has_a_page(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", metered=False)
    assert report(folder) == 0
    html = (folder / "report.html").read_text()
    assert "No meter was read" in html
    assert len(plots(html)) == 4  # Roles, time, temperature, clocks.


def test_a_profile_that_has_not_ended_is_refused_with_its_command(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    (folder / "result.json").unlink()
    with pytest.raises(UsageError, match="did not end") as caught:
        report(folder)
    assert "autotune profile --model m --batch 4" in (caught.value.hint or "")


def test_damaged_records_are_one_clear_error(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    (folder / "events.jsonl").write_text('{"event": "meter", "time": 1.0, "meter": {"x": 1}}\n')
    with pytest.raises(RecordError, match="records are damaged"):
        report(folder)


def test_a_page_of_a_profile_without_calls_is_drawn(tmp_path: Path) -> None:
    reported = {"times_s": [0.0, 1.0], "watts": [2.0, 2.0], "idle_w": None, "steps": []}
    html = profile_page(tmp_path, ABOUT, result(), reported)
    assert len(plots(html)) == 4  # Energy, roles, time, power.


def test_many_readings_are_drawn_as_means(tmp_path: Path) -> None:
    """A value is the mean since the one before: one of three would be no mean of the three."""
    times = [0.01 * n for n in range(1, 9001)]
    reported = {
        "times_s": times, "watts": [9.0 if n % 3 == 0 else 0.0 for n in range(9000)], "idle_w": None, "steps": [],
    }  # fmt: skip
    html = profile_page(tmp_path, ABOUT, result(), reported)
    shown = [watts for _, watts in curves(plot_of(html, "Power over the run"))["power"]]
    assert sum(shown) / len(shown) == pytest.approx(3.0, rel=0.01)
    assert max(shown) < 5


def test_bars_and_bands_are_drawn_whatever_their_values() -> None:
    for values in ([], [0.0], [-1.0, 2.0], [1e-9, 1e9]):
        ElementTree.fromstring(bars("p", "mJ", [Bar(EVIL, v, 0.5, faint=True) for v in values]))
    axis = Axis("s", 0.0, 1.0)
    outside = [Band(-1.0, 0.5, EVIL, EVIL), Band(0.5, 3.0, "b", "b")]
    drawn = lines(
        "p", axis, axis, [Series("p", [0, 1], [0, 1])], bands=outside, borders=[-1.0, 0.5]
    )
    tree = ElementTree.fromstring(drawn)
    assert all(
        float(e.get("width", 0)) >= 0 for e in tree.iter() if e.get("class", "").startswith("band")
    )
    assert len([e for e in tree.iter() if e.get("class") == "border"]) == 1
