"""What a joint search found, as a plan: of each call its schedule, cores and clocks; one plan a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.studies.configuration import CpuConfiguration
from autotune.studies.joint import JointBench
from autotune.studies.kernel_model import Rows
from autotune.workloads.graph import StepGraph
from autotune.workloads.memory import plan_memory

PLAN_SCHEMA_VERSION = 1


def step_plan(
    bench: JointBench,
    graph: StepGraph,
    of_call: Sequence[int | None],
    step: dict[str, Any],
    point: dict[str, Any],
    chosen: Rows,
) -> dict[str, Any]:
    """A plan; docs/joint.md has its schema.

    Args:
        bench: What measured, and foretells.
        graph: The step.
        of_call: The task of each call; None where no run knows its kernel.
        step: The options that mean the step.
        point: What was measured, as the search's result has it.
        chosen: Index of each task's schedule in its pool.
    """
    names = [cluster.name for cluster in bench.clusters]
    configuration = CpuConfiguration.from_json(point, names)
    table = bench.model.table
    seconds, joules = bench.model.predict([configuration])
    rows = table.rows(chosen)
    calls = []
    for number, (node, task) in enumerate(zip(graph.nodes, of_call, strict=True)):
        call: dict[str, Any] = {
            "call": number,
            "kernel": node.kernel.name,
            "operator": node.kernel.operator.name,
            "role": node.kernel.role,
            "device": "cpu",
            "schedule": None,
            "predicted": None,
        }
        if task is not None:
            schedule, row = table.tasks[task].schedules[int(chosen[task])], int(rows[task])
            call["schedule"] = {"digest": schedule.digest, "formulation": schedule.formulation}
            call["predicted"] = {
                "time_s": float(seconds[0][row]),
                "energy_j": None if joules is None else float(joules[0][row]),
            }
        calls.append(call)
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "kind": "plan",
        "device": bench.device,
        "emulated": bool(bench.device.get("emulated")),
        "step": step,
        "configuration": configuration.to_json(names),
        "calls": calls,
        "memory": {"planned_bytes": plan_memory(graph).arena_bytes},
        "predicted": {
            "time_s": table.step(seconds[0][rows]),
            "energy_j": None if joules is None else table.step(joules[0][rows]),
        },
        "measured": {
            name: point.get(name)
            for name in ("time_s", "energy_j", "memory_bytes", "celsius", "ci", "marks")
        },
    }
