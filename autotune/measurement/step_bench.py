"""Measures steps of a workload on a device under a setting of its cores and clocks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TypeVar

from autotune.devices import SETTINGS, Device, DeviceInfo, Journal, ThermalZone, celsius
from autotune.errors import NothingMeasuredError, StableDeviceError, TransientDeviceError
from autotune.measurement import conditions
from autotune.measurement.energy import Energy, Windows, energy
from autotune.measurement.observation import Observation, Steps, parted, steps
from autotune.measurement.observer import Observer, RestartedError, Task, words
from autotune.measurement.profile import Calls, StepProfile, calls_of
from autotune.measurement.setting import Setting, clocks_held
from autotune.measurement.step_run import Band, Protocol, StepRun, Workload
from autotune.power import Calibration, Meter, calibrate, checks
from autotune.scratch import Scratch
from autotune.waits import lasting, waiting

LOGGER = logging.getLogger("autotune.measurement")
_RECONNECT_S = 10.0
_RETURN_PAUSE_S = 5.0
_SILENT_S = 60.0
_NOT_STARTED = (126, 127)
"""Exit codes of a program that cannot be run, and of one that is not there; shells have the same."""
_T = TypeVar("_T")


class StepBench:
    """One device, and the workload that is measured on it.

    Args:
        device: The device.
        info: What it is.
        observer: Runs commands on it; entered.
        journal: The device's restore journal.
        workload: What is measured.
        meter: What its energy is taken from; None for times only.
        protocol: How.
        band: Temperatures at which runs begin; None takes the protocol's around what `info` tells.
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
        self._zone = conditions.body_zone(info)
        self.band = band
        """Temperatures at which runs begin; None without a sensor."""
        if band is None and self._zone is not None and self._zone.celsius is not None:
            now = self._zone.celsius
            self.band = Band(now - protocol.cold_k, now + protocol.band_k)
        self._stepped = self._warned = False
        self.calibration_records: tuple[str, ...] = ()
        """Raw records of the last calibration: the idle device and the run, and what was broken off before."""

    def measuring(self, workload: Workload, protocol: Protocol | None = None) -> StepBench:
        """The same device, with another workload."""
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
        """Writes a file on the device that is removed at the end.

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
            StableDeviceError: It fails.
        """
        task = Task(command, setting.cpus_text, (), self.protocol.interval_s, limit_s)

        def once() -> Observation:
            with self._held(setting):
                return self._observer.run(task)

        observed = self._outlasting(once, [])
        if observed.exit_code != 0:
            raise StableDeviceError(
                f"{self.device.serial}: {PurePosixPath(command[0]).name}: {observed.complaint}"
            )
        return observed

    def calibrate(self, setting: Setting) -> Calibration | None:
        """Finds a battery's unit and sign from an idle window and some steps under a setting that draws much.

        Returns:
            None where nothing needs it.

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
            found = [self._rested(watch)]
            taken.append(found[0].text)
            with self._held(setting):
                found.append(self._run(setting, watch))
            taken.append(found[1].text)
            return found

        try:
            idle, busy = self._outlasting(once, taken)
        finally:
            self.calibration_records = tuple(taken)
        self._require_steps(busy)
        if self._failed(busy):
            raise NothingMeasuredError(f"the command does not run: {self._failure(busy)}")
        readings = [[float(t) for _, t in o.series(current)] for o in (idle, busy)]
        # The gauge needs a moment to see the work.
        readings[1] = readings[1][len(readings[1]) // 3 :]
        status = next((t for f in self.meter.status_files for _, t in idle.series(f)), "")
        found = calibrate(*readings, status=status.strip(), counter_a=_discharge(busy, counter))
        self.meter = self.meter.calibrated(found.scale)
        return found

    def run(self, setting: Setting) -> StepRun:
        """Measures a setting once; again where conditions did not hold, the meter failed, or the device was away.

        Raises:
            DeviceError: The device is gone.
            NothingMeasuredError: No step was ever seen, in all the time that a run may take.
        """
        runs: list[StepRun] = []
        attempts = returns = restarts = 0
        while attempts < self.protocol.attempts:
            taken: list[str] = []
            try:
                run = self._attempt(setting, taken)
            except TransientDeviceError as error:
                restarts += self._come_back(error, taken) or isinstance(error, RestartedError)
                returns += 1
                runs.append(StepRun("unstable", error.message, records=tuple(taken)))
                if returns <= self.protocol.returns:
                    continue
                if restarts < returns:
                    raise
                # Else a search would meet it first whenever it goes on.
                told = f"the device restarted {restarts} times under it"
                runs.append(StepRun("run_error", told))
                break
            runs.append(run)
            attempts += 1
            if run.status == "run_error" or (run.status == "ok" and self._has_joules(run)):
                break
        last = len(runs) - 1
        if runs[last].status not in ("ok", "run_error"):
            last = next((i for i, run in enumerate(runs) if run.status == "ok"), last)
        return replace(runs[last], rejected=(*runs[:last], *runs[last + 1 :]))

    def _has_joules(self, run: StepRun) -> bool:
        """Whether a run has what its meter can give; a battery that charges still does so in the next run."""
        return self.meter is None or run.energy is not None or checks.CHARGING in run.marks

    def _outlasting(self, action: Callable[[], _T], taken: list[str]) -> _T:
        """Does something on the device; anew where it went away meanwhile, as often as a run is.

        Raises:
            DeviceError: See `run`.
        """
        for _ in range(self.protocol.returns):
            try:
                return action()
            except TransientDeviceError as error:
                self._come_back(error, taken)
                self._put_back()
        return action()

    def _come_back(self, error: TransientDeviceError, taken: list[str]) -> bool:
        """Waits for a device that was away; returns whether it restarted.

        Args:
            error: What told that it is.
            taken: Where the record goes that was broken off.

        Raises:
            TransientDeviceError: It stays away.
            StableDeviceError: It restarted, and has lost what was brought there.
        """
        LOGGER.warning("%s; what was measured meanwhile is measured again", error.message)
        if self._observer.unfinished:
            taken.append(self._observer.unfinished)
        waited = 0.0
        while True:
            try:
                return self._observer.recover()
            except TransientDeviceError:
                if waited >= self.protocol.return_s:
                    raise
            with suppress(TransientDeviceError):
                self.device.reconnect(timeout=_RECONNECT_S)
            self._sleep(_RETURN_PAUSE_S)
            waited += _RETURN_PAUSE_S

    def profile(self, setting: Setting) -> tuple[StepRun, StepProfile | None]:
        """Measures a setting once, and joins what was seen with the calls that the workload told of.

        Returns:
            The run, and its profile; None where the run is not `ok`, or the workload told of no calls.

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
            self._zone,
            self.meter if run.energy is not None else None,
            idle,
            self.protocol.settle_s,
        )

    def calls(self, run: StepRun) -> Calls | None:
        """When the calls of a run's steps began; None where it is not `ok`, or the workload told of none."""
        if run.status != "ok":
            return None
        observed, _ = parted(run.records)
        counted = self._steps(observed)
        assert counted is not None
        return calls_of(observed, counted.start_s, counted.ends_s[-1])

    def _attempt(self, setting: Setting, taken: list[str]) -> StepRun:
        """One run; what is recorded goes into `taken` at once, whatever ends it."""
        try:
            self._put_back()
            marks = self._brought_into_band(setting)
            before = self._idle(taken)
            with self._held(setting):
                observed = self._run(setting, self._watched())
                taken.append(observed.text)
                status = conditions.thermal_status(self.device, self.info)
            after = self._idle(taken)
        except StableDeviceError as error:
            return StepRun("unstable", error.message, records=tuple(taken))
        records = tuple(taken)
        counted = self._steps(observed)
        self._require_steps(observed)
        if counted is None or self._failed(observed):
            return StepRun("run_error", self._failure(observed), records=records)
        window = (counted.start_s, counted.ends_s[-1])
        wrong = conditions.broken(observed, window, setting, self.info)
        wrong += [told] if (told := conditions.throttled(status)) else []
        found = Energy(None)
        if self.meter is not None and before is not None and after is not None:
            settle_s, interval_s = self.protocol.settle_s, self.protocol.interval_s
            found = energy(
                self.meter, Windows(before, observed, after, settle_s, *window, interval_s)
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
            celsius=conditions.hottest(observed, window, self._zone) if self._zone else None,
            memory_bytes=observed.max_rss_bytes or None,
            khz=conditions.mean_khz(observed, window, self.info),
            records=records,
        )

    def _put_back(self) -> None:
        """Undoes what could not be undone when something was broken off."""
        for failure in self._journal.undo(SETTINGS):
            LOGGER.warning("%s: not restored: %s", self.device.serial, failure)

    def _brought_into_band(self, setting: Setting) -> tuple[str, ...]:
        """Waits until the device is cool enough, and warms it where it is too cold; returns what to mark."""
        limit_s, sleep = self.protocol.cooling_limit_s, self._sleep
        marks: tuple[str, ...] = ()
        if (zone := self._zone) is not None and (band := self.band) is not None:
            now = conditions.wait_until_cool(
                self.device, zone, band.high_c, limit_s=limit_s, sleep=sleep
            )
            if now < band.low_c:
                now = self._warmed(zone, band.low_c)
            if now < band.low_c:
                marks = (
                    f"{zone.name} began at {now:.1f} C, and others at {band.low_c:.1f} C at least",
                )
        conditions.wait_until_unthrottled(
            self.device, self.info, setting, limit_s=limit_s, sleep=sleep
        )
        return marks

    def _warmed(self, zone: ThermalZone, least_c: float) -> float:
        """Lets the workload run on every core until a sensor reads so much; returns what it reads then."""
        clusters = self.info.clusters
        every = Setting(None, (None,) * len(clusters), sum(len(c.cpus) for c in clusters))
        command = words(self.workload.command, every.threads)
        path, limit_s = f"{zone.path}/temp", self.protocol.warming_limit_s
        with waiting(f"{self.device.serial} to warm up: {zone.name} to read {least_c:.1f} C"):
            self._observer.run(
                self._task(command, "", (path,), limit_s),
                lambda seen: any(celsius(float(t)) >= least_c for _, t in seen.series(path)[-1:]),
            )
        return conditions.read_celsius(self.device, zone)

    def _idle(self, taken: list[str]) -> Observation | None:
        if self.meter is None:
            return None
        observed = self._rested(self.meter.files)
        taken.append(observed.text)
        return observed

    def _rested(self, watch: tuple[str, ...]) -> Observation:
        """Records the idle device for as long as its power takes to be known."""
        length_s = self._idle_length_s
        with waiting(f"{self.device.serial} to rest: its power when idle", lasting(length_s)):
            return self._observer.run(self._task((), "", watch, length_s))

    @property
    def _idle_length_s(self) -> float:
        return self.protocol.settle_s + self.protocol.idle_s

    def _held(self, setting: Setting) -> AbstractContextManager[None]:
        return clocks_held(self.device, self._journal, self.info.clusters, setting)

    def _run(self, setting: Setting, watch: tuple[str, ...]) -> Observation:
        command = words(self.workload.command, setting.threads)
        task = self._task(command, setting.cpus_text, watch, self.protocol.limit_s)
        least = f"{self.protocol.least_steps} steps and {self.protocol.least_s:g} s at least"
        with waiting(f"a measurement on {self.device.serial}: {least}"):
            return self._observer.run(task, self._enough)

    def _task(
        self, command: tuple[str, ...], cpus: str, watch: tuple[str, ...], limit_s: float
    ) -> Task:
        meter = self.meter.command if self.meter else ()
        return Task(command, cpus, watch, self.protocol.interval_s, limit_s, meter)

    def _watched(self) -> tuple[str, ...]:
        meter = self.meter.files if self.meter else ()
        return (*conditions.watched(self.info), *meter, *self.workload.watch)

    def _steps(self, observed: Observation) -> Steps | None:
        return steps(observed.lines, self.workload.step, warm_up=self.protocol.warm_up)

    def _enough(self, observed: Observation) -> bool:
        if not self._stepped and self._ends(observed):
            self._stepped = True
        if not self._stepped and not self._warned and observed.samples and observed.lines:
            waited_s = observed.samples[-1].time_s - observed.begin_s
            if waited_s > _SILENT_S:
                LOGGER.warning("%s", self._stepless(observed, waited_s))
                self._warned = True
        counted = self._steps(observed)
        if counted is None or len(counted.ends_s) < self.protocol.least_steps:
            return False
        return counted.ends_s[-1] - counted.start_s >= self.protocol.least_s

    @staticmethod
    def _failed(observed: Observation) -> bool:
        """Whether the command ended by itself, and not well."""
        return observed.exit_code != 0 and not observed.why

    def _ends(self, observed: Observation) -> int:
        return sum(bool(self.workload.step.search(line.text)) for line in observed.lines)

    def _require_steps(self, observed: Observation) -> None:
        """Ends everything where no run has shown a step yet: others would take as long for nothing."""
        self._stepped = self._stepped or self._ends(observed) > 0
        if not self._stepped and observed.exit_code in _NOT_STARTED:
            raise NothingMeasuredError(f"the command does not run: {self._failure(observed)}")
        if self._stepped or self._failed(observed):
            return
        seconds = (observed.end_s or observed.begin_s) - observed.begin_s
        raise NothingMeasuredError(
            self._stepless(observed, seconds),
            hint="--steps-from is a regular expression that the line at the end of each step matches",
        )

    def _stepless(self, observed: Observation, seconds: float) -> str:
        pattern = self.workload.step.pattern
        last = f"the last was '{observed.lines[-1].text}'" if observed.lines else "there was none"
        return f"no line that the program printed matched '{pattern}' in {seconds:.0f} s; {last}"

    def _failure(self, observed: Observation) -> str:
        if self._failed(observed):
            return observed.complaint
        return (
            f"{self._ends(observed)} lines matched '{self.workload.step.pattern}' in "
            f"{(observed.end_s or observed.begin_s) - observed.begin_s:.0f} s, "
            f"and {self.protocol.warm_up + 1} are needed at least"
        )


def _discharge(observed: Observation, counter: str) -> float | None:
    """Mean discharge in amperes by a charge counter in microampere-hours; None where it did not move."""
    seen = [(time, float(text)) for time, text in observed.series(counter)]
    if len(seen) < 2 or seen[0][1] == seen[-1][1]:
        return None
    (start, first), (end, last) = seen[0], seen[-1]
    return (first - last) * 1e-6 * 3600 / (end - start)
