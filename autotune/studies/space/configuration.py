"""A CPU configuration: the cores of each cluster that train, their clocks, and the number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.devices import Cluster
from autotune.errors import UsageError
from autotune.studies.space.configuration_text import configuration_text

MOST_THREADS_PER_CORE = 8
"""More threads than this for each training core are taken for a mistake and refused."""


@dataclass(frozen=True, order=True)
class ClusterSetting:
    """The setting of a cluster.

    Attributes:
        cores: Number of its cores that train; 0 for none.
        khz: Its fixed clock; None leaves the clock to the system.
    """

    cores: int
    khz: int | None = None


@dataclass(frozen=True, order=True)
class CpuConfiguration:
    """The choice of a search: one setting for each cluster, from the slowest cluster to the fastest.

    Attributes:
        clusters: The settings.
        threads: Threads of the workload.
    """

    clusters: tuple[ClusterSetting, ...]
    threads: int

    def __post_init__(self) -> None:
        if not any(setting.cores for setting in self.clusters) or self.threads < 1:
            raise UsageError("a configuration needs a core and a thread")
        if any(s.cores < 0 or (not s.cores and s.khz is not None) for s in self.clusters):
            raise UsageError("a cluster that does not train is left alone")
        if self.threads > MOST_THREADS_PER_CORE * self.cores:
            raise UsageError(
                f"{self.threads} threads on {self.cores} core{'s' * (self.cores > 1)}: "
                f"{MOST_THREADS_PER_CORE} a core are the most"
            )

    @property
    def cores(self) -> int:
        """Number of cores that train."""
        return sum(setting.cores for setting in self.clusters)

    def cpus(self, clusters: Sequence[Cluster]) -> tuple[int, ...]:
        """Returns the numbers of the cores that train: the last ones of each cluster.

        Many systems handle interrupts on a cluster's first core.

        Raises:
            UsageError: The device has other clusters.
        """
        if len(clusters) != len(self.clusters):
            raise UsageError(f"the device has {len(clusters)} clusters, not {len(self.clusters)}")
        chosen: list[int] = []
        for setting, cluster in zip(self.clusters, clusters, strict=True):
            if setting.cores > len(cluster.cpus):
                raise UsageError(f"{cluster.name} has no {setting.cores} cores")
            chosen += cluster.cpus[len(cluster.cpus) - setting.cores :]
        return tuple(sorted(chosen))

    def require_on(self, clusters: Sequence[Cluster], what: str) -> None:
        """Refuses cores and clocks that a device does not have.

        Args:
            clusters: The device's clusters, as many as there are settings.
            what: The source of the request, such as a plan's file.

        Raises:
            UsageError: A cluster has fewer cores, or cannot be set to the clock.
        """
        for setting, cluster in zip(self.clusters, clusters, strict=True):
            if setting.cores > len(cluster.cpus):
                raise UsageError(
                    f"{what} wants {setting.cores} cores of {cluster.name}, which has {len(cluster.cpus)}"
                )
            if setting.khz is not None and not cluster.takes(setting.khz):
                raise UsageError(
                    f"{what} wants {cluster.name} at {setting.khz} kHz, which it does not have"
                )

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """Returns a plain object: `{"clusters": {name: {"cores", "khz"}}, "threads"}`."""
        return {
            "clusters": {
                name: {"cores": setting.cores, "khz": setting.khz}
                for name, setting in zip(names, self.clusters, strict=True)
            },
            "threads": self.threads,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any], names: Sequence[str]) -> CpuConfiguration:
        """Returns the configuration from the output of `to_json`.

        Raises:
            UsageError: The value is something else, or is for a device with other clusters.
        """
        try:
            found = value["clusters"]
            if set(found) != set(names):
                raise UsageError(f"clusters {sorted(found)}, where the device has {list(names)}")
            return cls(
                tuple(ClusterSetting(found[n]["cores"], found[n]["khz"]) for n in names),
                value["threads"],
            )
        except (KeyError, TypeError) as error:
            raise UsageError(f"this is not a CPU configuration: {value}") from error

    def text(self, names: Sequence[str]) -> str:
        """Returns text for people: `4 big 2419 MHz`."""
        threads = "" if self.threads == self.cores else f", {self.threads} threads"
        return configuration_text(self.to_json(names)) + threads
