"""Profiles a step on a device: the time and energy of each operator."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from autotune.console import LiveProgress
from autotune.devices import cpu_list
from autotune.errors import NothingMeasuredError, UsageError
from autotune.jobs.device import ChosenDevice, check_meter, choose, find_meter, finite, ready
from autotune.jobs.provenance import Work, about_run, named
from autotune.jobs.requests import DEFAULT_BATCH, StepRequest, point_of
from autotune.jobs.steps.device_workload import DeviceWorkload, brought, given_command
from autotune.jobs.steps.step_records import at_most, calibrated
from autotune.measurement import Protocol, Setting, StepBench, StepProfile, StepRun
from autotune.records import RunFolder, read_run
from autotune.studies.evaluators import setting_of
from autotune.studies.plans import named_calls, operators, roles
from autotune.studies.space import CpuConfiguration

SECONDS, INTERVAL_MS = 20.0, 10.0
_LEAST_STEPS = 10


@dataclass(frozen=True)
class ProfileRequest:
    """A request to profile a step. None stands for an option that was not given.

    Attributes:
        step: The step; None for another program.
        command, steps_from: Another program, and a pattern for the line at the end of each of its steps.
        device, ssh, emulate: Where it is measured.
        cpus, threads: Cores, as a list such as `4-7`, and threads.
        of, point: A run of cpu-config, and its point whose cores and clocks are used.
        meter: Name of a meter.
        seconds: Least duration of the steps, in seconds.
        interval_ms: Milliseconds between two samples.
        start_temperature: Highest temperature, in degrees Celsius, at which the measurement begins.
    """

    step: StepRequest | None = None
    command: str | None = None
    steps_from: str | None = None
    device: str | None = None
    ssh: tuple[str, ...] = ()
    emulate: str | None = None
    cpus: str | None = None
    threads: int | None = None
    of: Path | None = None
    point: str | None = None
    meter: str | None = None
    seconds: float = SECONDS
    interval_ms: float = INTERVAL_MS
    start_temperature: float | None = None

    def check(self) -> None:
        """Refuses invalid options, before a device is looked for.

        Raises:
            UsageError: An option is invalid.
        """
        finite("--seconds", self.seconds)
        finite("--interval-ms", self.interval_ms)
        finite("--start-temperature", self.start_temperature)
        if not self.seconds > 0 or not self.interval_ms >= 1:
            raise UsageError(
                f"--seconds {self.seconds:g} and --interval-ms {self.interval_ms:g}",
                hint="give seconds above 0, and an interval of 1 ms or more",
            )
        if self.step is None and self.command is None:
            raise UsageError("--model, or --command and --steps-from, select what is profiled")
        if self.step is not None:
            self.step.check()
        check_meter(self.meter or "auto", needed=False)
        if self.of is None and self.point is not None:
            raise UsageError("--point goes with --of", hint="give the run whose point is meant")
        if self.of is not None:
            if self.cpus is not None or self.threads is not None:
                raise UsageError(
                    "--of gives cores and threads", hint="leave --cpus and --threads out"
                )
            point_of(read_run(self.of), self.point or "best")
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"--threads is {self.threads}", hint="give 1 or more")
        self.cores()

    def cores(self) -> tuple[int, ...] | None:
        """Returns the cores that are asked for; None for all.

        Raises:
            UsageError: They are not a list of cores.
        """
        try:
            return None if self.cpus is None else cpu_list(self.cpus)
        except ValueError as error:
            raise UsageError(
                f"--cpus '{self.cpus}' is not a list of cores", hint="such as 4-7"
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Returns the request as `run.json` stores it."""
        return {
            "profile": self.step.to_json() if self.step else self.command,
            "cpus": self.cpus,
            "threads": self.threads,
            "of": str(self.of) if self.of else None,
            "point": (self.point or "best") if self.of else None,
            "emulate": self.emulate,
            "seconds": self.seconds,
            "interval_ms": self.interval_ms,
            "meter": self.meter,
        }


@dataclass(frozen=True)
class ProfileResult:
    """A profile: its run's folder, and the content of its `result.json`."""

    path: Path
    content: dict[str, Any]


def profile(request: ProfileRequest, logs: Path) -> ProfileResult:
    """Profiles a step, and writes its run's folder.

    Args:
        request: The request.
        logs: Folder that the run's folder is made in.

    Raises:
        UsageError: An option is invalid.
        DeviceError: The device is gone.
        NothingMeasuredError: The step did not run, or reported no times of calls.
    """
    request.check()
    command = given_command(request.step, request.command, request.steps_from, emulated=False)
    chosen = choose(request.device, request.ssh, request.emulate)
    setting = _setting(request, chosen)
    meter = find_meter(chosen, request.meter or "auto", needed=False)
    protocol = replace(
        Protocol(),
        interval_s=request.interval_ms / 1e3,
        least_s=request.seconds,
        least_steps=_LEAST_STEPS,
    )
    about = about_run(request.to_json(), chosen.about())
    folder = RunFolder.create(logs, f"profile-{chosen.info.soc}", about)
    with (
        folder,
        LiveProgress() as progress,
        brought(request.step, command, chosen, progress, trace=True) as workload,
    ):
        progress.notice(f"run folder: {folder.path}")
        band = at_most(request.start_temperature)
        with ready(chosen, workload.bring, meter, protocol, band) as bench:
            calibrated(bench, setting, folder, progress, needed=False)
            measured, joined = bench.profile(setting)
        _record(folder, bench, protocol, measured)
        content = _result(chosen, bench, setting, workload, measured, joined, folder.path)
        step = request.step
        called, size = (step.model, step.batch or DEFAULT_BATCH) if step else (None, None)
        content = named(content, Work(folder.path, called, size))
        folder.result(content)
    return ProfileResult(folder.path, content)


def _record(folder: RunFolder, bench: StepBench, protocol: Protocol, measured: StepRun) -> None:
    """Writes the records from the device."""
    if bench.meter is not None:
        # The meaning of the records' fields: a report reads the power over time from them.
        folder.event("meter", meter=asdict(bench.meter), settle_s=protocol.settle_s)
    for one in measured.rejected:
        folder.event(
            "rejected", status=one.status, message=one.message, raw=folder.raw(one.records)
        )
    for number, text in enumerate(measured.records):
        (folder.path / f"record-{number}.jsonl").write_text(text, encoding="utf-8")


def _result(
    chosen: ChosenDevice,
    bench: StepBench,
    setting: Setting,
    workload: DeviceWorkload,
    measured: StepRun,
    joined: StepProfile | None,
    folder: Path,
) -> dict[str, Any]:
    if measured.status != "ok":
        raise NothingMeasuredError(
            f"the step was not measured: {measured.message}", hint=f"see {folder}"
        )
    if joined is None:
        raise NothingMeasuredError(
            "the program printed no times of calls",
            hint="a line 'calls SECONDS MICROSECONDS ...' a step: see docs/measurement.md",
        )
    try:
        calls = named_calls(workload.graph, joined)
    except ValueError as error:
        raise NothingMeasuredError(f"the calls cannot be separated: {error}") from error
    clusters = zip(chosen.info.clusters, setting.khz, strict=True)
    return {
        "schema_version": 1,
        "kind": "profile",
        "device": {**chosen.info.to_json(), "emulated": chosen.info.emulated},
        "emulated": bool(chosen.info.emulated),
        "meter": bench.meter.name if bench.meter else None,
        "cpus": list(setting.cpus) if setting.cpus else None,
        "threads": setting.threads,
        "khz": {cluster.name: khz for cluster, khz in clusters},
        "step_s": measured.time_s,
        "steps": measured.count,
        "energy_j": measured.energy_j,
        "deviation_j": measured.deviation_j,
        "marks": list(measured.marks),
        "memory_bytes": measured.memory_bytes,
        "intervals": joined.intervals,
        "operators": operators(calls, joined),
        "roles": roles(calls, joined),
    }


def _setting(request: ProfileRequest, chosen: ChosenDevice) -> Setting:
    """Returns the cores and clocks that a request selects."""
    clusters = chosen.info.clusters
    if request.of is not None:
        shown = point_of(read_run(request.of), request.point or "best")
        if shown.get("clusters") is None:
            return setting_of(clusters, None)
        return setting_of(clusters, CpuConfiguration.from_json(shown, [c.name for c in clusters]))
    every = tuple(cpu for cluster in clusters for cpu in cluster.cpus)
    wanted = request.cores()
    if wanted is not None and (not wanted or not set(wanted) <= set(every)):
        raise UsageError(
            f"--cpus '{request.cpus}': the device has cores {', '.join(map(str, sorted(every)))}"
        )
    count = request.threads or len(wanted or every) or 1
    return Setting(wanted, (None,) * len(clusters), count)


__all__ = ["INTERVAL_MS", "SECONDS", "ProfileRequest", "ProfileResult", "profile"]
