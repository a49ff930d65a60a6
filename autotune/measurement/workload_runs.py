"""Observes a device while it runs a workload and while it rests, without judging what is seen."""

from __future__ import annotations

from autotune.devices import Device, DeviceInfo, ThermalZone, celsius
from autotune.measurement import conditions
from autotune.measurement.observation import Observation
from autotune.measurement.observer import Observer, Task, words
from autotune.measurement.setting import Setting
from autotune.measurement.step_run import Protocol, Workload
from autotune.measurement.step_watch import StepWatch
from autotune.power import Meter
from autotune.waits import lasting, waiting


class WorkloadRuns:
    """Runs of one workload on one device. The caller sets the clocks.

    Args:
        device: The device.
        info: Its properties.
        observer: Runs commands on it.
        workload: The workload.
        protocol: Sets the lengths of runs and rests.
        watch: Decides when a run has enough steps.
    """

    def __init__(
        self,
        device: Device,
        info: DeviceInfo,
        observer: Observer,
        workload: Workload,
        protocol: Protocol,
        watch: StepWatch,
    ) -> None:
        self._device, self._info, self._observer = device, info, observer
        self._command, self._protocol, self._watch = workload.command, protocol, watch

    def run(
        self, setting: Setting, files: tuple[str, ...], meter: Meter | None, taken: list[str]
    ) -> Observation:
        """Runs the workload until it has made enough steps.

        Args:
            setting: Its cores and threads.
            files: Files to sample meanwhile.
            meter: A meter whose program runs meanwhile; None without one.
            taken: Receives the record.
        """
        task = self._task(
            words(self._command, setting.threads),
            setting.cpus_text,
            files,
            self._protocol.limit_s,
            meter,
        )
        least = f"{self._protocol.least_steps} steps and {self._protocol.least_s:g} s at least"
        with waiting(f"a measurement on {self._device.serial}: {least}"):
            observed = self._observer.run(task, self._watch.enough)
        taken.append(observed.text)
        return observed

    def rest(self, files: tuple[str, ...], meter: Meter | None, taken: list[str]) -> Observation:
        """Records the idle device for as long as it takes to know its power; see `run`."""
        length_s = self._protocol.settle_s + self._protocol.idle_s
        with waiting(f"{self._device.serial} to rest: its power when idle", lasting(length_s)):
            observed = self._observer.run(self._task((), "", files, length_s, meter))
        taken.append(observed.text)
        return observed

    def warm(self, meter: Meter | None, zone: ThermalZone, least_c: float) -> float:
        """Runs the workload on every core until a sensor reads `least_c`, and returns its reading then."""
        clusters = self._info.clusters
        every = Setting(None, (None,) * len(clusters), sum(len(c.cpus) for c in clusters))
        path, limit_s = f"{zone.path}/temp", self._protocol.warming_limit_s
        task = self._task(words(self._command, every.threads), "", (path,), limit_s, meter)
        with waiting(f"{self._device.serial} to warm up: {zone.name} to read {least_c:.1f} C"):
            self._observer.run(
                task,
                lambda seen: any(celsius(float(t)) >= least_c for _, t in seen.series(path)[-1:]),
            )
        return conditions.read_celsius(self._device, zone)

    def _task(
        self,
        command: tuple[str, ...],
        cpus: str,
        files: tuple[str, ...],
        limit_s: float,
        meter: Meter | None,
    ) -> Task:
        program = meter.command if meter else ()
        return Task(command, cpus, files, self._protocol.interval_s, limit_s, program)
