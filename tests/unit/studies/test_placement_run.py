"""A joint search that a GPU shares in: a device of made-up costs, and where the search puts its calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import optuna
import pytest

from autotune.devices.topology import CLUSTER_NAMES, Cluster
from autotune.measurement.step_runner import OpenClDevice
from autotune.studies.evaluators.evaluator import Measured
from autotune.studies.joint.joint import Choice, JointEvaluator
from autotune.studies.joint.joint_run import JointOutcome, JointRun
from autotune.studies.joint.placement import Crossing
from autotune.studies.joint.placement_run import PlacementRun
from autotune.studies.joint.placing import GpuForm, GpuKernel, Placing
from autotune.studies.models.schedule_pools import pools
from autotune.studies.run.study import StudyRequest, study_of
from autotune.studies.space.configuration import ClusterSetting, CpuConfiguration
from autotune.studies.space.configuration_text import placement_texts
from autotune.studies.space.objective import NO_LIMITS, Figures, Objective
from autotune.studies.space.ranges import CpuRanges
from autotune.studies.space.space import CpuSpace
from autotune.workloads.schedule_traits import CACHE_SIZES, NestTraits, ScheduleTraits

CLUSTERS = (
    Cluster(
        CLUSTER_NAMES[1][0], (0, 1), 1024, 1_000_000, 2_000_000, (1_000_000, 2_000_000), (), ()
    ),
)
CALLS = 6
CPU_MS = 10.0
CPU_W, GPU_W = 4.0, 1.0


class Device:
    """Each call takes so long on the CPU, and so long on the GPU; so long takes a tensor between two calls.

    `promised` is what the GPU's runs have timed, `real` what a step shows.
    """

    clusters: Sequence[Cluster] = CLUSTERS

    def __init__(self, real: Sequence[float], crossing: float, *, broken: bool = False) -> None:
        self.real, self.crossing, self.broken = real, crossing, broken
        self.device: dict[str, Any] = {"emulated": "", "serial": "x", "soc": "x"}
        self.measured: list[tuple[CpuConfiguration | None, Choice]] = []

    def measure(self, configuration: CpuConfiguration | None, choice: Choice) -> Measured:
        self.measured.append((configuration, choice))
        if self.broken and choice.gpu:
            return Measured("run_error", "OpenCL error -5")
        cores = configuration.clusters[0].cores if configuration else 1
        own = CPU_MS / cores / 1e3
        there = set(choice.gpu)
        crossed = sum((call in there) != (call + 1 in there) for call in range(CALLS - 1))
        on_cpu = own * (CALLS - len(there))
        away = sum(self.real[call] for call in there) + crossed * self.crossing
        raw: dict[str, Any] = {"task_s": [None if call in there else own for call in range(CALLS)]}
        if there:
            raw["gpu_s"] = [[call, self.real[call]] for call in choice.gpu]
            raw |= {"copied_s": crossed * self.crossing, "mapped_s": 0.0, "reordered_s": 0.0}
        energy = CPU_W * on_cpu + GPU_W * away
        return Measured("ok", figures=Figures(on_cpu + away, energy), raw=raw)


class Noisy(Device):
    """Steps are off by a factor, up and down."""

    def measure(self, configuration: CpuConfiguration | None, choice: Choice) -> Measured:
        found = super().measure(configuration, choice)
        return times(found, (0.7, 1.4, 1.1)[len(self.measured) % 3])


class Lucky(Device):
    """Two cores do better beside a GPU than one, but the first step with one core is a lucky one."""

    def measure(self, configuration: CpuConfiguration | None, choice: Choice) -> Measured:
        found = super().measure(configuration, choice)
        one = [c for c, _ in self.measured if c is not None and c.cores == 1]
        alone = configuration is not None and configuration.cores == 1
        return times(found, (0.5 if len(one) == 1 else 1.2) if alone else 1.0)


def times(found: Measured, factor: float) -> Measured:
    assert found.figures is not None
    return replace(found, figures=replace(found.figures, time_s=factor * found.figures.time_s))


class Silent:
    def __init__(self) -> None:
        self.notices: list[str] = []

    def phase(self, name: str, total: int) -> None: ...

    def step(self, done: int, text: str) -> None: ...

    def notice(self, text: str) -> None:
        self.notices.append(text)


def joint_bench(device: Device, promised: Sequence[float], objective: Objective) -> JointEvaluator:
    """A bench on a device whose GPU can make every call, as fast as its runs have promised."""
    traits = ScheduleTraits((NestTraits(1e6, 64, 1.0, (1e5,) * len(CACHE_SIZES)),)).to_json()
    pool = [{"digest": "default", "formulation": "direct", "ms": CPU_MS, "traits": traits}]
    tasks = pools(
        [("hybrid", {"tasks": [
            {"name": f"k{n}", "operator": "conv2d", "role": "forward", "count": 1, "pool": pool}
            for n in range(CALLS)
        ]})]
    )  # fmt: skip
    kernels = {
        call: GpuKernel(f"g{call}", "d", "direct", seconds) for call, seconds in enumerate(promised)
    }
    crossings = tuple(
        Crossing(c, (c + 1,), device.crossing, device.crossing) for c in range(CALLS - 1)
    )
    form = GpuForm(CALLS, kernels, crossings, (), "copy")
    placing = Placing([form], [list(range(CALLS))], OpenClDevice("a GPU, 1", gpu=True))
    return JointEvaluator(device, tasks, objective, 1, None, placing)


def searched(
    real: Sequence[float],
    *,
    promised: Sequence[float] | None = None,
    crossing: float = 1e-4,
    objective: Objective = "latency",
    broken: bool = False,
    events: Sequence[dict[str, Any]] = (),
    kind: type[Device] = Device,
    blocks: int = 2,
) -> tuple[JointOutcome, Device, JointEvaluator, Silent, list[dict[str, Any]]]:
    device = kind(real, crossing, broken=broken)
    bench = joint_bench(device, promised or real, objective)
    for event in events:
        if event["event"] in ("trial", "round", "final", "gpu_probe"):
            what = event["configuration"]
            bench.recall(what and CpuConfiguration.from_json(what, ["all"]), event)
    request = StudyRequest(
        CpuSpace.of(CLUSTERS, CpuRanges(), clocks=True), objective, NO_LIMITS, 3, "tpe", True, 1
    )
    recorded: list[dict[str, Any]] = []

    def record(kind: str, what: dict[str, Any], measured: Measured | None) -> None:
        assert measured is not None
        figures = vars(measured.figures) if measured.figures else None
        reported = {"status": measured.status, "message": measured.message, "figures": figures}
        recorded.append({"event": kind, **reported, **(measured.raw or {}), **what})

    progress = Silent()
    run = JointRun(
        study_of(request, optuna.storages.InMemoryStorage(), "x"), bench, None, record,
        progress, interrupted=lambda: False, blocks=blocks, reference_every=0, events=events,
    )  # fmt: skip
    outcome = run.run()
    assert outcome is not None
    return outcome, device, bench, progress, recorded


def test_a_slow_gpu_is_measured_and_the_whole_step_stays_on_the_cpu() -> None:
    outcome, device, _, _, recorded = searched([0.05] * CALLS)
    found = outcome.placement
    assert found is not None
    assert found["best"] == "cpu"
    assert set(found["places"]) == {"cpu", "gpu"}
    assert found["places"]["gpu"]["cpu_over_time_s"]["ratio"] < 0.5
    assert recorded[0]["event"] == "gpu_probe"
    assert all(
        not choice.gpu for c, choice in device.measured if c and choice.gpu != tuple(range(CALLS))
    )
    reported = placement_texts(found)
    assert reported[0].startswith("the whole step is best on the CPU")
    assert reported[1].startswith("measured in interleaved blocks, with 2 all ")


def test_on_a_tie_the_step_is_said_to_stay_on_the_cpu() -> None:
    found = searched([0.005] * CALLS, kind=Noisy, blocks=3)[0].placement
    assert found is not None
    assert found["places"]["gpu"]["cpu_over_time_s"]["verdict"] == "tie"
    assert (found["best"], found["sure"]) == ("cpu", False)
    reported = placement_texts(found)[0]
    assert reported.startswith(
        "the whole step stays on the CPU, because no other placement is significantly better; "
    )


def test_the_cpu_alone_is_compared_with_the_configuration_that_suits_it_best() -> None:
    # With one core the GPU is the faster one, and with two cores the CPU alone is faster than that.
    real = [0.007] * CALLS
    one, two = (CpuConfiguration((ClusterSetting(n, 2_000_000),), n) for n in (1, 2))
    bench = joint_bench(Device(real, 1e-4), real, "latency")
    for configuration in (one, two):
        bench.measure(configuration)
    assert bench.ran[one].gpu
    assert bench.placing is not None
    recorded: list[dict[str, Any]] = []
    run = PlacementRun(
        bench, bench.placing, lambda kind, what, measured: recorded.append(dict(what)), Silent(),
        interrupted=lambda: False, blocks=2, objective="latency", seed=1, events=(),
    )  # fmt: skip
    found = run.compared(one, NO_LIMITS)
    assert found is not None
    assert (found["configuration"], found["cpu_configuration"]) == (
        one.to_json(["all"]),
        two.to_json(["all"]),
    )
    assert found["places"]["cpu"]["time_s"] == pytest.approx(0.03)
    assert (found["best"], found["sure"]) == ("cpu", True)
    assert {(e["place"], e["configuration"]["threads"]) for e in recorded} == {
        ("cpu", 2),
        ("gpu", 1),
    }
    assert placement_texts(found)[1] == (
        "measured in interleaved blocks: the CPU alone with 2 all 2000 MHz, 2 threads, which suits it best, "
        "and the GPU's share with 1 all 2000 MHz, 1 thread"
    )


def test_what_turns_out_best_in_the_end_is_set_beside_the_cpu_alone_too() -> None:
    outcome, _, _, _, recorded = searched([0.001] * CALLS, kind=Lucky)
    found = outcome.placement
    assert found is not None
    assert found["best"] == "gpu"
    assert found["configuration"]["threads"] == 1
    assert found["again"]["configuration"]["threads"] == 2
    ratio = found["again"]["places"]["gpu"]["cpu_over_time_s"]
    assert (ratio["ratio"], ratio["verdict"]) == (pytest.approx(5.0), "better")
    assert found["again"]["sure"]
    reported = placement_texts(found)
    assert reported[0].startswith("the step is best on the GPU (6 of its 6 calls); ")
    unsure = {**found, "again": {**found["again"], "sure": False}}
    assert placement_texts(unsure)[0].startswith(
        "the step was better on the GPU (6 of its 6 calls), but the final best is not significantly better"
    )
    assert "compared with that CPU alone in interleaved blocks: 2 all" in reported[3]
    assert reported[4].startswith("6 calls on the GPU: time: this is 5")
    # Gone on with, none of this is measured again; the study, which was in memory, is.
    again = searched([0.001] * CALLS, kind=Lucky, events=recorded)
    assert again[0].placement == found
    assert {event["event"] for event in again[-1]} == {"trial"}


def test_where_everything_stays_on_the_cpu_its_own_best_is_measured_again() -> None:
    outcome, *_ = searched([0.05] * CALLS)
    assert outcome.placement is not None
    own = CpuConfiguration.from_json(outcome.placement["cpu_configuration"], ["all"])
    assert own in [final.configuration for final in outcome.outcome.finals]


def test_a_fast_gpu_has_the_whole_step() -> None:
    outcome, _, bench, _, _ = searched([0.001] * CALLS)
    found = outcome.placement
    assert found is not None
    assert found["best"] == "gpu"
    finals = [final for final in outcome.outcome.finals if final.configuration is not None]
    assert finals
    assert all(
        bench.ran[final.configuration].gpu == tuple(range(CALLS))
        for final in finals
        if final.configuration
    )
    assert min(f.figures.time_s for f in finals) == pytest.approx(0.006)


def test_calls_are_parted_where_some_are_faster_on_each() -> None:
    outcome, _, bench, _, _ = searched([0.0005, 0.0005, 0.0005, 0.9, 0.9, 0.9])
    found = outcome.placement
    assert found is not None
    assert found["best"] == "mixed"
    assert found["places"]["mixed"]["gpu_calls"] == 3
    assert found["places"]["mixed"]["data_movement"]["copies"] > 0
    ran = {bench.ran[f.configuration].gpu for f in outcome.outcome.finals if f.configuration}
    assert ran == {(0, 1, 2)}
    reported = bench.predicted(next(iter(bench.ran)), Choice((0,) * CALLS, 0, (0, 1, 2)))
    assert reported["time_s"] == pytest.approx(0.0015 + 1e-4 + 3 * 0.005, rel=0.2)


def test_a_gpu_that_promised_more_than_steps_show_is_seen_through() -> None:
    outcome, _, _, _, _ = searched([0.5] * CALLS, promised=[0.0001] * CALLS)
    assert outcome.placement is not None
    assert outcome.placement["best"] == "cpu"


def test_a_frugal_gpu_wins_energy_though_it_is_slower() -> None:
    # On two cores a call takes 5 ms and 20 mJ; on the GPU 8 ms and 8 mJ.
    outcome, _, _, _, _ = searched([0.008] * CALLS, objective="energy")
    assert outcome.placement is not None
    assert outcome.placement["best"] == "gpu"
    faster = searched([0.008] * CALLS)[0].placement
    assert faster is not None
    assert faster["best"] == "cpu"


def test_a_gpu_that_cannot_run_the_step_is_left_out() -> None:
    outcome, device, _, progress, recorded = searched([0.001] * CALLS, broken=True)
    assert outcome.placement is None
    assert any(
        "OpenCL error -5; all calls stay on the CPU" in reported for reported in progress.notices
    )
    assert all(not choice.gpu for c, choice in device.measured if c)
    assert outcome.outcome.finals
    assert recorded[0]["event"] == "gpu_probe"
    # Nor is it tried again when the run goes on.
    again, device, _, _, _ = searched([0.001] * CALLS, events=recorded[:1])
    assert again.placement is None
    assert all(not choice.gpu for _, choice in device.measured)


def test_the_probe_of_an_earlier_part_is_not_measured_again() -> None:
    recorded = searched([0.001] * CALLS)[-1]
    probe = [e for e in recorded if e["event"] == "gpu_probe"]
    _, device, _, _, _ = searched([0.001] * CALLS, events=probe)
    assert not [c for c, choice in device.measured if c is None and choice.gpu]
