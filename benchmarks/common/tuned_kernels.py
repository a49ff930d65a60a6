"""A tuned step's kernels in their own process, because PyTorch's threads would wait on the same cores."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.compiler.target.host import runtime_environment
from autotune.compiler.workers.workers import Message, Worker, serve
from autotune.workloads import Kernel, parse_kernel, random_inputs
from common.interleaved import Turn, turn_of

if TYPE_CHECKING:
    from autotune.compiler.step.step_library import StepLibrary

_SEED = 1
_TIMEOUT_S = 300.0


class TunedKernels:
    """The kernels of a tuned step, loaded one at a time.

    Args:
        library: The step's libraries.
        worker: The process.
    """

    def __init__(self, library: StepLibrary, worker: Worker) -> None:
        self._library, self._worker = library, worker
        self._ask(op="open", libraries=[str(path) for path in library.parts])

    def _ask(self, **request: Any) -> Message:
        self._worker.send(request, timeout=_TIMEOUT_S)
        answer = self._worker.receive()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def turn(self, kernel: Kernel) -> Turn:
        """Returns calls of a kernel; valid until the next kernel is loaded."""
        scratch = self._library.scratch.get(kernel.name, ())
        self._ask(
            op="load",
            part=self._library.symbols[kernel.name],
            spec=kernel.spec,
            role=kernel.role,
            scratch=[(spec.shape, spec.dtype) for spec in scratch],
        )
        return lambda times: float(self._ask(op="turn", times=times)["seconds"])


@contextmanager
def tuned_kernels(library: StepLibrary) -> Iterator[TunedKernels]:
    """Starts the process, and yields its kernels."""
    here = str(Path(__file__).parents[1])
    worker = Worker("common.tuned_kernels", [], runtime_environment() | {"PYTHONPATH": here})
    try:
        yield TunedKernels(library, worker)
    finally:
        worker.stop()


class _Process:
    """Handler of requests in the process."""

    def __init__(self) -> None:
        import tvm

        self._tvm = tvm
        self._parts: list[Any] = []
        self._turn: Turn = turn_of(lambda: None)

    def handle(self, request: Message) -> Message:
        """Carries out one request."""
        if request["op"] == "open":
            self._parts = [self._tvm.runtime.load_module(path) for path in request["libraries"]]
        elif request["op"] == "load":
            kernel = parse_kernel(request["spec"], request["role"])
            function = self._parts[request["part"]][kernel.name]
            written = [(spec.shape, spec.dtype) for spec in kernel.outputs] + request["scratch"]
            arrays = [np.zeros(shape, dtype) for shape, dtype in written]
            operands = [
                self._tvm.runtime.tensor(one) for one in (*random_inputs(kernel, _SEED), *arrays)
            ]
            self._turn = turn_of(partial(function, *operands))
        else:
            began = perf_counter()
            self._turn(request["times"])
            return {"seconds": perf_counter() - began}
        return {}


if __name__ == "__main__":
    serve(sys.argv[1:], _Process().handle)
