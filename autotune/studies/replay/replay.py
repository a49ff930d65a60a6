"""Uses a recorded table of configurations as an evaluator, so that a search can be studied without a device."""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import optuna

from autotune.devices import Cluster
from autotune.errors import UsageError
from autotune.reading import DOCUMENT, read_text, reading, typed
from autotune.records import read_run
from autotune.studies.evaluators import Measured
from autotune.studies.run import StudyRequest, StudyTrial, study_of
from autotune.studies.space import (
    ClusterSetting,
    CpuConfiguration,
    CpuSpace,
    Figures,
    best,
    front,
    needs_energy,
    values,
)

_MOST_CORES = 1024
_MOST_ROWS = 100_000
_TABLE = replace(DOCUMENT, bytes=16 << 20)
_RANGES = {"GHz": (1e-3, 100.0), "s": (1e-9, 1e9), "J": (1e-12, 1e12)}
_WHOLE = re.compile(r"\s*[0-9]{1,9}\s*")
_COLUMNS = ("cluster", "cores", "big_freq_ghz", "small_freq_ghz", "time_s", "energy_j")
_JOULES = "energy_j"
_CLUSTERS = ("big", "small", "little", "hybrid")
_ROW = f"cluster is {', '.join(_CLUSTERS[:-1])} or {_CLUSTERS[-1]}; cores is a whole number; the rest are numbers"
_NOTHING = ("", "-")
CAPACITY = {"little": 360, "big": 1024}
"""Core capacities in Linux for the table's phone, at the highest clocks: arch/arm64/boot/dts/qcom/sm8150.dtsi."""


class TableEvaluator:
    """Returns recorded figures in place of measurements on a device.

    Args:
        clusters: The recorded device's clusters, from slow to fast.
        figures: The recorded figures.
        about: A description of the recorded device.
        default: Figures of the system's default behaviour, if recorded.
        marks: Reasons to doubt the energy of some configurations.
    """

    def __init__(
        self,
        clusters: tuple[Cluster, ...],
        figures: Mapping[CpuConfiguration, Figures],
        about: dict[str, Any],
        default: Figures | None = None,
        marks: Mapping[CpuConfiguration, str] | None = None,
    ) -> None:
        self.clusters = clusters
        self.device = about
        self.default = default
        self.marks = dict(marks or {})
        self._figures = dict(figures)
        self.measurements = 0

    def with_joules(self) -> TableEvaluator:
        """Returns the evaluator without configurations that lack energy.

        Raises:
            UsageError: All configurations lack energy.
        """
        known = {c: f for c, f in self._figures.items() if f.energy_j is not None}
        if not known:
            raise UsageError(
                f"joules are missing of all {len(self._figures)} configurations",
                hint="search with --objective latency",
            )
        return TableEvaluator(self.clusters, known, self.device, self.default, self.marks)

    def space(self) -> CpuSpace:
        """Returns the recorded configurations as a space."""
        return CpuSpace.listed(self.clusters, self._figures)

    def figures(self) -> dict[CpuConfiguration, Figures]:
        """Returns all recorded figures."""
        return dict(self._figures)

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """See `Evaluator.measure`."""
        found = self.default if configuration is None else self._figures.get(configuration)
        if found is None:
            return Measured("failed", "this configuration was not recorded")
        self.measurements += 1
        mark = self.marks.get(configuration) if configuration else None
        return Measured("ok", figures=found, raw={"marks": [mark]} if mark else None)


def _split(cluster: str, cores: int) -> tuple[int, int]:
    """Returns how many of the cores are little, and how many big."""
    if cluster not in _CLUSTERS:
        raise ValueError(f"{cluster[:20]!r} is no cluster")
    if cluster == "hybrid":
        return cores // 2, cores - cores // 2
    return (0, cores) if cluster == "big" else (cores, 0)


def read_paper_table(path: Path) -> TableEvaluator:
    """Reads the CSV of EMDL'21's Table 3.

    Columns are big, small (or little) or hybrid (both) cores, a clock for each cluster, seconds, joules. The joules
    column may be missing, or have empty cells.

    Raises:
        UsageError: The file cannot be read, has more than 16 MiB or 100000 rows, or is not such a table.
    """
    table = csv.DictReader(io.StringIO(read_text(path, _TABLE), newline=""))
    try:
        rows = list(islice(table, _MOST_ROWS + 1))
    except csv.Error as error:
        raise UsageError(f"{path} is not a table: {error}") from error
    if len(rows) > _MOST_ROWS:
        raise UsageError(f"{path} has more than {_MOST_ROWS} configurations")
    if not rows or not set(_COLUMNS) - {_JOULES} <= set(rows[0]):
        raise UsageError(f"{path} is not a table of configurations", hint=f"columns {_COLUMNS}")
    found: dict[CpuConfiguration, Figures] = {}
    for line, row in enumerate(rows, start=2):
        try:
            if not _WHOLE.fullmatch(row["cores"]) or not 1 <= int(row["cores"]) <= _MOST_CORES:
                raise ValueError(f"{row['cores'][:20]} cores")
            cores = int(row["cores"])
            little, big = _split(row["cluster"], cores)
            setting = CpuConfiguration(
                (_setting(little, row["small_freq_ghz"]), _setting(big, row["big_freq_ghz"])), cores
            )
            cell = (row.get(_JOULES) or "").strip()
            joules = None if cell in _NOTHING else _measure(cell, "J")
            figures = Figures(_measure(row["time_s"], "s"), joules)
            found[setting] = figures
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise UsageError(
                f"{path}: line {line} is not a configuration: {error}", hint=_ROW
            ) from error
    # A cluster with no training cores in any row is not part of the table.
    used = [index for index in (0, 1) if any(c.clusters[index].cores for c in found)]
    clusters = tuple(
        _cluster(("little", "big")[index], index, [c.clusters[index] for c in found])
        for index in used
    )
    found = {
        CpuConfiguration(tuple(c.clusters[index] for index in used), c.threads): figures
        for c, figures in found.items()
    }
    about = {"name": path.stem, "emulated": f"replayed from {path.name}"}
    return TableEvaluator(clusters, found, about)


def read(path: Path) -> TableEvaluator:
    """Reads a recorded table: the paper's CSV, or a run of cpu-config.

    Raises:
        UsageError: It is neither, or has no measurements.
    """
    return read_run_table(path) if path.is_dir() else read_paper_table(path)


def read_run_table(path: Path) -> TableEvaluator:
    """Reads the measurements of a run of cpu-config. Configurations that were measured again have their medians.

    Raises:
        UsageError: It is not such a run, or has no measurements.
        RecordError: It is damaged.
    """
    with reading(path):
        return _run_table(path)


def _run_table(path: Path) -> TableEvaluator:
    run = read_run(path)
    if "objective" not in run.about.get("request", {}):
        raise UsageError(f"{path} is not a run of cpu-config")
    device = run.about["device"]
    clusters = tuple(Cluster(**_tuples(c)) for c in device["clusters"])
    names = [cluster.name for cluster in clusters]
    figures_of: dict[CpuConfiguration | None, list[Figures]] = {}
    for event in run.events:
        if event["event"] not in ("trial", "final") or event["figures"] is None:
            continue
        what = event["configuration"]
        key = CpuConfiguration.from_json(what, names) if what else None
        figures_of.setdefault(key, []).append(typed(Figures, event["figures"]))
    found = {c: _median(figures) for c, figures in figures_of.items()}
    default = found.pop(None, None)
    if not found:
        raise UsageError(f"{path} holds no measurement")
    emulated = device.get("emulated") or ""
    about = {
        "name": device["serial"],
        "emulated": f"replayed from {path.name}" + (f"; {emulated}" if emulated else ""),
    }
    return TableEvaluator(clusters, {c: f for c, f in found.items() if c}, about, default)


def _tuples(value: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}


def _median(figures: list[Figures]) -> Figures:
    joules = [f.energy_j for f in figures if f.energy_j is not None]
    return Figures(
        statistics.median(f.time_s for f in figures),
        statistics.median(joules) if len(joules) == len(figures) else None,
        max((f.celsius for f in figures if f.celsius is not None), default=None),
        max((f.memory_bytes for f in figures if f.memory_bytes is not None), default=None),
    )


@dataclass(frozen=True)
class Replayed:
    """A search over a table.

    Attributes:
        trials: Trials in the order of measurement, up to the one that completed the goal.
        goal: The best configuration, or the whole Pareto front.
        measurements: Number of measurements after which the whole goal was found.
    """

    trials: tuple[StudyTrial, ...]
    goal: frozenset[CpuConfiguration]
    measurements: int


def search(evaluator: TableEvaluator, request: StudyRequest) -> Replayed:
    """Searches a table until the best configuration, or the whole Pareto front, is found.

    Later trials would add nothing.

    Raises:
        UsageError: The objective needs joules that were not recorded, or nothing keeps the limits.
    """
    recorded = list(evaluator.figures().items())
    figures = [f for _, f in recorded]
    if needs_energy(request.objective, request.limits) and any(f.energy_j is None for f in figures):
        lacking = sum(f.energy_j is None for f in figures)
        raise UsageError(
            f"the objective '{request.objective}' needs joules, and they are missing of {lacking} of "
            f"{len(figures)} configurations",
            hint="search with --objective latency",
        )
    if request.objective == "pareto":
        kept = [i for i, f in enumerate(figures) if request.limits.kept(f)]
        goal = [kept[i] for i in front([values("pareto", figures[i]) for i in kept])]
    else:
        index = best(request.objective, request.limits, figures)
        goal = [] if index is None else [index]
    if not goal:
        raise UsageError("nothing that was recorded meets the limits")
    wanted = frozenset(recorded[i][0] for i in goal)
    ended: list[StudyTrial] = []
    missing = set(wanted)

    def on_trial(trial: StudyTrial, _: Measured) -> None:
        ended.append(trial)
        missing.discard(trial.configuration)

    study = study_of(request, optuna.storages.InMemoryStorage(), "replay")
    study.run(evaluator, on_trial, lambda: not missing)
    return Replayed(tuple(ended), wanted, len(ended))


def _setting(cores: int, ghz: str) -> ClusterSetting:
    return ClusterSetting(cores, round(_measure(ghz, "GHz") * 1e6)) if cores else ClusterSetting(0)


def _measure(text: str, unit: str) -> float:
    least, most = _RANGES[unit]
    value = float(text)
    if not least <= value <= most:
        raise ValueError(f"{text[:20]} {unit}")
    return value


def _cluster(name: str, index: int, settings: list[ClusterSetting]) -> Cluster:
    size = max(s.cores for s in settings)
    clocks = tuple(sorted({s.khz for s in settings if s.khz is not None}))
    first = index * size
    cpus = tuple(range(first, first + size))
    return Cluster(name, cpus, CAPACITY[name], clocks[0], clocks[-1], clocks, (), ())
