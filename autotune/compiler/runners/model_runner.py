"""The runner of an emulated device: no kernel runs, and a model computes the times from schedules' traits."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from autotune.compiler.runners.runner import (
    MODEL_KIND,
    CompareRequest,
    Comparison,
    DeviceFingerprint,
    MeasureRequest,
)
from autotune.compiler.workers import Notify, warn
from autotune.measurement import Outcome
from autotune.workloads import ScheduleTraits

NOISE = 0.02
"""Relative standard deviation of a sample, the same as in the emulated step runner."""


class ModelRunner:
    """Uses a model instead of a device. Results are not checked, since nothing is computed.

    Args:
        name: Name of the modelled device.
        details: Number of cores and so on, by name.
        seconds: Returns the time of a schedule.
        seed: Seed of the noise, which otherwise depends only on the candidate.
    """

    apart = True
    models = True
    programs: Path | None = None

    def __init__(
        self,
        name: str,
        details: tuple[tuple[str, object], ...],
        seconds: Callable[[ScheduleTraits], float],
        seed: int,
    ) -> None:
        self.device = DeviceFingerprint(name, MODEL_KIND, "SoC model", details, stand_in=True)
        self.notify: Notify = warn
        self._seconds = seconds
        self._seed = seed

    def at_once(self) -> int:
        """See `Runner.at_once`."""
        return 1

    def start(self) -> None:
        """See `Runner.start`."""

    def measure(self, request: MeasureRequest) -> Outcome:
        """See `Runner.measure`."""
        return Outcome("ok", self._samples(request.library, "measure", request.repeats))

    def compare(self, request: CompareRequest) -> Comparison:
        """See `Runner.compare`."""
        rows = [
            self._samples(path, f"compare{request.seed}", blocks)
            for path, blocks in zip(request.libraries, request.blocks, strict=True)
        ]
        return Comparison(tuple(rows), (None,) * len(rows), computed=False)

    def _samples(self, library: Path, purpose: str, count: int) -> tuple[float, ...]:
        text = library.read_text(encoding="utf-8")
        exact = self._seconds(ScheduleTraits.from_json(json.loads(text)))
        noise = random.Random(f"{self._seed} {purpose} {text}")
        return tuple(exact * (1 + max(-0.5, noise.gauss(0, NOISE))) for _ in range(count))

    def interrupt(self) -> None:
        """See `Runner.interrupt`."""

    def stop(self) -> None:
        """See `Runner.stop`."""
