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
        folder: Where libraries go, one folder each.
    """

    def __init__(
        self, builder: Builder, runner: Runner, data: ReferenceData, measure: Measure, folder: Path
    ) -> None:
        self._builder = builder
        self._runner = runner
        self._data = data
        self._measure = measure
        self._folder = folder

    def library(self, digest: str) -> Path:
        """Where the library of a candidate is, or would be."""
        return self._folder / digest / "kernel.so"

    def build(
        self, candidates: Sequence[Candidate], *, untuned: bool = False
    ) -> list[Outcome | None]:
        """Builds the candidates whose library is not there yet; None where it is there now."""
        missing = [c for c in candidates if not self.library(c.digest).exists()]
        for candidate in missing:
            self.library(candidate.digest).parent.mkdir(parents=True, exist_ok=True)
        requests = [
            BuildRequest(c.program, self.library(c.digest), untuned=untuned) for c in missing
        ]
        failures = dict(
            zip((c.digest for c in missing), self._builder.build(requests), strict=True)
        )
        return [failures.get(candidate.digest) for candidate in candidates]

    def data(self, kernel: Kernel) -> Path:
        """Folder of a kernel's inputs and reference."""
        return self._data.of(kernel)

    def discard(self, digest: str) -> None:
        """Deletes a candidate's library."""
        shutil.rmtree(self.library(digest).parent, ignore_errors=True)

    def run(self, kernel: Kernel, candidate: Candidate, best_s: float) -> Outcome:
        """Checks and times one built candidate.

        Args:
            kernel: What it computes.
            candidate: The candidate.
            best_s: Best known seconds of the kernel; infinity before the first.
        """
        limits = self._measure
        default = not math.isfinite(best_s)
        return self._runner.measure(
            MeasureRequest(
                library=self.library(candidate.digest),
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
    ) -> list[Outcome]:
        """Builds all candidates, then measures each; `done` hears of every outcome at once."""
        outcomes = []
        for candidate, failure in zip(candidates, self.build(candidates), strict=True):
            outcome = failure or self.run(kernel, candidate, best_s)
            best_s = min(best_s, outcome.seconds)
            done(candidate, outcome)
            outcomes.append(outcome)
        return outcomes
