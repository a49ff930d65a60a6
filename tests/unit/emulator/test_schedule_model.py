"""How a schedule, a cluster and a clock work together in the emulator's model."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.emulator.model import profile as profiles
from autotune.emulator.model.fit_kernels import calibrated, main, read_pools
from autotune.emulator.model.step_model import (
    ALEXNET_B16,
    VECTOR_LANES,
    Workload,
    estimate,
    schedule_estimate,
)
from autotune.errors import UsageError
from autotune.workloads.schedule_traits import CACHE_SIZES, NestTraits, ScheduleTraits

POOLS = sorted((Path(__file__).parents[3] / "logs/samples/alexnet-b16-pools").glob("*.json"))
MEIZU = profiles.load("meizu-16t")
LITTLE, BIG = MEIZU.clusters
FASTEST = (LITTLE.frequencies_khz[-1], BIG.frequencies_khz[-1])
HALF = (LITTLE.frequencies_khz[-1], BIG.frequencies_khz[-1] // 2)


def nest(
    flops: float = 1e9, jobs: int = 64, vector_share: float = 1.0, **bytes_below: float
) -> NestTraits:
    """A nest that moves so many bytes through caches below some size, as `kib256=1e9` says, and 1 MB beyond."""
    sizes = {int(name.removeprefix("kib")) * 1024: moved for name, moved in bytes_below.items()}
    traffic = tuple(
        max([1e6, *(moved for limit, moved in sizes.items() if size < limit)])
        for size in CACHE_SIZES
    )
    return NestTraits(flops, jobs, vector_share, traffic)


def seconds(some: NestTraits, cpus: tuple[int, ...], clocks: tuple[int, ...] = FASTEST) -> float:
    return estimate(MEIZU, Workload.of(some), cpus, clocks).time_s


def test_threads_get_equal_parts_and_the_last_ones_less() -> None:
    one, three = seconds(nest(jobs=8), (4,)), seconds(nest(jobs=8), (4, 5, 6))
    many = seconds(nest(jobs=900), (4, 5, 6))
    serial = MEIZU.model.serial_share
    # Of eight jobs a core of three has three.
    assert three / one == pytest.approx(serial + (1 - serial) * 3 / 8, rel=0.01)
    assert many / one == pytest.approx(serial + (1 - serial) / 3, rel=0.01)


def test_a_loop_that_is_not_parallel_uses_one_core() -> None:
    alone = estimate(MEIZU, Workload.of(nest(jobs=1)), BIG.cpus, FASTEST)
    assert set(alone.busy) == {4}
    assert alone.time_s == pytest.approx(seconds(nest(jobs=1), (4,)))


def test_few_jobs_are_better_on_few_cores_than_on_unlike_ones() -> None:
    few, many = nest(jobs=4), nest(jobs=256)
    everywhere = MEIZU.cpus
    assert seconds(few, BIG.cpus[:3]) > seconds(many, BIG.cpus[:3])
    # Eight threads for four jobs: the fast cores get them all.
    assert set(estimate(MEIZU, Workload.of(few), everywhere, FASTEST).busy) == set(BIG.cpus)


def test_a_working_set_that_only_the_larger_cache_holds_costs_the_smaller_one() -> None:
    # Four cores have a quarter of the shared cache each, beside their own: 640 KiB a little one, 768 KiB a big one.
    small, large = nest(kib256=2e9), nest(kib1024=2e9)
    for cluster in (LITTLE, BIG):
        assert seconds(large, cluster.cpus) > 1.3 * seconds(small, cluster.cpus)
    # One core alone has all of the shared cache, and then the same set fits.
    assert seconds(large, (4,)) == pytest.approx(seconds(small, (4,)), rel=0.02)


def test_what_waits_for_memory_does_not_wait_longer_at_a_lower_clock() -> None:
    bound, free = nest(flops=1e8, kib4096=4e9), nest(flops=1e9)
    assert seconds(bound, (4, 5), HALF) < 1.2 * seconds(bound, (4, 5))
    assert seconds(free, (4, 5), HALF) > 1.8 * seconds(free, (4, 5))


def test_code_without_vectors_and_loads_from_near_cost_cycles() -> None:
    plain, scalar = nest(), nest(vector_share=0.0)
    assert seconds(scalar, (4,)) == pytest.approx(VECTOR_LANES * seconds(plain, (4,)), rel=0.02)
    # A core that works in order adds loads to arithmetic; one that works ahead does both at once.
    loads = nest(kib1=1e9)
    assert seconds(loads, (0,)) > 1.1 * seconds(plain, (0,))
    assert seconds(loads, (4,)) == pytest.approx(seconds(plain, (4,)), rel=0.01)


def test_a_kernel_takes_its_nests_one_after_the_other() -> None:
    first, second = nest(), nest(flops=0.0, kib64=5e8)
    both = schedule_estimate(MEIZU, ScheduleTraits((first, second)), BIG.cpus, FASTEST)
    apart = [
        schedule_estimate(MEIZU, ScheduleTraits((one,)), BIG.cpus, FASTEST)
        for one in (first, second)
    ]
    assert both[0] == pytest.approx(sum(time for time, _ in apart))
    assert both[1] == pytest.approx(sum(joules for _, joules in apart))
    assert apart[1][0] > 0


@pytest.mark.parametrize("name", profiles.names())
def test_every_profile_says_how_its_cores_run_schedules(name: str) -> None:
    profile = profiles.load(name)
    clocks = [cluster.frequencies_khz[-1] for cluster in profile.clusters]
    times = [
        estimate(profile, Workload.of(nest()), cluster.cpus[:1], clocks).time_s
        for cluster in profile.clusters
    ]
    # Clusters go from the slowest to the fastest.
    assert times == sorted(times, reverse=True)
    worse = replace(nest(), jobs=1)
    for cluster in profile.clusters:
        assert (
            estimate(profile, Workload.of(worse), cluster.cpus, clocks).time_s
            >= estimate(profile, Workload.of(nest()), cluster.cpus, clocks).time_s
        )


@pytest.mark.parametrize("name", profiles.names())
def test_the_profiles_hold_what_the_calibration_finds(name: str) -> None:
    profile = profiles.load(name)
    found, difference = calibrated(profile, read_pools(POOLS))
    assert difference < 0.05
    assert found.model.traffic_scale == pytest.approx(profile.model.traffic_scale, rel=0.05)
    for cluster, own in zip(found.clusters, profile.clusters, strict=True):
        rate = cluster.kernels.flops_per_cycle
        assert rate == pytest.approx(own.kernels.flops_per_cycle, rel=0.05)


def test_a_calibrated_step_is_the_papers_on_one_core() -> None:
    kernels = read_pools(POOLS)
    for core in (0, 4):
        best = sum(
            kernel.count
            * min(schedule_estimate(MEIZU, s, [core], FASTEST)[0] for s in kernel.schedules)
            for kernel in kernels
        )
        assert best == pytest.approx(estimate(MEIZU, ALEXNET_B16, [core], FASTEST).time_s, rel=0.03)


def test_a_file_without_pools_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"tasks": [{"name": "a", "count": 1}]}')
    with pytest.raises(UsageError, match="not a result with pools"):
        read_pools([path])
    assert main(["meizu-16t"]) == 2
