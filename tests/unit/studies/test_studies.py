"""The space of CPU configurations, Pareto fronts, the models, and studies with their storage."""

import json
import math
import resource
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_studies import BIG, LITTLE, NAMES, TABLE, every, request, small_space

from autotune.devices.info import probe
from autotune.devices.topology import CLUSTER_NAMES, Cluster
from autotune.emulator.device.device import EmulatedDevice
from autotune.emulator.model.profile import load
from autotune.emulator.model.step_model import ALEXNET_B16, estimate
from autotune.errors import RecordError, TransientDeviceError, UsageError
from autotune.studies.evaluators.evaluator import Measured
from autotune.studies.models.physics import PowerModel, TimeModel
from autotune.studies.models.surrogate import Surrogate
from autotune.studies.replay.replay import TableEvaluator, read_paper_table, search
from autotune.studies.run.cpu_config import CpuConfigRun
from autotune.studies.run.finals import measure_again, named_points
from autotune.studies.run.results import found_of, nearest_text, result
from autotune.studies.run.storage import (
    explained_faults,
    open_storage,
    open_study,
)
from autotune.studies.run.study import SamplerName, StudyRequest, StudyTrial, study_of
from autotune.studies.run.trial_leases import STALE_S, TrialLeases, this_worker
from autotune.studies.search.model_search import Known, ModelSearch
from autotune.studies.space.applied import apply
from autotune.studies.space.clocks import Clocks
from autotune.studies.space.configuration import ClusterSetting, CpuConfiguration
from autotune.studies.space.configuration_text import doubts, fronts_text
from autotune.studies.space.objective import (
    NO_LIMITS,
    Figures,
    Limits,
    Objective,
    best,
    value_names,
    values,
)
from autotune.studies.space.pareto import front, gain, hypervolume, improvement, knee
from autotune.studies.space.ranges import CpuRanges, read_ranges, schema_text
from autotune.studies.space.space import CpuSpace

# The space.


def test_a_space_is_every_subset_of_cores_times_the_clocks_of_those_that_train() -> None:
    space = small_space()
    found = every(space)
    assert len(found) == space.size == (4 * 3 + 1) * (2 * 2 + 1) - 1
    assert len(set(found)) == len(found)
    assert all(c.cores for c in found)
    assert all(s.khz is None for c in found for s in c.clusters if not s.cores)


def test_numbers_and_configurations_are_one_to_one_and_arrays_agree() -> None:
    space = small_space(threads_per_core=[0.5, 1.0, 2.0])
    numbers = space.numbers(np.random.default_rng(0), 10**6)
    configurations = [space.at(int(n)) for n in numbers]
    assert [space.number(c) for c in configurations] == numbers.tolist()
    assert len(set(configurations)) == len(configurations) == space.size
    arrays, others = space.clocks(numbers), Clocks.of(configurations, space.clusters)
    assert np.array_equal(arrays.cores, others.cores)
    assert np.array_equal(arrays.threads, others.threads)
    used = arrays.cores > 0
    assert np.array_equal(arrays.ghz[used], others.ghz[used])


def test_ranges_narrow_a_space() -> None:
    space = small_space(clusters={"little": {"cores": [0]}, "big": {"cores": [1, 2], "levels": 1}})
    assert {c.text(NAMES) for c in every(space)} == {"1 big 2400 MHz", "2 big 2400 MHz"}
    alone = small_space(together="never")
    assert alone.size == 4 * 3 + 2 * 2
    assert all(sum(s.cores > 0 for s in c.clusters) == 1 for c in every(alone))


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"clusters": {"prime": {}}}, "no cluster 'prime'"),
        ({"clusters": {"big": {"cores": [3]}}}, "has 2 cores, not 3"),
        ({"clusters": {"big": {"frequencies_khz": [5]}}}, "no clock of 5 kHz"),
        ({"clusters": {"big": {"cores": [0]}, "little": {"cores": [0]}}}, "leave no configuration"),
    ],
)
def test_ranges_that_do_not_fit_the_device_are_refused(
    ranges: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        small_space(**ranges)


def test_without_root_clocks_are_left_to_the_system() -> None:
    space = CpuSpace.of((LITTLE, BIG), CpuRanges(), clocks=False)
    assert space.size == 5 * 3 - 1
    assert all(s.khz is None for c in every(space) for s in c.clusters)
    with pytest.raises(UsageError, match="left to the system"):
        CpuSpace.of(
            (LITTLE, BIG),
            CpuRanges.model_validate({"clusters": {"big": {"frequencies_khz": [700_000]}}}),
            clocks=False,
        )


def test_a_file_of_ranges_is_read_and_a_slip_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "ranges.toml"
    path.write_text('together = "never"\n[clusters.big]\ncores = [1, 2]\nlevels = 4\n')
    assert read_ranges(path).clusters["big"].cores == (1, 2)
    path.write_text("[clusters.big]\ncoers = [1]\n")
    with pytest.raises(UsageError, match=r"clusters\.big\.coers"):
        read_ranges(path)
    path.write_text("[")
    with pytest.raises(UsageError, match="not valid TOML"):
        read_ranges(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clocks = 2020-01-01", ": clocks: Input should be 'set' or 'free'"),
        (
            "threads_per_core = [inf]",
            ": threads_per_core.0: inf is not a finite number",
        ),
        (
            "threads_per_core = [nan]",
            ": threads_per_core.0: nan is not a finite number",
        ),
    ],
)
def test_values_that_toml_has_and_json_has_not_are_told_with_their_place(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "ranges.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        read_ranges(path)
    assert raised.value.message == f"{path}{words}"


@pytest.mark.parametrize("together", ["never", "whole"])
def test_ranges_that_leave_nothing_say_which_of_them_do(together: str) -> None:
    ranges = {"together": together, "others": {"cores": (1,)}}
    with pytest.raises(UsageError, match=f'together = "{together}"') as raised:
        small_space(**ranges)
    assert "allow clusters 0 cores" in raised.value.hint
    with pytest.raises(UsageError) as none:
        small_space(together=together, others={"cores": (0,)})
    assert none.value.hint == "allow a cluster some cores"


@pytest.mark.parametrize("model", [True, False])
def test_clusters_may_be_held_to_train_together_whole_only(model: bool) -> None:
    space = small_space(together="whole", clusters={"little": {"levels": 1}, "big": {"levels": 1}})
    cores = sorted(tuple(s.cores for s in c.clusters) for c in every(space))
    assert cores == [(0, 1), (0, 2), (1, 0), (2, 0), (3, 0), (4, 0), (4, 2)]
    figures = {c: Figures(1 / c.cores, None) for c in every(space)}
    request = StudyRequest(space, "latency", NO_LIMITS, space.size, model=model)
    ended: list[StudyTrial] = []
    study = study_of(request, optuna.storages.InMemoryStorage(), "whole")
    study.run(TableEvaluator((LITTLE, BIG), figures, {}), lambda trial, _: ended.append(trial))
    assert Counter(t.configuration for t in ended) == Counter(list(figures))


def test_clocks_may_be_left_to_the_system_where_root_could_set_them() -> None:
    space = small_space(clocks="free", threads_per_core=[0.5, 1.0])
    assert all(s.khz is None for c in every(space) for s in c.clusters)
    assert {c.threads for c in every(space) if c.cores == 4} == {2, 4}


def test_ranges_of_the_others_are_of_clusters_that_are_not_named() -> None:
    space = small_space(others={"levels": 1, "cores": [0, 1]}, clusters={"big": {"cores": [2]}})
    assert {c.text(NAMES) for c in every(space)} == {
        "2 big 700 MHz", "2 big 2400 MHz",
        "1 little 1800 MHz + 2 big 700 MHz", "1 little 1800 MHz + 2 big 2400 MHz",
    }  # fmt: skip


SPACES = Path(__file__).parents[3] / "search_spaces" / "cpu_config"


def test_the_shipped_schema_of_ranges_is_the_one_of_the_models() -> None:
    assert (SPACES / "schema.json").read_text(encoding="utf-8") == schema_text()


@pytest.mark.parametrize("path", sorted(SPACES.glob("*.toml")), ids=lambda p: p.stem)
def test_shipped_ranges_fit_every_emulated_device(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("#:schema schema.json\n")
    ranges = read_ranges(path)
    for name in (
        "meizu-16t",
        "three-cluster",
        "four-cluster",
        "jetson-tx2",
        "raspberry-pi-3b-plus",
    ):
        found = load(name).clusters
        clusters = [
            Cluster(
                cluster, c.cpus, c.capacity, c.frequencies_khz[0], c.frequencies_khz[-1],
                c.frequencies_khz, (), (),
            )
            for cluster, c in zip(CLUSTER_NAMES[len(found)], found, strict=True)
        ]  # fmt: skip
        for rooted in (True, False):
            space = CpuSpace.of(clusters, ranges, clocks=rooted)
            assert space.size > 0
            if path.stem == "phone":
                # A search of the usual 40 trials sees much of it, but for four clusters.
                assert space.size <= (250 if len(found) < 4 else 750)
            if path.stem == "unrooted":
                assert all(s.khz is None for row in space.settings for s in row)


def test_the_cores_of_a_configuration_are_the_last_of_their_cluster() -> None:
    some = CpuConfiguration((ClusterSetting(2, 300_000), ClusterSetting(1, 700_000)), 3)
    assert some.cpus((LITTLE, BIG)) == (2, 3, 5)
    assert CpuConfiguration.from_json(some.to_json(NAMES), NAMES) == some
    with pytest.raises(UsageError, match="needs a core"):
        CpuConfiguration((ClusterSetting(0), ClusterSetting(0)), 1)


def test_clocks_that_a_device_does_not_have_are_not_applied(tmp_path: Path) -> None:
    device = EmulatedDevice("meizu-16t")
    info = probe(device)
    listed = CpuConfiguration((ClusterSetting(1, 300_000), ClusterSetting(1, 1_234_567)), 2)
    with pytest.raises(UsageError, match="wants big at 1234567 kHz, which it does not have"):
        apply(device, info, listed)
    # A host that shows no clocks has none that could be set; nor could one be held there.
    bare = replace(info, clusters=(Cluster("all", (0, 1), None, None, None, (), (), ()),))
    for rooted in (True, False):
        with pytest.raises(UsageError, match="wants all at 1234567 kHz, which it does not have"):
            apply(
                device,
                replace(bare, rooted=rooted),
                CpuConfiguration((ClusterSetting(1, 1_234_567),), 1),
            )
    assert apply(device, bare, CpuConfiguration((ClusterSetting(2),), 2)) == []
    # A driver without a list takes any clock between its limits.
    any_clock = Cluster("all", (0, 1), None, 400_000, 2_000_000, (), (), ("/sys/policy0",))
    assert [any_clock.takes(khz) for khz in (399_999, 400_000, 1_234_567, 2_000_001)] == [
        False, True, True, False,
    ]  # fmt: skip


def test_threads_are_a_few_a_core() -> None:
    with pytest.raises(UsageError, match="99 threads on 1 core: 8 a core are the most"):
        CpuConfiguration((ClusterSetting(1),), 99)
    assert CpuConfiguration((ClusterSetting(1),), 8).threads == 8
    with pytest.raises(UsageError, match="threads_per_core is 9"):
        small_space(threads_per_core=[1.0, 9.0])


def test_a_large_space_is_drawn_from_without_being_listed() -> None:
    clusters = tuple(
        Cluster(name, tuple(range(4 * i, 4 * i + 4)), None, 100_000, 2_000_000,
                tuple(range(100_000, 2_100_000, 100_000)), (), ())
        for i, name in enumerate("abcd")
    )  # fmt: skip
    space = CpuSpace.of(clusters, CpuRanges(), clocks=True)
    drawn = space.numbers(np.random.default_rng(0), 1000)
    assert 900 <= len(drawn) <= 1000
    assert all(space.at(int(n)) in space for n in drawn[:50])
    for near in space.neighbours(int(drawn[0])):
        one, other = space.at(int(drawn[0])), space.at(int(near))
        assert sum(a != b for a, b in zip(one.clusters, other.clusters, strict=True)) == 1


def test_the_last_timing_ends_at_once_and_goes_on_where_it_was() -> None:
    first, second = (
        CpuConfiguration((ClusterSetting(n, 300_000), ClusterSetting(0)), n) for n in (1, 2)
    )
    times = {None: 3.0, first: 2.0, second: 1.0}

    class Counting:
        clusters, device = (LITTLE, BIG), dict[str, str]()
        measured = 0

        def measure(self, configuration: CpuConfiguration | None) -> Measured:
            self.measured += 1
            return Measured("ok", figures=Figures(times[configuration]))

    recorded: list[tuple[CpuConfiguration | None, Measured]] = []
    bench = Counting()
    part = measure_again(
        bench, [first, second], blocks=3, seed=4, interrupted=lambda: bench.measured >= 4,
        on_measured=lambda configuration, measured: recorded.append((configuration, measured)),
    )  # fmt: skip
    # Not a whole block more: the one measurement of the second block counts, too.
    assert bench.measured == 4
    assert sorted(len(final.blocks) for final in part) == [1, 1, 2]
    again = Counting()
    whole = measure_again(again, [first, second], blocks=3, seed=4, earlier=recorded)
    assert again.measured == 6
    assert [len(final.blocks) for final in whole] == [3, 3, 3]
    # What was measured of others, or in another order, does not count.
    fresh = Counting()
    measure_again(fresh, [second, first], blocks=3, seed=4, earlier=recorded)
    assert fresh.measured == 9


@pytest.mark.parametrize("name", ["meizu-16t", "three-cluster", "four-cluster"])
def test_the_probes_of_a_large_space_are_the_designed_ones(name: str) -> None:
    found = load(name).clusters
    clusters = tuple(
        Cluster(
            cluster, c.cpus, c.capacity, c.frequencies_khz[0], c.frequencies_khz[-1],
            c.frequencies_khz, (), (),
        )
        for cluster, c in zip(CLUSTER_NAMES[len(found)], found, strict=True)
    )  # fmt: skip
    space = CpuSpace.of(clusters, CpuRanges(), clocks=True)
    for seed in (1, 2):
        probes = [space.at(n) for n in ModelSearch(space, "energy", seed=seed).probes]
        for index, cluster in enumerate(clusters):
            size, low, high = len(cluster.cpus), cluster.min_khz, cluster.max_khz
            for cores, khz in ((size, high), (1, low), (max(1, size // 2), high)):
                one = [ClusterSetting(0)] * len(clusters)
                one[index] = ClusterSetting(cores, khz)
                assert CpuConfiguration(tuple(one), cores) in probes
        whole = tuple(ClusterSetting(len(c.cpus), c.max_khz) for c in clusters)
        assert CpuConfiguration(whole, sum(s.cores for s in whole)) in probes


# Fronts.


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30))
@settings(max_examples=200, deadline=None)
def test_fronts_and_hypervolumes_agree_with_counting(points: list[tuple[int, int]]) -> None:
    found = [points[i] for i in front(points)]
    dominated = {p for p in points for q in points if q != p and q[0] <= p[0] and q[1] <= p[1]}
    assert sorted(found) == sorted(set(points) - dominated)
    cells = sum(any(p[0] <= x and p[1] <= y for p in points) for x in range(10) for y in range(10))
    assert hypervolume(points, (10, 10)) == cells
    known = np.asarray(points, np.float64)
    more = np.array([[3.0, 4.0], [9.0, 1.0]])
    for point, added in zip(more, improvement(more, known, (10, 10)), strict=True):
        assert added == pytest.approx(hypervolume([*points, tuple(point)], (10, 10)) - cells)


def test_a_front_gains_over_another_one_only_where_that_has_an_area() -> None:
    assert gain([(1.0, 2.0), (2.0, 1.0)], [(1.0, 2.0), (2.0, 1.0)]) == (1.0, 0.0)
    assert gain([(1.0, 1.0)], [(2.0, 2.0)]) == (1.0, None)
    assert gain([(2.0, 2.0)], [(1.0, 1.0)]) == (0.0, -1.0)
    reported = {"dominated": 1.0, "hypervolume_gain": None}
    assert fronts_text(reported) == (
        "Pareto front: joint equals or dominates 100% of the points of tuning kernels first, then cores"
    )
    larger, smaller = (fronts_text({**reported, "hypervolume_gain": x}) for x in (0.12, -0.12))
    assert larger.endswith("; its hypervolume is 12% larger")
    assert smaller.endswith("; its hypervolume is 12% smaller")


def test_the_knee_lies_furthest_below_the_line_between_the_ends() -> None:
    points = [(1.0, 100.0), (1.2, 12.0), (10.0, 8.0), (100.0, 1.0)]
    assert knee(points) == 1
    assert knee(points[:2]) is None
    assert knee([(1.0, 100.0), (50.0, 90.0), (100.0, 1.0)]) is None


# Objectives.


def test_limits_decide_which_configuration_is_best() -> None:
    found = [Figures(2.0, 7.0), Figures(5.0, 4.0), Figures(50.0, 3.0)]
    assert best("latency", NO_LIMITS, found) == 0
    assert best("energy", NO_LIMITS, found) == 2
    assert best("energy", Limits(time_s=30.0), found) == 1
    assert best("edp", NO_LIMITS, found) == 0
    assert best("latency", Limits(energy_j=1.0), found) is None
    assert Limits(time_s=4.0, celsius=40.0).excess(found[1]) == pytest.approx((0.25, 0.0))
    assert Limits(time_s=4.0, celsius=40.0).unknown(found[1]) == ["celsius"]
    # Degrees may be zero, or below: limits that people mean for cold rooms, or by mistake.
    warm = Figures(1.0, celsius=26.0)
    assert not any(Limits(celsius=limit).kept(warm) for limit in (-300.0, -5.0, 0.0, 25.9))
    assert Limits(celsius=26.0).kept(warm)
    with pytest.raises(ValueError, match="needs joules"):
        values("energy", Figures(1.0))


def test_named_points_are_bearable_but_need_not_be_in_time() -> None:
    found = [
        Figures(1.0, 9.0, 50.0),
        Figures(2.0, 7.0, 40.0),
        Figures(3.0, 5.0, 40.0),
        Figures(5.0, 4.0, 40.0),
        Figures(50.0, 3.0, 40.0, 2_000),
    ]
    free = named_points(NO_LIMITS, found)
    assert (free["fastest"], free["least_energy"]) == (0, 4)
    limits = Limits(time_s=4.0, energy_j=5.0, celsius=45.0, memory_bytes=1_000)
    assert named_points(limits, found) == {
        "fastest": 1, "least_energy": 3, "least_edp": 1, "least_energy_in_time": 2, "knee": 2,
    }  # fmt: skip
    assert named_points(Limits(celsius=30.0), found) == {}


def test_where_nothing_keeps_the_limits_nothing_is_measured_again_and_the_nearest_is_told() -> None:
    table = read_paper_table(TABLE)
    asked = StudyRequest(table.space(), "energy", Limits(time_s=0.5, celsius=40.0), 21)
    study = study_of(asked, optuna.storages.InMemoryStorage(), "x")
    outcome = CpuConfigRun(
        study, table, lambda *_: None, Quiet(), blocks=2, reference_every=0
    ).run()
    assert outcome is not None
    assert (outcome.finals, table.measurements) == ((), 21)
    found = found_of(asked, outcome)
    assert found.best is None
    fastest = min(table.figures(), key=lambda c: table.figures()[c].time_s)
    reported = f"the nearest, {fastest.text(NAMES)}, takes {table.figures()[fastest].time_s:.4g} s"
    assert nearest_text(found, asked.limits, NAMES) == f"{reported} where the limit is 0.5 s"


# Models.


def test_the_models_find_constants_that_made_the_measurements() -> None:
    clusters = (LITTLE, BIG)
    truth = TimeModel(np.array([2.0, 0.4]), np.array([20.0, 5.0]), 0.08, 0.001)
    draws = PowerModel(np.array([0.02, 0.2]), np.array([0.2, 0.6]), np.array([1.5, 1.9]), 0.1)
    space = small_space()
    clocks = space.clocks(space.numbers(np.random.default_rng(0), 10**6))
    seconds, busy = truth.predict(clocks)
    watts = draws.predict(clocks, busy)
    some = np.random.default_rng(1).choice(len(seconds), 20, replace=False)
    taken = Clocks(clocks.cores[some], clocks.ghz[some], clocks.threads[some])
    time = TimeModel.fit(taken, seconds[some], clusters)
    foretold, shares = time.predict(clocks)
    assert np.median(np.abs(foretold / seconds - 1)) < 0.02
    power = PowerModel.fit(taken, watts[some], shares[some], clusters)
    assert np.median(np.abs(power.predict(clocks, shares) / watts - 1)) < 0.03


def emulated(profile: str = "meizu-16t") -> tuple[CpuSpace, dict[int, Figures]]:
    """The profile's space with every third clock, and the model's seconds and joules."""
    device = load(profile)
    names = CLUSTER_NAMES[len(device.clusters)]
    clusters = tuple(
        Cluster(name, c.cpus, c.capacity, c.frequencies_khz[0], c.frequencies_khz[-1],
                c.frequencies_khz[::3], c.governors, ())
        for name, c in zip(names, device.clusters, strict=True)
    )  # fmt: skip
    space = CpuSpace.of(clusters, CpuRanges(), clocks=True)
    found = {}
    for number in space.numbers(np.random.default_rng(0), 10**6):
        setting = space.at(int(number))
        khz = [s.khz or c.min_khz or 1 for s, c in zip(setting.clusters, clusters, strict=True)]
        step = estimate(device, ALEXNET_B16, setting.cpus(clusters), khz)
        found[int(number)] = Figures(step.time_s, step.net_j)
    return space, found


@pytest.mark.parametrize("objective", ["latency", "energy"])
def test_twenty_measurements_find_the_optimum_of_an_emulated_phone(objective: Objective) -> None:
    space, truth = emulated()
    least = min(values(objective, f)[0] for f in truth.values())
    rng = np.random.default_rng(3)
    search = ModelSearch(space, objective, seed=3)
    known: list[Known] = []
    for _ in range(20):
        proposal = search.propose(known, {k.number for k in known})
        assert proposal is not None
        noise = np.exp(rng.normal(0, 0.03, 2))
        exact = truth[proposal.number]
        measured = Figures(exact.time_s * noise[0], float(exact.energy_j or 0) * noise[1])
        known.append(Known(proposal.number, measured))
    reached = min(values(objective, truth[k.number])[0] for k in known)
    assert reached <= 1.03 * least


def test_beliefs_come_with_an_error_that_left_out_measurements_confirm() -> None:
    space, truth = emulated()
    rng = np.random.default_rng(0)
    numbers = rng.permutation(sorted(truth))
    seen, unseen = numbers[:40], numbers[40:240]
    settings_seen = [space.at(int(n)) for n in seen]
    seconds = np.array([truth[int(n)].time_s for n in seen])
    joules = np.array([float(truth[int(n)].energy_j or 0) for n in seen])
    surrogate = Surrogate.fit(space.clusters, settings_seen, seconds, joules / seconds)
    belief = surrogate.predict([space.at(int(n)) for n in unseen])
    exact = np.log([truth[int(n)].time_s for n in unseen])
    assert np.median(np.abs(belief.log_s - exact)) < 0.06
    assert np.mean(np.abs(belief.log_s - exact) < 2.5 * belief.log_s_sd) > 0.8
    assert 0 < surrogate.errors()["time"] < 0.2


def test_a_deadline_is_kept_by_what_is_proposed() -> None:
    space, truth = emulated()
    limits = Limits(time_s=6.0)
    search = ModelSearch(space, "energy", limits, seed=1)
    known: list[Known] = []
    for _ in range(24):
        proposal = search.propose(known, {k.number for k in known})
        assert proposal is not None
        known.append(Known(proposal.number, truth[proposal.number]))
    feasible = [f for f in truth.values() if limits.kept(f)]
    least = min(float(f.energy_j or 0) for f in feasible)
    index = best("energy", limits, [k.figures for k in known])
    assert index is not None
    assert float(known[index].figures.energy_j or 0) <= 1.03 * least
    after = known[len(search.probes) :]
    assert sum(limits.kept(k.figures) for k in after) >= 0.6 * len(after)


# Studies.


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random", "grid"])
@pytest.mark.parametrize("model", [True, False])
def test_every_sampler_measures_each_recorded_configuration_once(
    sampler: SamplerName, model: bool
) -> None:
    table = read_paper_table(TABLE)
    space = table.space()
    ended: list[StudyTrial] = []
    study = study_of(
        request(space, 99, sampler, model=model), optuna.storages.InMemoryStorage(), "table"
    )
    study.run(table, lambda trial, _: ended.append(trial))
    assert table.measurements == 21
    assert Counter(t.configuration for t in ended) == dict.fromkeys(table.figures(), 1)
    assert [t.figures for t in ended] == [table.figures()[t.configuration] for t in ended]


def test_nsga2_is_no_random_search_at_as_many_trials_as_by_default() -> None:
    space, truth = emulated()
    table = TableEvaluator(space.clusters, {space.at(n): f for n, f in truth.items()}, {})
    least = min(f.time_s for f in truth.values())

    def median_gap(sampler: SamplerName) -> float:
        gaps = []
        for seed in range(1, 8):
            asked = request(space, 40, sampler, model=False, objective="latency", seed=seed)
            study = study_of(asked, optuna.storages.InMemoryStorage(), "x")
            study.run(table)
            gaps.append(min(t.figures.time_s for t in study.trials() if t.figures) / least - 1)
        return float(np.median(gaps))

    assert median_gap("nsga2") < 0.5 * median_gap("random")


@pytest.mark.parametrize("objective", ["latency", "energy", "edp", "pareto"])
def test_tpe_is_no_random_search_once_it_has_trials(objective: Objective) -> None:
    """Optuna begins at random; then TPE chooses like the best trials, however many of them are random too."""
    space, truth = emulated()
    table = TableEvaluator(space.clusters, {space.at(n): f for n, f in truth.items()}, {})

    def chosen(sampler: SamplerName) -> list[CpuConfiguration]:
        asked = request(space, 40, sampler, model=False, objective=objective, seed=3)
        study = study_of(asked, optuna.storages.InMemoryStorage(), "x")
        study.run(table)
        return [trial.configuration for trial in study.trials()]

    tpe, random = chosen("tpe"), chosen("random")
    assert tpe[:8] == random[:8]
    assert len(set(tpe[15:]) & set(random[15:])) < 0.4 * len(tpe[15:])


def test_what_models_propose_counts_in_nsga2_s_generations() -> None:
    table = read_paper_table(TABLE)
    storage = optuna.storages.InMemoryStorage()
    study_of(request(table.space(), 21, "nsga2"), storage, "x").run(table)
    trials = optuna.load_study(study_name="x", storage=storage).trials
    measured = [t for t in trials if t.state == optuna.trial.TrialState.COMPLETE]
    generations = Counter(t.system_attrs["Evolution:generation"] for t in measured)
    # Of four each.
    assert generations == {0: 4, 1: 4, 2: 4, 3: 4, 4: 4, 5: 1}


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random", "grid"])
@pytest.mark.parametrize("together", ["any", "whole"])
def test_a_study_s_parameters_are_what_was_measured_in_units(
    sampler: SamplerName, together: str
) -> None:
    cores: dict[str, object] = {"little": {"cores": [0, 1, 4]}}
    space = small_space(clusters=cores, threads_per_core=[0.5, 1.0], together=together)
    bench = TableEvaluator(
        space.clusters, {c: Figures(1.0 / c.cores, float(c.cores)) for c in every(space)}, {}
    )
    storage = optuna.storages.InMemoryStorage()
    made = study_of(request(space, 12, sampler, model=False), storage, "x")
    made.run(bench)
    found = optuna.load_study(study_name="x", storage=storage)
    assert found.metric_names == ["time of a step (s)", "energy of a step (J)"]
    assert len(made.trials()) == 12
    for trial in made.trials():
        reported = found.trials[trial.number].params
        for cluster, setting in zip(space.clusters, trial.configuration.clusters, strict=True):
            assert reported.get(f"{cluster.name} cores", 0) == setting.cores
            mhz = reported.get(f"{cluster.name} MHz")
            assert mhz == (setting.khz / 1000 if setting.khz else None)
        threads = max(1, round(reported["threads per core"] * trial.configuration.cores))
        assert threads == trial.configuration.threads


def test_what_others_queue_stands_for_the_nearest_that_the_space_has() -> None:
    space = small_space()
    storage = optuna.storages.InMemoryStorage()
    made = study_of(request(space, 1), storage, "x")
    optuna.load_study(study_name="x", storage=storage).enqueue_trial(
        {"little cores": 2, "little MHz": 1100.0, "big cores": 0}
    )
    made.run(TableEvaluator(space.clusters, {c: Figures(1.0, 1.0) for c in every(space)}, {}))
    (trial,) = made.trials()
    assert trial.configuration.clusters == (ClusterSetting(2, 1_000_000), ClusterSetting(0))


def test_the_default_is_in_the_study_once_and_no_trial_of_the_search() -> None:
    table = read_paper_table(TABLE)
    table.default = Figures(9.0, 60.0)
    storage = optuna.storages.InMemoryStorage()
    for trials in (5, 7, 7):
        run_ = CpuConfigRun(
            study_of(request(table.space(), trials), storage, "x"), table, lambda *_: None, Quiet(),
            blocks=2,
        )  # fmt: skip
        outcome = run_.run()
        assert outcome is not None
        assert len(outcome.trials) == trials
    own = [
        t
        for t in optuna.load_study(study_name="x", storage=storage).trials
        if "default" in t.user_attrs
    ]
    assert [(t.values, t.params) for t in own] == [([9.0, 60.0], {})]


def test_the_default_of_an_earlier_version_is_not_added_again() -> None:
    table = read_paper_table(TABLE)
    storage, default = optuna.storages.InMemoryStorage(), Figures(9.0, 60.0)
    study = study_of(request(table.space(), 5), storage, "x")
    old = optuna.load_study(study_name="x", storage=storage)
    reported = {"system's own choice": asdict(default)}
    old.add_trial(optuna.create_trial(values=[9.0, 60.0], user_attrs=reported))
    study.tell_default(default)
    assert len(old.trials) == 1
    study.tell_default(Figures(8.0, 60.0))
    assert [list(t.user_attrs) for t in old.trials] == [["system's own choice"], ["default"]]
    assert study.trials() == []


def test_studies_of_earlier_versions_go_on() -> None:
    """Their parameters were positions: `big.cores`, `big.clock`, `threads`."""
    table = read_paper_table(TABLE)
    space, storage = table.space(), optuna.storages.InMemoryStorage()
    old = optuna.create_study(storage=storage, study_name="x", directions=["minimize"] * 2)
    measured = list(table.figures().items())[:4]
    for configuration, figures in measured[:3]:
        known = {"configuration": space.number(configuration), "status": "ok", "reason": "tpe"}
        old.add_trial(
            optuna.create_trial(
                values=[figures.time_s, figures.energy_j],
                params={"big.cores": 1, "big.clock": 0},
                distributions={
                    "big.cores": optuna.distributions.IntDistribution(0, 4),
                    "big.clock": optuna.distributions.IntDistribution(0, 3),
                },
                user_attrs={
                    **known,
                    "figures": {"time_s": figures.time_s, "energy_j": figures.energy_j},
                },
            )
        )
    crashed = old.ask()
    crashed.suggest_int("big.cores", 0, 4)
    crashed.set_user_attr("configuration", space.number(measured[3][0]))
    crashed.set_user_attr("worker", this_worker())
    reported: list[CpuConfiguration] = []
    made = study_of(request(space, 8), storage, "x")
    made.run(table, lambda t, _: reported.append(t.configuration))
    assert reported[0] == measured[3][0]  # What the earlier version had begun comes first.
    assert len(reported) == 5
    assert {t.configuration for t in made.trials()} == {c for c, _ in measured} | set(reported)


@pytest.mark.parametrize("objective", ["latency", "energy", "pareto"])
def test_the_recorded_table_s_best_are_found_early(objective: Objective) -> None:
    table = read_paper_table(TABLE)
    order: list[tuple[float, ...]] = []
    study = study_of(
        request(table.space(), 21, objective=objective), optuna.storages.InMemoryStorage(), "x"
    )
    study.run(table, lambda t, _: order.append(values(objective, t.figures or Figures(math.inf))))
    if objective == "pareto":
        assert max(front(order)) < 16
    else:
        assert int(np.argmin(order)) < 8


def another_phone(table: TableEvaluator, seed: int) -> TableEvaluator:
    """The table of a phone whose clusters, clocks and threads pay otherwise, its rows in another order."""
    random = np.random.default_rng(seed)
    speed, watts = np.exp(random.uniform(-1.6, 1.6, 2)), np.exp(random.uniform(-1, 1, 2))
    clocks, threads = random.uniform(-0.6, 0.6, 2), random.uniform(-0.2, 1.5, 2)
    figures = {}
    rows = list(table.figures().items())
    random.shuffle(rows)
    for configuration, recorded in rows:
        used = [i for i, c in enumerate(configuration.clusters) if c.cores]
        time, power = recorded.time_s, (recorded.energy_j or math.nan) / recorded.time_s
        for i in used:
            own = configuration.clusters[i]
            assert own.khz is not None
            factor = speed[i] * (own.khz / 1.2e6) ** clocks[i] * own.cores ** threads[i]
            time *= factor ** (1 / len(used))
            power *= watts[i] ** (1 / len(used))
        figures[configuration] = Figures(time, time * power)
    return TableEvaluator(table.clusters, figures, {"name": "another"})


@pytest.mark.parametrize("objective", ["latency", "pareto"])
def test_the_best_of_other_phones_is_found_by_searching_not_by_an_order(
    objective: Objective,
) -> None:
    table = read_paper_table(TABLE)
    order: list[CpuConfiguration] = []
    asked = request(table.space(), 21, objective=objective)
    study_of(asked, optuna.storages.InMemoryStorage(), "x").run(
        table, lambda trial, _: order.append(trial.configuration)
    )
    needed: dict[str, list[int]] = {"search": [], "order": [], "random": []}
    goals = set()
    for seed in range(16):
        phone = another_phone(table, seed)
        found = search(phone, request(phone.space(), 21, objective=objective))
        drawn = search(
            phone,
            request(phone.space(), 21, "random", model=False, objective=objective, seed=seed + 1),
        )
        goals.add(found.goal)
        needed["search"].append(found.measurements)
        needed["order"].append(1 + max(order.index(c) for c in found.goal))
        needed["random"].append(drawn.measurements)
    mean = {name: float(np.mean(counts)) for name, counts in needed.items()}
    assert len(goals) >= 4
    # The order in which the search goes through the phone that it was made with.
    assert mean["search"] < 0.8 * mean["order"]
    assert mean["search"] < 0.75 * mean["random"]


class Interrupted:
    """A bench whose device goes away at its third measurement."""

    def __init__(self, path: Path) -> None:
        self._table = read_paper_table(path)
        self.clusters, self.device = self._table.clusters, self._table.device
        self.calls = 0

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        self.calls += 1
        if self.calls == 3:
            raise TransientDeviceError("gone")
        return self._table.measure(configuration)


def test_a_trial_that_was_interrupted_is_run_again_and_nothing_measured_is_lost(
    tmp_path: Path,
) -> None:
    bench = Interrupted(TABLE)
    space = read_paper_table(TABLE).space()
    url = f"sqlite:///{tmp_path / 'study.db'}"
    with pytest.raises(TransientDeviceError):
        study_of(request(space, 6), open_storage(url), "s").run(bench)
    study = study_of(request(space, 6), open_storage(url), "s")
    assert len(study.trials()) == 2
    study.run(bench)
    trials = study.trials()
    assert len(trials) == len({t.configuration for t in trials}) == 6


class Away(optuna.storages.InMemoryStorage):
    """A storage that goes away at some attribute of some trial, as its last word or on each call from then on."""

    def __init__(self, attribute: str, trial: int) -> None:
        super().__init__()
        self.at: tuple[str, int] | None = (attribute, trial)
        self.away = False

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        self.away |= (key, trial_id) == self.at
        self._check()
        super().set_trial_user_attr(trial_id, key, value)

    def set_trial_state_values(self, *arguments: Any, **named: Any) -> bool:
        self.away |= self.at is not None and (arguments[0], self.at[0]) == (self.at[1], "state")
        self._check()
        return super().set_trial_state_values(*arguments, **named)

    def _check(self) -> None:
        if self.away:
            raise optuna.exceptions.StorageInternalError("each fault has these words")


@pytest.mark.parametrize("attribute", ["figures", "state"])
def test_what_was_measured_while_the_storage_was_away_is_recorded_and_told_later(
    attribute: str,
) -> None:
    table = read_paper_table(TABLE)
    asked = request(table.space(), 6)
    events: list[dict[str, Any]] = []

    def record(kind: str, what: dict[str, Any], measured: Measured | None) -> None:
        assert measured is not None
        figures = vars(measured.figures) if measured.figures else None
        raised = {"status": measured.status, "message": measured.message, "figures": figures}
        events.append({"event": kind, **what, **raised})

    def run() -> CpuConfigRun:
        study = study_of(asked, storage, "s")
        return CpuConfigRun(
            study, table, record, Quiet(), blocks=0, reference_every=0, events=list(events)
        )

    storage = Away(attribute, 2)
    with pytest.raises(RecordError, match="storage fails") as raised, explained_faults("go on"):
        run().run()
    assert raised.value.hint == "go on"
    assert len(events) == table.measurements == 3
    storage.at, storage.away = None, False
    outcome = run().run()
    assert outcome is not None
    # Nothing was measured twice, and the search knows what the storage had not heard of.
    assert len(events) == table.measurements == 6
    recorded = [CpuConfiguration.from_json(e["configuration"], NAMES) for e in events]
    assert Counter(t.configuration for t in outcome.trials) == Counter(recorded)
    assert {t.configuration: t.figures for t in outcome.trials} == {
        c: table.figures()[c] for c in recorded
    }
    states = Counter(t.state for t in study_of(asked, storage, "s")._study.trials)
    assert states[optuna.trial.TrialState.COMPLETE] == 6
    assert states[optuna.trial.TrialState.RUNNING] == 0


def test_several_workers_share_a_study_without_a_lost_or_doubled_trial(tmp_path: Path) -> None:
    space = read_paper_table(TABLE).space()
    url = f"journal:{tmp_path / 'study.log'}"
    ended: list[StudyTrial] = []
    failures: list[BaseException] = []

    def work(number: int) -> None:
        from autotune.studies.run.study import Study, make_sampler

        try:
            asked = request(space, 15, seed=number)
            made = open_study(open_storage(url), "s", value_names("pareto"), make_sampler(asked))
            Study(asked, made, worker=f"elsewhere{number}/1:1").run(
                read_paper_table(TABLE), lambda t, _: ended.append(t)
            )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(ended) == len({t.configuration for t in ended}) == 15


def claimed_by(url: str, seed: int, worker: str = "") -> tuple[TrialLeases, optuna.Trial]:
    """One process's claims, and the trial that it has begun."""
    space = read_paper_table(TABLE).space()
    made = optuna.create_study(
        storage=open_storage(url), study_name="s", sampler=optuna.samplers.RandomSampler(seed=seed),
        load_if_exists=True,
    )  # fmt: skip
    claims = TrialLeases(made, space, 9, 1, worker)
    while (claimed := claims.claim()) is not None and claimed[1] is None:
        pass  # Passed over: not in the space, or taken.
    assert claimed is not None
    return claims, claimed[0]


def test_a_beat_is_heard_by_its_change_not_by_two_hosts_clocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("autotune.studies.run.trial_leases.time.monotonic", lambda: now[0])
    url = f"sqlite:///{tmp_path / 'study.db'}"
    # A host of this one's name whose clock is a year behind: its process numbers mean nothing here.
    _, theirs = claimed_by(url, 1, f"{socket.gethostname()}-other/1:1")
    theirs.set_user_attr("beat", time.time() - 3e7)
    listener, mine = claimed_by(url, 2)
    assert listener.take_over_crashed() == 1  # Its own, which it is not at work on.
    for beat in range(3):
        theirs.set_user_attr("beat", float(beat))
        now[0] += STALE_S + 1
        assert listener.take_over_crashed() == 0
    now[0] += STALE_S - 1
    assert listener.take_over_crashed() == 0
    now[0] += 2
    assert listener.take_over_crashed() == 1
    assert mine.number != theirs.number


def test_a_trial_of_a_process_of_this_machine_that_is_gone_is_taken_over_at_once(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    machine = this_worker().partition("/")[0]
    claimed_by(url, 1, f"{machine}/{2**22 + 1}:1")
    listener, _ = claimed_by(url, 2, "elsewhere/1:1")
    assert listener.take_over_crashed() == 2


def test_a_table_of_one_cluster_is_searched(tmp_path: Path) -> None:
    lines = TABLE.read_text().splitlines()
    path = tmp_path / "table.csv"
    path.write_text("\n".join([lines[0], *(line for line in lines if line.startswith("big"))]))
    table = read_paper_table(path)
    assert [cluster.name for cluster in table.clusters] == ["big"]
    found = search(table, request(table.space(), table.space().size))
    assert found.goal <= {trial.configuration for trial in found.trials}
    assert len(table.figures()) >= found.measurements == len(found.trials)


def test_a_search_of_many_recorded_configurations_costs_few_seconds_of_cpu(tmp_path: Path) -> None:
    """It took over ten: each proposal waited for threads of the linear algebra, also after the best was found."""
    rows = ["cluster,cores,big_freq_ghz,small_freq_ghz,time_s,energy_j"]
    for cluster in ("small", "big"):
        for cores in (1, 2, 3, 4):
            for step in range(11):
                ghz = 0.6 + 0.15 * step
                seconds = 60 / (cores * ghz * (1.0 if cluster == "small" else 2.2)) + 2
                watts = 0.3 + 0.2 * cores * ghz**2
                clocks = f",{ghz:.2f}" if cluster == "small" else f"{ghz:.2f},"
                rows.append(f"{cluster},{cores},{clocks},{seconds:.3f},{seconds * watts:.3f}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    command = [sys.executable, "-m", "autotune", "replay", str(tmp_path / "table.csv"), "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*command, "--objective", "energy", "--deadline", "10s"],
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    reported = json.loads(done.stdout)
    assert reported["configurations"] == 88
    assert max(reported["measurements"]) < 40
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 6.0, "twice or thrice what it takes on a machine that does nothing else"


def test_a_table_may_lack_joules(tmp_path: Path) -> None:
    rows = [line.split(",") for line in TABLE.read_text().splitlines()]
    column = rows[0].index("energy_j")
    path = tmp_path / "table.csv"
    path.write_text("\n".join(",".join(row[:column] + row[column + 1 :]) for row in rows))
    assert {f.energy_j for f in read_paper_table(path).figures().values()} == {None}
    rows[1][column] = ""
    path.write_text("\n".join(",".join(row) for row in rows))
    table = read_paper_table(path)
    assert [f.energy_j is None for f in table.figures().values()] == [True] + [False] * 20
    with pytest.raises(UsageError, match="missing of 1 of 21 configurations"):
        search(table, request(table.space(), 21, objective="energy"))
    assert search(table, request(table.space(), 21, objective="latency")).measurements >= 1


def test_a_table_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="not a table"):
        read_paper_table(path)
    lines = TABLE.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1], lines[2].replace("big", "huge")]))
    with pytest.raises(UsageError, match="line 3"):
        read_paper_table(path)


class Quiet:
    """Shows nothing of how a search goes on."""

    def phase(self, name: str, total: int) -> None:
        pass

    def step(self, done: int, text: str) -> None:
        pass

    def notice(self, text: str) -> None:
        pass


def test_a_meter_that_is_cut_off_marks_the_study_and_marks_of_runs_their_points() -> None:
    table = read_paper_table(TABLE)
    limit = float(
        np.median([f.energy_j / f.time_s for f in table.figures().values() if f.energy_j])
    )

    class CutOff(TableEvaluator):
        def measure(self, configuration: CpuConfiguration | None) -> Measured:
            found = super().measure(configuration or next(iter(table.figures())))
            if found.figures is None or found.figures.energy_j is None:
                return found
            joules = min(found.figures.energy_j, limit * found.figures.time_s)
            figures = Figures(found.figures.time_s, joules)
            return Measured("ok", figures=figures, raw={"marks": ["cut"], "rails": {"a": joules}})

    bench = CutOff(table.clusters, table.figures(), table.device)
    study = study_of(
        request(table.space(), 21, objective="energy"), optuna.storages.InMemoryStorage(), "x"
    )
    outcome = CpuConfigRun(study, bench, lambda *_: None, Quiet(), blocks=2).run()
    assert outcome is not None
    found = result(study, bench, outcome)
    assert f"configurations draw {limit:.2f} W" in found["marks"][0]
    assert found["best"]["marks"] == ["cut"]
    assert found["best"]["rails"]["a"] == pytest.approx(found["best"]["energy_j"])
    assert found["against_default"]["energy_j"]["doubtful"]
    assert not found["against_default"]["time_s"]["doubtful"]
    # What was measured once only has its marks as well.
    assert all(point["marks"] == ["cut"] for point in found["pareto"])
    assert (
        "energy of best, least energy",
        "cut",
    ) in doubts([("best", found["best"]), ("least_energy", found["best"])], [])


class Alike:
    """A bench on which every configuration is the same, but for noise of 5 %."""

    device: ClassVar[dict[str, Any]] = {"emulated": ""}

    def __init__(self, clusters: Sequence[Cluster], seed: int) -> None:
        self.clusters = clusters
        self._noise = np.random.default_rng(seed)

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        time_s, energy_j = np.exp(self._noise.normal(0, 0.05, 2)).tolist()
        return Measured("ok", figures=Figures(time_s, energy_j, deviation_j=0.03))


@pytest.mark.parametrize("objective", ["latency", "energy", "pareto"])
def test_the_best_is_never_one_lucky_run(objective: Objective) -> None:
    info = probe(EmulatedDevice("meizu-16t"))
    space = CpuSpace.of(info.clusters, CpuRanges(), clocks=True)
    wrong = 0
    for seed in range(6):
        study = study_of(
            request(space, 16, "random", model=False, objective=objective, seed=seed),
            optuna.storages.InMemoryStorage(),
            "alike",
        )
        bench = Alike(info.clusters, seed)
        outcome = CpuConfigRun(study, bench, lambda *_: None, Quiet()).run()
        assert outcome is not None
        found = result(study, bench, outcome)
        for point in (found["best"], *found["points"].values()):
            assert point["ci"]["blocks"] == 5
            # What the meter may be off by is in the interval, however well the blocks agree.
            low, high = point["ci"]["energy_j"]
            assert high - low >= 2 * 1.96 * 0.03
        wrong += found["against_default"]["time_s"]["verdict"] == "better"
    assert wrong <= 2
