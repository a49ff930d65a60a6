"""The grammar of recorded schedules: only instructions that our own searches make are allowed.

A recorded schedule is a trace of TVM: instructions, and the decisions of those that sample. Some instructions of
TVM bring code or run registered functions (`pragma_import_llvm`, tensor intrinsics, layout functions). Records come
from other people. So every trace is checked here, without TVM, before TVM reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import RecordError

_MOST_INSTRUCTIONS = 2400
"""Instructions of a schedule: ten times those of the longest that a search has made."""
_MOST_OPERANDS = 256
_MOST_LOOPS = 700
"""Loops that a schedule makes: ten times those of the one with most. TVM overflows its stack at some thousands."""
_LARGEST = 1 << 31
_MOST_UNROLLED = 1 << 16

_VARIABLE = re.compile(r"[blv]\d{1,6}")
_NAME = re.compile(r"\w[\w.]{0,200}")
_STRUCTURE = re.compile(r"[SR]{1,16}")

Check = Callable[[Any], bool]


def _integer(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _one_of(*values: bool | int | str) -> Check:
    allowed = frozenset((type(one), one) for one in values)  # 1 == True in Python, but not in JSON.
    kinds = (bool, int, str)
    return lambda value: type(value) in kinds and (type(value), value) in allowed


def _list_of(check: Check, most: int) -> Check:
    return lambda value: isinstance(value, list) and len(value) <= most and all(map(check, value))


def _blocks(value: Any) -> bool:
    """Checks the blocks that read the cached data; empty for all of them."""
    return (
        isinstance(value, list)
        and len(value) <= _MOST_OPERANDS
        and all(
            isinstance(one, str) and one[:1] == "b" and _VARIABLE.fullmatch(one) for one in value
        )
    )


def _name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _chance(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _factor(value: Any) -> bool:
    """Checks a factor of a split: a number, or `None` (as text) for the remainder."""
    return value == "None" or _SIZE(value)


def _text(pattern: re.Pattern[str]) -> Check:
    """Returns a check for a text operand, which TVM writes as JSON within JSON."""

    def check(value: Any) -> bool:
        return isinstance(value, str) and pattern.fullmatch(value.strip('"')) is not None and (
            value == json.dumps(value.strip('"'))
        )  # fmt: skip

    return check


_SIZE = _integer(1, _LARGEST)
_INDEX = _integer(0, _MOST_OPERANDS)
_FLAG = _one_of(0, 1)
_STAGES = _list_of(_integer(0, _MOST_OPERANDS), _MOST_OPERANDS)
_SCOPE = _one_of("global", "local", "shared")
_THREADS = _one_of(
    *(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"),
    "vthread",
)

# Allowed values by key. A variable (`v7`) may stand for a number.
_ANNOTATIONS: Mapping[str, Check] = {
    "autotune.half": _one_of(1),
    "autotune.image": _integer(0, 8),
    "meta_schedule.parallel": _integer(-1, _LARGEST),
    "meta_schedule.vectorize": _integer(-1, _LARGEST),
    "meta_schedule.unroll_explicit": _integer(0, _MOST_UNROLLED),
    "meta_schedule.unroll_implicit": _integer(0, _MOST_UNROLLED),
    "meta_schedule.cooperative_fetch": _integer(1, _LARGEST),
    "meta_schedule.random_compute_producer": _FLAG,
    "meta_schedule.thread_extent_low_inclusive": _integer(0, _LARGEST),
    "meta_schedule.thread_extent_high_inclusive": _integer(0, _LARGEST),
    "meta_schedule.tiling_structure": _text(_STRUCTURE),
    "pragma_auto_unroll_max_step": _integer(0, _MOST_UNROLLED),
    "pragma_unroll_explicit": _FLAG,
    "software_pipeline_stage": _STAGES,
    "software_pipeline_order": _STAGES,
}
_MAY_VARY = ("unroll_explicit", "unroll_implicit", "cooperative_fetch")
ANNOTATION_KEYS = frozenset(_ANNOTATIONS)
"""Annotations that a recorded schedule may add to a program."""
# The name of a formulation's own mark; rules remove marks.
_MARK = re.compile(r"autotune\.\w{1,60}|" + "|".join(map(re.escape, _ANNOTATIONS)))


@dataclass(frozen=True)
class _Instruction:
    """The form of an instruction.

    Attributes:
        inputs: Kinds of the variables that it takes: `b` a block, `l` a loop, `v` a number. `+` after the last one
            means one or more of it.
        results: The kind of its results; empty for none.
        attributes: A check for each attribute.
        rest: A check for further inputs, which are not variables.
    """

    inputs: str = ""
    results: str = ""
    attributes: tuple[Check, ...] = ()
    rest: Check | None = None


_INSTRUCTIONS: Mapping[str, _Instruction] = {
    "GetSBlock": _Instruction(results="b", attributes=(_name, _one_of("main"))),
    "GetLoops": _Instruction("b", "l"),
    "GetChildBlocks": _Instruction("b", "b"),
    "GetProducers": _Instruction("b", "b"),
    "GetConsumers": _Instruction("b", "b"),
    "GetOutputBlocks": _Instruction("b", "b"),
    "SamplePerfectTile": _Instruction("l", "v", (_integer(1, 16), _integer(-1, _LARGEST))),
    "SampleCategorical": _Instruction(
        results="v",
        attributes=(
            _list_of(_integer(-_LARGEST, _LARGEST), _MOST_OPERANDS),
            _list_of(_chance, _MOST_OPERANDS),
        ),
    ),
    "SampleComputeLocation": _Instruction("b", "l"),
    "Split": _Instruction("l", "l", (_one_of(True), _one_of(False)), _factor),
    "Fuse": _Instruction("l+", "l", (_FLAG,)),
    "Reorder": _Instruction("l+"),
    "AddUnitLoop": _Instruction("b", "l"),
    "Bind": _Instruction("l", attributes=(_THREADS,)),
    "Parallel": _Instruction("l"),
    "Vectorize": _Instruction("l"),
    "Unroll": _Instruction("l"),
    "CacheRead": _Instruction("b", "b", (_INDEX, _SCOPE), _blocks),
    "CacheWrite": _Instruction("b", "b", (_INDEX, _SCOPE), _blocks),
    "ComputeAt": _Instruction("bl", attributes=(_FLAG, _integer(-2, -1))),
    "ReverseComputeAt": _Instruction("bl", attributes=(_FLAG, _integer(-2, -1))),
    "ComputeInline": _Instruction("b"),
    "ReverseComputeInline": _Instruction("b"),
    "DecomposeReduction": _Instruction("bl", "b"),
    "RFactor": _Instruction("l", "b", (_integer(-16, 16),)),
    "SetScope": _Instruction("b", attributes=(_INDEX, _SCOPE)),
    "StorageAlign": _Instruction(
        "b", attributes=(_INDEX, _integer(-16, 16), _integer(1, 1024), _integer(0, 1024))
    ),
    "Unannotate": _Instruction("b", attributes=(lambda key: _key(key, _MARK),)),
    "EnterPostproc": _Instruction(),
}
_ANNOTATE = "Annotate"
_MAKING_LOOPS = frozenset({"Split", "Fuse", "AddUnitLoop"})
_TOO_MANY_LOOPS = f"the schedule has more than {_MOST_LOOPS} loops"
_NO_SUCH = "autotune never makes such an instruction"
INSTRUCTION_KINDS = frozenset({*_INSTRUCTIONS, _ANNOTATE})
"""Instructions that a recorded schedule may have."""


def check_kinds(trace: Any) -> None:
    """Refuses a recorded schedule with a kind of instruction or annotation that none of our searches makes.

    This is fast enough for all schedules of a file. `check_trace` checks the rest before a schedule is used.

    Args:
        trace: A trace as plain JSON data: `[instructions, decisions]`.

    Raises:
        RecordError: A kind is not allowed, or there are too many; the message names the instruction.
    """
    try:
        instructions, decisions = trace
        _check_length(instructions, decisions)
        loops = 0
        for number, (name, _, attributes, results) in enumerate(instructions):
            if name not in INSTRUCTION_KINDS:
                raise _refused(number, name, _NO_SUCH)
            loops += len(results) if name in _MAKING_LOOPS else 0
            if loops > _MOST_LOOPS:
                raise _refused(number, name, _TOO_MANY_LOOPS)
            if name == _ANNOTATE and (len(attributes) != 1 or attributes[0] not in _ANNOTATIONS):
                raise _refused(number, name, _no_such_annotation(attributes))
    except (TypeError, ValueError, IndexError):
        raise RecordError(
            "a recorded schedule is not a list of instructions and decisions"
        ) from None


def check_trace(trace: Any) -> None:
    """Refuses a recorded schedule that our own searches cannot have made.

    Args:
        trace: A trace as plain JSON data: `[instructions, decisions]`.

    Raises:
        RecordError: It has an instruction, an attribute or an annotation that none of our rules makes, or is
            malformed. The message names the instruction.
    """
    if not (
        isinstance(trace, list) and len(trace) == 2 and all(isinstance(t, list) for t in trace)
    ):
        raise RecordError("a recorded schedule is not a list of instructions and decisions")
    instructions, decisions = trace
    _check_length(instructions, decisions)
    known: set[str] = set()
    loops = 0
    locations: set[str] = set()  # Loops that may stand for "at the root" or "inline".
    for number, instruction in enumerate(instructions):
        if not (isinstance(instruction, list) and len(instruction) == 4):
            raise _refused(
                number, instruction, "it is not a list of name, inputs, attributes, results"
            )
        name, inputs, attributes, results = instruction
        if not isinstance(name, str) or name not in INSTRUCTION_KINDS:
            raise _refused(number, name, _NO_SUCH)
        for one in (inputs, attributes, results):
            if not isinstance(one, list) or len(one) > _MOST_OPERANDS:
                raise _refused(
                    number, name, f"its operands must be lists of at most {_MOST_OPERANDS} entries"
                )
        if name == _ANNOTATE:
            reason = _annotation(inputs, attributes, results, known)
        else:
            reason = _plain(_INSTRUCTIONS[name], inputs, attributes, results, known)
        loops += len(results) if name in _MAKING_LOOPS else 0
        if loops > _MOST_LOOPS:
            reason = _TOO_MANY_LOOPS
        if reason:
            raise _refused(number, name, reason)
        if name == "SampleComputeLocation":
            locations.update(results)
        elif locations and not name.endswith("ComputeAt") and not locations.isdisjoint(
            one for one in inputs if isinstance(one, str)
        ):  # fmt: skip
            raise _refused(number, name, "it uses a sampled location as a loop")
        known.update(results)
    _check_decisions(instructions, decisions)


def _check_length(instructions: Sequence[Any], decisions: Sequence[Any]) -> None:
    if len(instructions) > _MOST_INSTRUCTIONS or len(decisions) > len(instructions):
        raise RecordError(
            f"a recorded schedule is refused: it has more than {_MOST_INSTRUCTIONS} instructions, or more "
            "decisions than instructions",
            hint="use records that `autotune kernels` has made, without changes",
        )


def _refused(number: int, name: Any, reason: str) -> RecordError:
    shown = name if isinstance(name, str) and _NAME.fullmatch(name) else "?"
    return RecordError(
        f"a recorded schedule is refused: instruction {number} ({shown[:60]}): {reason}",
        hint="use records that `autotune kernels` has made, without changes",
    )


def _key(value: Any, keys: re.Pattern[str]) -> bool:
    return isinstance(value, str) and keys.fullmatch(value) is not None


def _variable(value: Any, kind: str, known: set[str]) -> bool:
    return isinstance(value, str) and value in known and value[0] == kind


def _annotation(
    inputs: Sequence[Any], attributes: Sequence[Any], results: Sequence[Any], known: set[str]
) -> str:
    """Explains why an annotation is refused; empty if it is allowed."""
    key = attributes[0] if len(attributes) == 1 else None
    if not isinstance(key, str) or key not in _ANNOTATIONS:
        return _no_such_annotation(attributes)
    if results or len(inputs) != 2 or not any(_variable(inputs[0], k, known) for k in "bl"):
        return "it must annotate one block or loop"
    value = inputs[1]
    if key.endswith(_MAY_VARY) and _variable(value, "v", known):
        return ""
    return "" if _ANNOTATIONS[key](value) else f"autotune never makes this value of {key!r}"


def _no_such_annotation(attributes: Sequence[Any]) -> str:
    key = attributes[0] if attributes else None
    shown = key if isinstance(key, str) and _NAME.fullmatch(key) else "?"
    return f"autotune never makes the annotation {shown[:60]!r}"


def _plain(
    form: _Instruction,
    inputs: Sequence[Any],
    attributes: Sequence[Any],
    results: Sequence[Any],
    known: set[str],
) -> str:
    """Explains why an instruction is refused; empty if it is allowed."""
    kinds = form.inputs.removesuffix("+")
    if form.inputs != kinds:
        kinds += kinds[-1] * (len(inputs) - len(kinds))
    if len(inputs) < len(kinds):
        return "it has too few inputs"
    for one, kind in zip(inputs, kinds, strict=False):
        if not _variable(one, kind, known):
            return "an input is not a block, loop or number of an earlier instruction"
    others = inputs[len(kinds) :]
    if bool(others) != (form.rest is not None):
        return "it has too few or too many inputs"
    for one in others:
        assert form.rest is not None
        if not (form.rest(one) or _variable(one, "v", known)):
            return "autotune never makes such inputs"
        if isinstance(one, list) and not known.issuperset(one):
            return "an input is not a block of an earlier instruction"
    if len(attributes) != len(form.attributes):
        return "it has too few or too many attributes"
    for check, one in zip(form.attributes, attributes, strict=True):
        if not check(one):
            return "autotune never makes such attributes"
    for one in results:
        if not (isinstance(one, str) and _VARIABLE.fullmatch(one) and one[0] == form.results):
            return "a result is not a variable of the right kind"
        if one in known:
            return f"an earlier instruction has the result {one}"
    if len(results) > 1 and len(set(results)) != len(results):
        return "two of its results have one name"
    return ""


def _check_decisions(instructions: Sequence[Any], decisions: Sequence[Any]) -> None:
    """Checks that each sampling instruction has one decision in its own form."""
    decided: dict[int, Any] = {}
    for one in decisions:
        if not (isinstance(one, list) and len(one) == 2 and type(one[0]) is int):
            raise RecordError("a recorded schedule is refused: a decision is not a pair")
        decided[one[0]] = one[1]
    sampled = {n for n, one in enumerate(instructions) if one[0].startswith("Sample")}
    if decided.keys() != sampled or len(decisions) != len(sampled):
        raise RecordError(
            "a recorded schedule is refused: it needs one decision for each sampling instruction"
        )
    for number, decision in decided.items():
        name, _, attributes, results = instructions[number]
        match name:
            case "SamplePerfectTile":
                parts = attributes[0]
                right = len(results) == parts and _list_of(_SIZE, parts)(decision)
                right = right and len(decision) == parts
            case "SampleCategorical":
                values, chances = attributes
                right = len(values) == len(chances) and len(results) == 1
                right = right and _integer(0, len(values) - 1)(decision)
            case _:
                right = _integer(-2, _MOST_OPERANDS)(decision)
        if not right:
            raise _refused(number, name, "its decision is not one that it can make")
