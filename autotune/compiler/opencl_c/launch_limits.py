"""Refuses kernels that an OpenCL device cannot launch, while TVM compiles them. Used by all who send kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from autotune.compiler.target import Limits
from autotune.errors import AutotuneError

_SPLIT = "tirx.SplitHostDevice"
HINT = "tune it again for that device: `autotune kernels` asks for its limits"
_AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


class BeyondLimitsError(AutotuneError):
    """A kernel that its device cannot launch."""


@contextmanager
def checked(limits: Limits | None, config: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Opens a `tvm.transform.PassContext` in which kernels are checked against a device's limits.

    Args:
        limits: The limits; None checks nothing.
        config: Configuration of the pass context.

    Raises:
        BeyondLimitsError: A kernel compiled in this context exceeds them.
    """
    import tvm
    from tvm.ir.instrument import pass_instrument

    found: list[BeyondLimitsError] = []

    @pass_instrument
    class Check:
        def run_after_pass(self, module: Any, info: Any) -> None:
            if limits is None or info.name != _SPLIT:
                return
            for name, function in module.functions.items():
                if refused := limits.refused(*_needs(function)):
                    found.append(BeyondLimitsError(f"{name.name_hint} needs {refused}", hint=HINT))
                    raise found[-1]

    try:
        with tvm.transform.PassContext(config=dict(config or {}), instruments=[Check()]):
            yield
    except RuntimeError:
        if found:  # Exceptions lose their type on their way through TVM.
            raise found[0] from None
        raise


def buffer_bytes(buffer: Any) -> int:
    """Returns the size of a `tvm.tirx.Buffer` in bytes."""
    scalar = re.fullmatch(r"[a-z]+(\d+)(?:x(\d+))?", str(buffer.dtype))
    bits = int(scalar[1]) * int(scalar[2] or 1) if scalar else 8
    return math.prod(int(extent) for extent in buffer.shape) * bits // 8


def _needs(function: Any) -> tuple[tuple[int, ...], int, int]:
    """Returns a function's work-group, local memory and largest buffer, after host and device code were split."""
    group = dict.fromkeys(_AXES, 1)
    local = largest = 0
    for one in _statements(function.body):
        kind = type(one).__name__
        if kind == "AttrStmt" and one.attr_key == "thread_extent":
            if one.node.thread_tag in group:
                group[one.node.thread_tag] = int(one.value)
        elif kind == "AllocBuffer" and str(one.buffer.scope()).startswith("shared"):
            local += buffer_bytes(one.buffer)
        elif kind in ("AllocBuffer", "DeclBuffer") and one.buffer.scope() == "global":
            largest = max(largest, buffer_bytes(one.buffer))
    return tuple(group.values()), local, largest


def _statements(stmt: Any) -> Iterator[Any]:
    """Yields a statement and all statements in it."""
    yield stmt
    parts = [getattr(stmt, name, None) for name in ("body", "then_case", "else_case")]
    for part in (*getattr(stmt, "seq", ()), *parts):
        if part is not None:
            yield from _statements(part)
