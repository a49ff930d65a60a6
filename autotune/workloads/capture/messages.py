"""What a user reads of PyTorch's tracing: where something was written, and why it cannot be traced."""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, TextIO

from autotune.errors import UsageError
from autotune.workloads.capture.factory import import_torch
from autotune.workloads.user_code import describe


class _Swallowed(io.TextIOBase):
    """Takes what the present thread writes, and passes on what others do, such as reports of a wait.

    Args:
        others: The stream of the other threads.
    """

    def __init__(self, others: TextIO) -> None:
        self._others = others
        self._own = threading.get_ident()

    def write(self, text: str) -> int:
        """See `io.TextIOBase.write`."""
        return len(text) if threading.get_ident() == self._own else self._others.write(text)

    def flush(self) -> None:
        """See `io.IOBase.flush`."""
        if threading.get_ident() != self._own:
            self._others.flush()


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps torch's warnings and its listings of what failed away from the user's terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(_Swallowed(sys.stderr)):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def untraceable(name: str, shape: tuple[int, ...], error: Exception) -> UsageError:
    """The refusal of a forward pass that cannot be traced, with the user's own line where that is known."""
    text = f"{type(error).__name__} {error}".lower()
    frames = traceback.extract_tb(error.__traceback__)
    written = _innermost((frame.filename, str(frame.lineno), frame.line or "") for frame in frames)
    if "data-dependent" in text or "datadependent" in text:
        return UsageError(
            f"{name}: forward needs the value of a tensor, which no tracing has: {written or describe(error)}",
            hint="keep values in tensors (torch.where, not `if`; no .item(), float() or .tolist()); decide by "
            "shapes or by settings",
        )
    if "dynamicoutputshape" in text:
        return UsageError(
            f"{name}: forward makes a tensor whose size depends on the data: {written or describe(error)}",
            hint="every step has the same shapes: select with torch.where, pad sequences and do not pack them",
        )
    return UsageError(
        f"{name}: forward fails on an input of shape {shape}: {describe(error)}"
        + (f" at {written}" if written else ""),
        hint=next((hint for words, hint in _HINTS if any(word in text for word in words)), _RUN_IT),
    )


_HINTS = (
    (("cuda", "not linked with support"), "a step has one device: leave .cuda() and .to(device) out"),
    (("numpy",), "forward must stay in PyTorch: compute with tensors, not with numpy"),
    (("pack_padded",), "every step has the same shapes: pad sequences, do not pack them"),
    (
        ("shape", "size", "reduction dim", "dimension", "channels", "expected"),
        "it must take one tensor of that shape; --input-shape sets it",
    ),
)  # fmt: skip
"""Words of PyTorch's errors -> what to change."""
_RUN_IT = "forward must run in PyTorch; try it there first"


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]+)')


def written_line(node: Any) -> str:
    """The innermost line of a node's stack that the user wrote; of a region, its first line that has one."""
    found = _innermost(_FRAME.findall(node.meta.get("stack_trace") or ""))
    for argument in () if found else node.all_input_nodes:
        inner: Any = getattr(node.graph.owning_module, str(argument.target), None)
        for other in inner.graph.nodes if hasattr(inner, "graph") else ():
            found = found or written_line(other)
    return found


def _innermost(frames: Iterable[tuple[str, str, str]]) -> str:
    """The last of files, lines and their code that is neither PyTorch's nor ours; empty without one."""
    packages = (str(Path(import_torch().__file__).parent), str(Path(__file__).parents[2]))
    for file, line, code in reversed(list(frames)):
        if not file.startswith(packages):
            return f"`{code.strip()[:100]}`, line {line} of {Path(file).name}"
    return ""
