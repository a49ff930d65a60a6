"""The cores, clocks and threads of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from autotune.devices import Cluster, Device, Journal, cpu_list_text, cpufreq


@dataclass(frozen=True)
class Setting:
    """The setting of a run.

    Attributes:
        cpus: Cores; None leaves them to the system.
        khz: A clock for each of the device's clusters; None leaves it to the system.
        threads: Threads of the workload.
        moving: Clocks of each cluster that the workload itself sets in turn; empty if it sets none.
    """

    cpus: tuple[int, ...] | None
    khz: tuple[int | None, ...]
    threads: int
    moving: tuple[tuple[int, ...], ...] = ()

    @property
    def cpus_text(self) -> str:
        """The cores as the kernel writes a list; empty if the system chooses."""
        return cpu_list_text(self.cpus) if self.cpus else ""

    def may_use(self, cluster: Cluster) -> bool:
        """Returns whether a core of a cluster is among them, or the system chooses."""
        return self.cpus is None or bool(set(cluster.cpus) & set(self.cpus))


def threads_of(setting: Setting) -> Setting:
    """Returns only its threads, for a program whose cores and clocks are set from outside."""
    return Setting(None, (None,) * len(setting.khz), setting.threads)


def all_of(settings: Sequence[Setting]) -> Setting:
    """Returns everything that a program may use while it goes through several settings."""
    cpus = sorted({cpu for setting in settings for cpu in setting.cpus or ()})
    clocks = [
        tuple(dict.fromkeys(khz for khz in column if khz is not None))
        for column in zip(*(setting.khz for setting in settings), strict=True)
    ]
    threads = max(setting.threads for setting in settings)
    return Setting(tuple(cpus), (None,) * len(clocks), threads, tuple(clocks))


@contextmanager
def clocks_held(
    device: Device, journal: Journal, clusters: tuple[Cluster, ...], setting: Setting
) -> Iterator[None]:
    """Holds the clocks of a setting, journalled. Clusters with a free clock are left alone.

    Raises:
        StableDeviceError: See `cpufreq.fixed_frequency`.
    """
    with ExitStack() as stack:
        for index, (cluster, khz) in enumerate(zip(clusters, setting.khz, strict=True)):
            if setting.moving and setting.moving[index]:
                begins_at = setting.moving[index][0]
                stack.enter_context(cpufreq.moving_frequency(device, journal, cluster, begins_at))
            elif khz is not None:
                stack.enter_context(cpufreq.fixed_frequency(device, journal, cluster, khz))
        yield
