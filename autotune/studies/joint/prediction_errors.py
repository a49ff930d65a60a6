"""Errors of predictions for steps and calls, and intervals derived from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.studies.space import Figures

_FEW = 8


class PredictionErrors:
    """Collects the logarithm of measured over predicted for each figure, and the memory of each form."""

    def __init__(self) -> None:
        self._errors: dict[str, list[float]] = {"time_s": [], "energy_j": [], "call_s": []}
        self._memory: dict[int, list[int]] = {}

    def take(
        self,
        event: Mapping[str, Any],
        figures: Figures,
        form: int,
        task_s: Sequence[float | None],
    ) -> None:
        """Adds a measured step.

        Args:
            event: `foretold` and `foretold_s`, as events store them. Figures without a prediction are left out.
            figures: Measured figures of the step.
            form: Index of its form.
            task_s: Seconds of a call of each task; None for a task without calls.
        """
        for name, value in (event.get("foretold") or {}).items():
            real = getattr(figures, name)
            if value is not None and real is not None and real > 0:
                self._errors[name].append(float(np.log(real / value)))
        for predicted_s, real_s in zip(event.get("foretold_s") or (), task_s, strict=False):
            if real_s is not None and predicted_s > 0 and real_s > 0:
                self._errors["call_s"].append(float(np.log(real_s / predicted_s)))
        if figures.memory_bytes is not None:
            self._memory.setdefault(form, []).append(figures.memory_bytes)

    def interval(self, figure: str, value: float | None) -> list[float] | None:
        """Returns an interval that contained 95 % of measurements around their predictions.

        Returns None with too few steps.

        Args:
            figure: `time_s` or `energy_j` of a step, or `call_s` of a call.
            value: The predicted value.
        """
        errors = self._errors[figure]
        if value is None or len(errors) < _FEW:
            return None
        low, high = np.quantile(errors, [0.025, 0.975])
        return [float(value * np.exp(low)), float(value * np.exp(high))]

    def memory(self, form: int) -> tuple[float, list[float]] | None:
        """Returns bytes used by steps of a form under any configuration: median and 95 % interval.

        Returns None with too few steps.
        """
        seen = self._memory.get(form, [])
        if len(seen) < _FEW:
            return None
        low, middle, high = np.quantile(seen, [0.025, 0.5, 0.975])
        return float(middle), [float(low), float(high)]
