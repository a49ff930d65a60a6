"""Times a kernel again at intervals, to see whether its device still runs as fast as before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.measurement import Outcome, judge
from autotune.reading import typed
from autotune.records import Drift

_SHARE = 0.02
_LEAST = 0.03
"""Smallest shift that counts. Loading the same library again causes smaller ones."""
_CONFIDENCE = 0.99


@dataclass(frozen=True)
class Reference:
    """A run of the reference kernel.

    Attributes:
        outcome: Its outcome.
        drift: How much slower it was than before; None if it was not.
    """

    outcome: Outcome
    drift: Drift | None


class DriftWatch:
    """Compares each reference run with the previous one on the same device.

    Reference runs take at most 2 % of the time. After a drift, later runs are compared with the drifted run, so
    that each drift is reported once.

    Args:
        run: Times the reference kernel once on each device.
        seed: Seed of the bootstrap.
        kernel: Name of the reference kernel.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        run: Callable[[], Iterable[Outcome]],
        seed: int,
        *,
        kernel: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._seed = seed
        self.kernel = kernel
        self._clock = clock
        self._began = clock()
        self._spent_s = 0.0
        self._before: dict[str, Sequence[float]] = {}
        self.drifts: list[Drift] = []

    def restore(self, events: Iterable[dict[str, Any]]) -> None:
        """Restores the state of an earlier part of the run, so that changes since then are reported too."""
        latest: dict[str, Sequence[float]] = {}
        for event in events:
            if (
                event["event"] == "reference"
                and event["status"] == "ok"
                and event["task"] == self.kernel
            ):
                serial = event.get("serial", "")
                latest[serial] = event["samples_s"]
                self._before.setdefault(serial, event["samples_s"])
            elif event["event"] == "drift":
                drift = typed(Drift, event["drift"])
                self.drifts.append(drift)
                if drift.serial in latest:
                    self._before[drift.serial] = latest[drift.serial]

    def look(self, trials: int) -> list[Reference]:
        """Times the reference kernel if its share of the time allows it.

        Args:
            trials: Number of trials so far.
        """
        now = self._clock()
        if self._spent_s > _SHARE * (now - self._began):
            return []
        found = [Reference(outcome, self._compared(outcome, trials)) for outcome in self._run()]
        self._spent_s += self._clock() - now
        self.drifts += [one.drift for one in found if one.drift is not None]
        return found

    def _compared(self, outcome: Outcome, trials: int) -> Drift | None:
        if not outcome.ok:
            return None
        before = self._before.setdefault(outcome.device, outcome.samples)
        if len(before) != len(outcome.samples):
            return None
        verdict = judge(outcome.samples, before, seed=self._seed, confidence=_CONFIDENCE)
        ratio = verdict.ratio
        if verdict.winner == "tie" or abs(ratio.estimate - 1) < _LEAST:
            return None
        self._before[outcome.device] = outcome.samples
        return Drift(outcome.device, trials, ratio.estimate, (ratio.low, ratio.high))
