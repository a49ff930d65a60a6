"""Measures whole steps on a device, with a schedule for each call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autotune.devices import Cluster
from autotune.measurement import MemoryKind, OnGpu, StepBench, StepRunner, settings_text, threads_of
from autotune.studies.evaluators import DeviceEvaluator, Measured, setting_of
from autotune.studies.joint.joint import Choice
from autotune.studies.space import CpuConfiguration

_FILE = "schedules"


@dataclass(frozen=True)
class FormOnDevice:
    """A form of a step, copied to a device.

    Attributes:
        runner: The step, with the schedules of every pool.
        tasks: The task of each call, by its index in the pools; None if a call has no pool.
        memory: How tensors are brought to a GPU, if it takes part in the step.
    """

    runner: StepRunner
    tasks: tuple[int | None, ...]
    memory: MemoryKind = "copy"

    def used(self, choice: Choice) -> dict[int, int]:
        """Returns the schedule of each call that has a pool, by the call's number."""
        return {
            call: choice.schedules[task] for call, task in enumerate(self.tasks) if task is not None
        }


class DeviceSteps:
    """Measures steps on a device; see `StepSource`.

    Args:
        bench: The device.
        figures: Converts its runs into a study's measurements.
        forms: The step's forms.
        count: Number of tasks in the pools.
    """

    def __init__(
        self, bench: StepBench, figures: DeviceEvaluator, forms: Sequence[FormOnDevice], count: int
    ) -> None:
        self._bench, self._figures, self._forms, self._count = bench, figures, forms, count

    @property
    def clusters(self) -> Sequence[Cluster]:
        """See `Evaluator.clusters`."""
        return self._figures.clusters

    @property
    def device(self) -> dict[str, Any]:
        """See `Evaluator.device`."""
        return self._figures.device

    def measure(self, configuration: CpuConfiguration | None, choice: Choice) -> Measured:
        """See `StepSource.measure`."""
        setting = setting_of(self.clusters, configuration)
        form = self._forms[choice.form]
        # Cores and clocks are set from outside, as in any other measurement.
        own = threads_of(setting)
        on_gpu = OnGpu(choice.gpu, form.memory)
        text = settings_text([own], self.clusters, used=form.used(choice), on_gpu=on_gpu)
        file = self._bench.bring(text, _FILE)
        bench = self._bench.measuring(form.runner.chosen(file))
        run = bench.run(setting)
        measured = self._figures.measured(run)
        calls = bench.calls(run)
        if measured.figures is None or calls is None:
            return measured
        of_task: list[list[float]] = [[] for _ in range(self._count)]
        there = set(choice.gpu)
        seconds = np.median(calls.cpu_seconds, axis=0)
        for call, task in enumerate(form.tasks):
            if task is not None and call not in there:
                of_task[task].append(float(seconds[call]))
        raw = dict(measured.raw or {})
        raw["task_s"] = [float(np.mean(one)) if one else None for one in of_task]
        if calls.gpu is not None:
            ran = np.median(calls.gpu.ran_s, axis=0)
            raw["gpu_s"] = [[call, float(ran[call])] for call in choice.gpu]
            raw |= calls.gpu.step_s
        return replace(measured, raw=raw)
