"""Stock MetaSchedule: its own space, search, cost model and callbacks, with our workers for building and measuring.

TVM's `LocalBuilder` starts its processes anew in every round and imports every tensor intrinsic in each, so that
hundreds of trials take an hour. Stock alone decides which schedules are tried. A schedule counts with the
median of its samples, as ours do, and only if its result is correct.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.programs.candidate import Candidate
from autotune.compiler.rules.rules import no_tensor_intrinsics
from autotune.compiler.run.trials import BuildTargets, CandidateExecutor
from autotune.compiler.runners.builder import Builder, target_text
from autotune.compiler.runners.device_limits import with_device_limits
from autotune.compiler.runners.local_devices import runner_for
from autotune.compiler.runners.reference_data import ReferenceData
from autotune.compiler.runners.runner import LocalRunner
from autotune.compiler.target import spaces, targets
from autotune.compiler.target.request import TuneRequest
from autotune.measurement import Outcome
from autotune.records.folder import write_json
from autotune.workloads import Kernel, parse_kernel
from autotune.workloads.graph import Task
from common.board import Board

ROUND = 64
_SEED = 1
_CHILD = "--stock-search"
_BUILD_S = 60.0  # twice stock's limit: several searches share the cores
_NICE = 10
_SHARE = 1 / 16
"""Share of a board's memory that the driver may keep for a search's process: other processes measure there, too."""
_WORDS = 200
_REASONS = 8
"""Maximum number of reasons reported for candidates that were not built or not correct."""


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Holds a lock, so that searches that share a device measure one at a time."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def search(
    kernel: Kernel, target_name: str, trials: int, workers: int, folder: Path, lock: Path
) -> None:
    """Tunes a kernel as stock MetaSchedule does.

    Its own threads and build processes have a lower priority than the process that measures for this or another
    search.

    Args:
        kernel: Kernel to tune, in its plain definition.
        target_name: `cpu` or `opencl`, on this host.
        trials: Number of trials that stock may use.
        workers: Number of threads that search, and of processes that build.
        folder: Folder for the best program, `stock.so`, and for the trials, `stock.json`, which is written after
            each trial; its `ended` says whether the search is complete.
        lock: Lock file, so that searches that share a device measure one at a time.
    """
    spec = targets.find(target_name)
    space = spaces.load(spaces.folder() / spec.space_file)
    runner = runner_for(spec)
    assert isinstance(runner, LocalRunner)  # this host measures
    request = TuneRequest(spec, space, "stock", None, (Task(kernel, 1, ()),), trials, _SEED)
    limits = with_device_limits(request, runner.device).space.limits
    target = targets.tvm_target(spec, limits)
    work = Path(tempfile.mkdtemp(prefix="stock-"))
    builder = Builder(workers=workers, timeout_s=_BUILD_S, temporary=work, programs=runner.programs)
    text = target_text(target)
    # A thread that keeps its priority starts the measuring process, and restarts it if it is lost.
    measuring = ThreadPoolExecutor(1)
    try:
        measuring.submit(runner.start).result()
        os.nice(_NICE)  # lowers the priority of this thread and of what it starts
        builder.start()
        data = ReferenceData(work / "data", _SEED)
        data.of(kernel)  # takes long: no search may wait for it with the lock
        executor = CandidateExecutor(
            builder,
            runner,
            data,
            space.measure,
            BuildTargets(text, text, limits),
            work / "libraries",
        )

        board = board_of(target_name)
        kept = 0

        def measure(library: Path, best_s: float) -> Outcome:
            # For a kernel's private arrays, NVIDIA's driver allocates memory for every work-item that the board can
            # hold. It keeps this memory as long as the process lives.
            nonlocal kept
            before = board.memory().used if board else 0
            outcome = measuring.submit(executor.run, kernel, library, best_s).result()
            if board:
                after = board.memory()
                kept += max(0, after.used - before)
                if kept > _SHARE * after.total:
                    kept = 0
                    runner.renew()
                    measuring.submit(runner.start)
            return outcome

        with closing(executor):
            tally = _Tally(folder, runner.device.name, trials)
            ours = _our_builder(executor, tally), _our_runner(measure, lock, tally)
            _tuned(*ours, kernel, target, trials, workers)
            tally.write(ended=True)
    finally:
        builder.stop()
        runner.stop()
        measuring.shutdown()
        shutil.rmtree(work, ignore_errors=True)


def board_of(target_name: str) -> Board | None:
    """Returns the NVIDIA board that a search measures on; None if it is another device."""
    if target_name != "opencl":
        return None
    try:
        return Board()
    except OSError:
        return None


class _Tally:
    """What a search has tried. It is told in `stock.json`, and the best program is kept as `stock.so`.

    Args:
        folder: Folder for both files.
        device: Name of the device that measures.
        trials: Number of trials that stock may use.

    Attributes:
        best_s: Seconds of the best program; infinity before the first.
    """

    def __init__(self, folder: Path, device: str, trials: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._device, self._trials = folder, device, trials
        self._tried: list[Outcome] = []
        self.best_s = math.inf
        self._best_after: list[tuple[int, float]] = []
        self._spent = {"build": 0.0, "wait": 0.0, "measure": 0.0}
        self._not_built: Counter[str] = Counter()
        self._not_right: Counter[str] = Counter()
        self._began = time.monotonic()

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Adds the time of a block to what was spent on `build`, `wait` or `measure`."""
        start = time.monotonic()
        yield
        self._spent[what] += time.monotonic() - start

    def built(self, libraries: Iterable[Path | Outcome]) -> None:
        """Adds the reasons why candidates were not built."""
        self._not_built.update(one.message for one in libraries if isinstance(one, Outcome))

    def measured(self, library: Path, outcome: Outcome) -> None:
        """Adds a trial, and keeps its library if it is the best."""
        self._tried.append(outcome)
        if not outcome.ok:
            self._not_right[f"{outcome.status}: {outcome.message[:_WORDS]}"] += 1
        if outcome.ok and outcome.seconds < self.best_s:
            self.best_s = outcome.seconds
            self._best_after.append((len(self._tried), outcome.seconds))
            shutil.copy(library, self._folder / "stock.so")
        self.write(ended=False)

    def write(self, *, ended: bool) -> None:
        """Writes the results so far."""
        answer = {
            "device": self._device,
            "asked": self._trials,
            "measured": len(self._tried),
            "right": sum(outcome.ok for outcome in self._tried),
            "best_s": self.best_s if self._best_after else None,
            "best_after": self._best_after,
            "wall_s": time.monotonic() - self._began,
            "spent_s": self._spent,
            "not_built": dict(self._not_built.most_common(_REASONS)),
            "not_right": dict(self._not_right.most_common(_REASONS)),
            "ended": ended,
        }
        write_json(self._folder / "stock.json", answer)


def _our_builder(executor: CandidateExecutor, tally: _Tally) -> Any:
    """Returns a builder for TVM that builds in our processes."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder

    numbers = count()

    @derived_object
    class OurBuilder(PyBuilder):  # type: ignore[misc]  # TVM ships no annotations
        def build(self, build_inputs: Any) -> Any:
            candidates = [Candidate.of(f"stock-{next(numbers)}", one.mod) for one in build_inputs]
            with tally.timed("build"):
                libraries = executor.build(candidates)
            tally.built(libraries)
            return [
                BuilderResult(None, built.message)
                if isinstance(built, Outcome)
                else BuilderResult(str(built), None)
                for built in libraries
            ]

    return OurBuilder()


def _our_runner(measure: Callable[[Path, float], Outcome], lock: Path, tally: _Tally) -> Any:
    """Returns a runner for TVM that measures with ours, while it holds the lock."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult

    @derived_object
    class Finished(PyRunnerFuture):  # type: ignore[misc]  # TVM ships no annotations
        def __init__(self, outcome: Outcome) -> None:
            super().__init__()
            self._outcome = outcome

        def done(self) -> bool:
            return True

        def result(self) -> Any:
            if self._outcome.ok:
                return RunnerResult([self._outcome.seconds], None)
            return RunnerResult(None, f"{self._outcome.status}: {self._outcome.message}")

    @derived_object
    class OurRunner(PyRunner):  # type: ignore[misc]  # TVM ships no annotations
        def run(self, runner_inputs: Any) -> Any:
            return [Finished(self._measured(Path(one.artifact_path))) for one in runner_inputs]

        def _measured(self, library: Path) -> Outcome:
            with ExitStack() as held:
                with tally.timed("wait"):
                    held.enter_context(alone(lock))
                with tally.timed("measure"):
                    outcome = measure(library, tally.best_s)
            tally.measured(library, outcome)
            return outcome

    return OurRunner()


def _tuned(
    builder: Any, runner: Any, kernel: Kernel, target: Any, trials: int, workers: int
) -> None:
    """Runs stock's search with a builder and a runner for TVM."""
    from tvm.s_tir import meta_schedule as ms

    program = prim_func(kernel, formulations(kernel, ["direct"])[0])
    # Evolving a population takes minutes, which a smoke run of a few trials avoids.
    strategy = "evolutionary" if trials >= ROUND else "replay-trace"
    # Stock's rules for GPUs name no intrinsics; those for processors do.
    intrinsics = nullcontext() if target.kind.name == "llvm" else no_tensor_intrinsics()
    with intrinsics, tempfile.TemporaryDirectory() as work:
        ms.tune_tir(
            program, target, work, max_trials_global=trials, num_trials_per_iter=min(ROUND, trials),
            builder=builder, runner=runner, strategy=strategy, num_tuning_cores=workers, seed=_SEED,
        )  # fmt: skip


def child() -> bool:
    """Searches if `command` started this process; returns whether it did."""
    if sys.argv[1:2] != [_CHILD]:
        return False
    target_name, spec, role, trials, workers, folder, lock = sys.argv[2:]
    kernel = parse_kernel(spec, role)
    search(kernel, target_name, int(trials), int(workers), Path(folder), Path(lock))
    return True


def recorded(folder: Path, trials: int) -> dict[str, Any] | None:
    """Returns the result of a search with the given number of trials; None before its end."""
    try:
        answer: dict[str, Any] = json.loads((folder / "stock.json").read_text())
    except FileNotFoundError:
        return None
    return answer if answer["ended"] and answer["asked"] == trials else None


def command(
    program: str,
    target_name: str,
    kernel: Kernel,
    trials: int,
    workers: int,
    folder: Path,
    lock: Path,
) -> list[str]:
    """Returns the command that restarts a benchmark to search in its own process; it must call `child` first."""
    return [
        *(sys.executable, program, _CHILD, target_name),
        *(kernel.spec, kernel.role, str(trials), str(workers), str(folder), str(lock)),
    ]
