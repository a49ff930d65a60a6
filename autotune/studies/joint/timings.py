"""Measured times of schedules under each configuration, and what they correct in a model's predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.studies.models import Floats, Rows
from autotune.studies.space import CpuConfiguration

_SMALLEST_S = 1e-9
"""Shorter times count as this, since their logarithm is taken."""
_FEW = 4
_BELIEF = 0.5
"""Weight of the model's prediction beside one timing under the same configuration."""


class Timings:
    """Collects the seconds of a call of each schedule under each configuration."""

    def __init__(self) -> None:
        self._seen: dict[CpuConfiguration, dict[int, list[float]]] = {}

    def add(self, configuration: CpuConfiguration, rows: Rows, seconds: Floats) -> None:
        """Adds a measurement.

        Args:
            configuration: The configuration that was measured.
            rows: The schedules that ran.
            seconds: Seconds of a call of each of them.
        """
        seen = self._seen.setdefault(configuration, {})
        for row, took in zip(rows.tolist(), seconds.tolist(), strict=True):
            seen.setdefault(row, []).append(max(took, _SMALLEST_S))

    def of(self, configuration: CpuConfiguration, rows: Rows) -> list[Sequence[float]]:
        """Returns the seconds of each of these schedules, one number a measurement."""
        seen = self._seen.get(configuration, {})
        return [tuple(seen.get(int(row), ())) for row in rows]

    def correction(
        self, configuration: CpuConfiguration, seconds: Floats, *, hopeful: bool
    ) -> Floats | None:
        """Returns the factor by which to correct the prediction for each schedule; None without timings.

        Args:
            configuration: The configuration of the predictions.
            seconds: Predicted seconds of a call of each schedule.
            hopeful: Whether predictions for schedules without a timing are lowered by the model's usual error.
        """
        if configuration not in self._seen:
            return None
        seen = self._seen[configuration]
        timed = np.asarray(list(seen), np.int64)
        times = np.asarray([len(own) for own in seen.values()])
        rest = np.asarray([np.log(own).mean() for own in seen.values()]) - np.log(seconds[timed])
        # If all calls of a step ran slower than predicted, that is no evidence against its schedules.
        middle = float(np.median(rest)) * len(rest) / (len(rest) + _FEW)
        spread = float(np.std(rest)) if hopeful else 0.0
        shift = np.full(len(seconds), middle - spread)
        shift[timed] = (times * rest + _BELIEF * middle) / (times + _BELIEF)
        factor: Floats = np.exp(shift)
        return factor
