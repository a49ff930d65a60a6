"""What a joint search is made of: pools, prices of work, the model of kernels, and the choice of schedules."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from autotune.devices.topology import CLUSTER_NAMES, Cluster
from autotune.emulator.model.profile import load
from autotune.emulator.model.step_model import schedule_estimate
from autotune.errors import RecordError
from autotune.studies.evaluators.evaluator import Measured
from autotune.studies.joint.joint import Choice, JointEvaluator, exchange
from autotune.studies.models.kernel_model import KernelModel, ScheduleTable, Seen
from autotune.studies.models.roofline import Nests, Roofline
from autotune.studies.models.schedule_pools import TaskPool, pools
from autotune.studies.plans.step_plans import PlannedSetting, step_plan
from autotune.studies.run.study import StudyRequest, study_of
from autotune.studies.space.configuration import ClusterSetting, CpuConfiguration
from autotune.studies.space.objective import NO_LIMITS, Figures, Objective
from autotune.studies.space.ranges import CpuRanges
from autotune.studies.space.space import CpuSpace
from autotune.workloads.models import build_model
from autotune.workloads.schedule_traits import CACHE_SIZES, NestTraits, ScheduleTraits

SAMPLES = Path(__file__).parents[3] / "logs" / "samples" / "mobilenet-v2-b8-pools"
PROFILE = load("meizu-16t")
CLUSTERS = tuple(
    Cluster(name, c.cpus, c.capacity, c.frequencies_khz[0], c.frequencies_khz[-1],
            c.frequencies_khz, (), ())
    for name, c in zip(CLUSTER_NAMES[2], PROFILE.clusters, strict=True)
)  # fmt: skip
SPACE = CpuSpace.of(CLUSTERS, CpuRanges(), clocks=True)
BIG4 = CpuConfiguration((ClusterSetting(0), ClusterSetting(4, 2_419_200)), 4)
LITTLE1 = CpuConfiguration((ClusterSetting(1, 300_000), ClusterSetting(0)), 1)


@cache
def tasks() -> tuple[TaskPool, ...]:
    """A few of the heaviest kernels of MobileNetV2's step, as runs on the model have kept them."""
    with gzip.open(SAMPLES / "meizu-16t.json.gz", "rt", encoding="utf-8") as file:
        every = pools([("hybrid", json.load(file))])
    heavy = sorted(
        every, key=lambda t: -t.count * max(s.traits.nests[0].flops for s in t.schedules)
    )
    return tuple(heavy[:24])


def exact(configuration: CpuConfiguration) -> list[np.ndarray[Any, Any]]:
    """Seconds and joules of each schedule of each task by the emulator's model, shape (schedules, 2)."""
    khz = [
        s.khz or c.frequencies_khz[0] for s, c in zip(configuration.clusters, CLUSTERS, strict=True)
    ]
    cpus = configuration.cpus(CLUSTERS)
    return [
        np.asarray(
            [
                schedule_estimate(PROFILE, s.traits, cpus, khz, threads=configuration.threads)
                for s in task.schedules
            ]
        )
        for task in tasks()
    ]


def step(configuration: CpuConfiguration, chosen: Sequence[int]) -> tuple[float, float]:
    found = exact(configuration)
    parts = [task.count * rows[i] for task, rows, i in zip(tasks(), found, chosen, strict=True)]
    return tuple(map(float, np.sum(parts, axis=0)))  # type: ignore[return-value]


class Steps:
    """The model as a source of steps, without noise."""

    clusters, device = CLUSTERS, {"emulated": "meizu-16t"}

    def __init__(self) -> None:
        self.measured: list[tuple[CpuConfiguration | None, Choice]] = []

    def measure(self, configuration: CpuConfiguration | None, choice: Choice) -> Measured:
        self.measured.append((configuration, choice))
        rows = exact(configuration or BIG4)
        calls = [float(r[i][0]) for r, i in zip(rows, choice.schedules, strict=True)]
        seconds, joules = step(configuration or BIG4, choice.schedules)
        return Measured("ok", figures=Figures(seconds, joules), raw={"task_s": calls})


def task(name: str, *pool: dict[str, Any], count: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "operator": "conv2d",
        "role": "forward",
        "count": count,
        "pool": list(pool),
    }


def schedule(digest: str, ms: float, flops: float = 1e6) -> dict[str, Any]:
    traits = ScheduleTraits((NestTraits(flops, 4, 1.0, (0.1 * flops,) * len(CACHE_SIZES)),))
    return {"digest": digest, "formulation": "direct", "ms": ms, "traits": traits.to_json()}


def test_pools_of_runs_are_one_and_know_what_each_cluster_took() -> None:
    found = pools(
        [
            ("big", {"tasks": [task("a", schedule("x", 1.0), schedule("y", 2.0))]}),
            (
                "little",
                {
                    "tasks": [
                        task("a", schedule("y", 5.0), schedule("z", 6.0)),
                        task("b", schedule("w", 1.0)),
                    ]
                },
            ),
        ]
    )
    assert [one.name for one in found] == ["a", "b"]
    assert {s.digest: dict(s.ms) for s in found[0].schedules} == {
        "x": {"big": 1.0},
        "y": {"big": 2.0, "little": 5.0},
        "z": {"little": 6.0},
    }


@pytest.mark.parametrize(
    ("results", "text"),
    [
        ([], "no run has pools"),
        ([("big", {"tasks": [{"name": "a"}]})], "no pools of schedules"),
        ([("big", {"tasks": [task("a", {"digest": "x", "formulation": "d", "ms": 1.0, "traits": None})]})],
         "no pools of schedules"),
    ],
)  # fmt: skip
def test_results_without_pools_are_refused(results: Any, text: str) -> None:
    with pytest.raises(RecordError, match=text):
        pools(results)


def test_prices_that_made_the_times_are_found_again() -> None:
    rng = np.random.default_rng(1)
    schedules = [
        ScheduleTraits(
            tuple(
                NestTraits(
                    float(rng.uniform(1e5, 1e8)),
                    int(rng.integers(1, 200)),
                    float(rng.uniform(0, 1)),
                    tuple(sorted(map(float, rng.uniform(1e4, 1e8, len(CACHE_SIZES))), reverse=True)),
                )
                for _ in range(int(rng.integers(1, 4)))
            )
        )
        for _ in range(60)
    ]  # fmt: skip
    nests, truth = Nests.of(schedules), Roofline(CLUSTERS)
    truth.prices = np.abs(rng.normal(2e-10, 1e-10, truth.prices.shape))
    numbers = SPACE.numbers(rng, 40)
    settings = [SPACE.at(int(n)) for n in numbers]
    times = truth.seconds(settings, nests)
    found = Roofline(CLUSTERS)
    train = settings[:30]
    found.fit(train, [nests] * 30, list(times[:30]), [np.ones(60)] * 30)
    errors = np.abs(np.log(found.seconds(settings[30:], nests) / times[30:]))
    assert np.median(errors) < 0.03


def test_a_few_measured_steps_tell_which_schedules_are_best_elsewhere() -> None:
    rng = np.random.default_rng(3)
    model = KernelModel(CLUSTERS, tasks(), np.asarray([float(t.count) for t in tasks()]), 1)
    table = model.table
    numbers = [int(n) for n in SPACE.numbers(rng, 30)]
    seen = table.timings(CLUSTERS)
    for number in numbers[:12]:
        configuration = SPACE.at(number)
        chosen = np.asarray([rng.integers(0, len(t.schedules)) for t in tasks()])
        rows = exact(configuration)
        seconds = np.asarray([r[i][0] for r, i in zip(rows, chosen, strict=True)])
        total = step(configuration, chosen.tolist())
        seen.append(Seen(configuration, table.rows(chosen), seconds, total[1] / total[0]))
    model.learn(seen)
    regrets, usual = [], []
    for number in numbers[12:]:
        configuration = SPACE.at(number)
        seconds, joules = model.predict([configuration])
        assert joules is not None
        rows = exact(configuration)
        best = sum(t.count * r[:, 0].min() for t, r in zip(tasks(), rows, strict=True))
        chosen = [
            int(np.argmin(seconds[0][a:b])) for a, b in zip(table.first[:-1], table.first[1:], strict=True)
        ]  # fmt: skip
        regrets.append(step(configuration, chosen)[0] / best)
        usual.append(step(configuration, [0] * len(chosen))[0] / best)
    assert np.median(regrets) < 1.05
    assert np.median(regrets) - 1 < 0.3 * (np.median(usual) - 1)


@pytest.mark.parametrize("objective", ["latency", "energy"])
def test_a_bench_chooses_for_the_objective_and_keeps_its_choice_once_settled(
    objective: Objective,
) -> None:
    steps = Steps()
    bench = JointEvaluator(steps, tasks(), objective, seed=1)
    rng = np.random.default_rng(5)
    for number in SPACE.numbers(rng, 10):
        bench.measure(SPACE.at(int(number)))
    bench.settle()
    for configuration in (BIG4, LITTLE1):
        first, again = (bench.measure(configuration) for _ in range(2))
        assert first.raw is not None
        assert again.raw is not None
        assert first.raw["chosen"] == again.raw["chosen"]
        column = 0 if objective == "latency" else 1
        best = sum(
            t.count * r[:, column].min() for t, r in zip(tasks(), exact(configuration), strict=True)
        )
        found = step(configuration, first.raw["chosen"])[column]
        assert found < 1.25 * best
        assert found < 0.9 * step(configuration, bench.untuned.schedules)[column]


def test_the_system_s_own_choice_has_untuned_kernels() -> None:
    steps = Steps()
    bench = JointEvaluator(steps, tasks(), "latency", seed=1)
    bench.measure(None)
    assert steps.measured == [(None, bench.untuned)]
    digests = [t.schedules[i].digest for t, i in zip(tasks(), bench.untuned.schedules, strict=True)]
    assert "default" in digests


def test_what_was_measured_before_is_known_again() -> None:
    first, second = (JointEvaluator(Steps(), tasks(), "energy", seed=2) for _ in range(2))
    for number in SPACE.numbers(np.random.default_rng(9), 6):
        configuration = SPACE.at(int(number))
        found = first.measure(configuration)
        assert found.figures is not None
        second.recall(
            configuration,
            {
                "event": "trial",
                "status": "ok",
                "message": "",
                "figures": vars(found.figures),
                **(found.raw or {}),
            },
        )
    assert first.choose(BIG4) == second.choose(BIG4)
    assert first.errors.interval("time_s", 1.0) == second.errors.interval("time_s", 1.0)


def test_a_second_is_worth_what_the_front_gives_for_it() -> None:
    steep = [(1.0 + 0.01 * i, 10.0 - 2.0 * i) for i in range(4)]
    flat = [(10.0 + 10.0 * i, 1.0 - 0.01 * i) for i in range(4)]
    points = [*steep, *flat]
    assert exchange(points, 1.01) > 0.9
    assert exchange(points, 30.0) < 0.1
    assert exchange([], 1.0) == exchange(points[:2], 1.0) == 0.5
    # Where energy does not fall with time, seconds are worth nothing.
    assert 0 <= exchange([(1.0, 1.0), (2.0, 1.0), (3.0, 1.0), (4.0, 1.0)], 2.5) <= 0.5


def test_a_table_knows_its_schedules_and_what_runs_timed() -> None:
    found = pools([("big", {"tasks": [task("a", schedule("x", 1.0), schedule("y", 2.0), count=3)]}),
                   ("nowhere", {"tasks": [task("b", schedule("z", 4.0))]})])  # fmt: skip
    table = ScheduleTable(found, np.asarray([3.0, 1.0]))
    assert (len(table), table.first.tolist()) == (3, [0, 2, 3])
    assert table.rows(np.asarray([1, 0])).tolist() == [1, 2]
    assert table.pools() == [(0, 2), (2, 3)]
    (timed,) = table.timings(CLUSTERS)
    assert timed.configuration == BIG4
    assert timed.seconds.tolist() == [1e-3, 2e-3]


class Table:
    """Steps whose calls take what a table says, whatever the configuration."""

    clusters, device = CLUSTERS, {"emulated": "meizu-16t"}

    def __init__(self, seconds: Sequence[Sequence[float]], counts: Sequence[Sequence[int]]) -> None:
        self.seconds, self.counts, self.asked = seconds, counts, 0

    def measure(self, configuration: CpuConfiguration | None, choice: Choice) -> Measured:
        self.asked += 1
        counts = self.counts[choice.form]
        calls = [s[i] for s, i in zip(self.seconds, choice.schedules, strict=True)]
        total = sum(n * s for n, s in zip(counts, calls, strict=True))
        reported = [s if n else None for n, s in zip(counts, calls, strict=True)]
        return Measured("ok", figures=Figures(total, 3.0 * total), raw={"task_s": reported})


def small(*pool_ms: Sequence[float]) -> tuple[TaskPool, ...]:
    """A task for each list of milliseconds; its schedules are alike, and do as much work as the first one takes."""
    named = [
        task(
            f"t{number}",
            *(schedule(f"{number}-{i}", ms, 1e6 * each[0]) for i, ms in enumerate(each)),
        )
        for number, each in enumerate(pool_ms)
    ]
    return pools([("hybrid", {"tasks": named})])


def test_the_form_with_the_least_work_is_chosen_and_a_measurement_overrules_the_runs() -> None:
    # The runs say that form 1, four small calls of t1 for one of t0, is faster; steps say that it is not.
    found = small([8.0], [1.0])
    counts = [[1, 0], [0, 4]]
    bench = JointEvaluator(
        Table([[8e-3], [4e-3]], counts), found, "latency", 1, np.asarray(counts, float)
    )
    top = [ClusterSetting(len(c.cpus), c.max_khz) for c in CLUSTERS]
    every = CpuConfiguration(tuple(top), 8)
    first = bench.measure(every)
    assert first.raw is not None
    assert (first.raw["form"], first.raw["task_s"]) == (1, [None, 4e-3])
    for _ in range(3):
        bench.measure(every)
    bench.settle()
    assert bench.choose(every).form == 0


def test_a_schedule_that_was_timed_under_a_configuration_is_known_by_that() -> None:
    # Equal traits: no model can tell these apart, and the runs timed them wrongly.
    found = small([1.0, 1.0, 1.0, 1.0])
    steps = Table([[4e-3, 3e-3, 1e-3, 2e-3]], [[1]])
    bench = JointEvaluator(steps, found, "latency", 1)
    for _ in range(8):
        bench.measure(BIG4)
    bench.settle()
    assert bench.choose(BIG4).schedules == (2,)


def test_a_plan_has_of_each_call_what_steps_took_with_an_interval_where_several_measured_it() -> (
    None
):
    graph = build_model("lenet", batch=2)
    calls = len(graph.nodes)
    found = small([1.0], [1.0])
    bench = JointEvaluator(Table([[4e-3], [2e-3]], [[1, 1]]), found, "latency", 1)
    bench.measure(LITTLE1)
    steps: list[float] = [4e-3, 5e-3, 4.2e-3]
    for took in steps:
        bench.recall(BIG4, {
            "event": "trial", "chosen": [0, 0], "task_s": [took, None],
            "figures": {"time_s": 2 * took, "energy_j": 1.0},
        })  # fmt: skip

    def planned(configuration: CpuConfiguration) -> list[dict[str, Any]]:
        of_call = [0, 1, *[None] * (calls - 2)]
        setting = PlannedSetting(configuration, Choice((0, 0)))
        reported = step_plan(bench, graph, of_call, {}, {}, [setting], [0] * calls, None)
        return list(reported["calls"])

    first, second, other = planned(BIG4)[:3]
    assert first["measured"]["time_s"] == 4.2e-3
    assert first["measured"]["measurements"] == 3
    low, high = first["measured"]["ci"]["time_s"]
    assert 0 < low < 4e-3 < 5e-3 < high
    assert second["measured"] is None
    assert other["measured"] is other["predicted"] is None
    # Of one measurement there is a time, and no interval.
    once = {"time_s": 4e-3, "ci": {"time_s": None}, "measurements": 1}
    assert planned(LITTLE1)[0]["measured"] == once


def test_what_was_foretold_is_held_against_what_came_out() -> None:
    bench = JointEvaluator(Steps(), tasks(), "energy", seed=2)
    assert bench.errors.interval("time_s", 1.0) is None
    measured = [
        bench.measure(SPACE.at(int(number)))
        for number in SPACE.numbers(np.random.default_rng(3), 12)
    ]
    found = [m.raw["foretold"] for m in measured if m.raw and "foretold" in m.raw]
    assert len(found) >= 11
    ends = bench.errors.interval("time_s", 2.0)
    assert ends is not None
    ratios = sorted(
        m.figures.time_s / m.raw["foretold"]["time_s"]
        for m in measured
        if m.figures and m.raw and "foretold" in m.raw
    )
    assert ratios[0] <= ends[0] / 2 <= ends[1] / 2 <= ratios[-1]
    assert bench.errors.interval("time_s", None) is None


def test_processes_that_share_a_study_learn_from_each_other() -> None:
    request = StudyRequest(SPACE, "energy", NO_LIMITS, 8, seed=1)
    storage = optuna.storages.InMemoryStorage()
    first, second = (JointEvaluator(Steps(), tasks(), "energy", seed=2) for _ in range(2))
    study = study_of(request, storage, "shared")
    study.run(first, lambda trial, measured: None)
    second.others = study_of(request, storage, "shared").trials
    second.listen()
    assert second.ran == first.ran
    assert len(second.ran) == 8
    assert second.choose(BIG4) == first.choose(BIG4)
