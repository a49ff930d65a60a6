"""A kernel that the user brings as a TVM program."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from autotune.errors import UsageError
from autotune.workloads.operators.base import DType, Operator, Role, Signature, TensorSpec

_DTYPES: dict[str, DType] = {"f": "float32", "i": "int32"}
OWN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
"""Names that the user's function may have, because symbols and files are named after it."""
MOST_AXES = 8
_TEXT = re.compile(
    rf"name=(?P<name>{OWN_NAME.pattern}),digest=(?P<digest>[0-9a-f]{{16}}),flops=(?P<flops>[0-9]{{1,18}}),"
    r"in=(?P<inputs>[fi][0-9x;fi]*),out=(?P<outputs>[fi][0-9x;fi]*)"
)
_OPERAND = re.compile(rf"([fi])([1-9][0-9]{{0,9}}(?:x[1-9][0-9]{{0,9}}){{0,{MOST_AXES - 1}}})")


@dataclass(frozen=True)
class OwnKernel(Operator):
    """A kernel of the user's own. The text identifies it, and the program itself is in the user's file.

    forward: ``in0, in1, ... -> out0, ...``, float32 or int32.

    Attributes:
        text: ``name=scale,digest=0123456789abcdef,flops=128,in=f4x16;f16,out=f4x16``. The digest is the program's,
            so that a changed program is another kernel.

    Raises:
        UsageError: On construction, if the text is malformed or a tensor is too large.
    """

    name: ClassVar[str] = "own"

    text: str

    def __post_init__(self) -> None:
        """Reads the text, and checks the sizes of the tensors."""
        if _TEXT.fullmatch(self.text) is None:
            raise UsageError(
                f"{self.text[:80]!r} describes no kernel of your own",
                hint="name its function: path/to/file.py:function",
            )
        super().__post_init__()

    @classmethod
    def of(
        cls,
        name: str,
        digest: str,
        flops: int,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> OwnKernel:
        """Returns the operator of a program with these operands.

        Args:
            name: Name of the user's function.
            digest: 16 hexadecimal digits that identify the program.
            flops: Its floating-point operations.
            inputs: Operands that it reads.
            outputs: Operands that it writes completely.
        """
        operands = (
            ";".join(f"{spec.dtype[0]}{'x'.join(map(str, spec.shape))}" for spec in specs)
            for specs in (inputs, outputs)
        )
        read, written = operands
        return cls(f"name={name},digest={digest},flops={flops},in={read},out={written}")

    @cached_property
    def _fields(self) -> dict[str, str]:
        match = _TEXT.fullmatch(self.text)
        assert match is not None
        return match.groupdict()

    @property
    def function(self) -> str:
        """The name of the user's function."""
        return self._fields["name"]

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that identify the program."""
        return self._fields["digest"]

    def spec(self) -> str:
        """See `Operator.spec`."""
        return f"{self.name}:{self.text}"

    def short_name(self) -> str:
        """Returns a name for tables, such as ``own scale 4x16``."""
        return f"{self.name} {self.function} {'x'.join(map(str, self.outputs('forward')[0].shape))}"

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward``."""
        return ("forward",)

    def label(self) -> str:
        """Returns the function's name and 16 hexadecimal digits of the text's SHA-256."""
        return f"{self.function}_{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"

    def _check_field(self, key: str, kind: object, value: object) -> None:
        """The text is checked as a whole."""

    def _signature(self, role: Role) -> Signature:
        operands = self._fields
        return Signature(_operands("in", operands["inputs"]), _operands("out", operands["outputs"]))

    def _flops(self, role: Role) -> int:
        return int(self._fields["flops"])


def _operands(name: str, text: str) -> tuple[TensorSpec, ...]:
    found = []
    for number, part in enumerate(text.split(";")):
        match = _OPERAND.fullmatch(part)
        if match is None:
            raise UsageError(
                f"{part[:80]!r} is no operand", hint="such as f4x16: float32 of shape 4, 16"
            )
        shape = tuple(int(size) for size in match[2].split("x"))
        found.append(TensorSpec(f"{name}{number}", shape, _DTYPES[match[1]]))
    return tuple(found)
