"""The operators by name, and the parser of their canonical text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from autotune.errors import UsageError, choices
from autotune.workloads.operators.activation import Relu
from autotune.workloads.operators.attention import Attention
from autotune.workloads.operators.base import Operator, Pair, field_types, optional_fields
from autotune.workloads.operators.batched import Bmm
from autotune.workloads.operators.convolution import Conv2d
from autotune.workloads.operators.dense import Matmul
from autotune.workloads.operators.described import Expression
from autotune.workloads.operators.elementwise import Add, Bias, Concat, Dropout
from autotune.workloads.operators.loss import CrossEntropy
from autotune.workloads.operators.normalization import BatchNorm, BatchStats, RunningStats
from autotune.workloads.operators.optimizers import Adam, Momentum, RunningPower, Sgd
from autotune.workloads.operators.own import OwnKernel
from autotune.workloads.operators.pooling import AvgPool2d, GlobalAvgPool, MaxPool2d
from autotune.workloads.operators.spellings import SPELLINGS, PaddedBySides, Spelling

OPERATORS: Mapping[str, type[Operator]] = MappingProxyType(
    {
        operator.name: operator
        for operator in (
            Conv2d,
            Matmul,
            Bmm,
            Attention,
            Bias,
            BatchStats,
            BatchNorm,
            RunningStats,
            Relu,
            MaxPool2d,
            AvgPool2d,
            GlobalAvgPool,
            Concat,
            Add,
            Dropout,
            CrossEntropy,
            Sgd,
            Momentum,
            Adam,
            RunningPower,
            Expression,
            OwnKernel,
        )
    }
)

_INTEGER = re.compile(r"-?[0-9]{1,10}")
_BY_SIDES = re.compile(r"(?:^|,)\s*pad\s*=\s*([0-9]{1,10}(?:x[0-9]{1,10}){3})\s*(?=,|$)")
_PAIR = re.compile(r"(-?[0-9]{1,10})(?:x(-?[0-9]{1,10}))?")


def operator_from_spec(text: str) -> Operator:
    """Rebuilds an operator from the text of ``Operator.spec``.

    Args:
        text: Such as ``conv2d:n=8,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1``. Keys may be in any order, and
            blanks around them are ignored. A pair is ``2`` or ``2x1``; a flag is ``1`` or ``0``.

    Returns:
        The operator.

    Raises:
        UsageError: Unknown operator; unknown, missing or repeated key; bad value or shapes.
    """
    name, body = _parts(text)
    operator = OPERATORS.get(name)
    if operator is None:
        known = (*OPERATORS, *SPELLINGS)
        raise UsageError(
            f"unknown operator {name!r} in {text!r}", hint=choices(name, known, "operators:")
        )
    if issubclass(operator, Expression | OwnKernel):
        return operator(body)
    return operator(**_read_fields(operator, body))


def spelled(text: str) -> Spelling | None:
    """Reads another spelling of an operator: ``conv1d``, a transposed convolution, or ``conv2d`` padded by side.

    Returns:
        The spelling; None if the text has none.

    Raises:
        UsageError: As `operator_from_spec`.
    """
    name, body = _parts(text)
    if name == Conv2d.name and (found := _BY_SIDES.search(body)):
        top, left, bottom, right = (int(one) for one in found[1].split("x"))
        plain = f"{body[: found.start(1)]}0{body[found.end(1) :]}"
        return PaddedBySides(_read_fields(Conv2d, plain), (top, left, bottom, right))
    spelling = SPELLINGS.get(name)
    return None if spelling is None else spelling(**_read_fields(spelling, body))


def _parts(text: str) -> tuple[str, str]:
    name, _, body = text.partition(":")
    return name.strip(), body


def _read_fields(kind: Any, body: str) -> dict[str, Any]:
    """Reads ``key=value,...`` as the fields of an operator or of another spelling."""
    types, name = field_types(kind), kind.name
    values: dict[str, Any] = {}
    for part in body.split(",") if body.strip() else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UsageError(f"{name}: {part.strip()!r} is not key=value", hint=_keys_hint(kind))
        if key not in types:
            raise UsageError(f"{name}: unknown key {key!r}", hint=_keys_hint(kind))
        if key in values:
            raise UsageError(f"{name}: key {key!r} is given twice", hint=f"give {key} once")
        values[key] = _read_value(name, key, types[key], value)
    missing = [key for key in types if key not in values and key not in optional_fields(kind)]
    if missing:
        raise UsageError(f"{name}: missing {', '.join(missing)}", hint=_keys_hint(kind))
    return values


def _read_value(name: str, key: str, kind: object, text: str) -> int | bool | Pair:
    if kind is bool:
        if text in ("0", "1"):
            return text == "1"
        raise UsageError(f"{name}: {key}={text!r} is not 0 or 1", hint=f"{key}=0 or {key}=1")
    if kind is int:
        if _INTEGER.fullmatch(text):
            return int(text)
        raise UsageError(
            f"{name}: {key}={text!r} is not a whole number of at most 10 digits",
            hint=f"such as {key}=8",
        )
    match = _PAIR.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{name}: {key}={text!r} is neither a number nor a pair",
            hint=f"such as {key}=2, or {key}=2x1 for height x width",
        )
    return int(match[1]), int(match[2] or match[1])


def _keys_hint(operator: Any) -> str:
    optional = optional_fields(operator)
    required = [key for key in field_types(operator) if key not in optional]
    extra = [key for key in field_types(operator) if key in optional]
    return f"keys: {', '.join(required)}" + (f"; optional: {', '.join(extra)}" if extra else "")
