"""Fault campaign: phones hang, drop, restart and refuse while kernels are measured on them.

In each run, one seeded fault hits an emulated device while a dozen candidates are measured on it. The project's own
deployment, watch, runner, journal and run folder are used, and a CPU frequency is held meanwhile. Afterwards, every
candidate must be recorded exactly once in the run folder, the device must be in its earlier state, the run must not
have exceeded its time limit, and the log must name the cause.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from common import adb_faults
from common.bars import Report, run
from common.emulated_fleet import SERVER, EmulatedSession, EmulatedTracker, programs

from autotune.compiler.programs.candidate import Candidate
from autotune.compiler.run.trials import Building, CandidateExecutor
from autotune.compiler.runners.reference_data import ReferenceData
from autotune.compiler.runners.rpc_runner import RpcRunner
from autotune.compiler.runners.runner import DeviceFingerprint
from autotune.compiler.runners.sessions import SessionWaits
from autotune.compiler.target.spaces import Measure
from autotune.devices import cpufreq, journal, topology
from autotune.devices.device import Device
from autotune.emulator.device.device import EmulatedDevice
from autotune.emulator.device.faults import CallKind, FaultKind, FaultPlan
from autotune.emulator.phone import userland
from autotune.errors import DeviceError
from autotune.measurement import Outcome
from autotune.records import RunFolder, read_run
from autotune.tracker.deploy import Deployment, Service
from autotune.tracker.watch import Waits, Watched
from autotune.waits import telling
from autotune.workloads import Kernel
from autotune.workloads.operators import Matmul

KERNEL = Kernel(Matmul(6, 10, 16), "forward")
CANDIDATES = 12
LIMIT_S = 30.0
"""Time limit of one run; a run without a fault takes a fifth of a second."""

ADB_LIMIT_S = 180.0
"""Time limit of one run over adb; a run without a fault takes ten seconds.

A dead link must be noticed and reopened, and the measurement repeated.
"""

FAULT_OVER_S = 10.0
"""In seconds of the device's clock; no fault of the plans lasts this long."""

KEY = "phone"
# Only energy measurements read meters, and they are not part of this benchmark.
KINDS: tuple[FaultKind, ...] = tuple(
    kind for kind in get_args(FaultKind) if not kind.startswith("meter")
)
# These may go unnoticed: a slow link may be fast enough, and a cap may be lifted again before the clock is read.
QUIET: tuple[FaultKind, ...] = ("slow_link", "write_capped", "throttle")
# Minimum number of calls of each kind in a run.
CALLS: dict[CallKind, int] = {"run": 4, "session": 16, "push": 1, "read": 3, "write": 2}
CAUSES: dict[FaultKind, tuple[str, ...]] = {
    "drop": ("connection broke",),
    "hang": ("no answer within", "did not end within"),
    "garbage": ("garbled",),
    "unauthorised": ("does not trust",),
    "offline": ("offline",),
    "slow_link": ("no answer within", "did not end within"),
    "reboot": ("offline", "connection was closed"),
    "server_crash": ("SIGABRT", "Aborted"),
    "driver_hang": ("did not end within", "longer than its limit"),
    "out_of_memory": ("SIGKILL", "Killed"),
    "disk_full": ("No space left",),
    "write_denied": ("Permission denied",),
    "write_capped": ("reads", "is capped at"),
    "throttle": ("reads", "is capped at"),
}


@dataclass
class Verdict:
    """Result of one run.

    Attributes:
        kind: The fault.
        met: Whether the fault hit anything.
        named: Whether the log names its cause.
        seconds: Duration of the run.
        faults_found: Problems; empty if there are none.
        statuses: Number of outcomes by status.
    """

    kind: FaultKind
    met: bool
    named: bool
    seconds: float
    faults_found: list[str]
    statuses: Counter[str] = field(default_factory=Counter)


class Log(logging.Handler):
    """Collects all messages that are logged during a run."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def logged() -> Iterator[list[str]]:
    """Yields the lines of the log so far, and those about waits."""
    logger = logging.getLogger("autotune")
    handler, before = Log(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        with telling(handler.lines.append):
            yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def state_of(device: Device) -> dict[str, Any]:
    """Returns the state that a run must restore: settings, online cores, files and ports."""
    patterns = [p for p in topology.PATTERNS if "cur_freq" not in p]
    found: dict[str, Any] = dict(device.collect(patterns, timeout=10))
    found["files"] = device.find(["/data/local/tmp/*", "/tmp/*"], timeout=10)
    if isinstance(device, EmulatedDevice):
        found["ports"] = (dict(device.forwarded), dict(device.reversed))
    return found


def answers(device: Device) -> bool:
    with suppress(DeviceError):
        return device.run(["true"], timeout=1).exit_code == 0
    return False


def measured(
    folder: Path, runner: RpcRunner, data: ReferenceData, library: Path
) -> tuple[Path, list[str]]:
    """Measures the candidates with the project's own measuring code, and records them in a run folder."""
    executor = CandidateExecutor(
        None,  # type: ignore[arg-type]  # everything is built already
        runner,
        data,
        Measure(run_timeout_s=5.0),
        None,  # type: ignore[arg-type]
        folder / "libraries",
    )
    candidates = tuple(Candidate(f"c{n:02d}", None, "", None) for n in range(CANDIDATES))
    paths = tuple(folder / "libraries" / c.digest / "kernel.so" for c in candidates)
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_bytes(library.read_bytes())
    built: Future[list[Outcome | None]] = Future()
    built.set_result([None] * CANDIDATES)
    problems: list[str] = []
    with RunFolder.create(folder, "faults", {"request": {}}) as records:

        def done(candidate: Candidate, outcome: Outcome) -> None:
            records.event(
                "trial",
                digest=candidate.digest,
                status=outcome.status,
                message=outcome.message,
                serial=outcome.device,
            )

        try:
            executor.trial(KERNEL, Building(candidates, paths, built), 1.0, done, lambda: False)
        except DeviceError as error:
            problems.append(f"the run was given up: {error.message}")
        finally:
            executor.close()
    return records.path, problems


def one(seed: int, data: ReferenceData, library: Path, scratch: Path) -> Verdict:
    """Makes one run with one fault."""
    chance = random.Random(seed)
    kind = chance.choice(KINDS)
    profile = chance.choice(["meizu-16t", "three-cluster", "raspberry-pi-3b-plus", "jetson-tx2"])
    if kind in ("write_denied", "write_capped", "throttle"):
        profile = "meizu-16t"  # the only rooted one, so that there is something to refuse
    plan = hitting(FaultPlan.random(seed, 1, kinds=[kind], calls=24, seconds=1.5))
    tracker = EmulatedTracker()
    device = EmulatedDevice(profile, faults=plan, programs=programs(tracker))
    tracker.devices.append(device)
    clean = EmulatedDevice(profile)
    folder = Path(tempfile.mkdtemp(dir=scratch))
    bundle = folder / "bundle"
    bundle.mkdir()
    (bundle / SERVER).write_bytes(b"\x7fELF" + bytes(2_000_000))
    (bundle / SERVER).chmod(0o755)
    deployment = Deployment(
        device.serial, "emulated", (Service(KEY),), bundle, SERVER, "emulated", "",
        android=device.profile.android is not None,
    )  # fmt: skip
    journals = folder / "journals"
    watch = Watched(
        deployment,
        lambda: device,
        tracker.served,
        tracker_port=9190,
        allow_reboot=chance.random() < 0.5,
        journals=journals,
        waits=Waits(0.01, 0.05, 0.05, 0.05, 5.0, 60.0),
    )
    runner = RpcRunner(
        tracker,
        KEY,
        DeviceFingerprint(KEY, "rpc-cpu", "emulated", (), stand_in=True),
        make=lambda: EmulatedSession(tracker, KEY),
        waits=SessionWaits(patience_s=10.0, open_s=1.0, verdict_s=0.1, retry_s=0.02),
    )
    problems: list[str] = []
    began = time.monotonic()
    with logged() as log:
        watch.start()
        runner.start()
        held = hold_a_frequency(device, journals)
        path, given_up = measured(folder, runner, data, library)
        problems += given_up
        runner.stop()
        if not watch.stop(LIMIT_S):
            problems.append("the watch does not end")
        seconds, met = time.monotonic() - began, bool(device.met)
        device.clock.sleep(FAULT_OVER_S)
        for _ in range(200):
            if answers(device):
                break
            device.clock.sleep(1.0)
        for left, failures in journal.restore(
            journal.left_behind(journals), lambda *_: device, journals
        ):
            problems += [f"{left.serial}: {failure}" for failure in failures]
    if seconds > LIMIT_S:
        problems.append(f"it took {seconds:.0f} s")
    events = trials(path)
    problems += accounts(path, None)
    problems += difference(state_of(clean), state_of(device))
    messages = [*log, *held, *(event["message"] for event in events)]
    named = any(cause in message for cause in CAUSES[kind] for message in messages)
    statuses = Counter(event["status"] for event in events)
    # With a slow link or a lower clock, all candidates may still be measured at the first attempt.
    unharmed = (
        kind in QUIET and set(statuses) == {"ok"} and not any("session lost" in m for m in log)
    )
    if met and not named and not unharmed:
        problems.append(f"the log does not name {kind}: {messages[-8:]}")
    return Verdict(kind, met, named, seconds, problems, statuses)


def trials(path: Path) -> list[dict[str, Any]]:
    return [event for event in read_run(path).events if event["event"] == "trial"]


def accounts(path: Path, statuses: set[str] | None) -> list[str]:
    """Lists errors in the records of a run: candidates that are lost, doubled, or have another outcome."""
    events = trials(path)
    counts = Counter(event["digest"] for event in events)
    problems = [f"{digest} stands {n} times" for digest, n in counts.items() if n != 1]
    if len(counts) != CANDIDATES:
        problems.append(f"{CANDIDATES - len(counts)} candidates are lost")
    if statuses is not None:
        problems += [
            f"{event['digest']}: {event['status']}: {event['message']}"
            for event in events
            if event["status"] not in statuses
        ]
    return problems


def hitting(plan: FaultPlan) -> FaultPlan:
    """Returns the plan with call numbers that a run reaches, so that most faults hit a call."""
    return FaultPlan(
        tuple(
            replace(fault, number=1 + (fault.number - 1) % CALLS.get(fault.call, 1))
            if fault.call
            else fault
            for fault in plan.faults
        )
    )


def hold_a_frequency(device: EmulatedDevice, journals: Path) -> list[str]:
    """Holds a frequency of the last cluster for a moment; returns the device's errors."""
    said: list[str] = []
    try:
        from autotune.devices.info import probe

        cluster = probe(device).clusters[-1]
        with journal.Journal(device, journals) as notes:
            wanted = cluster.frequencies_khz[-1]
            with cpufreq.fixed_frequency(device, notes, cluster, wanted):
                device.clock.sleep(0.5)
    except (DeviceError, IndexError) as error:
        said.append(str(error))
    return said


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [
        f"{name} was {before.get(name)} and is {after.get(name)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def measure(report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="autotune-faults-") as name:
        in_process(report, Path(name))
        missing = userland.missing_parts()
        if missing:
            print(f"no runs over adb: {'; '.join(missing)}")
            return
        over_adb(report, Path(name))


def in_process(report: Report, scratch: Path) -> None:
    """Tests faults of modelled devices, on a virtual clock."""
    count = 30 if report.quick else report.options.faults
    data = ReferenceData(scratch / "data", 1)
    data.of(KERNEL)
    library = scratch / "kernel.so"
    library.write_bytes(b"")
    verdicts: list[Verdict] = []
    # A fault that is due after the last request to the device hits nothing, and does not count.
    while sum(verdict.met for verdict in verdicts) < count:
        verdicts.append(one(len(verdicts) + 1, data, library, scratch))
    for seed, verdict in enumerate(verdicts, start=1):
        for problem in verdict.faults_found:
            print(f"seed {seed}, {verdict.kind}: {problem}")
    for kind in KINDS:
        mine = [v for v in verdicts if v.kind == kind]
        statuses: Counter[str] = sum((v.statuses for v in mine), Counter())
        report.row(
            fault=kind,
            runs=len(mine),
            met=sum(v.met for v in mine),
            named=sum(v.met and v.named for v in mine),
            failed=sum(bool(v.faults_found) for v in mine),
            statuses=dict(statuses),
            slowest_s=max((v.seconds for v in mine), default=0.0),
        )
        print(json.dumps(report.rows[-1]))
    wrong = sum(bool(v.faults_found) for v in verdicts)
    report.row(runs=len(verdicts), hit=count, emulated="in process, SoC model")
    report.bar(
        f"of {count} runs that a fault has hit, in-process emulator: not as it should be",
        wrong,
        "at most",
        0,
        "runs",
    )


def over_adb(report: Report, scratch: Path) -> None:
    """Tests the same over the real adb server, with a phone that runs its own processes under qemu-user."""
    count = 2 if report.quick else report.options.adb
    data = ReferenceData(scratch / "adb-data", 1)
    data.of(KERNEL)
    library = adb_faults.arm_library(scratch)
    wrong = 0
    with adb_faults.phone(scratch / "home") as phone:
        before = adb_faults.state_of(phone.device)
        for seed in range(1, count + 1):
            folder = Path(tempfile.mkdtemp(dir=scratch))
            with logged() as log:
                fault, seconds, path, problems = adb_faults.one(
                    seed, phone, measured, folder, data, library
                )
            # Reconnects only if needed: reconnecting would close forwarded ports that a run forgot to close.
            if not answers(phone.device):
                phone.device.reconnect(timeout=60)
            problems += accounts(path, {"ok"})
            problems += difference(before, adb_faults.state_of(phone.device))
            if seconds > ADB_LIMIT_S:
                problems.append(f"it took {seconds:.0f} s")
            named = any(word in line for word in adb_faults.FAULTS[fault] for line in log)
            # A slow link may be fast enough for what is sent over it.
            if not named and not fault.startswith("slow"):
                problems.append(f"the log does not name {fault}: {log[-6:]}")
            wrong += bool(problems)
            report.row(adb=fault, seconds=seconds, named=named, problems=problems)
            print(json.dumps(report.rows[-1]), flush=True)
    report.bar(
        f"of {count} runs with a fault, real adb: not as it should be", wrong, "at most", 0, "runs"
    )


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--adb", type=int, default=40, help="runs over the real adb")
    parser.add_argument("--faults", type=int, default=500, help="runs over the in-process emulator")


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure, options))
