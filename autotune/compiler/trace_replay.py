"""A recorded schedule applied to its program again: the only way in which a trace from a file reaches TVM."""

from __future__ import annotations

from typing import Any

from autotune.errors import RecordError
from autotune.records.trace_grammar import ANNOTATION_KEYS, check_trace

# What scheduling itself puts into programs, beside the operations that a formulation has.
_OF_SCHEDULING = frozenset({"prim.likely", "prim.if_then_else"})
_STATEMENTS = frozenset({"SBlock", "SBlockRealize", "For", "SeqStmt", "BufferStore", "IfThenElse"})
_ANNOTATIONS = ANNOTATION_KEYS | {"buffer_dim_align"}  # What StorageAlign leaves.
_SCOPES = frozenset({"", "global", "local", "shared"})


def replay_trace(schedule: Any, trace: Any) -> None:
    """Applies a recorded trace to a fresh schedule of its program.

    The trace is checked before TVM sees it, and the program that comes out is checked afterwards.

    Args:
        schedule: A TVM `Schedule` of a formulation's program, without instructions.
        trace: The trace as plain JSON data, from a run or a database of records.

    Raises:
        RecordError: The trace or its program is none that our own searches make.
        Exception: The trace does not fit the program. TVM raises whatever it meets first.
    """
    from tvm.s_tir.schedule import Trace

    check_trace(trace)
    before = _contents(schedule.mod)
    Trace.apply_json_to_schedule(trace, schedule)
    check_program(before, schedule.mod)


def check_program(before: Any, module: Any) -> None:
    """Refuses a scheduled program that holds what neither its formulation nor a schedule of ours puts there.

    Args:
        before: The unscheduled `tvm.IRModule`, or what `_contents` found in it.
        module: The scheduled one.

    Raises:
        RecordError: It calls something, or has an annotation, an attribute, a memory scope or a function that the
            unscheduled program does not have.
    """
    own = before if isinstance(before, dict) else _contents(before)
    allowed = {
        "calls": _OF_SCHEDULING,
        "statements": _STATEMENTS,
        "annotations": _ANNOTATIONS,
        "scopes": _SCOPES,
    }
    for what, found in _contents(module).items():
        foreign = found - own[what] - allowed.get(what, frozenset())
        if foreign:
            raise RecordError(
                f"a recorded schedule is refused: its program has foreign {what}: {min(foreign)[:80]}",
                hint="use records that `autotune kernels` has made and nobody has changed",
            )


def _contents(module: Any) -> dict[str, frozenset[str]]:
    """What a program calls and carries, by kind: names only."""
    import tvm_ffi
    from tvm import ir, tirx
    from tvm.s_tir import SBlock

    found: dict[str, set[str]] = {
        kind: set()
        for kind in ("calls", "statements", "annotations", "attributes", "scopes", "functions")
    }

    def add(kind: str, *names: Any) -> None:
        found[kind].update(map(str, names))

    def statement(one: Any) -> None:
        add("statements", type(one).__name__)
        add("annotations", *getattr(one, "annotations", ()))
        if isinstance(one, SBlock):
            add("scopes", *(buffer.scope() for buffer in one.alloc_buffers))
        elif isinstance(one, tirx.AttrStmt):
            add("attributes", one.attr_key)

    for name, function in module.functions.items():
        add("functions", name.name_hint)
        if not isinstance(function, tirx.PrimFunc):
            add("functions", f"{name.name_hint}, a {type(function).__name__}")
            continue
        add("attributes", *(function.attrs.keys() if function.attrs else ()))
        tvm_ffi.structural_walk(
            function.body,
            [
                (ir.Call, lambda one: add("calls", getattr(one.op, "name", one.op))),
                (tirx.Stmt, statement),
            ],
        )
    return {kind: frozenset(names) for kind, names in found.items()}
