"""A run's power and calls over time, read back from its records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.measurement.energy import idle_power, power
from autotune.measurement.observation import parted
from autotune.measurement.profile import Calls, calls_of
from autotune.power import Meter, Trace, baseline


@dataclass(frozen=True)
class Timeline:
    """Observations over time, in seconds since the workload was started.

    Attributes:
        power: Total power of the device, not above idle; None without a meter.
        idle_w: Mean power of the idle device before and after; None without a meter.
        calls: Calls of all steps, including the warm-up; None if the workload reported none.
    """

    power: Trace | None
    idle_w: float | None
    calls: Calls | None

    def to_json(self) -> dict[str, Any]:
        """Returns plain data: `{"times_s", "watts", "idle_w", "steps"}`; a step is its calls' edges, in seconds."""
        return {
            "times_s": self.power.times_s.tolist() if self.power else [],
            "watts": self.power.watts.tolist() if self.power else [],
            "idle_w": self.idle_w,
            "steps": self.calls.times_s.tolist() if self.calls else [],
        }


def timeline(records: Sequence[str], meter: Meter | None, settle_s: float) -> Timeline:
    """Reads a timeline from records.

    Args:
        records: The record of the run. With a meter: of the idle device before it, of the run, of the idle device
            after.
        meter: Must be calibrated if it needs calibration.
        settle_s: Seconds to ignore in each idle record.

    Raises:
        StableDeviceError: A record does not begin like one.
        ValueError: The meter is not calibrated, or steps have different numbers of calls.
    """
    run, around = parted(records)
    calls = calls_of(run, -math.inf, math.inf)
    shifted = Calls(calls.times_s - run.begin_s, calls.names) if calls else None
    if meter is None:
        return Timeline(None, None, shifted)
    found = power(meter, run)
    idle = [idle_power(meter, o, settle_s) for o in around]
    known = [trace for trace in idle if len(trace.watts)]
    base = baseline(known[0], known[-1]).watts if known else None
    return Timeline(Trace(found.times_s - run.begin_s, found.watts), base, shifted)
