"""The registration of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.workloads.autodiff import Value
from autotune.workloads.builder import StepBuilder

DEFAULT_CLASSES = 10


@dataclass(frozen=True)
class ModelInfo:
    """A model that can be trained.

    Attributes:
        name: Its name for ``--model``.
        input_shape: Channels, height and width of a sample.
        description: One line.
        layers: Appends the forward pass. It takes a builder and the number of classes, and returns the logits,
            [n, classes].
    """

    name: str
    input_shape: tuple[int, int, int]
    description: str
    layers: Callable[[StepBuilder, int], Value]

    @property
    def parameters(self) -> int:
        """Number of trained values with 10 classes, computed by building the model."""
        builder = StepBuilder(self.name, 1, self.input_shape)
        return builder.finish(self.layers(builder, DEFAULT_CLASSES)).parameter_count
