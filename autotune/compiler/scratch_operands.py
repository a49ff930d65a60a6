"""Makes a kernel's large temporaries operands, so that a step can plan their memory like any other."""

from __future__ import annotations

from typing import Any

from autotune.workloads.operators import DType, TensorSpec


def with_scratch_operands(function: Any) -> tuple[Any, tuple[TensorSpec, ...]]:
    """Moves the temporaries that pass between a kernel's loop nests behind its outputs.

    Temporaries inside a loop nest stay: they are tiles that lowering shrinks to a few cache lines.

    Args:
        function: A scheduled `tvm.tirx.PrimFunc`.

    Returns:
        The function with the new parameters, and what they are.
    """
    from tvm import tirx
    from tvm.s_tir import SBlock, SBlockRealize
    from tvm.s_tir.analysis import detect_buffer_access_lca

    realize = function.body
    if not isinstance(realize, SBlockRealize) or not realize.block.alloc_buffers:
        return function, ()
    root = realize.block
    shared_by = detect_buffer_access_lca(function)
    moved: list[Any] = []
    kept: list[Any] = []
    for buffer in root.alloc_buffers:
        ancestor = shared_by.get(buffer)
        whole = ancestor is not None and ancestor.same_as(root)
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
