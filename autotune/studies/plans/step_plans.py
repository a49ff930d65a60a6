"""Makes plans from a joint search: the schedule, cores and clocks of each call; one plan for each point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.measurement import bootstrap_median
from autotune.studies.joint import Choice, GpuKernel, JointEvaluator
from autotune.studies.plans.plan_file import KIND, PLAN_SCHEMA_VERSION
from autotune.studies.space import CpuConfiguration
from autotune.workloads import ALIGNMENT, GPU_ALIGNMENT, Node, StepGraph, plan_memory

_SEED = 1
"""Seed of bootstrap intervals."""


@dataclass(frozen=True)
class PlannedSetting:
    """A configuration that a plan uses, and the choice of schedules under it."""

    configuration: CpuConfiguration
    choice: Choice


def step_plan(
    evaluator: JointEvaluator,
    graph: StepGraph,
    of_call: Sequence[int | None],
    step: dict[str, Any],
    point: Mapping[str, Any],
    settings: Sequence[PlannedSetting],
    setting_of_call: Sequence[int],
    profile: str | None,
) -> dict[str, Any]:
    """Returns a plan; docs/joint.md has its schema.

    Args:
        evaluator: The evaluator that measured. It also predicts.
        graph: The step, in the chosen form.
        of_call: The task of each call; None if no run knows its kernel.
        step: The options that describe the step in that form.
        point: The measured figures, as in the search's result.
        settings: Settings that the step uses in turn.
        setting_of_call: Index of each call's setting.
        profile: Profile of the model that measured in the search's process; None for a device.
    """
    names = [cluster.name for cluster in evaluator.clusters]
    planned = _Calls(evaluator, settings)
    memory = plan_memory(graph, alignment=GPU_ALIGNMENT if planned.on_gpu else ALIGNMENT)
    calls = [
        planned.call(number, node, task, setting)
        for number, (node, task, setting) in enumerate(
            zip(graph.nodes, of_call, setting_of_call, strict=True)
        )
    ]
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "kind": KIND,
        "device": evaluator.device,
        "emulated": bool(evaluator.device.get("emulated")),
        "profile": profile,
        "step": step,
        "configuration": settings[0].configuration.to_json(names),
        "settings": [one.configuration.to_json(names) for one in settings],
        "calls": calls,
        "gpu": planned.gpu(),
        "memory": {"planned_bytes": memory.arena_bytes, "offsets": dict(memory.offsets)},
        "predicted": planned.step(calls),
        "measured": {
            name: point.get(name)
            for name in ("time_s", "energy_j", "memory_bytes", "celsius", "ci", "marks")
        },
    }


class _Calls:
    """The calls of a plan: the place and the schedule of each, and its predicted and measured figures."""

    def __init__(self, evaluator: JointEvaluator, settings: Sequence[PlannedSetting]) -> None:
        self._evaluator, self._settings, self._placing = evaluator, settings, evaluator.placing
        self._predicted = [evaluator.predict(one.configuration) for one in settings]
        self._timed = [evaluator.timed(one.configuration, one.choice) for one in settings]
        self._choice = settings[0].choice
        self.on_gpu: dict[int, tuple[GpuKernel, float]] = {}
        """The kernel and the predicted seconds of each call on the GPU."""
        self._watts = None
        if (placing := self._placing) is not None:
            seconds = placing.seconds(self._choice.form)
            kernels = placing.forms[self._choice.form].kernels
            self.on_gpu = {call: (kernels[call], float(seconds[call])) for call in self._choice.gpu}
            self._watts = placing.watts

    def call(self, number: int, node: Node, task: int | None, setting: int) -> dict[str, Any]:
        """Returns a call in the plan's schema.

        Args:
            number: The call's number.
            node: The node that it computes.
            task: Its task; None if no run knows its kernel.
            setting: Index of its setting.
        """
        call: dict[str, Any] = {
            "call": number,
            "kernel": node.kernel.name,
            "operator": node.kernel.operator.name,
            "role": node.kernel.role,
            "device": "cpu",
            "gpu_kernel": None,
            "setting": setting,
            "schedule": None,
            "predicted": None,
            "measured": None,
        }
        if number in self.on_gpu and self._placing is not None:
            kernel, seconds = self.on_gpu[number]
            joules = self._watts and seconds * self._watts
            call |= {"device": "gpu", "gpu_kernel": kernel.name}
            call["schedule"] = {"digest": kernel.digest, "formulation": kernel.formulation}
            call["predicted"] = self._figures(seconds, joules)
            call["measured"] = _measured(self._placing.timed(self._choice.form, number))
        elif task is not None:
            table = self._evaluator.model.table
            chosen = self._settings[setting].choice.schedules[task]
            schedule, row = table.tasks[task].schedules[chosen], int(table.first[task]) + chosen
            times, energies = self._predicted[setting]
            call["schedule"] = {"digest": schedule.digest, "formulation": schedule.formulation}
            joules = None if energies is None else float(energies[row])
            call["predicted"] = self._figures(float(times[row]), joules)
            call["measured"] = _measured(self._timed[setting][task])
        return call

    def step(self, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Predicts the step as the sum of its calls and of moving tensors to the GPU and back."""
        known = [call["predicted"] for call in calls if call["predicted"]]
        if self._placing is not None and self.on_gpu:
            computing = sum(seconds for _, seconds in self.on_gpu.values())
            moving = self._placing.away(self._choice.form, self._choice.gpu) - computing
            known.append({"time_s": moving, "energy_j": self._watts and moving * self._watts})
        errors = self._evaluator.errors
        predicted: dict[str, Any] = {
            name: None
            if any(one[name] is None for one in known)
            else sum(one[name] for one in known)
            for name in ("time_s", "energy_j")
        }
        size = errors.memory(self._choice.form)
        return {
            **predicted,
            "memory_bytes": size[0] if size else None,
            "ci": {
                **{name: errors.interval(name, value) for name, value in predicted.items()},
                "memory_bytes": size[1] if size else None,
            },
        }

    def gpu(self) -> dict[str, Any] | None:
        """Returns the GPU, and how it shares memory; None if no call runs there."""
        if self._placing is None or not self.on_gpu:
            return None
        form = self._placing.forms[self._choice.form]
        return {"device": self._placing.device.name, "memory": form.memory}

    def _figures(self, seconds: float, joules: float | None) -> dict[str, Any]:
        interval = self._evaluator.errors.interval("call_s", seconds)
        return {"time_s": seconds, "energy_j": joules, "ci": {"time_s": interval}}


def _measured(seconds: Sequence[float]) -> dict[str, Any] | None:
    """Returns a call's measured times in steps, one number a measurement; None if there are none."""
    if not seconds:
        return None
    found = bootstrap_median(seconds, positive=True, seed=_SEED)
    return {"time_s": found.estimate, "ci": {"time_s": found.ends}, "measurements": len(seconds)}
