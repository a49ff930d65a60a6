"""State of a traced program's computation, while its layers are appended to a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from autotune.errors import UsageError
from autotune.workloads.autodiff import Value
from autotune.workloads.builder import StepBuilder
from autotune.workloads.capture.operations import activation, is_copy, is_view
from autotune.workloads.capture.program import Operation, Program, Reference

SUPPORTED = (
    "conv2d, linear, batch_norm in training mode, relu, relu6 or hardtanh(0, 6), max_pool2d, avg_pool2d, "
    "adaptive_avg_pool2d to sizes that divide, mean over height and width, dropout, add of equal shapes, "
    "cat of channels, flatten, view, reshape, squeeze, unsqueeze"
)
TAKEN = frozenset(
    [
        "input",
        "labels",
        "loss",
        "learning_rate",
        "momentum",
        "beta1",
        "beta2",
        "epsilon",
        "beta1_power",
        "beta2_power",
    ]
)


Layer = Callable[["Lowering", Operation], Value]
"""Appends an operation as a layer of the builder, and returns its result."""


class Lowering:
    """What has been computed so far.

    A view shares the storage of its source, and an in-place operation changes what all views of the storage read
    afterwards. So each name refers to a storage, and each storage to its present content.

    Args:
        name: The model's name, for messages.
        program: The forward pass.
        builder: The step's builder.
    """

    def __init__(self, name: str, program: Program, builder: StepBuilder) -> None:
        self.builder = builder
        self.program = program
        self._name = name
        self._by_name = {operation.name: operation for operation in program.operations}
        self._storage = {program.input: program.input}
        self._shape = {program.input: builder.input.shape}
        self._content = {program.input: builder.input}
        self._fused: set[str] = set()
        self._taken = {*TAKEN, *program.parameters.values(), *program.buffers.values()}

    def append(self, operation: Operation, layer: Layer | None) -> None:
        """Appends one operation to the step.

        Args:
            operation: The operation.
            layer: Converts it to a layer of the builder; None if there is no conversion.
        """
        view = operation.name in self._fused or is_view(operation)
        if operation.dtype not in ("", "float32"):
            raise self.refused(
                operation,
                f"makes {operation.dtype}",
                "a step is computed in float32: leave the conversion out",
            )
        if is_copy(operation):
            value = self.argument(operation, operation.first)
            self._shape[operation.name] = operation.shape
            self._storage[operation.name] = operation.name
            self._content[operation.name] = value
            return
        if layer is None and not view:
            raise self.refused(operation, "is not supported", f"supported: {SUPPORTED}")
        if not operation.readers and not operation.in_place:
            raise self.refused(operation, "has a result that is not used", "remove it")
        self._shape[operation.name] = operation.shape
        first = operation.first
        if layer is None or view:
            value = self.argument(operation, first)
            if operation.shape[:1] != value.shape[:1]:
                raise self.refused(operation, "mixes samples", "keep the batch as the first axis")
            self._storage[operation.name] = self._storage_of(first)
            return
        value = layer(self, operation)
        if math.prod(value.shape) != math.prod(operation.shape):
            raise self.refused(
                operation, f"has the shape {operation.shape}, the step {value.shape}", "report this"
            )
        storage = self._storage_of(first) if operation.in_place else operation.name
        self._storage[operation.name] = storage
        self._content[storage] = value

    def read(self, name: str) -> Value:
        """Returns the present content of a name's storage, in the name's shape."""
        return replace(self._content[self._storage[name]], shape=self._shape[name])

    def argument(self, operation: Operation, value: object) -> Value:
        """Returns an argument, which must be computed from the input.

        Raises:
            UsageError: The argument is a parameter, a buffer or a number.
        """
        if isinstance(value, Reference) and value.name in self._storage:
            return self.read(value.name)
        raise self.refused(
            operation, f"takes {self._kind(value)}", "its arguments must be computed from the input"
        )

    def parameter(self, operation: Operation, argument: str) -> str:
        """Returns the name of the parameter that an operation takes.

        Raises:
            UsageError: The argument is not a parameter.
        """
        value = operation.arguments[argument]
        if isinstance(value, Reference) and value.name in self.program.parameters:
            return self.program.parameters[value.name]
        raise self.refused(
            operation, f"has {self._kind(value)} as its {argument}", "use a parameter of the model"
        )

    def activation(self, operation: Operation) -> str:
        """Returns the activation that is an operation's only reader: relu, relu6 or an empty text."""
        reader = self._by_name.get(operation.readers[0]) if len(operation.readers) == 1 else None
        return activation(reader) if reader is not None else ""

    def fuse(self, operation: Operation) -> None:
        """Fuses the only reader of an operation into it."""
        self._fused.add(operation.readers[0])

    def place(self, operation: Operation, owner: str = "") -> str:
        """Returns a unique name for the layer.

        Args:
            operation: The operation.
            owner: Path of the module whose parameters it uses; this is the place if it is free.
        """
        own = owner or (operation.module if operation.is_layer else "")
        label = operation.operator.split(".")[1].rstrip("_")
        path = own or ".".join(filter(None, (operation.module, label)))
        place, number = path, 1
        while place in self._taken or (place != own and place in self.program.modules):
            number += 1
            place = f"{path}_{number}"
        self._taken.add(place)
        return place

    def refused(self, operation: Operation, what: str, hint: str) -> UsageError:
        """Returns an error that names the user's code, its line, and the operator that PyTorch made from it."""
        found = f"{operation.what} in {operation.where}"
        if operation.written and not operation.layer:
            found = f"{operation.written} ({found})"
        return UsageError(f"{self._name}: {found} {what}", hint=hint)

    def _storage_of(self, value: object) -> str:
        assert isinstance(value, Reference)
        return self._storage[value.name]

    def _kind(self, value: object) -> str:
        if isinstance(value, Reference):
            for kind, names in (
                ("parameter", self.program.parameters),
                ("buffer", self.program.buffers),
            ):
                if value.name in names:
                    return f"the {kind} {names[value.name]}"
            return "a computed tensor" if value.name in self._storage else "a constant tensor"
        return "nothing" if value is None else f"the value {value}"
