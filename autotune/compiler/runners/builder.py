"""Builds candidates in workers that live for the whole run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.compiler.native import PROGRAMS_VARIABLE
from autotune.compiler.runners.runner import status_of
from autotune.compiler.target import Limits
from autotune.compiler.workers import Job, Notify, Worker, WorkerLost, WorkerPool, warn
from autotune.measurement import Outcome


@dataclass(frozen=True)
class BuildRequest:
    """One program to build.

    Attributes:
        program: Scheduled program as TVM JSON.
        target: The target as JSON text; see `target_text`.
        output: Path of the shared library. Its folder exists.
        untuned: Build it as TVM does without tuning, with the target's default schedule.
        traits: Write the schedule's traits as JSON, instead of a library.
        limits: What the device can launch. A program that needs more is not built.
    """

    program: str
    target: str
    output: Path
    untuned: bool = False
    traits: bool = False
    limits: Limits | None = None


class Builder:
    """A pool of build workers.

    Args:
        workers: Most processes; at most the number of cores.
        timeout_s: Limit of a compilation in seconds. After that it is killed, and its worker is replaced.
        temporary: Folder for the workers' temporary files, which a killed compilation leaves behind.
        programs: Folder of this host's compiled OpenCL programs; the workers then compile them. None leaves this to
            the process that runs them.
        notify: Called, in another thread, with a message for each worker that was killed from outside.
    """

    def __init__(
        self,
        *,
        workers: int,
        timeout_s: float,
        temporary: Path,
        programs: Path | None = None,
        notify: Notify = warn,
    ) -> None:
        self._timeout_s = timeout_s
        self._programs = programs is not None
        environment = {
            # OpenCL code stays source text until a device loads it, so a build worker needs no driver.
            "TVM_COMPILE_FORCE_FALLBACK": "1",
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(temporary),
            **({PROGRAMS_VARIABLE: str(programs)} if programs is not None else {}),
        }
        self._pool = WorkerPool(
            lambda: Worker("autotune.compiler.runners.build_worker", environment=environment),
            workers,
            notify,
        )
        # One thread for the whole run, because Linux ends a worker together with the thread that started it.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="build")

    def start(self) -> None:
        """Starts the first worker without waiting for it."""
        self._thread.submit(self._pool.start)

    def submit(self, requests: Sequence[BuildRequest]) -> Future[list[Outcome | None]]:
        """Begins to build all requests. The future has None for each success, an outcome for each failure."""
        jobs = [
            Job(
                {
                    "program": request.program,
                    "target": request.target,
                    "untuned": request.untuned,
                    "traits": request.traits,
                    "programs": self._programs,
                    "limits": request.limits and request.limits.model_dump(mode="json"),
                    "output": str(request.output),
                },
                self._timeout_s,
            )
            for request in requests
        ]
        return self._thread.submit(lambda: [_failure(answer) for answer in self._pool.run(jobs)])

    def stop(self) -> None:
        """Kills the workers. Builds in progress are abandoned."""
        self._pool.cancel()
        self._thread.shutdown(cancel_futures=True)
        self._pool.stop()


def target_text(target: Any) -> str:
    """Returns a target as JSON text that a build worker can read."""
    from autotune.compiler.programs import plain

    content = plain(target.export())
    return json.dumps(_described(content))


def _described(content: dict[str, Any]) -> dict[str, Any]:
    """Removes keys that TVM derives itself and does not accept."""
    kept = {
        key: value
        for key, value in content.items()
        if key not in ("tag", "keys") and not key.startswith("feature.")
    }
    if isinstance(kept.get("host"), dict):
        kept["host"] = _described(kept["host"])
    return kept


def _failure(answer: dict[str, Any] | WorkerLost) -> Outcome | None:
    if isinstance(answer, WorkerLost):
        return Outcome(status_of(answer, "compile_error"), message=f"build: {answer}")
    if "error" in answer:
        return Outcome("compile_error", message=str(answer["error"])[:2000])
    return None
