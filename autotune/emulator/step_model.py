"""Time and power of a training step, from the cores that do it and their clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.emulator.profile import CoreModel, Profile
from autotune.errors import UsageError

GIGA = 1e9


@dataclass(frozen=True)
class Workload:
    """A training step, or any other work that is split evenly among threads.

    Attributes:
        name: For people.
        flops: Floating-point operations.
        bytes_moved: Memory traffic in bytes that cores wait for.
        regions: Parallel loops, at whose ends the threads wait for each other.
        memory_bytes: Memory that it takes.
    """

    name: str
    flops: float
    bytes_moved: float
    regions: int = 100
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        if not (self.flops > 0 and self.bytes_moved >= 0 and self.regions >= 0):
            raise UsageError(f"the work '{self.name}' is none: {self.flops} operations")


ALEXNET_B16 = Workload("alexnet, batch 16", 65.9e9, 12.0e9, regions=100, memory_bytes=1536 * 2**20)
"""The step of the paper's Table 3, which the model is fitted to.

2.06 G multiply-adds an image: 0.71 G in each of the forward pass, the weight gradients and the data gradients, less
the first layer's data gradient (0.07 G), which nobody needs. The 12 GB are nominal: only the quotient with a
profile's `bandwidth_gb_s` enters the times, and that quotient is fitted. The memory is RES of the paper's published
traces.
"""


@dataclass(frozen=True)
class StepEstimate:
    """What a step takes while nothing changes.

    Attributes:
        time_s: Its duration in seconds.
        net_w: Power above idle in watts.
        busy: Share of the duration for which each core used works, by its number.
    """

    time_s: float
    net_w: float
    busy: dict[int, float]

    @property
    def net_j(self) -> float:
        """Energy above idle in joules."""
        return self.time_s * self.net_w


def core_power_w(core: CoreModel, khz: int) -> float:
    """Watts of a busy core above idle: static + dynamic * f^exponent, f in GHz."""
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
    """Time and power of a step.

    With n threads a core of cluster k at f GHz needs for its n-th part

        t = (stall_k + (1 - serial) * cycles_k / f) / n,  stall_k = bytes / bandwidth_k, cycles_k = flops / rate_k

    and the slowest core decides, as EMDL'21 found. A cluster with all its cores at work takes 1 + (c / f)^p times
    as long, since the system's own work finds no free core there. The serial share runs on the core that is
    fastest at it. A core that has done its part, or is preempted, draws a share of a busy core's power: what the
    system's own work draws is part of the idle baseline.

    Args:
        profile: The device.
        workload: The step.
        cpus: Cores that it may use.
        clocks_khz: Clock of each cluster in kHz, in the profile's order.
        threads: Number of threads; a core each where it is None. Fewer go to the fastest cores first, and more
            share the cores evenly.
        online: Cores that are on; all where it is None.

    Raises:
        UsageError: No core, a core that is not there, or no thread.
    """
    on = set(profile.cpus if online is None else online)
    chosen = sorted(set(cpus) & on)
    count = len(chosen) if threads is None else threads
    if not chosen or count < 1 or not set(cpus) <= set(profile.cpus):
        raise UsageError(f"{profile.name}: no step on cores {list(cpus)} with {count} threads")
    index = {cpu: profile.cluster_of(cpu) for cpu in chosen}
    ghz = [khz / 1e6 for khz in clocks_khz]
    serial = profile.model.serial_share

    def cycles(cluster: int) -> float:
        """Seconds that one core needs for all operations."""
        return (
            workload.flops / (GIGA * profile.clusters[cluster].model.flops_per_cycle) / ghz[cluster]
        )

    def alone(cluster: int) -> float:
        """Seconds that one core needs for everything that can be split."""
        model = profile.clusters[cluster].model
        return workload.bytes_moved / (GIGA * model.bandwidth_gb_s) + (1 - serial) * cycles(cluster)

    chosen.sort(key=lambda cpu: (alone(index[cpu]), cpu))
    load = {cpu: -(-(count - rank) // len(chosen)) for rank, cpu in enumerate(chosen[:count])}
    crowding = _crowding(profile, list(load), on, ghz)
    work = {cpu: n * alone(index[cpu]) / count for cpu, n in load.items()}
    parallel = max(work[cpu] * crowding[index[cpu]] for cpu in load)
    leader = min(load, key=lambda cpu: (cycles(index[cpu]) * crowding[index[cpu]], cpu))
    alone_s = serial * cycles(index[leader]) * crowding[index[leader]]
    barriers = workload.regions * profile.model.region_us * 1e-6 * (count - 1)
    total = parallel + alone_s + barriers
    # Time in which a core does the step's own work, without what preempts it.
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


def _crowding(
    profile: Profile, used: Sequence[int], online: set[int], ghz: Sequence[float]
) -> dict[int, float]:
    """Factor on the time of each cluster."""
    everywhere = profile.model.crowding_everywhere if set(used) >= online else 1.0
    # On a device of one cluster a full cluster is a full device, and has one factor only.
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
