"""Time and power of a training step, from the cores that run it and their clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from autotune.emulator.model.profile import CoreModel, Kernels, Profile
from autotune.errors import UsageError
from autotune.workloads import NestTraits, ScheduleTraits

GIGA = 1e9
REGISTERS_BYTES = 512
"""32 vector registers of 128 bits, as in every core of ARMv8-A."""
VECTOR_LANES = 4
"""Numbers of 4 bytes in such a register. Code without vectors does this many times less in a cycle."""


@dataclass(frozen=True)
class Workload:
    """A training step, or any other work that is split evenly among threads.

    Attributes:
        name: Name for people.
        flops: Floating-point operations.
        bytes_moved: Memory traffic in bytes that cores wait for.
        regions: Number of parallel loops; at their ends the threads wait for each other.
        memory_bytes: Memory that it uses.
        nest: Its loop nest; None if only the sums above are known.
    """

    name: str
    flops: float
    bytes_moved: float
    regions: int = 100
    memory_bytes: int = 0
    nest: NestTraits | None = None

    def __post_init__(self) -> None:
        if not (self.flops > 0 and self.bytes_moved >= 0 and self.regions >= 0):
            raise UsageError(f"the work '{self.name}' is none: {self.flops} operations")

    @classmethod
    def of(cls, nest: NestTraits) -> Workload:
        """Returns the work of a loop nest."""
        regions = 1 if nest.jobs > 1 else 0
        return cls("nest", max(nest.flops, 1.0), nest.traffic[-1], regions, nest=nest)


ALEXNET_B16 = Workload("alexnet, batch 16", 65.9e9, 12.0e9, regions=100, memory_bytes=1536 * 2**20)
"""The step of the paper's Table 3, to which the model is fitted.

There are 2.06 G multiply-adds an image: 0.71 G each in the forward pass, the weight gradients and the data
gradients, minus the first layer's data gradient (0.07 G), which is not needed. The 12 GB are nominal: only their
quotient with a profile's `bandwidth_gb_s` affects the times, and that quotient is fitted. The memory is RES of the
paper's published traces.
"""


@dataclass(frozen=True)
class StepEstimate:
    """Time and power of a step while nothing changes.

    Attributes:
        time_s: Its duration in seconds.
        net_w: Power above idle in watts.
        busy: Share of the duration in which each used core works, by its number.
    """

    time_s: float
    net_w: float
    busy: dict[int, float]

    @property
    def net_j(self) -> float:
        """Energy above idle in joules."""
        return self.time_s * self.net_w


def in_sequence(parts: Sequence[StepEstimate]) -> StepEstimate:
    """Combines parts of work that are done one after the other.

    Args:
        parts: Estimates of the parts; at least one.
    """
    total = sum(part.time_s for part in parts)
    cpus = {cpu for part in parts for cpu in part.busy}
    busy = {
        cpu: sum(part.busy.get(cpu, 0.0) * part.time_s for part in parts) / total for cpu in cpus
    }
    return StepEstimate(total, sum(part.net_j for part in parts) / total, busy)


def core_power_w(core: CoreModel, khz: int) -> float:
    """Returns watts of a busy core above idle: static + dynamic * f^exponent, f in GHz."""
    return core.static_w + core.dynamic_w * float((khz / 1e6) ** core.dynamic_exponent)


def estimate(
    profile: Profile,
    workload: Workload,
    cpus: Sequence[int],
    clocks_khz: Sequence[int],
    *,
    threads: int | None = None,
    online: Sequence[int] | None = None,
) -> StepEstimate:
    """Estimates time and power of a step.

    With n threads a core of cluster k at f GHz needs for its n-th part

        t = (stall_k + (1 - serial) * cycles_k / f) / n,  stall_k = bytes / bandwidth_k, cycles_k = flops / rate_k

    and the slowest core decides, as EMDL'21 found. A cluster with all its cores at work takes 1 + (c / f)^p times
    as long, because the system's own work finds no free core there. The serial share runs on the core that is
    fastest at it. A core that has finished its part, or is preempted, draws a share of a busy core's power; the
    power of the system's own work is part of the idle baseline.

    If the loops are known, TVM's runtime gives each thread the same number of the parallel loop's iterations, and
    fewer to the last ones. Cycles and stall are then computed from the loops' traits.

    Args:
        profile: The device.
        workload: The step.
        cpus: Cores that it may use.
        clocks_khz: Clock of each cluster in kHz, in the profile's order.
        threads: Number of threads; None for one on each core. Fewer threads use the fastest cores first; more share
            the cores evenly.
        online: Cores that are on; None for all.

    Raises:
        UsageError: There are no cores or threads, or a core does not exist.
    """
    on = set(profile.cpus if online is None else online)
    chosen = sorted(set(cpus) & on)
    count = len(chosen) if threads is None else threads
    if not chosen or count < 1 or not set(cpus) <= set(profile.cpus):
        raise UsageError(f"{profile.name}: no step on cores {list(cpus)} with {count} threads")
    index = {cpu: profile.cluster_of(cpu) for cpu in chosen}
    ghz = [khz / 1e6 for khz in clocks_khz]
    serial = profile.model.serial_share

    shares = _shares(workload, count)
    sharing = min(len(shares), len(chosen))

    @cache
    def cycles(cluster: int) -> float:
        """Returns seconds that one core needs for all operations."""
        return _cycles(profile, workload, cluster) / (GIGA * ghz[cluster])

    @cache
    def alone(cluster: int) -> float:
        """Returns seconds that one core needs for everything that can be split."""
        return _stall_s(profile, workload, cluster, sharing) + (1 - serial) * cycles(cluster)

    chosen.sort(key=lambda cpu: (alone(index[cpu]), cpu))
    load = {cpu: sum(shares[rank :: len(chosen)]) for rank, cpu in enumerate(chosen[: len(shares)])}
    crowding = _crowding(profile, list(load), on, ghz)
    work = {cpu: share * alone(index[cpu]) for cpu, share in load.items()}
    parallel = max(work[cpu] * crowding[index[cpu]] for cpu in load)
    leader = min(load, key=lambda cpu: (cycles(index[cpu]) * crowding[index[cpu]], cpu))
    alone_s = serial * cycles(index[leader]) * crowding[index[leader]]
    barriers = workload.regions * profile.model.region_us * 1e-6 * (len(shares) - 1)
    total = parallel + alone_s + barriers
    # Time in which a core does the step's own work, without the work that preempts it.
    own = {
        cpu: w + (serial * cycles(index[leader]) if cpu == leader else 0.0)
        for cpu, w in work.items()
    }
    busy = {cpu: min(1.0, w / total) for cpu, w in own.items()}
    waiting = profile.model.waiting_share
    net = sum(
        core_power_w(profile.clusters[index[cpu]].model, clocks_khz[index[cpu]])
        * (share + waiting * (1 - share))
        for cpu, share in busy.items()
    )
    return StepEstimate(total, net, busy)


def schedule_estimate(
    profile: Profile,
    schedule: ScheduleTraits,
    cpus: Sequence[int],
    clocks_khz: Sequence[int],
    *,
    threads: int | None = None,
) -> tuple[float, float]:
    """Returns seconds and net joules of a kernel, whose nests run one after the other. See `estimate`."""
    nests = [
        estimate(profile, Workload.of(nest), cpus, clocks_khz, threads=threads)
        for nest in schedule.nests
    ]
    return sum(nest.time_s for nest in nests), sum(nest.net_j for nest in nests)


def _shares(workload: Workload, count: int) -> list[float]:
    """Returns the share of the work of each thread. Threads without work are left out."""
    if workload.nest is None:
        return [1 / count] * count
    jobs = workload.nest.jobs
    most = -(-jobs // count)
    return [min(most, jobs - first) / jobs for first in range(0, jobs, most)]


def nest_cycles(core: Kernels, nest: NestTraits) -> float:
    """Returns clock cycles of one core for a nest's operations, and for its loads from caches.

    For an in-order core the two are added. An out-of-order core does both at the same time.
    """
    lanes = nest.vector_share + VECTOR_LANES * (1 - nest.vector_share)
    parts = (
        nest.flops * lanes / core.flops_per_cycle,
        nest.bytes_through(REGISTERS_BYTES) / core.load_bytes_per_cycle,
        nest.bytes_through(core.l1_bytes) / core.fill_bytes_per_cycle,
    )
    return sum(parts) if core.in_order else max(parts)


def nest_bytes(profile: Profile, nest: NestTraits, cluster: int, sharing: int) -> float:
    """Returns the model's bytes that a nest takes from beyond the caches of a cluster's core.

    Args:
        profile: The device.
        nest: The nest.
        cluster: The core's cluster.
        sharing: Number of cores that share the cache beyond their own.
    """
    cache_bytes = profile.clusters[cluster].kernels.l2_bytes + profile.model.l3_bytes / sharing
    return profile.model.traffic_scale * nest.bytes_through(cache_bytes)


def _cycles(profile: Profile, workload: Workload, cluster: int) -> float:
    found = profile.clusters[cluster]
    if workload.nest is None:
        return workload.flops / found.model.flops_per_cycle
    return nest_cycles(found.kernels, workload.nest)


def _stall_s(profile: Profile, workload: Workload, cluster: int, sharing: int) -> float:
    """Returns seconds that one core waits for memory, at any clock, in the whole work."""
    moved = workload.bytes_moved
    if workload.nest is not None:
        moved = nest_bytes(profile, workload.nest, cluster, sharing)
    return moved / (GIGA * profile.clusters[cluster].model.bandwidth_gb_s)


def _crowding(
    profile: Profile, used: Sequence[int], online: set[int], ghz: Sequence[float]
) -> dict[int, float]:
    """Returns the factor on the time of each cluster."""
    everywhere = profile.model.crowding_everywhere if set(used) >= online else 1.0
    # On a device with one cluster, a full cluster is a full device, and only one factor applies.
    factor = everywhere if len(profile.clusters) > 1 else 1.0
    found = {}
    for number, cluster in enumerate(profile.clusters):
        on = set(cluster.cpus) & online
        full = bool(on) and on <= set(used)
        model = cluster.model
        found[number] = (
            1 + (factor * model.crowding_ghz / ghz[number]) ** model.crowding_exponent
            if full
            else 1.0
        )
    return found
