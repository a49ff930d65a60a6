"""Applies a recorded schedule to its program again: the only way by which a trace from a file reaches TVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from autotune.errors import RecordError
from autotune.records import ANNOTATION_KEYS, check_trace

# Operations that scheduling itself adds to programs, besides those of the formulation.
_OF_SCHEDULING = frozenset({"prim.likely", "prim.if_then_else"})
_STATEMENTS = frozenset({"SBlock", "SBlockRealize", "For", "SeqStmt", "BufferStore", "IfThenElse"})
_ANNOTATIONS = ANNOTATION_KEYS | {"buffer_dim_align"}  # StorageAlign adds the last.
_SCOPES = frozenset({"", "global", "local", "shared"})


Apply = Callable[[Any, list[Any], list[Any], Any], Any]
"""Runs an instruction of a schedule on its inputs, attributes and decision, and returns its results."""

_APPLY: Mapping[str, Apply] = {
    "GetSBlock": lambda sch, _, attributes, __: sch.get_sblock(*attributes),
    "GetLoops": lambda sch, inputs, *_: sch.get_loops(*inputs),
    "GetChildBlocks": lambda sch, inputs, *_: sch.get_child_blocks(*inputs),
    "GetProducers": lambda sch, inputs, *_: sch.get_producers(*inputs),
    "GetConsumers": lambda sch, inputs, *_: sch.get_consumers(*inputs),
    "GetOutputBlocks": lambda sch, inputs, *_: sch.get_output_blocks(*inputs),
    "SamplePerfectTile": lambda sch, inputs, attributes, decision: sch.sample_perfect_tile(
        *inputs, *attributes, decision
    ),
    "SampleCategorical": lambda sch, _, attributes, decision: sch.sample_categorical(
        *attributes, decision
    ),
    "SampleComputeLocation": lambda sch, inputs, _, decision: sch.sample_compute_location(
        *inputs, decision
    ),
    "Split": lambda sch, inputs, attributes, _: sch.split(
        inputs[0], [None if one == "None" else one for one in inputs[1:]], *attributes
    ),
    "Fuse": lambda sch, inputs, attributes, _: sch.fuse(
        *inputs, preserve_unit_iters=bool(attributes[0])
    ),
    "Reorder": lambda sch, inputs, *_: sch.reorder(*inputs),
    "AddUnitLoop": lambda sch, inputs, *_: sch.add_unit_loop(*inputs),
    "Bind": lambda sch, inputs, attributes, _: sch.bind(*inputs, *attributes),
    "Parallel": lambda sch, inputs, *_: sch.parallel(*inputs),
    "Vectorize": lambda sch, inputs, *_: sch.vectorize(*inputs),
    "Unroll": lambda sch, inputs, *_: sch.unroll(*inputs),
    "CacheRead": lambda sch, inputs, attributes, _: sch.cache_read(
        inputs[0], *attributes, inputs[1]
    ),
    "CacheWrite": lambda sch, inputs, attributes, _: sch.cache_write(
        inputs[0], *attributes, inputs[1]
    ),
    "ComputeAt": lambda sch, inputs, attributes, _: sch.compute_at(
        *inputs, bool(attributes[0]), attributes[1]
    ),
    "ReverseComputeAt": lambda sch, inputs, attributes, _: sch.reverse_compute_at(
        *inputs, bool(attributes[0]), attributes[1]
    ),
    "ComputeInline": lambda sch, inputs, *_: sch.compute_inline(*inputs),
    "ReverseComputeInline": lambda sch, inputs, *_: sch.reverse_compute_inline(*inputs),
    "DecomposeReduction": lambda sch, inputs, *_: sch.decompose_reduction(*inputs),
    "RFactor": lambda sch, inputs, attributes, _: sch.rfactor(*inputs, *attributes),
    "SetScope": lambda sch, inputs, attributes, _: sch.set_scope(*inputs, *attributes),
    "StorageAlign": lambda sch, inputs, attributes, _: sch.storage_align(*inputs, *attributes),
    "Annotate": lambda sch, inputs, attributes, _: sch.annotate(
        inputs[0], attributes[0], _annotation(inputs[1])
    ),
    "Unannotate": lambda sch, inputs, attributes, _: sch.unannotate(*inputs, *attributes),
    "EnterPostproc": lambda sch, *_: sch.enter_postproc(),
}


def replay_trace(schedule: Any, trace: Any) -> None:
    """Applies a recorded trace to a fresh schedule of its program.

    The trace is checked first. Then its instructions are run one by one. So TVM itself parses nothing from the
    file, and never annotates a block or loop that no longer exists, which would crash it. The resulting program is
    checked at the end.

    Args:
        schedule: A TVM `Schedule` of a formulation's program, without instructions.
        trace: The trace as plain JSON data, from a run or a database of records.

    Raises:
        RecordError: Our own searches do not make such a trace or program.
        Exception: The trace does not fit the program. TVM raises whatever it meets first.
    """
    check_trace(trace)
    instructions, decisions = trace
    decided = dict(decisions)
    before = _contents(schedule.mod)
    known: dict[str, Any] = {}
    for number, (name, inputs, attributes, results) in enumerate(instructions):
        if name in ("Annotate", "Unannotate"):
            schedule.get_sref(
                known[inputs[0]]
            )  # Raises if it no longer exists; other instructions check this themselves.
        made = _APPLY[name](
            schedule,
            [_operand(one, known) for one in inputs],
            attributes,
            decided.get(number),
        )
        found = [] if made is None else list(made) if _is_list(made) else [made]
        if len(found) != len(results):
            raise ValueError(f"instruction {number} ({name}) makes {len(found)} results")
        known.update(zip(results, found, strict=True))
    check_program(before, schedule.mod)


def _operand(value: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return known.get(value, value)
    return [known.get(one, one) for one in value] if isinstance(value, list) else value


def _is_list(made: Any) -> bool:
    return hasattr(made, "__len__") and not hasattr(made, "dtype")


def _annotation(value: Any) -> Any:
    """Returns the value of an annotation; text is JSON within JSON."""
    return json.loads(value) if isinstance(value, str) else value


def check_program(before: Any, module: Any) -> None:
    """Refuses a scheduled program with parts that neither its formulation nor one of our schedules creates.

    Args:
        before: The unscheduled `tvm.IRModule`, or the result of `_contents` for it.
        module: The scheduled `tvm.IRModule`.

    Raises:
        RecordError: It has a call, an annotation, an attribute, a memory scope or a function that the unscheduled
            program does not have.
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
                hint="use records that `autotune kernels` has made, without changes",
            )


def _contents(module: Any) -> dict[str, frozenset[str]]:
    """Returns the names of what a program calls and contains, by kind."""
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
