"""Measurements count only where their device was as at its best; drift is told; ties are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.compiler.programs.candidate import Candidate
from autotune.compiler.run.drift import DriftWatch
from autotune.compiler.run.final_benchmark import Verdict
from autotune.compiler.run.task_state import TaskState, Trial, _default_failure
from autotune.compiler.runners.rpc_runner import RpcRunner
from autotune.compiler.runners.runner import CompareRequest, DeviceFingerprint, MeasureRequest
from autotune.compiler.runners.sessions import SessionWaits
from autotune.compiler.runners.stable import Limits
from autotune.compiler.workers.workers import Message
from autotune.errors import TransientDeviceError
from autotune.measurement import Outcome
from autotune.measurement.host import host_conditions
from autotune.measurement.snapshot import Clock, Conditions
from autotune.records import Drift
from autotune.tracker.link import Served

LIMITS = Limits(rest_s=0.05, look_s=0.01)
COOL = Conditions(
    30.0, "battery", "0-7", "0-7", (Clock("policy4", "4-7", 800000, 2400000, 2400000),)
)
CAPPED = replace(COOL, clocks=(Clock("policy4", "4-7", 800000, 1500000, 2400000),))
HOT = replace(COOL, celsius=41.0)


class Phone:
    """A tracker with one device, which tells what the test says: one after the other, the last one for ever."""

    host, port = "127.0.0.1", 1

    def __init__(self, *reported: Conditions) -> None:
        self.reported: Iterator[Conditions] = iter(reported)
        self.last = reported[-1] if reported else None
        self.asked: list[str] = []

    def served(self, key: str | None = None) -> list[Served]:
        return [Served("k", ("", 0), "a", "", "aarch64", True, False, 0, 0, None, 0, ())]

    def free(self, key: str) -> int:
        return 1

    def look(self) -> list[dict[str, object]]:
        now = next(self.reported, self.last)
        return [now.to_json()] if now is not None else []

    def ask(self, request: Message, *, timeout: float) -> Message:
        self.asked.append(request["op"])
        if request["op"] == "conditions":
            return {"conditions": self.look()}
        if request["op"] == "open":
            return {"info": {"serial": "a"}}
        if request["op"] == "load":
            return {}
        seconds = 0.001 * self.asked.count(request["op"])
        rows = [[seconds]] if request["op"] == "compare" else [seconds]
        both = {"max_rel_error": 0.0, "max_rel_errors": [0.0]}
        return {"samples": rows, **both, "conditions": self.look() + self.look()}

    def stop(self) -> None:
        pass

    def runner(self, kind: str = "rpc-cpu") -> RpcRunner:
        waits = SessionWaits(patience_s=5, open_s=1, verdict_s=0.3, retry_s=0.01)
        device = DeviceFingerprint("k", kind, "", (), stand_in=False)
        runner = RpcRunner(self, "k", device, make=lambda: self, waits=waits, limits=LIMITS)
        runner.start()
        return runner


REQUEST = MeasureRequest(Path("/c/kernel.so"), Path("/nowhere"), 1, 1, 1, 1, 1)
COMPARE = CompareRequest((Path("/c/kernel.so"),), Path("/nowhere"), (1,), 1, 1)


def test_what_was_timed_while_the_device_throttled_is_timed_again_when_it_has_cooled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    phone = Phone(COOL, CAPPED, CAPPED, COOL)
    with caplog.at_level(logging.WARNING):
        outcome = phone.runner().measure(REQUEST)
    assert (outcome.status, outcome.samples) == ("ok", (0.002,))
    assert [(other.samples, other.conditions) for other in outcome.rejected] == [
        ((0.001,), (COOL, CAPPED))
    ]
    assert outcome.conditions == (COOL, COOL)
    assert phone.asked.count("conditions") == 2
    assert "a: a measurement does not count: policy4 is held to 1500 of 2400 MHz" in caplog.text
    assert "a rests before it is measured on" in caplog.text
    assert "a continues after" in caplog.text


def test_after_two_more_times_it_has_no_valid_time_but_keeps_its_samples() -> None:
    phone = Phone(*[COOL, CAPPED, COOL] * 3)
    outcome = phone.runner().measure(REQUEST)
    assert (outcome.status, outcome.samples, outcome.device) == ("throttled", (), "a")
    assert [other.samples for other in outcome.rejected] == [(0.001,), (0.002,), (0.003,)]
    assert outcome.of_device


@pytest.mark.parametrize(
    ("worse", "status", "why"),
    [
        (HOT, "throttled", "battery is at 41.0 C, over 40.0 C"),
        (replace(COOL, online="0-3"), "unstable", "cores 4-7 went off"),
        (replace(COOL, cpus="0-3"), "unstable", "cores 4-7 were taken away"),
    ],
)
def test_heat_and_cores_are_conditions_as_clocks_are(
    worse: Conditions, status: str, why: str
) -> None:
    outcome = Phone(COOL, worse, COOL, worse, COOL, worse).runner().measure(REQUEST)
    assert outcome.status == status
    assert why in outcome.message


def test_a_device_that_has_left_the_band_cools_to_its_middle() -> None:
    phone = Phone(COOL, HOT, replace(COOL, celsius=38.0), replace(COOL, celsius=34.0), COOL)
    assert phone.runner().measure(REQUEST).ok
    assert phone.asked.count("conditions") == 2


def test_a_sensor_in_a_core_is_no_sign_of_a_warm_device() -> None:
    die = replace(COOL, zone="cpu-0-0-usr")
    assert not Phone(die, replace(die, celsius=70.0)).runner().measure(REQUEST).rejected


def test_graphics_clocks_count_for_the_graphics_processor() -> None:
    fast, slow = (replace(COOL, clocks=(Clock("gpu", "", 1, cap, 0),)) for cap in (600, 300))
    assert not Phone(fast, slow).runner().measure(REQUEST).rejected
    runner = Phone(fast, slow, fast).runner("rpc-opencl")
    assert len(runner.measure(REQUEST).rejected) == 1


def test_a_server_that_tells_nothing_is_measured_on_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = Phone().runner()
    with caplog.at_level(logging.WARNING):
        assert runner.measure(REQUEST).ok
        assert runner.measure(REQUEST).ok
    assert caplog.text.count("reports neither temperature nor clocks") == 1


def test_a_device_that_stays_hot_ends_the_run_and_its_rest_is_bounded() -> None:
    runner = Phone(COOL, CAPPED).runner()
    for _ in range(2):
        assert runner.measure(REQUEST).status == "throttled"
    with pytest.raises(TransientDeviceError, match="3 times in a row"):
        runner.measure(REQUEST)


def test_an_interrupt_ends_the_rest() -> None:
    runner = Phone(COOL, CAPPED).runner()
    runner.give_up = lambda: True
    with pytest.raises(TransientDeviceError, match="resting"):
        runner.measure(REQUEST)


def test_a_comparison_is_made_again_too_and_in_doubt_where_that_does_not_help() -> None:
    fine = Phone(COOL, CAPPED, COOL).runner().compare(COMPARE)
    assert (fine.samples, fine.doubt) == (((0.002,),), "")
    assert [other.samples for other in fine.rejected] == [((0.001,),)]
    doubtful = Phone(COOL, CAPPED).runner().compare(COMPARE)
    assert "policy4 is held" in doubtful.doubt
    assert doubtful.samples == ((0.001,),)


def test_this_host_tells_what_it_has(tmp_path: Path) -> None:
    bare = host_conditions(tmp_path / "nothing")
    assert (bare.celsius, bare.online, bare.clocks) == (None, "", ())
    files = {
        "devices/system/cpu/online": "0-3",
        "devices/system/cpu/cpufreq/policy0/related_cpus": "0 1 2 3",
        "devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "800000",
        "devices/system/cpu/cpufreq/policy0/scaling_max_freq": "1400000",
        "devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq": "1500000",
        "class/thermal/thermal_zone0/type": "x86_pkg_temp",
        "class/thermal/thermal_zone1/type": "skin-therm",
        "class/thermal/thermal_zone1/temp": "31500",
    }
    for name, text in files.items():
        path = tmp_path / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    seen = host_conditions(tmp_path)
    assert (seen.celsius, seen.zone, seen.online) == (31.5, "skin-therm", "0-3")
    assert seen.clocks == (Clock("policy0", "0 1 2 3", 800000, 1400000, 1500000),)
    assert Conditions.from_json(seen.to_json()) == seen


def reference(seconds: list[float]) -> DriftWatch:
    """A watch whose reference takes these seconds with a little noise; asking it takes none."""
    times = iter(seconds)

    def run() -> list[Outcome]:
        now = next(times)
        return [Outcome("ok", tuple(now * (1 + 0.001 * n) for n in range(9)), device="a")]

    return DriftWatch(run, 1, kernel="k", clock=lambda: 0.0)


def test_a_drift_is_told_once_with_its_interval() -> None:
    watch = reference([1.0, 1.01, 1.1, 1.1, 1.0])
    found = [one.drift for trials in range(5) for one in watch.look(trials)]
    assert [drift and round(drift.ratio, 2) for drift in found] == [None, None, 1.1, None, 0.91]
    assert found[2] is not None
    assert found[2].ci == pytest.approx((1.1, 1.1), rel=0.01)
    assert (found[2].serial, found[2].trials) == ("a", 2)
    assert "took 1.10 times as long on a" in str(found[2])


def test_reference_runs_take_two_per_cent_of_the_time() -> None:
    now = [0.0]
    runs = []

    def run() -> list[Outcome]:
        now[0] += 1.0
        runs.append(now[0])
        return [Outcome("ok", (1.0,))]

    watch = DriftWatch(run, 1, kernel="k", clock=lambda: now[0])
    while now[0] < 1000:
        watch.look(0)
        now[0] += 1.0
    assert 15 <= len(runs) <= 21


def test_what_changed_while_a_run_was_interrupted_is_told() -> None:
    reported = Drift("a", 3, 0.5, (0.4, 0.6))
    samples = [2.0 * (1 + 0.001 * n) for n in range(9)]
    event = {"event": "reference", "status": "ok", "task": "k", "serial": "a"}
    watch = reference([1.5])
    watch.restore(
        [
            {**event, "samples_s": [4.0] * 9},
            {**event, "samples_s": samples},
            {"event": "drift", "drift": {**reported.__dict__, "ci": list(reported.ci)}},
            {**event, "task": "another", "samples_s": [9.0] * 9},
        ]
    )
    (seen,) = watch.look(5)
    assert watch.drifts[0] == reported
    assert seen.drift is not None
    assert round(seen.drift.ratio, 2) == 0.75


def test_the_best_of_each_side_of_a_drift_comes_into_the_last_timing() -> None:
    def trial(seconds: float, epoch: int) -> Trial:
        candidate = Candidate("", None, "", None)
        return Trial(candidate, None, Outcome("ok", (seconds,)), epoch)  # type: ignore[arg-type]

    task_state = TaskState(None, None, None)  # type: ignore[arg-type]  # its trials are all that counts
    task_state.trials = {"a": trial(1, 0), "b": trial(2, 0), "c": trial(3, 1), "d": trial(4, 1)}
    assert task_state.leaders(2) == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize(
    ("outcome", "default_s", "expected"),
    [
        (Outcome("ok", (1.0,)), 1.0, ""),
        (
            Outcome("run_error", message="killed from outside\nmore"),
            None,
            "run error: killed from outside",
        ),
        (Outcome("timeout"), None, "timeout"),
        (Outcome("ok", (1.0,)), None, "lost"),
    ],
)
def test_a_default_without_a_time_says_why(
    outcome: Outcome, default_s: float | None, expected: str
) -> None:
    verdict = Verdict("", default_s, None, None, None, {}, "" if default_s else "lost")
    assert _default_failure(outcome, verdict) == expected
