"""The outcome of one trial: a status, samples in seconds, and an error message."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from autotune.measurement.snapshot import Conditions

Status = Literal[
    "ok",
    "compile_error",
    "run_error",
    "wrong_result",
    "timeout",
    "throttled",
    "unstable",
    "killed",
]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one candidate.

    Attributes:
        status: `ok`, or the reason why there is no valid time.
        samples: Seconds of one execution, one sample for each repeat; empty unless the status is `ok`.
        message: The error; empty when `ok`.
        max_rel_error: Largest relative error against the float64 reference; None if it was not run.
        device: Serial of the device that ran it, if there may be several; empty otherwise.
        conditions: The device's conditions before and after it; empty if it reports none.
        rejected: Timings of the candidate that do not count because the device's conditions were bad.
    """

    status: Status
    samples: tuple[float, ...] = ()
    message: str = ""
    max_rel_error: float | None = None
    device: str = ""
    conditions: tuple[Conditions, ...] = ()
    rejected: tuple[Outcome, ...] = ()

    def __post_init__(self) -> None:
        if (self.status == "ok") != bool(self.samples):
            raise ValueError("an outcome has samples exactly when its status is ok")

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def of_device(self) -> bool:
        """Whether it says something about the device or the host only, and nothing about the candidate."""
        return self.status in ("throttled", "unstable", "killed")

    @property
    def seconds(self) -> float:
        """Median of the samples, in seconds; infinity for a failure, so that it never sorts first."""
        if not self.samples:
            return math.inf
        ordered = sorted(self.samples)
        middle = len(ordered) // 2
        if len(ordered) % 2:
            return ordered[middle]
        return (ordered[middle - 1] + ordered[middle]) / 2
