"""Writes measurements of steps on a device into a run's folder, with every raw record."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from autotune.console import LiveProgress
from autotune.errors import StableDeviceError
from autotune.jobs.requests import SearchRequest
from autotune.measurement import Band, Protocol, Setting, StepBench
from autotune.records import RunFolder
from autotune.studies.evaluators import Measured


def protocol_of(request: SearchRequest) -> Protocol:
    """Returns how a run of cpu-config measures, from its request."""
    least = request.least_seconds
    return Protocol() if least is None else replace(Protocol(), least_s=least)


def start_band(request: SearchRequest, events: Sequence[dict[str, Any]]) -> Band | None:
    """Returns the temperatures at which a run of cpu-config begins its measurements.

    They are the requested ones, or else those that the run used before.
    """
    if (most_c := request.start_temperature) is not None:
        return at_most(most_c)
    return next(
        (Band(e["low_c"], e["high_c"]) for e in events if e["event"] == "start_temperature"), None
    )


def at_most(celsius: float | None) -> Band | None:
    """Returns the band that `--start-temperature` sets: it has no lower end."""
    return None if celsius is None else Band(-math.inf, celsius)


def calibrated(
    bench: StepBench,
    setting: Setting,
    folder: RunFolder,
    progress: LiveProgress,
    *,
    needed: bool,
) -> None:
    """Calibrates the meter if it needs calibration. A meter that cannot be calibrated is left out.

    Raises:
        StableDeviceError: The meter cannot be calibrated, and joules are needed.
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
    """Returns a function that writes each measurement as an event, and its raw records beside it.

    The function also writes results that follow from several measurements.
    """

    def record(kind: str, what: dict[str, Any], measured: Measured | None) -> None:
        if measured is None:
            folder.event(kind, **what)
            return
        raw = dict(measured.raw or {})
        # Runs that do not count come first, in the order of their measurement.
        raw["rejected"] = [
            {
                **{k: v for k, v in one.items() if k != "records"},
                "raw": folder.raw(one["records"]),
            }
            for one in raw.get("rejected", ())
        ]
        name = folder.raw(raw.pop("records", ()))
        figures = measured.figures
        folder.event(
            kind,
            **what,
            status=measured.status,
            message=measured.message,
            figures=vars(figures) if figures else None,
            raw=name,
            **raw,
        )

    return record


__all__ = ["at_most", "calibrated", "protocol_of", "recorder", "start_band"]
