"""Measures steps of a workload on a device under a setting of its cores and clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath

from autotune.devices import Device, DeviceInfo, Journal, ThermalZone
from autotune.errors import NothingMeasuredError, StableDeviceError, TransientDeviceError
from autotune.measurement import conditions
from autotune.measurement.energy import Energy, EnergyWindows, energy
from autotune.measurement.observation import Observation, Steps, parted
from autotune.measurement.observer import Observer, RestartedError, Task
from autotune.measurement.profile import Calls, StepProfile, calls_of
from autotune.measurement.reconnection import Reconnection
from autotune.measurement.setting import Setting, clocks_held
from autotune.measurement.start_temperature import StartTemperature
from autotune.measurement.step_run import Band, Protocol, StepRun, Workload
from autotune.measurement.step_watch import StepWatch, failed
from autotune.measurement.workload_runs import WorkloadRuns
from autotune.power import Calibration, Meter, calibrate, checks
from autotune.scratch import Scratch


class StepBench:
    """One device, and the workload that is measured on it.

    Args:
        device: The device.
        info: Its properties.
        observer: Runs commands on it; must be entered.
        journal: The device's restore journal.
        workload: The workload.
        meter: The meter that gives its energy; None to measure times only.
        protocol: How runs are measured.
        band: Temperatures at which runs begin; None uses the protocol's band around the temperature in `info`.
        sleep: How time passes.
    """

    def __init__(
        self,
        device: Device,
        info: DeviceInfo,
        observer: Observer,
        journal: Journal,
        workload: Workload,
        meter: Meter | None,
        protocol: Protocol,
        *,
        band: Band | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.device, self.info, self.meter = device, info, meter
        self._observer, self._journal = observer, journal
        self.workload, self.protocol, self._sleep = workload, protocol, sleep
        self._start = StartTemperature(device, info, protocol, band, sleep)
        self._watch = StepWatch(workload, protocol)
        self._runs = WorkloadRuns(device, info, observer, workload, protocol, self._watch)
        self._reconnection = Reconnection(device, observer, journal, protocol, sleep)
        self.calibration_records: tuple[str, ...] = ()
        """Raw records of the last calibration: the idle device and the run, and earlier incomplete ones."""

    @property
    def band(self) -> Band | None:
        """Temperatures at which runs begin; None without a sensor."""
        return self._start.band

    def measuring(self, workload: Workload, protocol: Protocol | None = None) -> StepBench:
        """Returns a bench for the same device with another workload."""
        return StepBench(
            self.device,
            self.info,
            self._observer,
            self._journal,
            workload,
            self.meter,
            protocol or self.protocol,
            band=self.band,
            sleep=self._sleep,
        )

    def bring(self, text: str, name: str) -> PurePosixPath:
        """Writes a file on the device. It is removed at the end.

        Raises:
            DeviceError: It cannot be written.
        """
        with Scratch("step") as folder:
            file = folder / name
            file.write_text(text, encoding="utf-8")
            return self._observer.bring(file, name)

    def observe(self, command: tuple[str, ...], setting: Setting, limit_s: float) -> Observation:
        """Runs a command under a setting, without the protocol of a measurement.

        Raises:
            StableDeviceError: The command fails.
        """
        task = Task(command, setting.cpus_text, (), self.protocol.interval_s, limit_s)

        def once() -> Observation:
            with self._held(setting):
                return self._observer.run(task)

        observed = self._reconnection.retried(once, [])
        if observed.exit_code != 0:
            raise StableDeviceError(
                f"{self.device.serial}: {PurePosixPath(command[0]).name}: {observed.complaint}"
            )
        return observed

    def calibrate(self, setting: Setting) -> Calibration | None:
        """Finds a battery's unit and sign from an idle window and some steps under a setting that draws much power.

        Returns:
            None if the meter needs no calibration.

        Raises:
            StableDeviceError: The battery's current does not follow the work.
            NothingMeasuredError: The workload does not run.
        """
        if self.meter is None or all(c.calibrated for c in self.meter.channels):
            return None
        battery = next(c for c in self.meter.channels if not c.calibrated)
        current = battery.files[0]
        counter = current.replace("current_now", "charge_counter")
        watch = (*self.meter.files, counter)
        taken: list[str] = []

        def once() -> list[Observation]:
            rested = self._runs.rest(watch, self.meter, taken)
            with self._held(setting):
                return [rested, self._runs.run(setting, watch, self.meter, taken)]

        try:
            idle, busy = self._reconnection.retried(once, taken)
        finally:
            self.calibration_records = tuple(taken)
        self._watch.require(busy)
        if failed(busy):
            raise NothingMeasuredError(f"the command does not run: {self._watch.failure(busy)}")
        found = _calibration(self.meter, current, counter, idle, busy)
        self.meter = self.meter.calibrated(found.scale)
        return found

    def run(self, setting: Setting) -> StepRun:
        """Measures a setting once. Repeats it if conditions did not hold, the meter failed, or the device was away.

        Raises:
            DeviceError: The device is gone.
            NothingMeasuredError: No step was seen in the longest time that a run may take.
        """
        runs: list[StepRun] = []
        attempts = returns = restarts = 0
        while attempts < self.protocol.attempts:
            taken: list[str] = []
            try:
                run = self._attempt(setting, taken)
            except TransientDeviceError as error:
                restarts += self._reconnection.wait(error, taken) or isinstance(
                    error, RestartedError
                )
                returns += 1
                runs.append(StepRun("unstable", error.message, records=tuple(taken)))
                if returns <= self.protocol.returns:
                    continue
                if restarts < returns:
                    raise
                # Otherwise a resumed search would try it first every time.
                message = f"the device restarted {restarts} times under it"
                runs.append(StepRun("run_error", message))
                break
            runs.append(run)
            attempts += 1
            if run.status == "run_error" or (run.status == "ok" and _has_joules(run, self.meter)):
                break
        return _chosen(runs)

    def profile(self, setting: Setting) -> tuple[StepRun, StepProfile | None]:
        """Measures a setting once, and joins the observations with the calls that the workload reported.

        Returns:
            The run, and its profile. The profile is None if the run is not `ok`, or the workload reported no calls.

        Raises:
            DeviceError: The device is gone.
        """
        run = self.run(setting)
        calls = self.calls(run)
        if calls is None:
            return run, None
        observed, idle = parted(run.records)
        return run, StepProfile(
            calls,
            observed,
            self.info,
            self._start.zone,
            self.meter if run.energy is not None else None,
            idle,
            self.protocol.settle_s,
        )

    def calls(self, run: StepRun) -> Calls | None:
        """Returns the start times of calls in a run's steps.

        Returns None if it is not `ok`, or the workload reported none.
        """
        if run.status != "ok":
            return None
        observed, _ = parted(run.records)
        counted = self._watch.steps(observed)
        assert counted is not None
        return calls_of(observed, counted.start_s, counted.ends_s[-1])

    def _attempt(self, setting: Setting, taken: list[str]) -> StepRun:
        """Runs once. Records go into `taken` at once, however the run ends."""
        try:
            self._reconnection.put_back()
            marks = self._start.reach(setting, partial(self._runs.warm, self.meter))
            before = self._idle(taken)
            with self._held(setting):
                meter = self.meter.files if self.meter else ()
                watch = (*conditions.watched(self.info), *meter, *self.workload.watch)
                observed = self._runs.run(setting, watch, self.meter, taken)
                status = conditions.thermal_status(self.device, self.info)
            after = self._idle(taken)
        except StableDeviceError as error:
            return StepRun("unstable", error.message, records=tuple(taken))
        records = tuple(taken)
        counted = self._watch.steps(observed)
        self._watch.require(observed)
        if counted is None or failed(observed):
            return StepRun("run_error", self._watch.failure(observed), records=records)
        seen = _Seen(before, observed, after, counted, status)
        return seen.judged(self, setting, self._start.zone, marks, records)

    def _idle(self, taken: list[str]) -> Observation | None:
        return self._runs.rest(self.meter.files, self.meter, taken) if self.meter else None

    def _held(self, setting: Setting) -> AbstractContextManager[None]:
        return clocks_held(self.device, self._journal, self.info.clusters, setting)


def _has_joules(run: StepRun, meter: Meter | None) -> bool:
    """Returns whether a run has all that its meter can give.

    A charging battery will still charge in the next run.
    """
    return meter is None or run.energy is not None or checks.CHARGING in run.marks


def _chosen(runs: list[StepRun]) -> StepRun:
    """Returns the last run, or the first `ok` run if the last is not `ok`. The others become its rejected runs."""
    last = len(runs) - 1
    if runs[last].status not in ("ok", "run_error"):
        last = next((i for i, run in enumerate(runs) if run.status == "ok"), last)
    return replace(runs[last], rejected=(*runs[:last], *runs[last + 1 :]))


@dataclass(frozen=True)
class _Seen:
    """The records of an attempt: the idle device before and after, the run, its steps, Android's thermal status."""

    before: Observation | None
    observed: Observation
    after: Observation | None
    counted: Steps
    status: int | None

    def judged(
        self,
        bench: StepBench,
        setting: Setting,
        zone: ThermalZone | None,
        marks: tuple[str, ...],
        records: tuple[str, ...],
    ) -> StepRun:
        """Returns the run's figures, and whether its conditions held."""
        observed, counted, protocol = self.observed, self.counted, bench.protocol
        window = (counted.start_s, counted.ends_s[-1])
        wrong = conditions.broken(observed, window, setting, bench.info)
        wrong += [reason] if (reason := conditions.throttled(self.status)) else []
        found = Energy(None)
        if bench.meter is not None and self.before is not None and self.after is not None:
            settle_s, interval_s = protocol.settle_s, protocol.interval_s
            found = energy(
                bench.meter,
                EnergyWindows(self.before, observed, self.after, settle_s, *window, interval_s),
            )
        throttled = any("throttled" in w or " ran at " in w for w in wrong)
        return StepRun(
            status="ok" if not wrong else "throttled" if throttled else "unstable",
            message="; ".join(wrong),
            step_s=counted.seconds,
            steps=counted.count,
            energy=found.joules,
            marks=(*marks, *found.marks),
            rails=found.rails,
            celsius=conditions.hottest(observed, window, zone) if zone else None,
            memory_bytes=observed.max_rss_bytes or None,
            khz=conditions.mean_khz(observed, window, bench.info),
            records=records,
        )


def _calibration(
    meter: Meter, current: str, counter: str, idle: Observation, busy: Observation
) -> Calibration:
    """Returns a battery's unit and sign, from its current when idle and in a run."""
    readings = [[float(t) for _, t in o.series(current)] for o in (idle, busy)]
    # The gauge needs a moment to react to the work.
    readings[1] = readings[1][len(readings[1]) // 3 :]
    status = next((t for f in meter.status_files for _, t in idle.series(f)), "")
    return calibrate(*readings, status=status.strip(), counter_a=_discharge(busy, counter))


def _discharge(observed: Observation, counter: str) -> float | None:
    """Returns the mean discharge in amperes from a charge counter in microampere-hours; None if it did not move."""
    seen = [(time, float(text)) for time, text in observed.series(counter)]
    if len(seen) < 2 or seen[0][1] == seen[-1][1]:
        return None
    (start, first), (end, last) = seen[0], seen[-1]
    return (first - last) * 1e-6 * 3600 / (end - start)
