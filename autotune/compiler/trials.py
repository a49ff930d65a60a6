"""One round of trials: candidates are built in parallel, then checked and timed one at a time."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from autotune.compiler.builder import Builder, BuildRequest
from autotune.compiler.lane import Candidate
from autotune.compiler.reference_data import TOLERANCE, ReferenceData
from autotune.compiler.runner import MeasureRequest, Runner
from autotune.compiler.spaces import Measure
from autotune.measurement import Outcome
from autotune.workloads.operators import Kernel

_DEFAULT_PATIENCE = 3.0


class Bench:
    """Builds and measures candidates; owns their artifacts.

    Args:
        builder: Build workers.
        runner: The device.
        data: Inputs and references.
        measure: Limits and sample counts.
        target: The target as JSON text.
        folder: Where libraries go, one folder each.
    """

    def __init__(
        self,
        builder: Builder,
        runner: Runner,
        data: ReferenceData,
        measure: Measure,
        target: str,
        folder: Path,
    ) -> None:
        self._builder = builder
        self._runner = runner
        self._data = data
        self._measure = measure
        self._target = target
        self._folder = folder

    def build(
        self, candidates: Sequence[Candidate], *, untuned: bool = False
    ) -> list[Outcome | Path]:
        """Builds candidates in parallel; a path to the library, or the failure."""
        paths = [self._folder / c.digest / "kernel.so" for c in candidates]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        failures = self._builder.build(
            [
                BuildRequest(candidate.program, self._target, path, untuned=untuned)
                for candidate, path in zip(candidates, paths, strict=True)
            ]
        )
        return [failure or path for failure, path in zip(failures, paths, strict=True)]

    def data(self, kernel: Kernel) -> Path:
        """Folder of a kernel's inputs and reference."""
        return self._data.of(kernel)

    def run(self, kernel: Kernel, library: Path, best_s: float) -> Outcome:
        """Checks and times one built candidate.

        Args:
            kernel: What it computes.
            library: The candidate's library.
            best_s: Best known seconds of the kernel; infinity before the first.
        """
        limits = self._measure
        default = not math.isfinite(best_s)
        return self._runner.measure(
            MeasureRequest(
                library=library,
                data=self._data.of(kernel),
                repeats=limits.repeats,
                min_repeat_ms=limits.min_repeat_ms,
                give_up_s=1e9 if default else best_s * limits.give_up_ratio,
                tolerance=TOLERANCE,
                timeout_s=limits.run_timeout_s * (_DEFAULT_PATIENCE if default else 1.0),
            )
        )

    def trial(
        self,
        kernel: Kernel,
        candidates: Sequence[Candidate],
        best_s: float,
        done: Callable[[Candidate, Outcome], None],
        interrupted: Callable[[], bool],
    ) -> None:
        """Builds all candidates, then measures each; `done` hears of every outcome at once.

        Ends early when `interrupted` says so; the candidates left were not tried.
        """
        for candidate, built in zip(candidates, self.build(candidates), strict=True):
            if interrupted():
                return
            if isinstance(built, Outcome):
                outcome = built
            else:
                outcome = self.run(kernel, built, best_s)
                shutil.rmtree(built.parent)
            best_s = min(best_s, outcome.seconds)
            done(candidate, outcome)
