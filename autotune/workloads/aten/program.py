"""A traced step as plain data: what tracing gives and lowering takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

Dtype = Literal["float32", "int32", "bool"]
"""Element types. PyTorch's int64 becomes int32."""

SourceKind = Literal["input", "label", "trained", "frozen", "buffer"]


@dataclass(frozen=True)
class Ref:
    """An argument that is a tensor.

    Attributes:
        name: Name of the source or operation that it is the result of.
        result: Number of the result, of an operation that has several.
    """

    name: str
    result: int = 0


@dataclass(frozen=True)
class Source:
    """A tensor that comes from outside the step.

    Attributes:
        name: Unique in the program.
        kind: ``input`` and ``label`` are given for each step; ``trained`` and ``frozen`` are parameters.
        path: Name in the module's ``state_dict``; of inputs, their own name.
        shape: Sizes.
        dtype: Element type.
    """

    name: str
    kind: SourceKind
    path: str
    shape: tuple[int, ...]
    dtype: Dtype


@dataclass(frozen=True)
class Operation:
    """One ATen operator of the step.

    Attributes:
        name: Unique in the program.
        operator: Such as ``aten.relu.default``.
        arguments: Every argument by the name in the operator's schema, defaults included; tensors are ``Ref``.
        shapes: Sizes of each result.
        dtypes: Element type of each result; empty where a result is not used and of no known type.
        module: Path of the innermost module that it runs in; empty where that is not known.
        written: The line of the user's code that it comes from, and its file; empty where that is not known.
        readers: How many operations and results of the step take it.
    """

    name: str
    operator: str
    arguments: Mapping[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    module: str
    written: str
    readers: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the first result."""
        return self.shapes[0]

    @property
    def first(self) -> Any:
        """The first argument."""
        return next(iter(self.arguments.values()))


@dataclass(frozen=True)
class Prepared:
    """Tensors that are computed once, of frozen ones.

    Attributes:
        names: Their names, which no tensor of the module has.
        compute: Returns their values, computed in float64, given those of the module by name.
    """

    names: tuple[str, ...]
    compute: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]]

    def values(self, own: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Returns the values, given those of the module by name."""
        return self.compute(own) if self.names else {}


@dataclass(frozen=True)
class Program:
    """Forward pass, loss and backward pass.

    Attributes:
        sources: What comes from outside.
        constants: Values of the tensors that forward makes of numbers, by name; frozen sources.
        operations: In order of execution.
        loss: The loss, one element.
        gradients: The gradient of each trained parameter, by the parameter's path.
        buffers: The new value of each buffer that the step changes, by the buffer's path.
        prepared: Frozen sources that are computed of the module's, once.
    """

    sources: tuple[Source, ...]
    constants: Mapping[str, NDArray[Any]]
    operations: tuple[Operation, ...]
    loss: Ref
    gradients: Mapping[str, Ref]
    buffers: Mapping[str, Ref]
    prepared: Prepared
