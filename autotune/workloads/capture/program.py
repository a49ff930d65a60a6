"""A module's forward pass as plain data: the result of tracing, and the input of lowering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Reference:
    """An argument that is a tensor: an operation's result, the input, a parameter or a buffer.

    Attributes:
        name: The name of the operation that computes it, or of a source; unique in the program.
    """

    name: str


@dataclass(frozen=True)
class Operation:
    """One call of an ATen operator.

    Attributes:
        name: Unique name in the program, such as ``relu_1``.
        operator: Such as ``aten.relu.default``.
        arguments: All arguments by their names in the operator's schema, including defaults. Tensors are
            references.
        module: Path of the innermost module that it runs in; empty for the model itself.
        layer: This layer as the user writes it, such as ``nn.LSTM``; empty for other modules.
        written: The line of the user's code that it comes from, and its place; empty if PyTorch does not record it.
        shape: Sizes of the result; empty if the result is not one tensor.
        dtype: Element type of the result, such as ``float32``; empty if the result is not one tensor.
        readers: Names of the operations that read the result. The model's output is one of them.
        in_place: Whether its result overwrites its first argument.
    """

    name: str
    operator: str
    arguments: Mapping[str, object]
    module: str
    layer: str
    written: str
    shape: tuple[int, ...]
    dtype: str
    readers: tuple[str, ...]
    in_place: bool

    @property
    def is_layer(self) -> bool:
        """Whether it runs in one of PyTorch's own layers, which then names the place."""
        return bool(self.layer)

    @property
    def what(self) -> str:
        """The operation for messages: what the user wrote, and the operator that PyTorch made from it."""
        regions = {
            "wrap_with_set_grad_enabled": "torch.no_grad() or torch.set_grad_enabled()",
            "wrap_with_autocast": "torch.autocast()",
        }
        if self.operator in regions:
            return regions[self.operator]
        return f"{self.layer} ({self.operator})" if self.layer else self.operator

    @property
    def first(self) -> object:
        """The first argument, ``self`` or ``input`` in the schemas."""
        return next(iter(self.arguments.values()), None)

    @property
    def where(self) -> str:
        """The place for messages, such as ``features.3``."""
        return self.module or "the model's own forward"


@dataclass(frozen=True)
class Program:
    """A forward pass.

    Attributes:
        input: Name of the data.
        parameters: Names in the ``state_dict`` by source name. A shared parameter has one name there.
        buffers: Names in the ``state_dict`` by source name.
        modules: Paths of all modules, which places must not be named after.
        operations: All operations, in order of execution.
        output: Name of the logits.
        values: Present parameters and buffers by their names in the ``state_dict``.
    """

    input: str
    parameters: Mapping[str, str]
    buffers: Mapping[str, str]
    modules: frozenset[str]
    operations: tuple[Operation, ...]
    output: str
    values: Mapping[str, NDArray[Any]]
