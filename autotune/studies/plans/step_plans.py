"""What a joint search found, as a plan: of each call its schedule, cores and clocks; one plan a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.measurement import bootstrap_median
from autotune.studies.joint import Choice, GpuKernel, JointBench
from autotune.studies.plans.plan_file import KIND, PLAN_SCHEMA_VERSION
from autotune.studies.space import CpuConfiguration
from autotune.workloads import ALIGNMENT, GPU_ALIGNMENT, StepGraph, plan_memory

_SEED = 1
"""Of bootstrap intervals."""


@dataclass(frozen=True)
class PlannedSetting:
    """A configuration that a plan goes through, and what the step is computed with under it."""

    configuration: CpuConfiguration
    choice: Choice


def step_plan(
    bench: JointBench,
    graph: StepGraph,
    of_call: Sequence[int | None],
    step: dict[str, Any],
    point: Mapping[str, Any],
    settings: Sequence[PlannedSetting],
    setting_of_call: Sequence[int],
    profile: str | None,
) -> dict[str, Any]:
    """A plan; docs/joint.md has its schema.

    Args:
        bench: What measured, and predicts.
        graph: The step, in the form that was chosen.
        of_call: The task of each call; None where no run knows its kernel.
        step: The options that mean the step in that form.
        point: What was measured, as the search's result has it.
        settings: What the step goes through.
        setting_of_call: Which of them each call has.
        profile: Of the model that measured in the search's process; None for a device.
    """
    names = [cluster.name for cluster in bench.clusters]
    table = bench.model.table
    told = [bench.predict(one.configuration) for one in settings]
    timed = [bench.timed(one.configuration, one.choice) for one in settings]
    choice, placing = settings[0].choice, bench.placing
    on_gpu: dict[int, tuple[GpuKernel, float]] = {}
    if placing is not None:
        seconds_there = placing.seconds(choice.form)
        kernels = placing.forms[choice.form].kernels
        on_gpu = {call: (kernels[call], float(seconds_there[call])) for call in choice.gpu}
    watts = placing.watts if placing is not None else None
    memory = plan_memory(graph, alignment=GPU_ALIGNMENT if on_gpu else ALIGNMENT)
    calls = []
    for number, (node, task) in enumerate(zip(graph.nodes, of_call, strict=True)):
        at = setting_of_call[number]
        call: dict[str, Any] = {
            "call": number,
            "kernel": node.kernel.name,
            "operator": node.kernel.operator.name,
            "role": node.kernel.role,
            "device": "cpu",
            "gpu_kernel": None,
            "setting": at,
            "schedule": None,
            "predicted": None,
            "measured": None,
        }
        if number in on_gpu:
            there, took = on_gpu[number]
            call |= {"device": "gpu", "gpu_kernel": there.name}
            call["schedule"] = {"digest": there.digest, "formulation": there.formulation}
            call["predicted"] = {
                "time_s": took,
                "energy_j": watts and took * watts,
                "ci": {"time_s": bench.interval("call_s", took)},
            }
            call["measured"] = _measured(placing.timed(choice.form, number)) if placing else None
        elif task is not None:
            chosen = settings[at].choice.schedules[task]
            schedule, row = table.tasks[task].schedules[chosen], int(table.first[task]) + chosen
            seconds, joules = told[at]
            call["schedule"] = {"digest": schedule.digest, "formulation": schedule.formulation}
            call["predicted"] = {
                "time_s": float(seconds[row]),
                "energy_j": None if joules is None else float(joules[row]),
                "ci": {"time_s": bench.interval("call_s", float(seconds[row]))},
            }
            call["measured"] = _measured(timed[at][task])
        calls.append(call)
    known = [call["predicted"] for call in calls if call["predicted"]]
    if placing is not None and on_gpu:
        # What it takes to bring tensors to and fro.
        moving = placing.away(choice.form, choice.gpu) - sum(took for _, took in on_gpu.values())
        known.append({"time_s": moving, "energy_j": watts and moving * watts})
    predicted: dict[str, Any] = {
        name: None if any(one[name] is None for one in known) else sum(one[name] for one in known)
        for name in ("time_s", "energy_j")
    }
    size = bench.memory(choice.form)
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "kind": KIND,
        "device": bench.device,
        "emulated": bool(bench.device.get("emulated")),
        "profile": profile,
        "step": step,
        "configuration": settings[0].configuration.to_json(names),
        "settings": [one.configuration.to_json(names) for one in settings],
        "calls": calls,
        "gpu": {"device": placing.device.name, "memory": placing.forms[choice.form].memory}
        if placing is not None and on_gpu
        else None,
        "memory": {"planned_bytes": memory.arena_bytes, "offsets": dict(memory.offsets)},
        "predicted": {
            **predicted,
            "memory_bytes": size[0] if size else None,
            "ci": {
                **{name: bench.interval(name, value) for name, value in predicted.items()},
                "memory_bytes": size[1] if size else None,
            },
        },
        "measured": {
            name: point.get(name)
            for name in ("time_s", "energy_j", "memory_bytes", "celsius", "ci", "marks")
        },
    }


def _measured(seconds: Sequence[float]) -> dict[str, Any] | None:
    """What a call took in steps, a number a measurement; None where none had it."""
    if not seconds:
        return None
    found = bootstrap_median(seconds, positive=True, seed=_SEED)
    return {"time_s": found.estimate, "ci": {"time_s": found.ends}, "measurements": len(seconds)}
