"""Builds candidates in workers that live for the whole run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.compiler.native import PROGRAMS_VARIABLE
from autotune.compiler.target import Limits
from autotune.compiler.workers import Job, Told, Worker, WorkerLost, WorkerPool, warn
from autotune.measurement import Outcome


@dataclass(frozen=True)
class BuildRequest:
    """One program to build.

    Attributes:
        program: Scheduled program as TVM JSON.
        target: The target as JSON text; see `target_text`.
        output: Where the shared library goes; its folder exists.
        untuned: Apply the target's default schedule first.
        traits: Write the schedule's traits as JSON, instead of a library.
        limits: What the device can launch; a program that needs more is not built.
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
        workers: Most processes; no more than there are cores.
        timeout_s: Seconds after which a compile is killed, and its worker replaced.
        temporary: Folder for the workers' temporary files, which a killed compile leaves behind.
        programs: Folder that this host's OpenCL programs are kept in, which are then compiled by the workers;
            None leaves that to whoever runs them.
        told: Is told of workers that were killed by somebody else, in a thread of its own.
    """

    def __init__(
        self,
        *,
        workers: int,
        timeout_s: float,
        temporary: Path,
        programs: Path | None = None,
        told: Told = warn,
    ) -> None:
        self._timeout_s = timeout_s
        self._programs = programs is not None
        environment = {
            # The OpenCL part stays source text until a device loads it: no driver in a build worker.
            "TVM_COMPILE_FORCE_FALLBACK": "1",
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(temporary),
            **({PROGRAMS_VARIABLE: str(programs)} if programs is not None else {}),
        }
        self._pool = WorkerPool(
            lambda: Worker("autotune.compiler.runners.build_worker", environment=environment),
            workers,
            told,
        )
        # One thread for the whole run: Linux ends a worker together with the thread that started it.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="build")

    def start(self) -> None:
        """Starts the first worker without waiting for it."""
        self._thread.submit(self._pool.start)

    def submit(self, requests: Sequence[BuildRequest]) -> Future[list[Outcome | None]]:
        """Begins to build all requests; None where the library was written, else the failure."""
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
        """Kills the workers; what was being built is given up."""
        self._pool.cancel()
        self._thread.shutdown(cancel_futures=True)
        self._pool.stop()


def target_text(target: Any) -> str:
    """A target as JSON text that a build worker can read."""
    from autotune.compiler.programs import plain

    content = plain(target.export())
    return json.dumps(_described(content))


def _described(content: dict[str, Any]) -> dict[str, Any]:
    """Drops what TVM derives itself and refuses to be told."""
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
        return Outcome(
            "timeout" if answer.timed_out else "compile_error", message=f"build: {answer}"
        )
    if "error" in answer:
        return Outcome("compile_error", message=str(answer["error"])[:2000])
    return None
