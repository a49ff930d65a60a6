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
from autotune.studies.joint import JointBench
from autotune.studies.joint_steps import DeviceSteps
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
    assert workload.runner is not None
    assert workload.pools is not None
    pools = workload.pools
    source = DeviceSteps(steps, bench, workload.runner, pools.of_call)
    found = JointBench(source, pools.tasks, request.objective, request.seed)
    names = [cluster.name for cluster in bench.clusters]
    for event in events:
        if event["event"] in ("trial", "final"):
            what = event["configuration"]
            key = CpuConfiguration.from_json(what, names) if what else None
            found.recall(key, event)
    return found


def write_plans(
    folder: RunFolder,
    bench: JointBench,
    workload: DeviceWorkload,
    step: dict[str, Any],
    result: Mapping[str, Any],
) -> dict[str, str]:
    """Writes a plan for each point of a result; their files in the run's folder, by the points' names."""
    assert workload.graph is not None
    assert workload.pools is not None
    names = [cluster.name for cluster in bench.clusters]
    front = {f"pareto-{number}": point for number, point in enumerate(result["pareto"], start=1)}
    points = {"best": result["best"], **result["points"], **front}
    (folder.path / _FOLDER).mkdir(exist_ok=True)
    written = {}
    for name, point in points.items():
        if point is None:
            continue
        chosen = bench.ran[CpuConfiguration.from_json(point, names)]
        plan = step_plan(bench, workload.graph, workload.pools.of_call, step, point, chosen)
        file = f"{_FOLDER}/{name}.json"
        write_json(folder.path / file, plan)
        written[name] = file
    return written
