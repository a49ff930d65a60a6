"""What a joint search found, as a plan: of each call its schedule, cores and clocks; one plan a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.studies.configuration import CpuConfiguration
from autotune.studies.joint import Choice, JointBench
from autotune.studies.plan_file import KIND, PLAN_SCHEMA_VERSION
from autotune.workloads.graph import StepGraph
from autotune.workloads.memory import plan_memory


def step_plan(
    bench: JointBench,
    graph: StepGraph,
    of_call: Sequence[int | None],
    step: dict[str, Any],
    point: Mapping[str, Any],
    choice: Choice,
    profile: str | None,
) -> dict[str, Any]:
    """A plan; docs/joint.md has its schema.

    Args:
        bench: What measured, and foretells.
        graph: The step, in the form that was chosen.
        of_call: The task of each call; None where no run knows its kernel.
        step: The options that mean the step in that form.
        point: What was measured, as the search's result has it.
        choice: What it was measured with.
        profile: Of the model that measured in the search's process; None for a device.
    """
    names = [cluster.name for cluster in bench.clusters]
    configuration = CpuConfiguration.from_json(dict(point), names)
    table = bench.model.table
    seconds, joules = bench.predict(configuration)
    rows = table.rows(choice.rows)
    foretold = bench.foretold(configuration, choice)
    memory = plan_memory(graph)
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
            schedule, row = table.tasks[task].schedules[choice.schedules[task]], int(rows[task])
            call["schedule"] = {"digest": schedule.digest, "formulation": schedule.formulation}
            call["predicted"] = {
                "time_s": float(seconds[row]),
                "energy_j": None if joules is None else float(joules[row]),
            }
        calls.append(call)
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "kind": KIND,
        "device": bench.device,
        "emulated": bool(bench.device.get("emulated")),
        "profile": profile,
        "step": step,
        "configuration": configuration.to_json(names),
        "calls": calls,
        "memory": {"planned_bytes": memory.arena_bytes, "offsets": dict(memory.offsets)},
        "predicted": {
            **foretold,
            "ci": {name: bench.interval(name, value) for name, value in foretold.items()},
        },
        "measured": {
            name: point.get(name)
            for name in ("time_s", "energy_j", "memory_bytes", "celsius", "ci", "marks")
        },
    }
