"""A joint search on a device, and the plans that it leaves in its run's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.cli.device_workload import DeviceWorkload
from autotune.measurement.step_bench import StepBench
from autotune.records import RunFolder
from autotune.records.folder import write_json
from autotune.studies.configuration import CpuConfiguration
from autotune.studies.device_bench import DeviceBench
from autotune.studies.joint import Choice, JointBench
from autotune.studies.joint_run import ROUND
from autotune.studies.joint_steps import DeviceSteps, FormOnDevice
from autotune.studies.step_plan import step_plan
from autotune.studies.study import StudyRequest

_FOLDER = "plans"


def joint_bench(
    steps: StepBench,
    bench: DeviceBench,
    workload: DeviceWorkload,
    request: StudyRequest,
    events: Sequence[Mapping[str, Any]],
) -> JointBench:
    """The bench of a joint search, which knows what an earlier part of the run has measured."""
    assert workload.pools is not None
    pools = workload.pools
    forms = [
        FormOnDevice(runner, form.of_call)
        for runner, form in zip(workload.runners, pools.forms, strict=True)
    ]
    source = DeviceSteps(steps, bench, forms, len(pools.tasks))
    found = JointBench(source, pools.tasks, request.objective, request.seed, pools.counts)
    names = [cluster.name for cluster in bench.clusters]
    for event in events:
        if event["event"] in ("trial", ROUND, "final"):
            what = event["configuration"]
            key = CpuConfiguration.from_json(what, names) if what else None
            found.recall(key, event)
    return found


def kept_choice(workload: DeviceWorkload) -> Choice:
    """What tuning kernels first would run: each kernel's fastest schedule, in the step's first form."""
    assert workload.pools is not None
    return Choice(workload.pools.winners)


def write_plans(
    folder: RunFolder,
    bench: JointBench,
    workload: DeviceWorkload,
    asked: Mapping[str, Any],
    points: Mapping[str, tuple[Mapping[str, Any], Choice]],
) -> dict[str, str]:
    """Writes a plan for each point; their files in the run's folder, by the points' names.

    Args:
        folder: The run's.
        bench: What measured.
        workload: The step.
        asked: What was asked for.
        points: What was measured, and with what, by name.
    """
    assert workload.pools is not None
    (folder.path / _FOLDER).mkdir(exist_ok=True)
    written = {}
    for name, (point, choice) in points.items():
        form = workload.pools.forms[choice.form]
        batch = form.graph.batch
        step = {
            **asked["step"],
            "batch": batch,
            "micro_batch": batch // form.form.micro_batches
            if form.form.micro_batches > 1
            else None,
            "recompute": form.form.segments or None,
            "layout": form.form.layout.replace("_", "-"),
        }
        plan = step_plan(bench, form.graph, form.of_call, step, point, choice, asked["emulate"])
        file = f"{_FOLDER}/{name}.json"
        write_json(folder.path / file, plan)
        written[name] = file
    return written


def plan_points(
    bench: JointBench, result: Mapping[str, Any]
) -> dict[str, tuple[Mapping[str, Any], Choice]]:
    """The points of a result that have a plan, and what they were measured with."""
    names = [cluster.name for cluster in bench.clusters]
    front = {f"pareto-{number}": point for number, point in enumerate(result["pareto"], start=1)}
    points = {"best": result["best"], **result["points"], **front}
    return {
        name: (point, bench.ran[CpuConfiguration.from_json(point, names)])
        for name, point in points.items()
        if point is not None
    }
