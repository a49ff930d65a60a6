"""The canonical text of a described kernel, and how it is read back.

Such as ``(in f 4 10)(in i 4)(map 4 10 = (select (eq (at 1 a0) a1) (at 0 a0 a1) 0.0))(out 0)``: operands with their
type and sizes, stages with their sizes (after a ``/`` those that are reduced) and their body, and the results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from autotune.errors import UsageError
from autotune.workloads.expressions.described import (
    COMBINERS,
    MOST_OPERANDS,
    MOST_STAGES,
    Described,
    ElementType,
    Operand,
    Stage,
)
from autotune.workloads.expressions.terms import (
    FUNCTIONS,
    Apply,
    Axis,
    Constant,
    Load,
    Term,
    Type,
    integer,
    number,
    result_type,
    truth,
    walk,
)

LONGEST = 60_000  # characters
DEEPEST = 200  # brackets within brackets
_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")
_INT = re.compile(r"-?[0-9]{1,10}")
_FLOAT = re.compile(r"-?(inf|[0-9]{1,20}\.[0-9]{0,20}(e-?[0-9]{1,3})?|[0-9]{1,20}e-?[0-9]{1,3})")
_AXIS = re.compile(r"a([0-9]{1,2})")
_LETTERS: dict[ElementType, str] = {"float32": "f", "int32": "i"}
_TYPES: dict[ElementType, Type] = {"float32": "float", "int32": "int"}


def written(kernel: Described) -> str:
    """Returns the canonical text of a kernel; equal kernels have equal texts."""
    found = [f"(in {_LETTERS[o.dtype]}{_sizes(o.shape)})" for o in kernel.operands]
    for stage in kernel.stages:
        reduced = f" /{_sizes(stage.reduced)}" if stage.reduced else ""
        found.append(f"({stage.combiner}{_sizes(stage.shape)}{reduced} = {_term(stage.body)})")
    return f"{''.join(found)}(out{_sizes(kernel.outputs)})"


def read(text: str) -> Described:
    """Reads what ``written`` gives.

    Raises:
        UsageError: It is something else, too long or nested too deep, or such a kernel is impossible.
    """
    if len(text) > LONGEST:
        raise _bad(f"{len(text)} characters are more than {LONGEST}")
    operands: list[Operand] = []
    stages: list[Stage] = []
    outputs: tuple[int, ...] | None = None
    for form in _forms(text):
        if outputs is not None:
            raise _bad("something follows the results")
        match form:
            case ["in", "f" | "i" as letter, *sizes]:
                if stages or len(operands) >= MOST_OPERANDS:
                    raise _bad("operands come first, and are few")
                dtype: ElementType = "float32" if letter == "f" else "int32"
                operands.append(Operand(_whole(sizes), dtype))
            case ["out", *numbers]:
                outputs = _whole(numbers)
            case [combiner, *sizes, "=", body] if combiner in COMBINERS:
                if len(stages) >= MOST_STAGES:
                    raise _bad("there are too many stages")
                cut = sizes.index("/") if "/" in sizes else len(sizes)
                types = [_TYPES[o.dtype] for o in operands]
                types += [_TYPES[stage.dtype] for stage in stages]
                shape, reduced = _whole(sizes[:cut]), _whole(sizes[cut + 1 :])
                stages.append(Stage(shape, reduced, combiner, _read_term(body, types)))
            case _:
                raise _bad("a part is neither an operand nor a stage nor the results")
    if outputs is None:
        raise _bad("the results are missing")
    return Described(tuple(operands), tuple(stages), outputs)


def summary(kernel: Described) -> str:
    """A short name for tables, such as ``sum 64 of 4x64x3136: mul add``."""
    last = kernel.stages[kernel.outputs[0]]
    widest = max(kernel.stages, key=lambda stage: stage.steps)
    combined: list[str] = [s.combiner for s in kernel.stages if s.reduced]
    used = dict.fromkeys(
        term.function
        for stage in kernel.stages
        for term in walk(stage.body)
        if isinstance(term, Apply) and term.type == "float" and term.function != "select"
    )
    shape = "x".join(map(str, last.shape)) or "1"
    of = f" of {'x'.join(map(str, (*widest.shape, *widest.reduced)))}" if widest.reduced else ""
    return " ".join([*(combined or ["map"]), f"{shape}{of}", *list(used)[:4]])


def _sizes(numbers: Sequence[int]) -> str:
    return "".join(f" {one}" for one in numbers)


def _term(term: Term) -> str:
    done: dict[Term, str] = {}
    for current in walk(term):
        match current:
            case Axis(number=axis):
                done[current] = f"a{axis}"
            case Constant(value=value, type=kind):
                done[current] = _constant(value, kind)
            case Load():
                at = "".join(f" {done[index]}" for index in current.at)
                done[current] = f"(at {current.source}{at})"
            case Apply():
                arguments = " ".join(done[argument] for argument in current.arguments)
                done[current] = f"({current.function} {arguments})"
    return done[term]


def _constant(value: float | int | bool, kind: Type) -> str:
    if kind == "bool":
        return "true" if value else "false"
    return str(int(value)) if kind == "int" else repr(float(value)).replace("e+", "e")


def _forms(text: str) -> Iterator[list[Any]]:
    """The outermost bracketed lists of a text, as nested lists of words."""
    stack: list[list[Any]] = [[]]
    at = 0
    end = len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        assert found is not None
        at, token = found.end(), found[1]
        if token == "(":
            if len(stack) > DEEPEST:
                raise _bad(f"brackets are nested more than {DEEPEST} deep")
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise _bad("a bracket is closed that was not opened")
            inner = stack.pop()
            if len(stack) == 1:
                yield inner
            else:
                stack[-1].append(inner)
        elif len(stack) == 1:
            raise _bad(f"{token[:40]!r} is outside brackets")
        else:
            stack[-1].append(token)
    if len(stack) > 1:
        raise _bad("a bracket is not closed")


def _whole(words: Sequence[Any]) -> tuple[int, ...]:
    if not all(isinstance(word, str) and _INT.fullmatch(word) for word in words):
        raise _bad("a size is not a whole number")
    return tuple(int(word) for word in words)


def _read_term(form: Any, types: Sequence[Type]) -> Term:
    if isinstance(form, str):
        return _read_word(form)
    match form:
        case ["at", str() as source, *indices] if _INT.fullmatch(source):
            if not 0 <= int(source) < len(types):
                raise _bad(f"there is no source {source}")
            at = tuple(_read_term(index, types) for index in indices)
            return Load(int(source), at, types[int(source)])
        case [str() as function, *arguments] if function in FUNCTIONS:
            read = tuple(_read_term(argument, types) for argument in arguments)
            return Apply(function, read, result_type(function, [one.type for one in read]))
        case _:
            raise _bad("a term is neither a load nor a known function")


def _read_word(word: str) -> Term:
    if word in ("true", "false"):
        return truth(word == "true")
    if axis := _AXIS.fullmatch(word):
        return Axis(int(axis[1]))
    if _INT.fullmatch(word):
        return integer(int(word))
    if _FLOAT.fullmatch(word):
        return number(float(word))
    raise _bad(f"{word[:40]!r} is no number and no axis")


def _bad(message: str) -> UsageError:
    return UsageError(f"described kernel: {message}", hint="see docs/reference/expressions.md")
