"""The MNN step with which the benchmarks compare."""

from __future__ import annotations

import sys
from itertools import islice

import numpy as np
import pytest
from common.mnn_step import MnnStep
from small_steps import Layers, masks_of, pooled, step_of

from autotune.errors import UsageError
from autotune.workloads import (
    StepBuilder,
    Value,
    batches,
    build_model,
    evaluate,
    generated_samples,
    initial_values,
    max_relative_error,
)

SHAPE = (3, 10, 8)


def branches(builder: StepBuilder) -> Value:
    """Every operator: wide and narrow masks, poolings that round up and down, sides that differ."""
    x = builder.conv("conv1", builder.input, 8, (3, 5), stride=(1, 2), pad=(1, 2), bias=False)
    left = builder.batch_norm("norm1", x, relu=True)
    right = builder.batch_norm("norm2", x, epsilon_millionths=1000, momentum=0.3, relu6=True)
    middle = builder.conv("conv2", x, 8, 3, pad=1, groups=8, relu=True)
    total = builder.add("sum", builder.batch_norm("norm3", left), middle)
    x = builder.concat("joined", total, right, left)
    x = builder.dropout("dropout1", x, 0.3)
    x = builder.max_pool("pool1", x, 3, stride=2, pad=1, ceil=True)
    wide = builder.conv("conv3", x, 6, 1, relu=True)
    x = builder.max_pool("pool2", wide, 2, stride=2)
    x = builder.dropout("dropout2", builder.flatten(x), 0.5)
    x = builder.linear("hidden", x, 6, bias=False)
    return builder.linear("last", x, 4)


@pytest.mark.parametrize("layers", [branches, pooled])
def test_small_steps_are_those_of_the_references(layers: Layers) -> None:
    pytest.importorskip("MNN")
    graph = step_of(layers, SHAPE)
    values = initial_values(graph, seed=1) | {"learning_rate": np.array([0.5], np.float32)}
    step = MnnStep(graph, values, threads=1)
    loss = step.step(values["input"], values["labels"], masks_of(graph, values))
    truth = evaluate(graph, values)
    assert loss == pytest.approx(truth["loss"].item(), rel=1e-5)
    for name, array in step.parameters().items():
        assert array.shape == graph.by_name[name].shape
        change = truth[graph.updates[name]] - values[name]
        assert max_relative_error(array - values[name], change) < 1e-3, name
    for name, array in step.running_statistics().items():
        if name.endswith("mean"):
            np.testing.assert_allclose(array, truth[graph.updates[name]], rtol=1e-4, atol=1e-6)


def test_lenet_starts_and_learns() -> None:
    pytest.importorskip("MNN")
    graph = build_model("lenet", 16)
    values = initial_values(graph, seed=0) | {"learning_rate": np.array([0.05], np.float32)}
    step = MnnStep(graph, values, threads=1)
    samples = generated_samples(320, (1, 28, 28), 10, seed=0)
    losses = []
    for at, (images, labels) in enumerate(islice(batches(samples, 16, 0), 160)):
        losses.append(step.step(images, labels))
        if at == 0:
            first = evaluate(graph, values | {"input": images, "labels": labels}, ["loss"])
            assert losses[0] == pytest.approx(first["loss"].item(), abs=1e-5)
    assert np.mean(losses[:5]) > 2.0
    assert np.mean(losses[-5:]) < 0.1


def test_steps_follow_one_another() -> None:
    """Three steps with fresh data and masks against three evaluations."""
    pytest.importorskip("MNN")
    graph = step_of(branches, SHAPE)
    values = initial_values(graph, seed=0)
    step = MnnStep(graph, values, threads=1)
    for seed in range(1, 4):
        fresh = initial_values(graph, seed)
        masks = masks_of(graph, fresh)
        values |= {"input": fresh["input"], "labels": fresh["labels"], **masks}
        truth = evaluate(graph, values)
        assert step.step(fresh["input"], fresh["labels"], masks) == pytest.approx(
            truth["loss"].item(), rel=1e-4
        )
        values |= {name: truth[updated] for name, updated in graph.updates.items()}


def test_what_is_missing_or_unknown_is_named() -> None:
    pytest.importorskip("MNN")
    graph = step_of(branches, SHAPE)
    values = initial_values(graph, seed=0)
    step = MnnStep(graph, values)
    with pytest.raises(UsageError, match=r"no dropout mask 'dropout1\.mask'"):
        step.step(values["input"], values["labels"])
    del values["last.bias"]
    with pytest.raises(UsageError, match=r"no value for 'last\.bias'"):
        MnnStep(graph, values)
    grouped = step_of(
        lambda b: b.global_avg_pool("mean", b.conv("conv", b.input, 4, 1, groups=2)), (4, 6, 6)
    )
    with pytest.raises(UsageError, match="neither ungrouped nor depthwise"):
        MnnStep(grouped, initial_values(grouped, seed=0))


def test_without_mnn_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MNN", None)
    graph = step_of(pooled, SHAPE)
    with pytest.raises(UsageError, match="MNN is not installed") as error:
        MnnStep(graph, initial_values(graph, seed=0))
    assert "pip install MNN==3.6.1" in str(error.value.hint)
