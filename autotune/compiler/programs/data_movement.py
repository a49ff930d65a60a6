"""Finds the stages of a kernel that only move data (padding, packing and copies), by looking at the program."""

from __future__ import annotations

from typing import Any

from autotune.compiler.formulations import formulations, prim_func
from autotune.workloads.operators import Kernel


def movement_stages(kernel: Kernel, formulation: str) -> frozenset[str] | None:
    """Returns the names of a formulation's stages that only copy values; None if the whole kernel only copies.

    A stage that a schedule computes inside another stage no longer exists, and moves nothing.

    Args:
        kernel: The kernel.
        formulation: Name of the formulation.
    """
    (chosen,) = formulations(kernel, [formulation])
    blocks = _leaves(prim_func(kernel.main, chosen).body)
    copies = frozenset(str(block.name_hint) for block in blocks if _copies(block.body))
    return None if len(copies) == len(blocks) else copies


def only_stages(module: Any, names: frozenset[str]) -> Any:
    """Returns a scheduled `tvm.IRModule` with the named stages only; None if none of them is left.

    The function keeps its operands. The stages write into memory that the kernel requests from the runtime, so the
    compiler cannot see that nobody reads it. It may still drop tiles of a few cache lines.
    """
    import tvm
    from tvm import tirx

    function = module["main"]
    body = _kept(function.body, names)
    if body is None:
        return None
    return tvm.IRModule(
        {"main": tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)}
    )


def _copies(body: Any) -> bool:
    """Returns whether a statement stores a value unchanged, or a constant in place of a missing value."""
    from tvm import tirx

    return isinstance(body, tirx.BufferStore) and _is_read(body.value)


def _is_read(value: Any) -> bool:
    from tvm import ir, tirx

    if isinstance(value, ir.expr.TensorLoad):
        return True
    if isinstance(value, ir.Call) and str(value.op.name).endswith("if_then_else"):
        _, first, second = value.args
        constant = (tirx.FloatImm, tirx.IntImm)
        return _is_read(first) and (isinstance(second, constant) or _is_read(second))
    return False


def _leaves(stmt: Any) -> list[Any]:
    """Returns the blocks that contain no other blocks, in order."""
    from tvm import tirx
    from tvm.s_tir import SBlockRealize

    if isinstance(stmt, tirx.SeqStmt):
        return [leaf for part in stmt.seq for leaf in _leaves(part)]
    if isinstance(stmt, tirx.For):
        return _leaves(stmt.body)
    if isinstance(stmt, SBlockRealize):
        return _leaves(stmt.block.body) or [stmt.block]
    return []


def _kept(stmt: Any, names: frozenset[str]) -> Any:
    """Returns the statement with the named blocks only; None if nothing is left."""
    from tvm import tirx
    from tvm.s_tir import SBlock, SBlockRealize

    if isinstance(stmt, tirx.SeqStmt):
        parts = [part for part in (_kept(one, names) for one in stmt.seq) if part is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        return tirx.SeqStmt(parts)
    if isinstance(stmt, tirx.For):
        body = _kept(stmt.body, names)
        if body is None:
            return None
        return tirx.For(
            stmt.loop_var,
            stmt.min,
            stmt.extent,
            stmt.kind,
            body,
            stmt.thread_binding,
            stmt.annotations,
            stmt.step,
        )
    if not isinstance(stmt, SBlockRealize):
        return stmt
    block = stmt.block
    if not _leaves(block.body):
        return stmt if str(block.name_hint) in names else None
    body = _kept(block.body, names)
    if body is None:
        return None
    trimmed = SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        body,
        None,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )
    return SBlockRealize(stmt.iter_values, stmt.predicate, trimmed)
