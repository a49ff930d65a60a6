"""What is measured of steps on a device, written into a run's folder with every raw record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from autotune.cli.tuning import LiveProgress
from autotune.errors import StableDeviceError
from autotune.measurement.setting import Setting
from autotune.measurement.step_bench import StepBench
from autotune.measurement.step_run import Protocol
from autotune.records import RunFolder
from autotune.studies.bench import Measured


def protocol_of(asked: dict[str, Any]) -> Protocol:
    """How a run of cpu-config measures, by what was asked for."""
    least = asked["least_seconds"]
    return Protocol() if least is None else replace(Protocol(), least_s=least)


def start_temperature(asked: dict[str, Any], events: Sequence[dict[str, Any]] = ()) -> float | None:
    """Where a run of cpu-config begins its measurements at most: as asked for, or else as it did before."""
    asked_for: float | None = asked["start_temperature"]
    if asked_for is not None:
        return asked_for
    return next((e["celsius"] for e in events if e["event"] == "start_temperature"), None)


def calibrated(
    bench: StepBench,
    setting: Setting,
    folder: RunFolder,
    progress: LiveProgress,
    *,
    needed: bool,
) -> None:
    """Calibrates the meter where it has to be; one that cannot be is left out.

    Raises:
        StableDeviceError: It cannot be, and joules are needed.
    """
    found, failure = None, ""
    try:
        found = bench.calibrate(setting)
    except StableDeviceError as error:
        failure = error.message
        if needed:
            raise
        bench.meter = None
        progress.notice(f"no joules are measured: {failure}")
    finally:
        if bench.calibration_records:
            folder.event(
                "calibration",
                why=found.why if found else failure,
                scale=found.scale if found else None,
                raw=folder.raw(bench.calibration_records),
            )


def recorder(folder: RunFolder) -> Callable[[str, dict[str, Any], Measured | None], None]:
    """Writes each measurement, or what follows from some, as an event, and its raw records beside."""

    def record(kind: str, what: dict[str, Any], measured: Measured | None) -> None:
        if measured is None:
            folder.event(kind, **what)
            return
        told = dict(measured.raw or {})
        # Runs that do not count come first, as they were measured.
        told["rejected"] = [
            {
                **{k: v for k, v in one.items() if k != "records"},
                "raw": folder.raw(one["records"]),
            }
            for one in told.get("rejected", ())
        ]
        name = folder.raw(told.pop("records", ()))
        figures = measured.figures
        folder.event(
            kind,
            **what,
            status=measured.status,
            message=measured.message,
            figures=vars(figures) if figures else None,
            raw=name,
            **told,
        )

    return record


__all__ = ["calibrated", "protocol_of", "recorder", "start_temperature"]
