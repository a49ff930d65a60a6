"""A step worker: holds a step's memory and kernels on this host's processor, and runs steps.

It has only TVM's runtime. Requests:

- `{"op": "load", "program"}`: the path of a program (see `step.py`).
- `{"op": "start", "values"}`: index and file of each persistent tensor's first value.
- `{"op": "run", "feeds", "steps"}`: a folder with `<index>.bin` for each tensor that is given per step, with one
  value per step. The answer has loss and seconds of each step, and `bytes`: the growth of this process since
  "start". All memory that a step requests stays with the process (the arena, the runtime's pools), so this is the
  peak. Mapped files, such as the libraries, are not counted. `high_water` is the growth by the Linux kernel's
  high-water mark of resident memory, which is how steps of other frameworks are measured too; null if the mark
  cannot be reset.
- `{"op": "read", "tensors", "folder"}`: writes tensors, by index, as `<index>.npy`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.workers import Message, serve

_M_MMAP_THRESHOLD = -3  # <malloc.h>
_OF_ITS_OWN_BYTES = 32 * 1024


def _memory(key: str) -> int:
    """Returns a value of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


class HighWater:
    """Measures the peak growth of this process since creation, without mapped files. Linux only."""

    def __init__(self) -> None:
        self._resident, self._files = _memory("VmRSS"), _memory("RssFile")
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        except OSError:
            self._resident = -1

    def bytes(self) -> int | None:
        """Returns the growth; None if the mark cannot be reset."""
        if self._resident < 0:
            return None
        return _memory("VmHWM") - self._resident - (_memory("RssFile") - self._files)


class Step:
    """A loaded step."""

    def __init__(self) -> None:
        import tvm

        self._tvm = tvm
        self._libraries: list[Any] = []
        self._arrays: list[NDArray[Any]] = []
        self._calls: list[tuple[Any, tuple[Any, ...]]] = []
        self._copies: list[tuple[int, int]] = []
        self._feeds: list[int] = []
        self._loss = 0
        self._before = 0
        self._high_water: HighWater | None = None

    def handle(self, request: Message) -> Message:
        """Carries out one request."""
        match request["op"]:
            case "load":
                return self._load(json.loads(Path(request["program"]).read_text(encoding="utf-8")))
            case "start":
                return self._start(request["values"])
            case "run":
                return self._run(Path(request["feeds"]), request["steps"])
            case _:
                return self._read(request["tensors"], Path(request["folder"]))

    def _load(self, program: Message) -> Message:
        self._libraries = [self._tvm.runtime.load_module(path) for path in program["libraries"]]
        functions = {
            symbol: self._libraries[part][symbol] for symbol, part in program["symbols"].items()
        }
        # Separate pages, none of them in memory yet. A page's start is aligned for any vector.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        arena = np.frombuffer(mmap.mmap(-1, program["arena_bytes"], flags=flags), np.uint8)
        for offset, shape, dtype in program["tensors"]:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            self._arrays.append(arena[offset : offset + size].view(dtype).reshape(shape))
        views: dict[tuple[int, tuple[int, ...]], Any] = {}

        def operand(index: int, shape: tuple[int, ...]) -> Any:
            key = (index, shape)
            if key not in views:
                views[key] = self._tvm.runtime.from_dlpack(self._arrays[index].reshape(shape))
            return views[key]

        self._calls = [
            (functions[symbol], tuple(operand(index, tuple(shape)) for index, shape in operands))
            for symbol, operands in program["calls"]
        ]
        self._copies = [(source, target) for source, target in program["copies"]]
        self._feeds, self._loss = program["feeds"], program["loss"]
        return {}

    def _start(self, values: list[tuple[int, str]]) -> Message:
        """Gives persistent tensors their first values. Until then, the arena takes no memory."""
        self._tvm.get_global_func("runtime.NumThreads")()  # Starts the threads.
        gc.collect()
        c_library = ctypes.CDLL(None)
        # Blocks that the runtime's pools outgrow go back to the system, not into holes of the heap.
        c_library.mallopt(_M_MMAP_THRESHOLD, _OF_ITS_OWN_BYTES)
        c_library.malloc_trim(0)
        self._before = _memory("RssAnon")
        self._high_water = HighWater()
        for index, path in values:
            self._fill(index, Path(path), 0)
        return {}

    def _fill(self, index: int, path: Path, number: int) -> None:
        """Reads array `number` of a file of equal arrays straight into a tensor."""
        array = self._arrays[index]
        with path.open("rb", buffering=0) as file:
            file.seek(number * array.nbytes)
            if file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:
                raise ValueError(f"{path} is shorter than {number + 1} tensors")

    def _give(self, folder: Path, step: int) -> None:
        for index in self._feeds:
            self._fill(index, folder / f"{index}.bin", step)

    def _finish(self) -> float:
        for source, target in self._copies:
            self._arrays[target][...] = self._arrays[source]
        return float(self._arrays[self._loss].reshape(-1)[0])

    def _run(self, folder: Path, steps: int) -> Message:
        losses, seconds = [], []
        for step in range(steps):
            start = time.perf_counter()
            self._give(folder, step)
            for function, operands in self._calls:
                function(*operands)
            losses.append(self._finish())
            seconds.append(time.perf_counter() - start)
        return {
            "losses": losses,
            "seconds": seconds,
            "bytes": _memory("RssAnon") - self._before,
            "high_water": self._high_water and self._high_water.bytes(),
        }

    def _read(self, tensors: list[int], folder: Path) -> Message:
        for index in tensors:
            np.save(folder / f"{index}.npy", self._arrays[index])
        return {}


if __name__ == "__main__":
    serve(sys.argv[1:], Step().handle)
