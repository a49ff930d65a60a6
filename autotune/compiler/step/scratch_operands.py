"""A kernel's temporaries: large ones become operands that a step plans like any other; the rest are counted."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.workloads.operators import DType, TensorSpec

_ON_THE_STACK_BYTES = 1024
_PAGE_BYTES = 4096
_SHUFFLES, _STEPS = 16, 2


@dataclass(frozen=True)
class Workspace:
    """Memory that a kernel requests from the runtime while it runs, in bytes.

    Attributes:
        alone: Requests of the calling thread.
        shared: Requests of each thread in parallel loops.
    """

    alone: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()


def held_bytes(calls: Sequence[Workspace], threads: int) -> int:
    """Returns the largest size of the runtime's pools. A thread keeps requested memory, and reuses it later.

    The thread that calls the kernels also works in their parallel loops. Lowering may change the order of a
    kernel's requests, and so which block serves which request. Therefore the largest result of several orders is
    taken.

    Args:
        calls: The kernels' workspaces in the order of their calls.
        threads: Threads of parallel loops.
    """
    caller = [(*one.alone, *one.shared) for one in calls if one.alone or one.shared]
    others = [one.shared for one in calls if one.shared]
    return _most_held(caller) + (threads - 1) * _most_held(others)


def _most_held(calls: Sequence[tuple[int, ...]]) -> int:
    shuffled = random.Random(0)
    orders: list[Callable[[tuple[int, ...]], Sequence[int]]] = [
        lambda sizes: sizes,
        lambda sizes: sizes[::-1],
        lambda sizes: sorted(sizes),
        lambda sizes: sorted(sizes, reverse=True),
        *[lambda sizes: shuffled.sample(sizes, len(sizes))] * _SHUFFLES,
    ]
    return max(_pool([order(sizes) for sizes in calls]) for order in orders)


def _pool(calls: Sequence[Sequence[int]]) -> int:
    """Returns the bytes of a pool after some steps. It gives the smallest fitting block, or grows the largest."""
    free: list[int] = []
    for sizes in [*calls] * _STEPS:
        taken = []
        for size in sizes:
            fitting = bisect.bisect_left(free, size)
            block = free.pop(min(fitting, len(free) - 1)) if free else 0
            taken.append(max(block, size))
        for block in taken:
            bisect.insort(free, block)
    return sum(free)


def with_scratch_operands(function: Any) -> tuple[Any, tuple[TensorSpec, ...]]:
    """Turns the temporaries that one thread fills for all threads into operands after a kernel's outputs.

    Temporaries inside a parallel loop stay, since each thread needs its own. Temporaries that lowering shrinks
    (tiles) stay too.

    Args:
        function: A scheduled `tvm.tirx.PrimFunc`.

    Returns:
        The function with the new parameters, and the specifications of these parameters.
    """
    from tvm import tirx
    from tvm.s_tir import SBlock, SBlockRealize

    realize = function.body
    if not isinstance(realize, SBlockRealize) or not realize.block.alloc_buffers:
        return function, ()
    root = realize.block
    sizes = _lowered_sizes(function)
    moved: list[Any] = []
    kept: list[Any] = []
    for buffer in root.alloc_buffers:
        whole = sizes.get(str(buffer.name)) == (_bytes(buffer), False)
        plain = buffer.scope() in ("", "global") and str(buffer.dtype) in ("float32", "int32")
        (moved if whole and plain else kept).append(buffer)
    if not moved:
        return function, ()
    block = SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        root.body,
        root.init,
        kept,
        root.match_buffers,
        root.annotations,
    )
    body = SBlockRealize(realize.iter_values, realize.predicate, block)
    extended = tirx.PrimFunc([*function.params, *moved], body, function.ret_type, function.attrs)
    specs = tuple(
        TensorSpec(str(b.name), tuple(int(extent) for extent in b.shape), _type_of(b))
        for b in moved
    )
    return extended, specs


def _type_of(buffer: Any) -> DType:
    return "int32" if str(buffer.dtype) == "int32" else "float32"


def workspace(function: Any) -> Workspace:
    """Returns the temporaries that remain in a scheduled function, in their sizes after lowering."""
    sizes = [
        (-(-size // _PAGE_BYTES) * _PAGE_BYTES, parallel)
        for size, parallel in _lowered_sizes(function).values()
        if size > _ON_THE_STACK_BYTES
    ]
    return Workspace(
        tuple(size for size, parallel in sizes if not parallel),
        tuple(size for size, parallel in sizes if parallel),
    )


def _lowered_sizes(function: Any) -> dict[str, tuple[int, bool]]:
    """Returns the bytes of each temporary after lowering, and whether it is in a parallel loop, by name."""
    import tvm
    from tvm.s_tir import transform

    module = tvm.IRModule({"main": function})
    for lowered in (
        transform.CanonicalizeLoop(),
        transform.LowerInitBlock(),
        transform.PlanAndUpdateBufferAllocationLocation(),
        transform.ConvertBlocksToOpaque(),
        transform.CompactBufferAllocation(),
    ):
        module = lowered(module)
    sizes: dict[str, tuple[int, bool]] = {}
    _collect(module["main"].body, False, sizes)
    return sizes


def _collect(stmt: Any, parallel: bool, sizes: dict[str, tuple[int, bool]]) -> None:
    from tvm import tirx
    from tvm.s_tir import SBlockRealize

    if isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            _collect(part, parallel, sizes)
    elif isinstance(stmt, tirx.For):
        _collect(stmt.body, parallel or stmt.kind == tirx.ForKind.PARALLEL, sizes)
    elif isinstance(stmt, SBlockRealize):
        for buffer in stmt.block.alloc_buffers:
            sizes[str(buffer.name)] = _bytes(buffer), parallel
        _collect(stmt.block.body, parallel, sizes)


def _bytes(buffer: Any) -> int:
    return 4 * math.prod(int(extent) for extent in buffer.shape)
