"""A joint search on a device, and the plans that it writes into its run's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.jobs.requests import SearchRequest
from autotune.jobs.search.joint_gpu import measured_placing
from autotune.jobs.steps import DeviceWorkload
from autotune.measurement import MemoryKind, StepBench
from autotune.records import RunFolder, write_json
from autotune.studies.evaluators import DeviceEvaluator, setting_of
from autotune.studies.joint import PROBE, ROUND, Choice, DeviceSteps, FormOnDevice, JointEvaluator
from autotune.studies.plans import PlannedSetting, step_plan
from autotune.studies.run import StudyRequest
from autotune.studies.space import CpuConfiguration

_FOLDER = "plans"


def joint_bench(
    steps: StepBench,
    evaluator: DeviceEvaluator,
    workload: DeviceWorkload,
    request: StudyRequest,
    events: Sequence[Mapping[str, Any]],
) -> JointEvaluator:
    """Returns the evaluator of a joint search. It knows what earlier parts of the run have measured."""
    assert workload.pools is not None
    pools = workload.pools
    placing = measured_placing(steps, workload, setting_of(evaluator.clusters, None))
    memories: list[MemoryKind] = [form.memory for form in placing.forms] if placing else []
    source = DeviceSteps(steps, evaluator, forms_on_device(workload, memories), len(pools.tasks))
    found = JointEvaluator(
        source, pools.tasks, request.objective, request.seed, pools.counts, placing
    )
    names = [cluster.name for cluster in evaluator.clusters]
    for event in events:
        if event["event"] in ("trial", ROUND, "final", PROBE):
            what = event["configuration"]
            key = CpuConfiguration.from_json(what, names) if what else None
            found.recall(key, event)
    return found


def forms_on_device(
    workload: DeviceWorkload, memories: Sequence[MemoryKind] = ()
) -> list[FormOnDevice]:
    """Returns the forms of the step, which are already on the device.

    Args:
        workload: The step.
        memories: How tensors are brought to a GPU, for each form; empty if no GPU takes part in the step.
    """
    assert workload.pools is not None
    return [
        FormOnDevice(runner, form.of_call, memories[number] if memories else "copy")
        for number, (runner, form) in enumerate(
            zip(workload.runners, workload.pools.forms, strict=True)
        )
    ]


def kept_choice(
    workload: DeviceWorkload, names: Sequence[str], configuration: CpuConfiguration | None
) -> Choice:
    """Returns the choice of tuning kernels first: each kernel's fastest schedule, in the step's first form.

    Args:
        workload: The step.
        names: The device's clusters.
        configuration: The cores that train. Kernels tuned for these cores are used. None stands for all cores.
    """
    assert workload.pools is not None
    if configuration is None:
        return Choice(workload.pools.winners_on(names))
    trains = zip(names, configuration.clusters, strict=True)
    return Choice(workload.pools.winners_on([name for name, one in trains if one.cores]))


@dataclass(frozen=True)
class PlanPoint:
    """The content of a plan.

    Attributes:
        figures: The measured figures, as in the search's result.
        settings: Settings that the step uses in turn.
        of_call: Index of each call's setting; None if all calls have the first.
    """

    figures: Mapping[str, Any]
    settings: tuple[PlannedSetting, ...]
    of_call: tuple[int, ...] | None = None


def write_plans(
    folder: RunFolder,
    evaluator: JointEvaluator,
    workload: DeviceWorkload,
    search: SearchRequest,
    points: Mapping[str, PlanPoint],
) -> dict[str, str]:
    """Writes a plan for each point, and returns the files in the run's folder by the points' names.

    Args:
        folder: The run's folder.
        evaluator: The evaluator that measured.
        workload: The step.
        search: The search's request.
        points: The points by name, with their figures and settings.
    """
    assert workload.pools is not None
    assert search.step is not None
    (folder.path / _FOLDER).mkdir(exist_ok=True)
    written = {}
    for name, point in points.items():
        form = workload.pools.forms[point.settings[0].choice.form]
        parts, batch = form.form.micro_batches, form.graph.batch
        step = {
            **search.step.to_json(),
            "batch": batch,
            "micro_batch": batch // parts if parts > 1 else None,
            "recompute": form.form.segments or None,
            "layout": form.form.layout.replace("_", "-"),
        }
        of_call = point.of_call or (0,) * len(form.graph.nodes)
        plan = step_plan(
            evaluator, form.graph, form.of_call, step, point.figures, point.settings, of_call, search.emulate
        )  # fmt: skip
        file = f"{_FOLDER}/{name}.json"
        write_json(folder.path / file, plan)
        written[name] = file
    return written


def plan_points(
    evaluator: JointEvaluator, workload: DeviceWorkload, result: Mapping[str, Any]
) -> dict[str, PlanPoint]:
    """Returns the points of a result that have a plan."""
    names = [cluster.name for cluster in evaluator.clusters]
    front = {f"pareto-{number}": point for number, point in enumerate(result["pareto"], start=1)}
    found = {}
    for name, point in {"best": result["best"], **result["points"], **front}.items():
        if point is not None:
            configuration = CpuConfiguration.from_json(point, names)
            setting = PlannedSetting(configuration, evaluator.ran[configuration])
            found[name] = PlanPoint(point, (setting,))
    if (other := result["sequential"]) is not None:
        configuration = CpuConfiguration.from_json(other["best"], names)
        setting = PlannedSetting(configuration, kept_choice(workload, names, configuration))
        found["sequential"] = PlanPoint(other["best"], (setting,))
    planned = result.get("per_operator")
    if planned and planned["measured"] and planned["measured"]["verdict"] == "better":
        each = [CpuConfiguration.from_json(one, names) for one in planned["configurations"]]
        # Such a plan was measured on the CPU only.
        settings = tuple(
            PlannedSetting(one, replace(evaluator.choose(one), gpu=())) for one in each
        )
        assert workload.pools is not None
        count = len(workload.pools.forms[settings[0].choice.form].graph.nodes)
        of_call = setting_of_calls(planned["operators"]["changes"], count)
        found["per_operator"] = PlanPoint(planned["measured"]["plan"], settings, of_call)
    return found


def setting_of_calls(changes: Sequence[Mapping[str, Any]], count: int) -> tuple[int, ...]:
    """Returns the setting of each call of a step whose settings change in a cycle. There is at least one change."""
    to = {change["call"]: change["to"] for change in changes}
    now, found = changes[-1]["to"], []
    for call in range(count):
        now = to.get(call, now)
        found.append(now)
    return tuple(found)
