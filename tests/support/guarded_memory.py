"""Runs kernels on operands with unreadable pages before and behind them, in a separate process.

The arguments are texts of described kernels. Each is named before it runs, plain and then scheduled.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
import tvm
from cpu_tiles import SPACE, SPEC

from autotune.compiler.programs import Unscheduled, plain_module
from autotune.compiler.rules import streamed
from autotune.compiler.target.targets import tvm_target
from autotune.workloads import max_relative_error, parse_kernel, random_inputs, reference

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)


def guarded(array: Any, *, at_end: bool) -> Any:
    """A copy whose first or last byte is the first or last of pages between two that may not be touched."""
    inside = -(-array.nbytes // PAGE) * PAGE
    memory = mmap.mmap(-1, inside + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (start, start + PAGE + inside):
        assert LIBC.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0) == 0
    begin = PAGE + (inside - array.nbytes if at_end else 0)
    assert begin % 64 == 0, "TVM takes operands at multiples of 64 bytes"
    found = np.frombuffer(memory, array.dtype, array.size, begin).reshape(array.shape)
    found[...] = array
    return found


def check(text: str, *, scheduled: bool) -> None:
    """Compares a kernel with its reference."""
    kernel = parse_kernel(text, "forward")
    module = plain_module(kernel)
    if scheduled:
        assert SPACE.streaming is not None
        module = streamed(Unscheduled(module).schedule(), SPACE.streaming, 2).mod
    library = tvm.compile(module, tvm_target(SPEC, None, SPACE.compile))
    inputs = random_inputs(kernel, 1)
    wanted = reference(kernel, inputs)
    for at_end in (False, True):
        given = [tvm.runtime.from_dlpack(guarded(one, at_end=at_end)) for one in inputs]
        results = [guarded(np.zeros(one.shape, one.dtype), at_end=at_end) for one in kernel.outputs]
        library["main"](*given, *map(tvm.runtime.from_dlpack, results))
        for found, one in zip(results, wanted, strict=True):
            assert max_relative_error(found, one) < 1e-4


if __name__ == "__main__":
    for one in sys.argv[1:]:
        for way in (False, True):
            print(one, "scheduled" if way else "plain", file=sys.stderr, flush=True)
            check(one, scheduled=way)
