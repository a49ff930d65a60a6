"""A run worker: loads built kernels on this host's CPU or OpenCL device, checks them and times them.

It has only TVM's runtime. Arguments: the device kind, `cpu` or `opencl`, and the cores to use, or none for all.
Requests:
- `{"op": "load", "data"}`
- `{"op": "measure", "library", "data", "outputs", "repeats", "min_repeat_ms", "give_up_s", "tolerance"}`
- `{"op": "compare", "libraries": [...], "data", "blocks": [...], "min_repeat_ms", "seed", "known": [...]}`

`data` is a folder with `input<i>.npy` and `expected<i>.npy`.
"""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.workers import Message, serve
from autotune.measurement import in_blocks
from autotune.workloads.references import max_relative_error

_POISON_INT = 0x7F7F7F7F
_SHORT_S, _ROUGHLY_MS, _LEAST = 2e-3, 2.0, 10
"""A kernel that takes less, including launch and wait, is timed roughly by several executions in a row."""
_LONG_S = 0.1
"""A kernel that takes longer is timed by one execution per block, without an untimed one before it."""
_SURELY_LONG_S = 1.0
"""A kernel that took longer than this before is long, whatever the state of the device."""


class KernelTimer:
    """A device, and the data of the kernel that is measured.

    Args:
        device: TVM's device, on this host or in a session.
    """

    def __init__(self, device: Any) -> None:
        import tvm

        self._tvm = tvm
        self._device = device
        self._wall_s = 0.0
        self._ran: Any = None
        """The last kernel that ran on the loaded data."""
        self._failures = 0
        """Number of errors since a kernel last ran."""
        self._folder: Path | None = None
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._expected: list[NDArray[Any]] = []

    def handle(self, request: Message) -> Message:
        """Carries out one request. Ends the process if the device no longer works afterwards."""
        try:
            return self.carry_out(request)
        except Exception as error:
            if self.works():
                raise
            sys.exit(f"{type(error).__name__}: {error}")

    def works(self) -> bool:
        """Returns whether the device still accepts data and runs the previous kernel. Call it after an error.

        A faulty kernel may leave an OpenCL context in which every later call or launch fails. If no kernel has run
        on this data yet, a second error in a row counts as such a failure.
        """
        self._failures += 1
        try:
            probe = self._upload(np.zeros(1, np.float32))
            self._device.sync()
            if self._ran is None:
                return bool(probe.numpy()[0] == 0) and self._failures == 1
            self._execute(self._ran)
        except Exception:
            return False
        return True

    def carry_out(self, request: Message) -> Message:
        """Carries out one request."""
        self._open(Path(request["data"]), fresh=False)
        if request["op"] == "load":
            return {}
        if request["op"] == "measure":
            return self._measure(request)
        return self._compare(request)

    def _open(self, folder: Path, *, fresh: bool) -> None:
        """Loads a kernel's data onto the device, unless they are already there."""
        if folder == self._folder and not fresh:
            return
        self._folder = folder
        self._ran = None
        count = len(list(folder.glob("input*.npy")))
        self._inputs = [
            self._upload(np.load(folder / f"input{i}.npy", allow_pickle=False))
            for i in range(count)
        ]
        self._expected = [
            np.load(folder / f"expected{i}.npy", allow_pickle=False)
            for i in range(len(list(folder.glob("expected*.npy"))))
        ]
        self._outputs = [
            self._upload(_poison(array.shape, array.dtype)) for array in self._expected
        ]

    def _upload(self, array: NDArray[Any]) -> Any:
        return self._tvm.runtime.tensor(np.ascontiguousarray(array), device=self._device)

    def _error(self, function: Any) -> float:
        """Runs the kernel once into poisoned outputs, and returns the largest relative error."""
        for tensor, array in zip(self._outputs, self._expected, strict=True):
            tensor.copyfrom(_poison(array.shape, array.dtype))
        self._execute(function)
        return max(
            max_relative_error(tensor.numpy(), array)
            for tensor, array in zip(self._outputs, self._expected, strict=True)
        )

    def _execute(self, function: Any) -> float:
        """Runs the kernel once, and returns the wall time in seconds, including launch and synchronisation."""
        start = time.perf_counter()
        function(*self._inputs, *self._outputs)
        self._device.sync()
        self._wall_s = time.perf_counter() - start
        self._ran, self._failures = function, 0
        return self._wall_s

    def _once(self, library: Any, function: Any) -> float:
        """Returns the seconds of one execution with its launch. The kernel must have been executed before."""
        return self._execute(function)

    def _roughly(self, library: Any, function: Any) -> float:
        """Returns the approximate seconds of one execution. The kernel must have been executed before.

        Launching a short kernel on a GPU and waiting for it take longer than the kernel. So all short kernels would
        look equally slow in a single execution.
        """
        seconds = self._once(library, function)
        if seconds < _SHORT_S:
            number = max(_LEAST, _executions(seconds, _ROUGHLY_MS))
            (seconds,) = self._time(library, number=number, repeats=1)
        return seconds

    def _load(self, path: str) -> tuple[Any, Any]:
        library = self._tvm.runtime.load_module(path)
        return library, library["main"]

    def _long(self, library: Any, function: Any) -> float:
        """Returns the seconds of one execution of a long kernel."""
        return self._execute(function)

    def _time(self, library: Any, *, number: int, repeats: int) -> list[float]:
        timer = library.time_evaluator("main", self._device, number=number, repeat=repeats)
        return [float(s) for s in timer(*self._inputs, *self._outputs).results]

    def _measure(self, request: Message) -> Message:
        library, function = self._load(request["library"])
        error = self._error(function)
        if not error <= request["tolerance"]:
            self._open(Path(request["data"]), fresh=True)
            return {"samples": [], "max_rel_error": error if math.isfinite(error) else None}
        first = self._roughly(library, function)
        samples = [first]
        if first <= request["give_up_s"]:
            number = _executions(first, request["min_repeat_ms"])
            samples = self._time(library, number=number, repeats=request["repeats"])
        return {"samples": samples, "max_rel_error": error}

    def _compare(self, request: Message) -> Message:
        """Times several libraries in interleaved blocks. Each block has a new random order."""
        loaded = [self._load(path) for path in request["libraries"]]
        errors: dict[int, float] = {}
        roughly = list(request["known"])
        for index, (library, function) in enumerate(loaded):
            if roughly[index] > _SURELY_LONG_S:
                errors[index] = self._error(function)
            else:
                self._execute(function)
                roughly[index] = self._roughly(library, function)
        samples: list[list[float]] = [[] for _ in loaded]
        for index in in_blocks(request["blocks"], request["seed"]):
            library, function = loaded[index]
            if roughly[index] > _LONG_S:
                seconds = self._long(library, function)
            else:
                number = _executions(roughly[index], request["min_repeat_ms"])
                (seconds,) = self._time(library, number=number, repeats=1)
            samples[index].append(seconds)
        # After all executions, when one more costs no time.
        found = [
            errors[index] if index in errors else self._error(function)
            for index, (_, function) in enumerate(loaded)
        ]
        return {
            "samples": samples,
            "max_rel_errors": [error if math.isfinite(error) else None for error in found],
        }


def _executions(seconds: float, min_repeat_ms: float) -> int:
    """Returns the number of executions that fill the shortest allowed repeat."""
    return max(1, min(10_000, math.ceil(min_repeat_ms / 1e3 / max(seconds, 1e-8))))


def _poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Returns the content of an output before a checked run, so that elements never written are noticed."""
    if np.issubdtype(dtype, np.floating):
        return np.full(shape, np.nan, dtype=np.float32)
    return np.full(shape, _POISON_INT, dtype=np.int32)


if __name__ == "__main__":
    if sys.argv[3:]:
        os.sched_setaffinity(0, map(int, sys.argv[3:]))
    import tvm

    if sys.argv[2] == "opencl":
        from autotune.compiler.native import opencl_sidecar

        opencl_sidecar.load()
    serve(sys.argv[1:], KernelTimer(tvm.device(sys.argv[2], 0)).handle)
