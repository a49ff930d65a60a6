"""The PyTorch step with which the benchmarks and the whole-model tests compare."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_steps import Layers, masks_of, pooled, step_of

pytest.importorskip("torch")

import torch

from autotune.errors import UsageError
from autotune.workloads import (
    Bias,
    Initial,
    Kernel,
    Matmul,
    Node,
    StepBuilder,
    StepGraph,
    Value,
    batches,
    build_model,
    evaluate,
    generated_samples,
    initial_values,
    max_relative_error,
)
from autotune.workloads.capture.torch_step import TorchStep

SHAPE = (3, 8, 8)


def branches(builder: StepBuilder) -> Value:
    """Every operator; a product that is read twice; a bias after a convolution without one."""
    x = builder.conv("conv1", builder.input, 8, 3, pad=1, bias=False)
    left = builder.batch_norm("norm1", x, relu=True)
    right = builder.batch_norm("norm2", x, epsilon_millionths=1000, momentum=0.3, relu6=True)
    middle = builder.conv("conv2", x, 8, 3, pad=1, groups=8, relu=True)
    total = builder.add("sum", builder.batch_norm("norm3", left), middle)
    x = builder.concat("joined", total, right, left)
    x = builder.dropout("dropout1", x, 0.3)
    x = builder.max_pool("pool", x, 3, stride=2, pad=1, ceil=True)
    return builder.linear("last", builder.global_avg_pool("mean", x), 4)


def flat(builder: StepBuilder) -> Value:
    """Views: a mask and a fully connected layer on a flattened image, products without bias."""
    x = builder.conv("conv", builder.input, 4, 3, stride=2, relu=True)
    x = builder.dropout("dropout", builder.flatten(x), 0.5)
    x = builder.linear("hidden", x, 6, bias=False)
    return builder.linear("last", x, 4)


def linear(builder: StepBuilder) -> Value:
    return builder.linear("last", builder.flatten(builder.input), 4)


def scaled(graph: StepGraph) -> dict[str, NDArray[Any]]:
    """First values with parameters that are neither 0 nor 1, and wide data so that ReLU6 stops some."""
    values = initial_values(graph, seed=1)
    generator = np.random.default_rng(2)
    for tensor in graph.tensors:
        if tensor.kind in ("parameter", "state"):
            values[tensor.name] = values[tensor.name] + generator.uniform(0.1, 3.0, tensor.shape)
    return values


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("layers", [branches, flat, pooled, linear])
def test_small_steps_are_those_of_the_references(layers: Layers, channels_last: bool) -> None:
    graph = step_of(layers, SHAPE)
    values = scaled(graph)
    step = TorchStep(graph, values, torch.float64, channels_last=channels_last)
    loss = step.step(values["input"], values["labels"], masks_of(graph, values))
    truth = evaluate(graph, values)
    assert loss == pytest.approx(truth["loss"].item(), rel=1e-12)
    updated = step.parameters() | step.running_statistics()
    assert set(updated) == set(graph.updates)
    for name, array in updated.items():
        assert array.shape == graph.by_name[name].shape
        assert max_relative_error(array, truth[graph.updates[name]]) < 1e-11, name


def test_a_bias_that_cannot_be_joined_to_its_product_is_a_call_of_its_own() -> None:
    """The product is read by its bias and by a second bias."""
    graph = step_of(linear, (2, 2, 2))
    product = graph.nodes[0].outputs[0]
    assert isinstance(graph.nodes[0].kernel.operator, Matmul)
    extra = Node(Kernel(Bias(3, 4, 1, relu=True), "forward"), (product, "last.bias"), ("more",), "")
    tensor = replace(graph.by_name[product], name="more")
    graph = replace(
        graph,
        tensors=(*graph.tensors, tensor),
        nodes=(graph.nodes[0], extra, *graph.nodes[1:]),
    )
    graph.validate()
    values = scaled(graph)
    step = TorchStep(graph, values, torch.float64)
    assert step.step(values["input"], values["labels"]) == pytest.approx(
        evaluate(graph, values, ["loss"])["loss"].item(), rel=1e-12
    )


def test_steps_follow_one_another() -> None:
    """Three float32 steps with fresh data and masks against three evaluations."""
    graph = step_of(branches, SHAPE)
    values = initial_values(graph, seed=0)
    step = TorchStep(graph, values)
    for seed in range(1, 4):
        fresh = initial_values(graph, seed)
        masks = masks_of(graph, fresh)
        values |= {"input": fresh["input"], "labels": fresh["labels"], **masks}
        truth = evaluate(graph, values)
        loss = step.step(fresh["input"], fresh["labels"], masks)
        assert loss == pytest.approx(truth["loss"].item(), rel=1e-5)
        values |= {name: truth[updated] for name, updated in graph.updates.items()}
    for name, array in (step.parameters() | step.running_statistics()).items():
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, values[name], rtol=1e-4, atol=1e-5)


def test_given_values_and_returned_arrays_are_no_views() -> None:
    graph = step_of(linear, SHAPE)
    values = initial_values(graph, seed=0)
    before = {name: array.copy() for name, array in values.items()}
    step = TorchStep(graph, values)
    parameters = step.parameters()
    step.step(values["input"], values["labels"])
    for name, array in parameters.items():
        np.testing.assert_array_equal(array, before[name])
        np.testing.assert_array_equal(values[name], before[name])
        assert (step.parameters()[name] != array).any()


def test_lenet_learns_the_generated_set() -> None:
    graph = build_model("lenet", 16)
    values = initial_values(graph, seed=0) | {"learning_rate": np.array([0.05], np.float32)}
    step = TorchStep(graph, values)
    samples = generated_samples(320, (1, 28, 28), 10, seed=0)
    losses = [step.step(images, labels) for images, labels in islice(batches(samples, 16, 0), 160)]
    assert np.mean(losses[:5]) > 2.0
    assert np.mean(losses[-5:]) < 0.1


def test_what_is_missing_is_named() -> None:
    graph = step_of(flat, SHAPE)
    values = initial_values(graph, seed=0)
    step = TorchStep(graph, values)
    with pytest.raises(UsageError, match=r"no gradient of 'conv\.weight' yet"):
        step.gradients()
    with pytest.raises(UsageError, match=r"no dropout mask 'dropout\.mask'"):
        step.step(values["input"], values["labels"])
    del values["last.bias"]
    with pytest.raises(UsageError, match=r"no value for 'last\.bias'"):
        TorchStep(graph, values)


def test_another_use_of_the_batchs_statistics_is_refused() -> None:
    graph = step_of(branches, SHAPE)
    nodes = [
        replace(node, inputs=(node.inputs[0], "norm2.mean", *node.inputs[2:]))
        if node.place == "norm1" and node.kernel.operator.name == "batch_norm"
        else node
        for node in sorted(graph.nodes, key=lambda node: node.place == "norm1")
    ]
    with pytest.raises(UsageError, match="for more than the normalisation of its layer"):
        TorchStep(replace(graph, nodes=tuple(nodes)), initial_values(graph, seed=0))


def test_a_second_input_is_refused() -> None:
    graph = step_of(linear, SHAPE)
    other = replace(graph.by_name["input"], name="other", initial=Initial("normal", 1.0))
    graph = replace(graph, tensors=(*graph.tensors, other))
    with pytest.raises(UsageError, match=r"inputs \['input', 'other'\]"):
        TorchStep(graph, initial_values(graph, seed=0))
