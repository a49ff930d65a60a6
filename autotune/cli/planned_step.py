"""`autotune step --plan`: the step that a joint search planned, on the device that it is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from autotune.cli import bench as benches
from autotune.cli.device_workload import PlannedChoice, brought
from autotune.cli.output import (
    Column,
    named,
    number,
    time_text,
    times_text,
    write_json,
    write_table,
    write_text,
)
from autotune.cli.step_options import GIVE, StepOptions
from autotune.cli.tuning import LiveProgress
from autotune.cli.workload import DEFAULT_BATCH
from autotune.devices import Cluster
from autotune.errors import DeviceError, NothingMeasuredError, StableDeviceError, UsageError
from autotune.measurement import (
    Protocol,
    Setting,
    StepBench,
    StepRunner,
    all_of,
    settings_text,
    threads_of,
)
from autotune.studies.bench import DeviceBench, Measured, crossing_shares, setting_of
from autotune.studies.plans import StepPlan, read_plan
from autotune.studies.run import Final, measure_again
from autotune.studies.space import CpuConfiguration, configuration_text, interval_text, moving_text
from autotune.workloads import StepGraph

_BLOCKS = 5


def planned_options(plan: StepPlan, runs: Sequence[Path]) -> StepOptions:
    """The step that a plan means, with the runs where they are now.

    Args:
        plan: The plan.
        runs: Where its runs are, if they were moved; see `StepOptions.placed`.

    Raises:
        UsageError: A run is not found.
    """
    options = StepOptions.from_json(plan.step)
    if not plan.gpu:
        options = replace(options, gpu_runs=())
    return options.placed(plan.path, GIVE, runs)


def planned_device(plan: StepPlan, device: str | None, ssh: Sequence[str]) -> benches.Chosen:
    """The device that a plan is for, or another one of its kind.

    Raises:
        UsageError: It is another kind of device, or none.
        DeviceError: It is not there.
    """
    profile = plan.emulated or None
    if profile is not None:
        chosen = benches.choose(device, ssh, profile)
    else:
        chosen = benches.choose(device or plan.device["serial"], ssh, None)
    if plan.device.get("soc") != chosen.info.soc:
        raise UsageError(
            f"{plan.path} was measured on {plan.device.get('soc')}, and {chosen.info.serial} is {chosen.info.soc}",
            hint="search on this device first: autotune joint",
        )
    return chosen


def run_plan(
    path: Path,
    runs: Sequence[Path] | None,
    device: str | None,
    ssh: Sequence[str],
    least_seconds: float | None,
    *,
    as_json: bool,
) -> int:
    """Measures a plan and the default cores and clocks in turns, with the plan's kernels in both.

    Raises:
        UsageError: There is no such plan, or its runs or its device are missing.
        DeviceError: The device is gone.
        NothingMeasuredError: It cannot be measured.
    """
    benches.number("--least-seconds", least_seconds, 0)
    plan = read_plan(path)
    options = planned_options(plan, runs or ())
    chosen = planned_device(plan, device, ssh)
    clusters = chosen.info.clusters
    names = [cluster.name for cluster in clusters]
    _check_settings(plan, clusters)
    configurations = [CpuConfiguration.from_json(one, names) for one in plan.settings]
    meter = benches.meter(chosen, "auto", needed=False)
    protocol = Protocol()
    if least_seconds is not None:
        protocol = replace(protocol, least_s=least_seconds)
    messages: list[str] = []
    result: dict[str, Any] | None = None
    try:
        with (
            LiveProgress() as progress,
            brought(
                options, None, chosen, progress, choice=PlannedChoice(plan.schedules)
            ) as workload,
            benches.ready(chosen, workload.bring, meter, protocol, None) as steps,
        ):
            assert workload.graph is not None
            _check_calls(plan, workload.graph)
            if meter is not None:
                try:
                    steps.calibrate(setting_of(clusters, None))
                except StableDeviceError as error:
                    # The plan may be of a search that measured no joules, for this very reason.
                    steps.meter = None
                    progress.notice(f"no joules are measured: {error.message}")
            progress.phase("runs", 2 * _BLOCKS)
            done = 0

            def told(what: CpuConfiguration | None, measured: Measured) -> None:
                nonlocal done
                done += 1
                progress.step(done, "the plan" if what else "the default")
                if measured.message:
                    messages.append(measured.message)

            bench = _PlannedSteps(steps, workload.runner, plan, configurations)
            finals = measure_again(bench, configurations[:1], blocks=_BLOCKS, seed=1, told=told)
            mine, own = (
                next((final for final in finals if final.configuration == key), None)
                for key in (configurations[0], None)
            )
            if mine is None:
                raise NothingMeasuredError(
                    f"the plan cannot be measured on {chosen.info.serial}: "
                    f"{messages[-1] if messages else 'no step'}"
                )
            result = _result(path, plan, chosen, mine, own)
            try:
                result["data_movement"] = bench.crossed()
            except (DeviceError, NothingMeasuredError) as error:
                progress.notice(
                    f"what tensors take to the GPU and back is not known: {error.message}"
                )
    finally:
        # Also where the device went away afterwards.
        if result is not None:
            if as_json:
                batch = options.batch or DEFAULT_BATCH
                write_json(named(result, model=options.model, batch=batch))
            else:
                _show(result)
    return 0


def _result(
    path: Path, plan: StepPlan, chosen: benches.Chosen, mine: Final, own: Final | None
) -> dict[str, Any]:
    """What `--json` gives, before anything is known of data movement."""
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
    """Refuses a plan whose cores and clocks the device does not have."""
    known = [cluster.name for cluster in clusters]
    for setting in plan.settings:
        if set(setting["clusters"]) != set(known):
            raise UsageError(
                f"{plan.path} is for clusters {', '.join(setting['clusters'])}; there are {', '.join(known)}",
                hint="search on this device first: autotune joint",
            )
        CpuConfiguration.from_json(setting, known).require_on(clusters, str(plan.path))


def _check_calls(plan: StepPlan, graph: StepGraph) -> None:
    """Refuses a plan that is of another step than its options mean."""
    if plan.kernels != tuple(node.kernel.name for node in graph.nodes):
        raise UsageError(
            f"{plan.path} does not have the calls of {plan.step['model']}'s step",
            hint="it was changed, or made by another version of autotune: search again",
        )


class _PlannedSteps:
    """A bench whose steps go through a plan's settings, with its schedules.

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
        self._figures = DeviceBench(steps, needs_energy=False)

    @property
    def clusters(self) -> Sequence[Cluster]:
        """See `Bench.clusters`."""
        return self._figures.clusters

    @property
    def device(self) -> dict[str, Any]:
        """See `Bench.device`."""
        return self._figures.device

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """The plan; for None the default cores and clocks, with the plan's schedules."""
        file, outside = self._brought(own=configuration is None)
        workload = self._runner.planned(file)
        return self._figures.measured(self._steps.measuring(workload).run(outside))

    def crossed(self) -> dict[str, float] | None:
        """Parts of a step that tensors take to get to the GPU and back, by ways; None where it makes no call.

        These steps are none of those that are timed: they tell when each call began, which takes time.

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
        """A file on the device with the plan's settings, or the default ones, and what is set from outside."""
        through, at = self._settings, self._plan.changes
        if own:
            through, at = [setting_of(self.clusters, None)], {}
        outside = all_of(through) if len(through) > 1 else through[0]
        if len(through) == 1:
            # Cores and clocks are held from outside, as in any other measurement.
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


def _show(result: dict[str, Any]) -> None:
    rows = []
    for name, word in (
        ("measured", "the plan"),
        ("planned", "as the search had it"),
        ("system", "the default cores and clocks"),
    ):
        if (found := result[name]) is None:
            continue
        ci = found.get("ci") or {}
        joules, size = found.get("energy_j"), found.get("memory_bytes")
        rows.append(
            (
                word,
                time_text(found["time_s"]),
                times_text(ci.get("time_s")),
                "-" if joules is None else f"{joules:.4g}",
                interval_text(ci.get("energy_j")),
                "-" if size is None else f"{size / 2**20:.1f}",
            )
        )
    for configuration in result["settings"]:
        write_text(configuration_text(configuration))
    if result["gpu_calls"]:
        moving = result["data_movement"]
        told = f": in a step that is traced, {moving_text(moving)}" if moving else ""
        write_text(f"{result['gpu_calls']} calls on the GPU{told}")
    if result["changes"]:
        write_text(f"{result['changes']} changes in a step")
    write_table(
        (
            Column("kernels of the plan"),
            number("a step"),
            Column("time, 95 %", rank=2),
            number("J a step"),
            Column("J, 95 %", rank=3),
            number("MiB", rank=1),
        ),
        rows,
    )
    for mark in result["measured"]["marks"]:
        write_text(f"doubtful: {mark}")
    if result["emulated"]:
        write_text(f"{result['emulated']}: times and joules are a model's")


__all__ = ["planned_device", "planned_options", "run_plan"]
