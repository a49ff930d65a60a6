"""Compares two configurations of a search in interleaved blocks until one is significantly better."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autotune.console import LiveProgress
from autotune.errors import StableDeviceError, UsageError
from autotune.jobs.device import choose, find_meter, ready
from autotune.jobs.provenance import Work, about_run, named
from autotune.jobs.requests import (
    PUT_BACK,
    SearchRequest,
    check_allowed,
    point_of,
)
from autotune.jobs.steps.device_workload import brought, given_command
from autotune.jobs.steps.step_records import calibrated, protocol_of, recorder, start_band
from autotune.measurement import LOOKS, Setting, StepBench, Verdict, versus
from autotune.records import RunFolder, read_run
from autotune.studies.evaluators import DeviceEvaluator, Measured, setting_of
from autotune.studies.space import CpuConfiguration

By = Literal["time", "energy"]
_ATTEMPTS = 3


@dataclass(frozen=True)
class ComparisonRequest:
    """Two points of a search to compare.

    Attributes:
        run: Folder of the search.
        first, second: Names of its points.
        by: The figure that is compared.
        seed: Seed of the orders and of the bootstrap.
    """

    run: Path
    first: str
    second: str
    by: By = "time"
    seed: int = 1

    @property
    def names(self) -> tuple[str, str]:
        """Names of the points."""
        return self.first, self.second

    def to_json(self) -> dict[str, Any]:
        """Returns the request as `run.json` stores it."""
        return {
            "run": str(self.run), "first": self.first, "second": self.second, "by": self.by,
            "seed": self.seed,
        }  # fmt: skip


@dataclass(frozen=True)
class ComparisonResult:
    """A finished comparison.

    Attributes:
        path: Its run's folder.
        content: Content of its `result.json`.
        points: The points, as the search's result has them.
        emulated: Notice that the device is a model; empty for a real one.
    """

    path: Path
    content: dict[str, Any]
    points: tuple[dict[str, Any], ...]
    emulated: str


def compare_points(request: ComparisonRequest) -> ComparisonResult:
    """Compares two points, and writes the run's folder beside the search's folder.

    Raises:
        UsageError: There are no such points, or both have the same configuration.
        DeviceError: The device is gone, or one of them cannot be measured.
    """
    if not 0 <= request.seed < 2**32:
        raise UsageError(
            f"--seed is {request.seed}", hint="give a whole number from 0 to 4294967295"
        )
    found = read_run(request.run)
    points = tuple(point_of(found, name) for name in request.names)
    search = SearchRequest.of_run(found)
    check_allowed(request.run, search.outside())
    chosen = choose(search.device, search.ssh, search.emulate)
    clusters = chosen.info.clusters
    settings = [_setting(point, clusters) for point in points]
    if settings[0] == settings[1]:
        raise UsageError(f"'{request.first}' and '{request.second}' are the same configuration")
    step = search.step.placed(request.run, PUT_BACK) if search.step else None
    command = given_command(step, search.command, search.steps_from, emulated=search.emulated)
    energy = request.by == "energy"
    meter = find_meter(chosen, search.meter or "auto", needed=True) if energy else None
    about = about_run(request.to_json(), chosen.about())
    if search.step is not None:
        about["step"] = search.step.to_json()
    folder = RunFolder.create(request.run.parent, "compare", about)
    with folder, LiveProgress() as progress, brought(step, command, chosen, progress) as workload:
        progress.notice(f"run folder: {folder.path}")
        progress.phase("runs, at most", 2 * LOOKS[-1])
        band = start_band(search, found.events)
        with ready(chosen, workload.bring, meter, protocol_of(search), band) as bench:
            if energy:
                calibrated(bench, setting_of(clusters, None), folder, progress, needed=True)
            verdict = _compared(request, bench, settings, folder, progress)
        content: dict[str, Any] = {
            "schema_version": 1,
            "kind": "comparison",
            "emulated": bool(chosen.info.emulated),
            "by": request.by,
            "first": {"name": request.first, **_shown(points[0])},
            "second": {"name": request.second, **_shown(points[1])},
            "ratio": verdict.ratio.estimate,
            "ci": verdict.ratio.ends,
            "blocks": verdict.blocks,
            "verdict": verdict.winner,
        }
        content = named(content, Work.of_run(folder.path, found.about))
        folder.result(content)
    return ComparisonResult(folder.path, content, points, chosen.info.emulated)


def _compared(
    request: ComparisonRequest,
    bench: StepBench,
    settings: list[Setting],
    folder: RunFolder,
    progress: LiveProgress,
) -> Verdict:
    record = recorder(folder)
    measures = DeviceEvaluator(bench, needs_energy=request.by == "energy")
    done = 0

    def measured(side: int) -> float:
        nonlocal done
        message = ""
        for _ in range(_ATTEMPTS):
            measured = measures.measured(bench.run(settings[side]))
            record("run", {"side": side}, measured)
            if (value := _value(measured, request.by)) is not None:
                done += 1
                progress.step(done, request.names[side])
                return value
            message = measured.message or "no joules above idle"
        raise StableDeviceError(
            f"{bench.info.serial}: '{request.names[side]}' cannot be measured: {message}",
            hint=f"see {folder.path}/events.jsonl",
        )

    return versus(lambda: measured(0), lambda: measured(1), seed=request.seed)


def _setting(point: dict[str, Any], clusters: Any) -> Setting:
    names = [cluster.name for cluster in clusters]
    alone = point["clusters"] is None
    return setting_of(clusters, None if alone else CpuConfiguration.from_json(point, names))


def _value(measured: Measured, by: By) -> float | None:
    if measured.figures is None:
        return None
    value = measured.figures.time_s if by == "time" else measured.figures.energy_j
    return value if value is not None and value > 0 else None


def _shown(point: dict[str, Any]) -> dict[str, Any]:
    return {"clusters": point["clusters"], "threads": point.get("threads")}


__all__ = ["ComparisonRequest", "ComparisonResult", "compare_points"]
