"""A recorded table of configurations as a bench, so that a search can be studied without a device."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.devices.topology import Cluster
from autotune.errors import UsageError
from autotune.studies.bench import Measured
from autotune.studies.configuration import ClusterSetting, CpuConfiguration
from autotune.studies.objective import Figures
from autotune.studies.space import CpuSpace

_COLUMNS = ("cluster", "cores", "big_freq_ghz", "small_freq_ghz", "time_s", "energy_j")
_CAPACITY = {"little": 360, "big": 1024}
"""As Linux has them for the table's phone: arch/arm64/boot/dts/qcom/sm8150.dtsi, at the highest clocks."""


class TableBench:
    """Answers from a table what a device would measure.

    Args:
        clusters: The recorded device's, from slow to fast.
        figures: What was recorded.
        about: What the recorded device was.
        default: What the system did by itself, if that was recorded.
    """

    def __init__(
        self,
        clusters: tuple[Cluster, ...],
        figures: Mapping[CpuConfiguration, Figures],
        about: dict[str, Any],
        default: Figures | None = None,
    ) -> None:
        self.clusters = clusters
        self.device = about
        self.default = default
        self._figures = dict(figures)
        self.measurements = 0

    def space(self) -> CpuSpace:
        """What was recorded, as a space."""
        return CpuSpace.listed(self.clusters, self._figures)

    def figures(self) -> dict[CpuConfiguration, Figures]:
        """Everything that was recorded."""
        return dict(self._figures)

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """See `Bench.measure`."""
        found = self.default if configuration is None else self._figures.get(configuration)
        if found is None:
            return Measured("failed", "this configuration was not recorded")
        self.measurements += 1
        return Measured("ok", figures=found)


def read_paper_table(path: Path) -> TableBench:
    """The CSV of EMDL'21's Table 3: big, small or hybrid (both) cores, a clock for each cluster, seconds, joules.

    Raises:
        UsageError: It cannot be read, or is no such table.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    if not rows or not set(_COLUMNS) <= set(rows[0]):
        raise UsageError(f"{path} is no table of configurations", hint=f"columns {_COLUMNS}")
    found: dict[CpuConfiguration, Figures] = {}
    for line, row in enumerate(rows, start=2):
        try:
            cores = int(row["cores"])
            little, big = {
                "small": (cores, 0), "big": (0, cores), "hybrid": (cores // 2, cores - cores // 2)
            }[row["cluster"]]  # fmt: skip
            setting = CpuConfiguration(
                (_setting(little, row["small_freq_ghz"]), _setting(big, row["big_freq_ghz"])), cores
            )
            found[setting] = Figures(float(row["time_s"]), float(row["energy_j"]))
        except (KeyError, ValueError, TypeError) as error:
            raise UsageError(f"{path}: line {line} is no configuration: {error}") from error
    clusters = tuple(
        _cluster(name, index, [c.clusters[index] for c in found])
        for index, name in enumerate(("little", "big"))
    )
    about = {"name": path.stem, "emulated": f"replayed from {path.name}"}
    return TableBench(clusters, found, about)


def _setting(cores: int, ghz: str) -> ClusterSetting:
    return ClusterSetting(cores, round(float(ghz) * 1e6)) if cores else ClusterSetting(0)


def _cluster(name: str, index: int, settings: list[ClusterSetting]) -> Cluster:
    size = max(s.cores for s in settings)
    clocks = tuple(sorted({s.khz for s in settings if s.khz is not None}))
    first = index * size
    cpus = tuple(range(first, first + size))
    return Cluster(name, cpus, _CAPACITY[name], clocks[0], clocks[-1], clocks, (), ())
