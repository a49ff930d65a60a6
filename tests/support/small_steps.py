"""Small step graphs on which the steps of other frameworks are compared with the references."""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from autotune.workloads import StepBuilder, StepGraph, Value

Layers = Callable[[StepBuilder], Value]


def step_of(layers: Layers, shape: tuple[int, int, int]) -> StepGraph:
    builder = StepBuilder("small", 3, shape)
    return builder.finish(layers(builder))


def masks_of(graph: StepGraph, values: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {
        tensor.name: values[tensor.name]
        for tensor in graph.tensors
        if tensor.initial is not None and tensor.initial.distribution == "mask"
    }


def pooled(builder: StepBuilder) -> Value:
    """Ends, as SqueezeNet does, in a convolution and a mean."""
    return builder.global_avg_pool("mean", builder.conv("conv", builder.input, 4, 1, relu=True))
