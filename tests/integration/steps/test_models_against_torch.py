"""Whole training steps of the built-in models against PyTorch's autograd and SGD, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")

import torch

from autotune.workloads import (
    Sgd,
    StepGraph,
    build_model,
    evaluate,
    initial_values,
    max_relative_error,
)
from autotune.workloads.capture.torch_step import TorchStep

LIMIT = 1e-8
NOISE = 1e-12

# An addend that goes through 1x1 convolutions and residual sums into a batch normalisation only is taken out by
# that layer's mean: the gradient is zero, and what is computed is rounding.
VANISHING = {"mobilenet_v2": {f"block{number}.project.norm.bias" for number in range(1, 18)}}


def perturbed(graph: StepGraph) -> dict[str, NDArray[Any]]:
    """First values, with batch normalisations whose scales, addends and running averages are not 0 or 1."""
    values = initial_values(graph, seed=0)
    generator = np.random.default_rng(1)
    for tensor in graph.tensors:
        if tensor.kind in ("parameter", "state"):
            assert tensor.initial is not None
            if tensor.initial.distribution == "constant":
                values[tensor.name] = values[tensor.name] + generator.uniform(
                    -0.3, 0.3, tensor.shape
                )
    return values


def gradients(graph: StepGraph) -> dict[str, str]:
    """Parameter -> the tensor that its update takes as its gradient."""
    updates = [node for node in graph.nodes if isinstance(node.kernel.operator, Sgd)]
    return {node.inputs[0]: node.inputs[1] for node in updates}


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("lenet", 4),
        ("squeezenet1_0", 2),
        ("squeezenet1_1", 2),
        ("mobilenet_v2", 2),
        ("googlenet", 2),
        pytest.param("alexnet", 2, marks=pytest.mark.slow),
    ],
)
def test_a_step_is_pytorchs(name: str, batch: int) -> None:
    graph = build_model(name, batch)
    values = perturbed(graph)
    step = TorchStep(graph, values, torch.float64)
    masks = {key: value for key, value in values.items() if key.endswith(".mask")}
    loss = step.step(values["input"], values["labels"], masks)
    named = gradients(graph)
    assert set(named) == {tensor.name for tensor in graph.parameters}
    truth = evaluate(graph, values, [graph.loss, *named.values(), *graph.updates.values()])

    assert abs(loss - truth[graph.loss].item()) < LIMIT * abs(loss)
    vanishing = VANISHING.get(name, set())
    for parameter, gradient in step.gradients().items():
        expected = truth[named[parameter]]
        assert gradient.shape == expected.shape
        if parameter in vanishing:
            assert max(abs(expected).max(), abs(gradient).max()) < NOISE, parameter
        else:
            assert abs(expected).max() > 1e3 * NOISE, parameter
            assert max_relative_error(gradient, expected) < LIMIT, parameter
    updated = step.parameters() | step.running_statistics()
    assert set(updated) == set(graph.updates)
    for tensor, array in updated.items():
        expected = truth[graph.updates[tensor]]
        assert array.shape == expected.shape
        assert max_relative_error(array, expected) < LIMIT, tensor
