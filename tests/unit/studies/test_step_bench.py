"""Steps measured on emulated devices: times and joules are right, and what spoils them is told."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from autotune.devices.device import Completed
from autotune.devices.info import probe
from autotune.devices.journal import Journal
from autotune.emulator.device.device import EmulatedDevice
from autotune.emulator.device.faults import Fault, FaultPlan
from autotune.emulator.device.observed import observing
from autotune.emulator.model.clock import VirtualClock
from autotune.emulator.model.step_model import ALEXNET_B16, estimate
from autotune.emulator.model.step_model import Workload as ModelWork
from autotune.emulator.model.trained import NOMINAL_BYTES
from autotune.errors import NothingMeasuredError, StableDeviceError, TransientDeviceError
from autotune.jobs.device.chosen_device import choose, ready
from autotune.measurement import observation
from autotune.measurement.conditions import broken
from autotune.measurement.observation import Line, Record, parse, steps
from autotune.measurement.observer import Observer, Task
from autotune.measurement.profile import PROC_STAT, StepProfile
from autotune.measurement.setting import Setting
from autotune.measurement.step_bench import StepBench
from autotune.measurement.step_run import Band, Protocol, StepRun, Workload
from autotune.measurement.step_runner import PROGRAM, STEP_LINE, StepRunner
from autotune.measurement.verdicts import judge, versus
from autotune.power.channels import PATTERNS, find
from autotune.reading import parse_json
from autotune.studies.evaluators.device_evaluator import DeviceEvaluator
from autotune.studies.space.objective import Limits

TRAIN = Workload(("emulated_train", "--threads", "{threads}"), re.compile(r"^step \d+"))
USUAL = Protocol()
BIG = Setting((4, 5, 6, 7), (None, 2419200), 4)
COOL = Setting((2, 3), (1209600, None), 2)
"""Draws so little that minutes of it throttle nothing."""


@contextmanager
def bench(
    folder: Path,
    profile: str = "meizu-16t",
    *,
    workload: Workload = TRAIN,
    protocol: Protocol = USUAL,
    faults: FaultPlan | None = None,
    band: Band | None = None,
) -> Iterator[tuple[EmulatedDevice, StepBench]]:
    device = EmulatedDevice(profile, programs=observing(), faults=faults)
    meters = find(device.collect(PATTERNS, timeout=10))
    info = probe(device)
    android = info.sdk is not None
    with (
        Journal(device, folder) as journal,
        Observer(
            device, Path(__file__), journal, android=android, sleep=device.clock.sleep
        ) as observer,
    ):
        yield device, StepBench(
            device, info, observer, journal, workload, meters[0] if meters else None,
            protocol, band=band, sleep=device.clock.sleep,
        )  # fmt: skip
    assert device.files.names("/data/local/tmp" if android else "/tmp") == []


@pytest.mark.parametrize(
    ("profile", "setting"),
    [
        ("meizu-16t", BIG),
        ("meizu-16t", Setting((2, 3), (1209600, None), 2)),
        ("meizu-16t", Setting((3, 6, 7), (1785600, 1401600), 3)),
        ("three-cluster", Setting((4, 5, 6), (None, None, None), 3)),
    ],
)
def test_times_and_joules_are_the_model_s(tmp_path: Path, profile: str, setting: Setting) -> None:
    with bench(tmp_path, profile) as (device, station):
        station.calibrate(Setting(None, setting.khz, 8))
        run = station.run(setting)
    clusters = device.profile.clusters
    khz = [k or c.frequencies_khz[-1] for k, c in zip(setting.khz, clusters, strict=True)]
    assert setting.cpus is not None
    exact = estimate(device.profile, ALEXNET_B16, setting.cpus, khz)
    assert run.status == "ok", run.message
    assert run.time_s == pytest.approx(exact.time_s, rel=0.01)
    assert run.energy_j == pytest.approx(exact.net_j, rel=0.05)
    assert run.energy is not None
    assert abs(run.energy.joules / len(run.step_s) - exact.net_j) < 3 * run.energy.deviation
    assert run.memory_bytes == ALEXNET_B16.memory_bytes
    assert len(run.records) == 3
    assert run.marks == ()


def test_settings_are_put_back(tmp_path: Path) -> None:
    with bench(tmp_path) as (device, station):
        before = device.collect(["/sys/devices/system/cpu/cpufreq/policy*/scaling_m*"], timeout=5)
        station.calibrate(BIG)
        station.run(BIG)
        after = device.collect(["/sys/devices/system/cpu/cpufreq/policy*/scaling_m*"], timeout=5)
    assert before == after
    assert list(tmp_path.glob("*")) == []


def test_a_run_that_was_throttled_says_so_and_counts_for_nothing(tmp_path: Path) -> None:
    with bench(tmp_path, protocol=Protocol(attempts=1, least_s=60)) as (device, station):
        station.calibrate(COOL)
        clock = device.clock
        assert isinstance(clock, VirtualClock)
        clock.at(clock.now() + 30.0, lambda: device.soc.force_throttle(4))
        run = station.run(BIG)
        device.soc.force_throttle(0)
    assert run.status in ("throttled", "unstable")
    assert "1497600" in run.message
    assert not run.step_s


def test_android_s_thermal_status_is_a_condition(tmp_path: Path) -> None:
    little = Setting((0, 1), (None, None, None), 2)
    once = Protocol(attempts=1, cooling_limit_s=60)
    with bench(tmp_path, "three-cluster", protocol=once) as (device, station):
        station.calibrate(Setting(None, (None, None, None), 8))
        device.soc.force_throttle(2)
        waiting = station.run(little)
        device.soc.force_throttle(0)
        clock = device.clock
        assert isinstance(clock, VirtualClock)
        # The first trip point caps the other clusters only; the status tells of it all the same.
        clock.at(clock.now() + 15.0, lambda: device.soc.force_throttle(1))
        run = station.run(little)
        device.soc.force_throttle(0)
        fine = station.run(little)
    assert waiting.status == "unstable"
    assert "thermal status 2 (moderate)" in waiting.message
    assert run.message == "thermal status 1 (light): throttled"
    assert (run.status, fine.status) == ("throttled", "ok"), fine.message


def test_a_capped_clock_is_waited_for_where_no_service_tells(tmp_path: Path) -> None:
    with bench(tmp_path) as (device, station):
        station.calibrate(COOL)
        clock = device.clock
        assert isinstance(clock, VirtualClock)
        device.soc.force_throttle(2)
        clock.at(clock.now() + 300.0, lambda: device.soc.force_throttle(0))
        began = clock.now()
        # A setting of other cores does not wait.
        low = station.run(COOL)
        waited = clock.now() - began
        high = station.run(BIG)
    assert (low.status, low.rejected) == ("ok", ())
    assert waited < 200.0
    assert (high.status, high.rejected) == ("ok", ())


def test_a_device_that_stays_hot_is_not_measured(tmp_path: Path) -> None:
    with bench(
        tmp_path, protocol=Protocol(cooling_limit_s=30, attempts=1), band=Band(0.0, 25.5)
    ) as (
        device,
        station,
    ):
        station.calibrate(BIG)
        device.soc.set_celsius(36.0)
        run = station.run(BIG)
    assert run.status == "unstable"
    assert "measurements begin at 25.5 C" in run.message


def test_a_device_that_is_too_cold_is_warmed_first(tmp_path: Path) -> None:
    with bench(tmp_path, band=Band(27.0, 29.0)) as (device, station):
        station.calibrate(COOL)
        before = device.soc.celsius()
        run = station.run(COOL)
    with bench(tmp_path / "never", band=Band(95.0, 99.0)) as (_, station):
        station.calibrate(COOL)
        never = station.run(COOL)
    assert before < 27.0
    assert (run.status, run.marks) == ("ok", ())
    assert run.celsius is not None
    assert 26.5 < run.celsius < 30.0
    assert (never.status, never.energy_j is not None) == ("ok", True)
    (mark,) = never.marks
    assert "and others at 95.0 C at least" in mark


def test_a_run_that_a_restart_broke_off_is_measured_again(tmp_path: Path) -> None:
    restart = FaultPlan((Fault("reboot", time_s=200.0, duration_s=25.0),))
    with bench(tmp_path, protocol=Protocol(least_s=60.0), faults=restart) as (device, station):
        station.calibrate(COOL)
        began = device.clock.now()
        run = station.run(COOL)
        took = device.clock.now() - began
        clock = device.clock
        assert isinstance(clock, VirtualClock)
        # So quick that no call meets it.
        clock.at(clock.now() + 30.0, device.restarted)
        quick = station.run(COOL)
        assert [m.kind for m in station._journal.changes] == ["remove"]
    assert device.boots == 3
    assert run.status == quick.status == "ok", run.message
    for found in (run, quick):
        (broken,) = found.rejected
        assert "restarted while a command ran" in broken.message
        assert len(parse(broken.records[1]).samples) > 10
        assert len(found.records) == 3
    assert took < 600.0


def test_a_setting_that_restarts_the_device_each_time_is_given_up(tmp_path: Path) -> None:
    with bench(tmp_path, protocol=Protocol(least_s=60.0)) as (device, station):
        station.calibrate(COOL)
        clock = device.clock
        assert isinstance(clock, VirtualClock)

        def again() -> None:
            device.restarted()
            if device.boots < 20:
                clock.at(clock.now() + 40.0, again)

        clock.at(clock.now() + 30.0, again)
        run = station.run(COOL)
    assert (run.status, run.message) == ("run_error", "the device restarted 3 times under it")
    assert len(run.rejected) == 3


def test_calibration_outlasts_a_restart(tmp_path: Path) -> None:
    with bench(tmp_path) as (device, station):
        clock = device.clock
        assert isinstance(clock, VirtualClock)
        clock.at(clock.now() + 9.0, device.restarted)
        found = station.calibrate(COOL)
        assert [m.kind for m in station._journal.changes] == ["remove"]
    assert device.boots == 2
    assert found is not None
    assert found.scale == pytest.approx(-1e-6)
    # Of the idle device and of what was broken off, and then of both as a whole.
    assert len(station.calibration_records) == 4
    assert [parse(text).end_s is None for text in station.calibration_records] == [
        False, True, False, False,
    ]  # fmt: skip


def test_what_is_run_beside_measurements_outlasts_a_restart(tmp_path: Path) -> None:
    with bench(tmp_path) as (device, station):
        clock = device.clock
        assert isinstance(clock, VirtualClock)
        clock.at(clock.now() + 3.0, device.restarted)
        command = ("emulated_train", "--threads", "2", "--steps", "3")
        observed = station.observe(command, COOL, 300.0)
        assert [m.kind for m in station._journal.changes] == ["remove"]
    assert (device.boots, observed.exit_code) == (2, 0)


class Killed(EmulatedDevice):
    """Something kills what observes, and the command with it."""

    dead_s = 1e9

    def run(self, argv: Sequence[str], *, timeout: float, root: bool = False) -> Completed:
        done = super().run(argv, timeout=timeout, root=root)
        if self.clock.now() < self.dead_s or argv[0] not in ("tail", "kill"):
            return done
        return Completed(tuple(argv), int(argv[0] == "kill"), b"", b"")


def test_an_observer_that_was_killed_ends_the_run_at_once(tmp_path: Path) -> None:
    device = Killed("meizu-16t", programs=observing())
    task = Task(("emulated_train",), "", (), 0.1, 900.0)
    device.dead_s = device.clock.now() + 30.0
    with (
        Journal(device, tmp_path) as journal,
        Observer(
            device, Path(__file__), journal, android=True, sleep=device.clock.sleep
        ) as observer,
        pytest.raises(TransientDeviceError, match="what observed a command is gone"),
    ):
        observer.run(task)
    assert device.clock.now() < device.dead_s + 60.0


def test_every_attempt_s_records_are_kept(tmp_path: Path) -> None:
    with bench(tmp_path, protocol=Protocol(least_s=60, attempts=1)) as (device, station):
        station.calibrate(COOL)
        clock = device.clock
        assert isinstance(clock, VirtualClock)
        clock.at(clock.now() + 30.0, lambda: device.soc.force_throttle(4))
        run = station.run(BIG)
        device.soc.force_throttle(0)
        assert [bool(parse(text).samples) for text in station.calibration_records] == [True, True]
    assert run.status == "unstable"
    assert len(run.records) >= 1


def test_what_was_recorded_outlives_clocks_that_cannot_be_put_back(tmp_path: Path) -> None:
    denied = FaultPlan((Fault("write_denied", time_s=250.0, duration_s=60.0),))
    with bench(tmp_path, protocol=Protocol(least_s=60.0, attempts=9), faults=denied) as (
        _,
        station,
    ):
        station.calibrate(COOL)
        run = station.run(COOL)
    first = run.rejected[0] if run.rejected else run
    assert "Permission denied" in first.message
    assert len(parse(first.records[1]).lines) > 5
    assert run.status == "ok", run.message


def test_a_meter_s_fault_that_passes_is_no_configuration_s(tmp_path: Path) -> None:
    stuck = FaultPlan((Fault("meter_stuck", time_s=40.0, duration_s=60.0),))
    with bench(tmp_path, faults=stuck) as (device, station):
        station.calibrate(BIG)
        device.clock.sleep(max(0.0, 60.0 - device.clock.now()))
        device.run(["true"], timeout=5)
        run = station.run(BIG)
    assert run.energy is not None
    (first,) = run.rejected
    assert "stuck" in first.marks[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_as_ctrl_c_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    chosen = choose(None, (), "meizu-16t")
    assert isinstance(chosen.device, EmulatedDevice)
    before = signal.getsignal(number)
    with (
        pytest.raises(KeyboardInterrupt),
        ready(chosen, lambda _: TRAIN, None, USUAL, None) as station,
    ):
        assert chosen.device.files.names("/data/local/tmp")
        assert isinstance(chosen.device.clock, VirtualClock)
        chosen.device.clock.at(
            chosen.device.clock.now() + 3.0, lambda: os.kill(os.getpid(), number)
        )
        station.run(COOL)
    assert signal.getsignal(number) is before
    assert chosen.device.files.names("/data/local/tmp") == []
    assert not list(tmp_path.rglob("*.jsonl"))


def test_conditions_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    once = Protocol(attempts=1)
    with bench(tmp_path, protocol=once) as (device, station):
        station.calibrate(BIG)
        run = station.run(COOL)
        info = probe(device)
    observed = parse(run.records[1])
    window = (observed.begin_s, observed.end_s or observed.begin_s)
    assert broken(observed, window, COOL, info) == []
    online = "/sys/devices/system/cpu/online"
    clock = f"{info.clusters[0].policies[0]}/scaling_cur_freq"
    for path in (online, clock):
        gone = replace(
            observed,
            samples=tuple(replace(s, texts={**s.texts, path: None}) for s in observed.samples),
        )
        (reported,) = broken(gone, window, COOL, info)
        assert reported.startswith(f"{path} could not be read")
        # What was never there is no condition.
        never = replace(info, online=(), settings=tuple(s for s in info.settings if s[0] != clock))
        assert broken(gone, window, COOL, never) == []
    untold = replace(observed, cpus=())
    assert broken(untold, window, COOL, info) == ["it is unknown which cores the threads could use"]
    assert broken(untold, window, replace(COOL, cpus=None), info) == []


def test_the_device_s_clock_is_told_with_its_uncertainty(tmp_path: Path) -> None:
    device = EmulatedDevice("meizu-16t", programs=observing())
    device.clock.sleep(500.0)
    with (
        Journal(device, tmp_path) as journal,
        Observer(
            device, Path(__file__), journal, android=True, sleep=device.clock.sleep
        ) as observer,
    ):
        offset = observer.clock(lambda: device.clock.now() - 123.0)
    assert abs(offset.seconds - 123.0) <= offset.deviation_s + 1e-9
    assert 0 < offset.deviation_s < 0.1


def test_a_stuck_meter_gives_no_joules(tmp_path: Path) -> None:
    stuck = FaultPlan((Fault("meter_stuck", time_s=40.0, duration_s=1e6),))
    with bench(tmp_path, faults=stuck) as (device, station):
        station.calibrate(BIG)
        device.clock.sleep(60.0)
        device.run(["true"], timeout=5)
        run = station.run(BIG)
    assert run.status == "ok"
    assert run.energy is None
    assert "stuck" in run.marks[0]


def test_a_workload_that_does_not_run_is_told_with_its_words(tmp_path: Path) -> None:
    absent = Workload(("absent_trainer",), TRAIN.step)
    with bench(tmp_path, workload=absent) as (_, station):
        # What does not run is not the battery's fault, and ends everything: no other setting would help.
        for measure in (station.run, station.calibrate):
            with pytest.raises(NothingMeasuredError, match=r"does not run: .*absent_trainer"):
                measure(BIG)
        assert len(station.calibration_records) == 2


@pytest.mark.parametrize("steps", ["2", "inf"])
def test_a_pattern_that_matches_no_line_ends_the_search_at_once(
    tmp_path: Path, steps: str, caplog: pytest.LogCaptureFixture
) -> None:
    workload = Workload(("emulated_train", "--steps", steps), re.compile("epoch"))
    with bench(tmp_path, workload=workload, protocol=Protocol(limit_s=100)) as (_, station):
        for measure in (station.calibrate, station.run):
            with pytest.raises(NothingMeasuredError, match=r"'epoch' in \d+ s; the last was 'step"):
                measure(COOL)
    # Long before the limit, somebody may want to know.
    assert ("matched 'epoch' in 6" in caplog.text) == (steps == "inf")


def test_a_run_that_does_not_tell_what_is_limited_is_none(tmp_path: Path) -> None:
    with bench(tmp_path, "raspberry-pi-3b-plus") as (_, station):
        run = station.run(Setting(None, (None,), 4))
        kept = DeviceEvaluator(station, needs_energy=False, limits=Limits(celsius=90.0))
        unknown = DeviceEvaluator(station, needs_energy=False, limits=Limits(energy_j=1.0))
        assert kept.measured(run).status == "ok"
        assert (
            kept.measured(replace(run, celsius=None)).message == "limited, and not known: celsius"
        )
        assert unknown.measured(run).message == "limited, and not known: energy"


def test_a_board_without_a_meter_is_timed(tmp_path: Path) -> None:
    device = EmulatedDevice("raspberry-pi-3b-plus", programs=observing())
    with (
        Journal(device, tmp_path) as journal,
        Observer(
            device, Path(__file__), journal, android=False, sleep=device.clock.sleep
        ) as observer,
    ):
        station = StepBench(
            device, probe(device), observer, journal, TRAIN, None, Protocol(),
            sleep=device.clock.sleep,
        )  # fmt: skip
        run = station.run(Setting((0, 1), (1400000,), 2))
    assert run.status == "ok", run.message
    assert run.energy is None
    assert station.calibrate(Setting(None, (None,), 4)) is None


def test_a_battery_that_does_not_follow_the_work_is_refused(tmp_path: Path) -> None:
    stuck = FaultPlan((Fault("meter_stuck", time_s=0.0, duration_s=1e6),))
    with (
        bench(tmp_path, faults=stuck) as (_, station),
        pytest.raises(StableDeviceError, match="does not follow"),
    ):
        station.calibrate(BIG)


def test_steps_leave_the_warm_up_out() -> None:
    lines = [Line(float(t), f"iter {t}") for t in (1, 3, 6, 10)]
    found = steps(lines, re.compile("iter"), warm_up=2)
    assert found is not None
    assert found.seconds == (3.0, 4.0)
    assert steps(lines, re.compile("iter"), warm_up=4) is None


def test_steps_that_tell_their_own_time_are_not_timed_by_when_their_lines_arrive() -> None:
    """Two lines that were read together are no step of 0 s."""
    texts = [f"step {n} loss 0.5 ms {ms}" for n, ms in enumerate(["9", "0.25", "0.5", "0.25"])]
    lines = [Line(t, text) for t, text in zip((1.0, 1.5, 1.5, 1.5), texts, strict=True)]
    found = steps(lines, STEP_LINE, warm_up=1)
    assert found is not None
    assert found.seconds == pytest.approx((0.25e-3, 0.5e-3, 0.25e-3))
    assert (found.start_s, found.ends_s[-1]) == (1.0, 1.5)
    for other in ("step 4", "step 4 loss nan ms nan", "step 4 loss 1 ms soon"):
        mixed = steps([*lines, Line(2.0, other)], STEP_LINE, warm_up=1)
        assert mixed is not None
        assert mixed.seconds == (0.5, 0.0, 0.0, 0.5)


def test_a_record_that_breaks_off_is_read_as_far_as_it_goes() -> None:
    whole = (
        '{"begin":1.0,"pid":7,"interval_s":0.1,"watch":["/a"]}\n{"sample":[1.0,1.2,["x"]]}\n'
        '{"line":[1.5,"step 1"]}\n{"end":2.0,"exit":0,"max_rss_kb":5,"user_s":1,"system_s":0,"why":""}\n'
    )
    for cut in range(len(whole)):
        if cut > whole.index("\n"):
            found = parse(whole[:cut])
            assert found.end_s is None or cut >= len(whole) - 1
    assert parse(whole).samples[0].time_s == pytest.approx(1.1)
    with pytest.raises(StableDeviceError, match="recorded nothing"):
        parse("")


WHOLE = (
    '{"begin":1.0,"pid":7,"interval_s":0.1,"watch":["/a","/b"]}\n'
    '{"sample":[1.0,1.2,["5",null]]}\n{"line":[1.5,"step 1 \u00e9\u2028"]}\n{"cpus":[1.5,"4-7"]}\n'
    '{"clock":[3.0,0.01]}\n{"meter":[1.6,"0.5"]}\n{"sample":[2.0,2.2,["6","x"]]}\n'
    '{"end":2.5,"exit":0,"max_rss_kb":10}\n'
)


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_a_record_that_comes_in_pieces_is_the_same_as_whole(size: int) -> None:
    data = WHOLE.encode()
    record = Record()
    for start in range(0, len(data), size):
        assert not record.ended
        record.add(data[start : start + size])
    assert record.ended
    assert record.size == len(data)
    assert record.observation() == parse(WHOLE)
    assert parse(WHOLE).text == WHOLE
    assert len(parse(WHOLE).samples) == 2


def test_each_line_of_a_long_record_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def counted(text: str) -> Any:
        nonlocal count
        count += 1
        return parse_json(text)

    monkeypatch.setattr(observation, "parse_json", counted)
    record = Record()
    first, *rest = WHOLE.splitlines(keepends=True)
    record.add(first.encode())
    for n in range(500):
        record.add(rest[0].encode())
        assert len(record.observation().samples) == n + 1
    assert count <= 2 * 501


def test_an_end_that_a_full_disk_cut_off_ends_the_record(tmp_path: Path) -> None:
    torn = WHOLE.encode()[: WHOLE.encode().index(b'"exit"')]

    class Torn(EmulatedDevice):
        """Its disk is full when the last line is written."""

        def run(self, argv: Sequence[str], *, timeout: float, root: bool = False) -> Completed:
            if argv[0] == "tail":
                said = torn[int(argv[2]) - 1 :]
                return Completed(tuple(argv), 0, said, b"")
            return super().run(argv, timeout=timeout, root=root)

    device = Torn("meizu-16t", programs=observing())
    task = Task(("emulated_train",), "", (), 0.1, 60.0)
    with (
        Journal(device, tmp_path) as journal,
        Observer(
            device, Path(__file__), journal, android=True, sleep=device.clock.sleep
        ) as observer,
    ):
        found = observer.run(task)
    assert found.end_s is None
    assert len(found.samples) == 2


def test_a_difference_is_found_and_equals_are_a_tie() -> None:
    assert judge([1.1, 1.12, 1.09] * 5, [1.0, 1.01, 0.99] * 5, seed=1).winner == "second"
    assert judge([1.0, 1.01, 0.99] * 5, [1.0, 1.01, 0.99] * 5, seed=1).winner == "tie"
    calls: list[str] = []

    def of(name: str, value: float) -> float:
        calls.append(name)
        return value * (1 + 0.001 * len(calls))  # Both drift.

    found = versus(lambda: of("a", 1.0), lambda: of("b", 0.9), seed=3)
    assert (found.winner, found.blocks) == ("second", 12)
    firsts = calls[::2]
    assert 0 < firsts.count("a") < 12


CALLS = ((8e9, 1e6), (1e6, 2e8), (4e9, 1e8), (1e6, 1e4))
"""Operations and bytes of calls: one that computes, one that moves data, one of both, and a short one."""


def test_a_profile_finds_the_power_of_each_call(tmp_path: Path) -> None:
    setting = Setting((2, 3, 4, 5), (None, None), 4)
    folder = "/tmp/step"
    command = ("/tmp/autotune_step_runner", folder, "--threads", "{threads}", "--trace")
    workload = Workload(command, re.compile("^step"), (PROC_STAT,))
    protocol = Protocol(interval_s=0.01, least_s=30.0)
    with bench(tmp_path, "jetson-tx2", workload=workload, protocol=protocol) as (device, station):
        work = "".join(f"call {flops:.0f} {moved:.0f}\n" for flops, moved in CALLS)
        device.files.store(f"{folder}/step.work", f"memory 1000000\n{work}".encode(), 0o644)
        device.files.store(command[0], b"", 0o755)
        run, profile = station.profile(setting)
        device.run(["rm", "-rf", folder, command[0]], timeout=10)
    assert run.status == "ok", run.message
    assert profile is not None
    assert run.memory_bytes == pytest.approx(1e6, rel=0.01)
    clocks = [c.frequencies_khz[-1] for c in device.profile.clusters]
    whole = profile.step
    assert whole.energy_j == pytest.approx(run.energy_j, rel=0.05)
    for number, (flops, moved) in enumerate(CALLS):
        exact = estimate(
            device.profile, ModelWork("call", flops, NOMINAL_BYTES * moved, 1), setting.cpus or (),
            clocks, threads=4,
        )  # fmt: skip
        found = profile.of([number])
        assert found.time_s == pytest.approx(exact.time_s, rel=0.03)
        assert found.energy_j is not None
        assert found.deviation_j is not None
        watts, deviation = found.energy_j / found.time_s, found.deviation_j / found.time_s
        assert abs(watts - exact.net_w) < 4 * deviation + 0.01 * exact.net_w
        assert found.apart == (number < 3)
        if found.apart:
            assert watts == pytest.approx(exact.net_w, rel=0.1)
            assert sum((found.busy or {}).values()) == pytest.approx(
                sum(exact.busy.values()), abs=0.4
            )


def tiny_step(folder: Path, flops: float) -> tuple[int, StepRun, StepProfile]:
    """A step of three calls, measured; and how often the emulated device had something to do meanwhile."""
    program, step = f"/tmp/{PROGRAM}", "/tmp/tiny"
    workload = StepRunner(PurePosixPath(program), PurePosixPath(step)).traced()
    alarms = 0
    with bench(folder, workload=replace(workload, watch=(PROC_STAT,))) as (device, station):
        calls = "".join(f"call {flops * (1 + number)} 0\n" for number in range(3))
        device.files.store(f"{step}/step.work", f"memory 1000\n{calls}".encode(), 0o644)
        device.files.store(program, b"", 0o755)
        station.calibrate(BIG)
        at = device.clock.at

        def counted(time_s: float, act: Callable[[], None]) -> None:
            nonlocal alarms
            alarms += 1
            at(time_s, act)

        device.clock.at = counted
        run, profile = station.profile(BIG)
        device.run(["rm", "-rf", step, program], timeout=10)
    assert run.status == "ok", run.message
    assert profile is not None
    return alarms, run, profile


def test_short_steps_cost_no_more_than_long_ones_and_are_measured_as_well(tmp_path: Path) -> None:
    (tmp_path / "long").mkdir()
    (tmp_path / "short").mkdir()
    few, _, _ = tiny_step(tmp_path / "long", 2e7)
    many, run, profile = tiny_step(tmp_path / "short", 1e5)
    assert many < 2 * few + 2000
    device = EmulatedDevice("meizu-16t").profile
    khz = (device.clusters[0].frequencies_khz[-1], 2419200)
    parts = [
        estimate(device, ModelWork("call", 1e5 * (1 + n), 0.0, 1), BIG.cpus or (), khz, threads=4)
        for n in range(3)
    ]
    assert run.time_s == pytest.approx(sum(part.time_s for part in parts), rel=0.02)
    assert run.energy_j == pytest.approx(sum(part.net_j for part in parts), rel=0.1)
    assert run.count * run.time_s == pytest.approx(USUAL.least_s, rel=0.5)
    assert len(run.step_s) < run.count / 10
    for number, part in enumerate(parts):
        assert profile.of([number]).time_s == pytest.approx(part.time_s, rel=0.05)
    assert profile.step.energy_j == pytest.approx(run.energy_j, rel=0.1)
