"""Checks aarch64 kernels on other processors, under qemu-user. Results are correct, but times mean nothing."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.children import TooMuchOutput, run_to_end
from autotune.compiler.native import kernel_runner
from autotune.compiler.runners.runner import (
    CompareRequest,
    Comparison,
    DeviceFingerprint,
    MeasureRequest,
    lost_outcome,
    wrong_result,
)
from autotune.compiler.target import ARM_TRIPLE
from autotune.compiler.workers import (
    Kills,
    Notify,
    WorkerLost,
    killed_by,
    of_outside,
    oom_kills,
    warn,
)
from autotune.measurement import Outcome, in_blocks
from autotune.workloads.references import max_relative_error

_SYMBOL = "__tvm_ffi_main"
_COMPARE_TIMEOUT_S = 300.0
_DTYPES = {"float32": "f32", "int32": "i32"}


class QemuRunner:
    """Runs each candidate in a separate process under qemu-user.

    Raises:
        ToolchainError: qemu-user or the cross compiler is missing.
    """

    apart = False
    models = False
    programs: Path | None = None

    def __init__(self) -> None:
        self.notify: Notify = warn
        self._command = kernel_runner.command("aarch64-linux-gnu")
        version = subprocess.run(
            [self._command[0], "--version"], capture_output=True, text=True, check=False
        )
        self.device = DeviceFingerprint(
            "qemu-user aarch64",
            "qemu-user",
            (version.stdout.splitlines() or [""])[0],
            (("triple", ARM_TRIPLE), ("threads", 1)),
            stand_in=True,
        )

    def at_once(self) -> int:
        """Returns 1: each candidate has this machine to itself."""
        return 1

    def start(self) -> None:
        """Does nothing: each candidate is a separate process."""

    def interrupt(self) -> None:
        """Does nothing: there is no waiting."""

    def stop(self) -> None:
        """Does nothing: there is nothing to free."""

    def measure(self, request: MeasureRequest) -> Outcome:
        """Checks and times one candidate."""
        try:
            answer, error = self._execute(
                request.library,
                request.data,
                ["--repeat", str(request.repeats), "--min-repeat-ms", str(request.min_repeat_ms)],
                request.timeout_s,
            )
        except subprocess.TimeoutExpired:
            return Outcome("timeout", message=f"run: no answer in {request.timeout_s:g} s; killed")
        except WorkerLost as lost:
            return lost_outcome(lost)
        if answer["status"] != "ok":
            return Outcome("run_error", message=str(answer["message"])[:2000])
        if not error <= request.tolerance:
            return wrong_result(error, request.tolerance)
        return Outcome("ok", tuple(answer["seconds"]), "", error)

    def compare(self, request: CompareRequest) -> Comparison:
        """Times libraries in interleaved blocks; see `Runner.compare`."""
        samples: list[list[float]] = [[] for _ in request.libraries]
        worst = [0.0] * len(request.libraries)
        flags = ["--repeat", "1", "--min-repeat-ms", str(request.min_repeat_ms)]
        for index in in_blocks(request.blocks, request.seed):
            try:
                answer, error = self._execute(
                    request.libraries[index], request.data, flags, _COMPARE_TIMEOUT_S
                )
            except subprocess.TimeoutExpired as late:
                raise WorkerLost("a kernel hung in the final benchmark", timed_out=True) from late
            if answer["status"] != "ok":
                raise WorkerLost(str(answer["message"]), timed_out=False)
            samples[index].append(answer["seconds"][0])
            worst[index] = max(worst[index], error)
        errors = tuple(error if math.isfinite(error) else None for error in worst)
        return Comparison(tuple(map(tuple, samples)), errors)

    def _execute(
        self, library: Path, data: Path, flags: Sequence[str], timeout_s: float
    ) -> tuple[dict[str, Any], float]:
        """Runs one process; returns its JSON answer, and the largest relative error of its outputs."""
        expected = _arrays(data, "expected")
        arguments = [*self._command, str(library), _SYMBOL, "--threads", "1", *flags]
        for index, array in enumerate(_arrays(data, "input")):
            arguments += ["--arg", _operand(array, _raw(data, index, array))]
        files = [library.parent / f"output{index}.bin" for index in range(len(expected))]
        for array, file in zip(expected, files, strict=True):
            arguments += ["--out", _operand(_stored(array), file)]
        try:
            answer = _answer(self._run(arguments, timeout_s))
        except TooMuchOutput as endless:
            answer = {"status": "run_error", "message": endless.message}
        if answer["status"] != "ok":
            return answer, math.inf
        error = max(
            max_relative_error(
                np.fromfile(file, dtype=_stored(array).dtype).reshape(array.shape), array
            )
            for file, array in zip(files, expected, strict=True)
        )
        return answer, error

    def _run(
        self, arguments: Sequence[str], timeout_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a process, and again if it was killed from outside.

        Raises:
            WorkerLost: It was killed too often.
        """
        kills = Kills()
        while True:
            before = oom_kills()
            done = run_to_end(arguments, timeout=timeout_s, bound=True)
            if not of_outside(done.returncode):
                return done
            kills.count(killed_by(done.returncode, before), self.notify, alone=True)


def _answer(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        reason = (
            done.stderr.decode(errors="replace").strip()[-500:] or f"exit code {done.returncode}"
        )
        return {"status": "run_error", "message": f"the kernel's process died: {reason}"}
    return answer


def _stored(array: NDArray[Any]) -> NDArray[Any]:
    """Returns the array in the type that kernels write: references are float64, outputs float32."""
    return array.astype(np.float32) if np.issubdtype(array.dtype, np.floating) else array


def _operand(array: NDArray[Any], file: Path) -> str:
    return f"{_DTYPES[str(array.dtype)]}:{'x'.join(map(str, array.shape))}:{file}"


def _raw(data: Path, index: int, array: NDArray[Any]) -> Path:
    path = data / f"input{index}.bin"
    if not path.exists():
        array.tofile(path)
    return path


@lru_cache(maxsize=2)
def _arrays(data: Path, stem: str) -> tuple[NDArray[Any], ...]:
    count = len(list(data.glob(f"{stem}*.npy")))
    return tuple(np.load(data / f"{stem}{i}.npy", allow_pickle=False) for i in range(count))
