"""Measures the step that a joint search planned, on the device that it was planned for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from autotune.console import LiveProgress
from autotune.devices import Cluster
from autotune.errors import DeviceError, NothingMeasuredError, StableDeviceError, UsageError
from autotune.jobs.device import ChosenDevice, choose, find_meter, finite, ready
from autotune.jobs.provenance import Work, named
from autotune.jobs.requests import DEFAULT_BATCH, GIVE, StepRequest
from autotune.jobs.steps.device_workload import PlannedChoice, brought
from autotune.measurement import (
    Protocol,
    Setting,
    StepBench,
    StepRunner,
    all_of,
    settings_text,
    threads_of,
)
from autotune.studies.evaluators import DeviceEvaluator, Measured, crossing_shares, setting_of
from autotune.studies.plans import StepPlan, read_plan
from autotune.studies.run import Final, measure_again
from autotune.studies.space import CpuConfiguration
from autotune.workloads import StepGraph

_BLOCKS = 5


def planned_options(plan: StepPlan, runs: Sequence[Path]) -> StepRequest:
    """Returns the step of a plan, with the present places of its runs.

    Args:
        plan: The plan.
        runs: New places of its runs, if they were moved; see `StepRequest.placed`.

    Raises:
        UsageError: A run is not found.
    """
    options = StepRequest.from_json(plan.step)
    if not plan.gpu:
        options = replace(options, gpu_runs=())
    return options.placed(plan.path, GIVE, runs)


def planned_device(plan: StepPlan, device: str | None, ssh: Sequence[str]) -> ChosenDevice:
    """Returns the device that a plan is for, or another one of its kind.

    Raises:
        UsageError: The device is of another kind, or none is given.
        DeviceError: The device is not connected.
    """
    profile = plan.emulated or None
    if profile is not None:
        chosen = choose(device, ssh, profile)
    else:
        chosen = choose(device or plan.device["serial"], ssh, None)
    if plan.device.get("soc") != chosen.info.soc:
        raise UsageError(
            f"{plan.path} was measured on {plan.device.get('soc')}, and {chosen.info.serial} is {chosen.info.soc}",
            hint="search on this device first: autotune joint",
        )
    return chosen


def measured_plan(
    path: Path,
    runs: Sequence[Path],
    device: str | None,
    ssh: Sequence[str],
    least_seconds: float | None,
    keep: Callable[[dict[str, Any]], None],
) -> None:
    """Measures a plan and the default cores and clocks in interleaved blocks. Both use the plan's kernels.

    Args:
        path: The plan's file.
        runs: New places of its runs, if they were moved.
        device: Serial of the device; None for the plan's device.
        ssh: Boards that are reached by ssh.
        least_seconds: Least duration of a measurement, in seconds; None for the usual one.
        keep: Function that receives the result, even if the device goes away during the measurement.

    Raises:
        UsageError: There is no such plan, or its runs or its device are missing.
        DeviceError: The device is gone.
        NothingMeasuredError: The plan cannot be measured.
    """
    finite("--least-seconds", least_seconds, 0)
    plan = read_plan(path)
    options = planned_options(plan, runs)
    chosen = planned_device(plan, device, ssh)
    clusters = chosen.info.clusters
    _check_settings(plan, clusters)
    names = [cluster.name for cluster in clusters]
    configurations = [CpuConfiguration.from_json(one, names) for one in plan.settings]
    protocol = Protocol()
    if least_seconds is not None:
        protocol = replace(protocol, least_s=least_seconds)
    result: dict[str, Any] = {}
    try:
        with _opened(plan, options, chosen, protocol, configurations) as (steps, progress):
            mine, own = _measured(steps, configurations[0], chosen, progress)
            result = named(
                _result(path, plan, chosen, mine, own),
                Work(None, options.model, options.batch or DEFAULT_BATCH),
            )
            try:
                result["data_movement"] = steps.crossed()
            except (DeviceError, NothingMeasuredError) as error:
                progress.notice(
                    f"what tensors take to the GPU and back is not known: {error.message}"
                )
    finally:
        if result:
            keep(result)


@contextmanager
def _opened(
    plan: StepPlan,
    options: StepRequest,
    chosen: ChosenDevice,
    protocol: Protocol,
    configurations: Sequence[CpuConfiguration],
) -> Iterator[tuple[_PlannedSteps, LiveProgress]]:
    """Yields the planned step on its device."""
    meter = find_meter(chosen, "auto", needed=False)
    choice = PlannedChoice(plan.schedules)
    with (
        LiveProgress() as progress,
        brought(options, None, chosen, progress, choice=choice) as workload,
        ready(chosen, workload.bring, meter, protocol, None) as steps,
    ):
        assert workload.graph is not None
        _check_calls(plan, workload.graph)
        if meter is not None:
            try:
                steps.calibrate(setting_of(chosen.info.clusters, None))
            except StableDeviceError as error:
                # The plan's search may have measured no joules for the same reason.
                steps.meter = None
                progress.notice(f"no joules are measured: {error.message}")
        yield _PlannedSteps(steps, workload.runner, plan, configurations), progress


def _measured(
    steps: _PlannedSteps, planned: CpuConfiguration, chosen: ChosenDevice, progress: LiveProgress
) -> tuple[Final, Final | None]:
    """Returns the measurements of the plan, and of the default cores and clocks if they could be measured."""
    progress.phase("runs", 2 * _BLOCKS)
    messages: list[str] = []
    done = 0

    def on_measured(what: CpuConfiguration | None, measured: Measured) -> None:
        nonlocal done
        done += 1
        progress.step(done, "the plan" if what else "the default")
        if measured.message:
            messages.append(measured.message)

    finals = measure_again(steps, [planned], blocks=_BLOCKS, seed=1, on_measured=on_measured)
    mine, own = (
        next((final for final in finals if final.configuration == key), None)
        for key in (planned, None)
    )
    if mine is None:
        raise NothingMeasuredError(
            f"the plan cannot be measured on {chosen.info.serial}: "
            f"{messages[-1] if messages else 'no step'}"
        )
    return mine, own


def _result(
    path: Path, plan: StepPlan, chosen: ChosenDevice, mine: Final, own: Final | None
) -> dict[str, Any]:
    """Returns the content of `--json`, before the cost of data movement is known."""
    return {
        "kind": "planned step",
        "gpu_calls": len(plan.gpu),
        "data_movement": None,
        "plan": str(path),
        "emulated": chosen.info.emulated,
        "device": chosen.info.to_json(),
        "settings": list(plan.settings),
        "changes": sum(a != b for a, b in pairwise((plan.calls[-1], *plan.calls))),
        "blocks": len(mine.blocks),
        "measured": _figures(mine),
        "system": _figures(own) if own else None,
        "planned": dict(plan.measured),
    }


def _check_settings(plan: StepPlan, clusters: Sequence[Cluster]) -> None:
    """Refuses a plan with cores or clocks that the device does not have."""
    known = [cluster.name for cluster in clusters]
    for setting in plan.settings:
        if set(setting["clusters"]) != set(known):
            raise UsageError(
                f"{plan.path} is for clusters {', '.join(setting['clusters'])}; there are {', '.join(known)}",
                hint="search on this device first: autotune joint",
            )
        CpuConfiguration.from_json(setting, known).require_on(clusters, str(plan.path))


def _check_calls(plan: StepPlan, graph: StepGraph) -> None:
    """Refuses a plan of another step than its options describe."""
    if plan.kernels != tuple(node.kernel.name for node in graph.nodes):
        raise UsageError(
            f"{plan.path} does not have the calls of {plan.step['model']}'s step",
            hint="it was changed, or made by another version of autotune: search again",
        )


class _PlannedSteps:
    """A bench whose steps use a plan's settings and schedules.

    Args:
        steps: The device.
        runner: The step on it, with the plan's schedules.
        plan: The plan.
        configurations: Its settings.
    """

    def __init__(
        self,
        steps: StepBench,
        runner: StepRunner,
        plan: StepPlan,
        configurations: Sequence[CpuConfiguration],
    ) -> None:
        self._steps, self._runner, self._plan = steps, runner, plan
        self._settings = [setting_of(steps.info.clusters, one) for one in configurations]
        self._figures = DeviceEvaluator(steps, needs_energy=False)

    @property
    def clusters(self) -> Sequence[Cluster]:
        """See `Evaluator.clusters`."""
        return self._figures.clusters

    @property
    def device(self) -> dict[str, Any]:
        """See `Evaluator.device`."""
        return self._figures.device

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """Measures the plan; for None, the default cores and clocks with the plan's schedules."""
        file, outside = self._brought(own=configuration is None)
        workload = self._runner.planned(file)
        return self._figures.measured(self._steps.measuring(workload).run(outside))

    def crossed(self) -> dict[str, float] | None:
        """Returns the shares of a step that tensors need to move to the GPU and back, for each way of moving them.

        Returns None if the GPU makes no call. These steps are not among the timed ones: they record when each call
        began, which takes time.

        Raises:
            DeviceError: The device is gone.
            NothingMeasuredError: These steps do not run.
        """
        if not self._plan.gpu:
            return None
        file, outside = self._brought(own=False)
        bench = self._steps.measuring(self._runner.chosen(file))
        run = bench.run(outside)
        if run.status != "ok":
            raise NothingMeasuredError(run.message)
        return crossing_shares(run, bench.calls(run))

    def _brought(self, *, own: bool) -> tuple[PurePosixPath, Setting]:
        """Returns a file on the device with the plan's or the default settings, and the setting from outside."""
        through, at = self._settings, self._plan.changes
        if own:
            through, at = [setting_of(self.clusters, None)], {}
        outside = all_of(through) if len(through) > 1 else through[0]
        if len(through) == 1:
            # Cores and clocks are set from outside, as in any other measurement.
            through = [threads_of(outside)]
        text = settings_text(through, self.clusters, at, self._plan.used, self._plan.on_gpu)
        return self._steps.bring(text, "plan"), outside


def _figures(final: Final) -> dict[str, Any]:
    return {
        "time_s": final.figures.time_s,
        "energy_j": final.figures.energy_j,
        "memory_bytes": final.figures.memory_bytes,
        "celsius": final.figures.celsius,
        "ci": {
            "time_s": final.time_s.ends,
            "energy_j": final.energy_j.ends if final.energy_j else None,
        },
        "marks": list(final.marks),
    }


__all__ = ["measured_plan", "planned_options"]
