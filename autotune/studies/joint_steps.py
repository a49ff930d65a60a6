"""Whole steps on a device, with a schedule for each call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.devices.topology import Cluster
from autotune.measurement.setting import Setting
from autotune.measurement.step_bench import StepBench
from autotune.measurement.step_runner import StepRunner, settings_text
from autotune.studies.bench import Measured
from autotune.studies.configuration import CpuConfiguration
from autotune.studies.device_bench import DeviceBench, setting_of
from autotune.studies.kernel_model import Rows

_FILE = "schedules"


class DeviceSteps:
    """Measures steps on a device; see `StepSource`.

    Args:
        bench: The device.
        figures: Turns its runs into a study's.
        runner: The step, with every pool's schedules.
        tasks: The task of each call, by its index in the pools; None where a call has no pool.
    """

    def __init__(
        self,
        bench: StepBench,
        figures: DeviceBench,
        runner: StepRunner,
        tasks: Sequence[int | None],
    ) -> None:
        self._bench, self._figures, self._runner = bench, figures, runner
        self._tasks = list(tasks)
        self._count = 1 + max((task for task in tasks if task is not None), default=-1)

    @property
    def clusters(self) -> Sequence[Cluster]:
        """See `Bench.clusters`."""
        return self._figures.clusters

    @property
    def device(self) -> dict[str, Any]:
        """See `Bench.device`."""
        return self._figures.device

    def measure(self, configuration: CpuConfiguration | None, chosen: Rows) -> Measured:
        """See `StepSource.measure`."""
        setting = setting_of(self.clusters, configuration)
        used = {
            call: int(chosen[task]) for call, task in enumerate(self._tasks) if task is not None
        }
        # Cores and clocks are held from outside, as in any other measurement.
        own = Setting(None, (None,) * len(self.clusters), setting.threads)
        file = self._bench.bring(settings_text([own], self.clusters, used=used), _FILE)
        bench = self._bench.measuring(self._runner.chosen(file))
        run = bench.run(setting)
        measured = self._figures.measured(run)
        calls = bench.calls(run)
        if measured.figures is None or calls is None:
            return measured
        seconds = np.median(calls.seconds, axis=0)
        task_s = [
            float(np.mean(seconds[[call for call, own in enumerate(self._tasks) if own == task]]))
            for task in range(self._count)
        ]
        return replace(measured, raw={**(measured.raw or {}), "task_s": task_s})
