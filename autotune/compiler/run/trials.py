"""One round of trials: candidates are built in parallel, then checked and timed, one at a time per device."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.compiler.native import check_disks, no_space
from autotune.compiler.programs import Candidate
from autotune.compiler.runners import (
    Builder,
    BuildRequest,
    CompareRequest,
    MeasureRequest,
    ReferenceData,
    Runner,
)
from autotune.compiler.target import Limits, Measure
from autotune.compiler.workers import WorkerLost
from autotune.errors import DeviceError
from autotune.measurement import Outcome, median
from autotune.workloads.operators import Kernel

_DEFAULT_PATIENCE = 3.0
# A default that takes longer is executed once only: the final benchmark times it again.
_SLOW_DEFAULT_S = 0.25
_PATIENCE_S = 0.5
_BLOCKS = 5
_REFERENCE_REPEATS = 9
_MOST_AT_ONCE = 64


@dataclass(frozen=True)
class BuildTargets:
    """A target as JSON text, with the space's compiler options and without (for untuned programs); its limits."""

    tuned: str
    untuned: str
    limits: Limits | None


@dataclass(frozen=True)
class Building:
    """Candidates that the build workers are building."""

    candidates: tuple[Candidate, ...]
    _paths: tuple[Path, ...]
    _failures: Future[list[Outcome | None]]

    def ready(self, timeout: float) -> bool:
        """Returns whether all are built, after waiting for at most `timeout` seconds."""
        return bool(wait([self._failures], timeout=timeout).done)

    def libraries(self) -> list[Outcome | Path]:
        """Waits until all are built; returns the path of each library, or the failure.

        Raises:
            RecordError: A disk is full.
        """
        failures = self._failures.result()
        for failure in filter(None, failures):
            # A full disk says nothing about the candidate.
            check_disks(failure.message, [self._paths[0].parent.parent])
        return [failure or path for failure, path in zip(failures, self._paths, strict=True)]


class CandidateExecutor:
    """Builds and measures candidates, and owns their artifacts.

    Args:
        builder: Build workers.
        runner: The device.
        data: Inputs and references.
        measure: Limits and sample counts.
        targets: The targets as JSON text.
        folder: Parent of the libraries' folders.
    """

    def __init__(
        self,
        builder: Builder,
        runner: Runner,
        data: ReferenceData,
        measure: Measure,
        targets: BuildTargets,
        folder: Path,
    ) -> None:
        self._builder = builder
        self._runner = runner
        self._data = data
        self._measure = measure
        self._targets = targets
        self._folder = folder
        # Kept for the whole run, because a worker process dies with the thread that started it.
        self._threads = ThreadPoolExecutor(_MOST_AT_ONCE)

    def close(self) -> None:
        """Releases what waits for devices. Call it after the runner has stopped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def start(
        self, candidates: Sequence[Candidate], *, untuned: bool = False, traits: bool = False
    ) -> Building:
        """Begins to build candidates in parallel, and returns at once.

        Args:
            candidates: The candidates to build.
            untuned: Build the programs as TVM does without tuning.
            traits: Write the traits of their loops instead of libraries.
        """
        traits = traits or self._runner.models
        name = "traits.json" if traits else "kernel.so"
        paths = [self._folder / c.digest / name for c in candidates]
        try:
            for path in paths:
                path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise no_space(self._folder.parent, error.strerror) from error
        requests = [
            BuildRequest(
                candidate.program,
                self._targets.untuned if untuned else self._targets.tuned,
                path,
                untuned=untuned,
                traits=traits,
                limits=self._targets.limits,
            )
            for candidate, path in zip(candidates, paths, strict=True)
        ]
        return Building(tuple(candidates), tuple(paths), self._builder.submit(requests))

    def build(
        self, candidates: Sequence[Candidate], *, untuned: bool = False
    ) -> list[Outcome | Path]:
        """Builds candidates in parallel; returns the path of each library, or the failure."""
        return self.start(candidates, untuned=untuned).libraries()

    def traits(
        self, candidates: Sequence[Candidate], *, untuned: bool = False
    ) -> dict[str, dict[str, Any] | None]:
        """Returns the traits of candidates by digest; None if they cannot be read. See `ScheduleTraits`."""
        found = self.start(candidates, untuned=untuned, traits=True).libraries()
        return {
            candidate.digest: None if isinstance(path, Outcome) else json.loads(path.read_bytes())
            for candidate, path in zip(candidates, found, strict=True)
        }

    def data(self, kernel: Kernel) -> Path:
        """Returns the folder of a kernel's inputs and reference."""
        return self._data.of(kernel)

    def run(self, kernel: Kernel, library: Path, best_s: float, *, half: bool = False) -> Outcome:
        """Checks and times one built candidate.

        Args:
            kernel: The kernel that it computes.
            library: The candidate's library.
            best_s: Best known seconds of the kernel; infinity before the first.
            half: Whether it stores operands in half precision.
        """
        limits = self._measure
        default = not math.isfinite(best_s)
        return self._runner.measure(
            MeasureRequest(
                library=library,
                data=self._data.of(kernel),
                repeats=limits.repeats,
                min_repeat_ms=limits.min_repeat_ms,
                give_up_s=_SLOW_DEFAULT_S if default else best_s * limits.give_up_ratio,
                tolerance=limits.allowed(half=half),
                timeout_s=limits.run_timeout_s * (_DEFAULT_PATIENCE if default else 1.0),
            )
        )

    def reference(self, kernel: Kernel, library: Path) -> list[Outcome]:
        """Times a library once on each device that is present now."""
        request = MeasureRequest(
            library=library,
            data=self._data.of(kernel),
            repeats=_REFERENCE_REPEATS,
            min_repeat_ms=self._measure.min_repeat_ms,
            give_up_s=math.inf,
            tolerance=self._measure.tolerance,
            timeout_s=self._measure.run_timeout_s * _DEFAULT_PATIENCE,
        )
        requests = [request] * min(self._runner.at_once(), _MOST_AT_ONCE)
        return list(self._threads.map(self._runner.measure, requests))

    def seconds(self, kernel: Kernel, library: Path) -> float | None:
        """Returns the median seconds of a library on a kernel's operands; None without a valid time."""
        request = CompareRequest(
            (library,), self._data.of(kernel), (_BLOCKS,), self._measure.final_min_repeat_ms, seed=1
        )
        try:
            timed = self._runner.compare(request)
        except WorkerLost:
            return None
        return None if timed.doubt else median(timed.samples[0])

    def trial(
        self,
        kernel: Kernel,
        building: Building,
        best_s: float,
        done: Callable[[Candidate, Outcome], None],
        interrupted: Callable[[], bool],
    ) -> None:
        """Waits until all candidates are built, then measures as many in parallel as there are devices.

        `done` is called with every outcome at once, in this thread. Ends early if `interrupted` returns True; the
        remaining candidates are then not tried.
        """
        while not building.ready(_PATIENCE_S):
            if interrupted():
                return
        waiting = list(zip(building.candidates, building.libraries(), strict=True))
        waiting.reverse()
        self._data.of(kernel)  # Made here once, before several threads need it.
        at_once = min(self._runner.at_once(), _MOST_AT_ONCE)
        failure: DeviceError | None = None
        running: dict[Future[Outcome], Candidate] = {}
        while running or (waiting and failure is None and not interrupted()):
            if interrupted() or failure is not None:
                self._runner.interrupt()
                waiting.clear()
            while waiting and len(running) < at_once:
                candidate, built = waiting.pop()
                tried = self._threads.submit(self._tried, kernel, candidate, built, best_s)
                running[tried] = candidate
            for finished in wait(running, _PATIENCE_S, FIRST_COMPLETED).done:
                candidate = running.pop(finished)
                try:
                    outcome = finished.result()
                except DeviceError as error:  # The others may still have results.
                    failure = error
                    continue
                best_s = min(best_s, outcome.seconds)
                done(candidate, outcome)
        if failure is not None and not interrupted():
            raise failure

    def _tried(
        self, kernel: Kernel, candidate: Candidate, built: Outcome | Path, best_s: float
    ) -> Outcome:
        if isinstance(built, Outcome):
            return built
        outcome = self.run(kernel, built, best_s, half=candidate.half)
        shutil.rmtree(built.parent)
        return outcome
