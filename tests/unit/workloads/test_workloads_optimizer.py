"""Optimisers: their text, and the updates and states that they put into a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.errors import UsageError
from autotune.workloads import (
    ALGORITHMS,
    Optimizer,
    StepBuilder,
    StepGraph,
    build_model,
    evaluate,
    initial_values,
    tasks,
)
from autotune.workloads.fusion import fused


def dense_step(optimizer: Optimizer) -> StepGraph:
    """One fully connected layer on two features."""
    builder = StepBuilder("dense", 3, (2, 1, 1))
    return builder.finish(builder.linear("fc", builder.flatten(builder.input), 4), optimizer)


def test_text_is_read_and_canonical() -> None:
    assert Optimizer.parse("sgd") == Optimizer()
    assert Optimizer.parse("adam").learning_rate == 0.001
    assert Optimizer.parse(" momentum : momentum=0.8, learning_rate = 0.1 ") == Optimizer(
        "momentum", learning_rate=0.1, momentum=0.8
    )
    for name in ALGORITHMS:
        optimizer = Optimizer.parse(name)
        assert Optimizer.parse(optimizer.spec()) == optimizer
    assert Optimizer("momentum").spec() == "momentum:learning_rate=0.01,momentum=0.9"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "sgd, momentum, adam"),
        ("lion", "unknown optimizer 'lion'"),
        ("adamw:weight_decay=-1", "weight_decay=-1.0 is not a number from 0 on"),
        ("sgd:momentum=0.9", "keys learning_rate"),
        ("adam:beta1=0.9,beta1=0.8", "beta1 is given twice"),
        ("adam:beta1", "'beta1' is not a setting"),
        ("adam:beta1=0.9,", "'' is not a setting"),
        ("sgd:learning_rate=fast", "'fast' is not a number"),
        ("sgd:learning_rate=0", "not a number above 0"),
        ("sgd:learning_rate=nan", "not a number above 0"),
        ("sgd:learning_rate=inf", "not a number above 0"),
        ("momentum:momentum=1", "not in [0, 1)"),
        ("adam:beta2=-0.1", "not in [0, 1)"),
        ("adam:epsilon=0", "epsilon=0.0 is not a number above 0"),
    ],
)
def test_bad_text_is_one_clear_line(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        Optimizer.parse(text)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_unknown_algorithms_are_refused_on_construction() -> None:
    with pytest.raises(UsageError, match="optimizers: sgd, momentum, adam"):
        Optimizer("lion")  # type: ignore[arg-type]


def test_states_of_each_optimiser() -> None:
    states = {
        name: {t.name: t.shape for t in dense_step(Optimizer.parse(name)).tensors
               if t.kind == "state"}
        for name in ALGORITHMS
    }  # fmt: skip
    assert states["sgd"] == {}
    assert states["momentum"] == {"fc.weight.velocity": (4, 2), "fc.bias.velocity": (4,)}
    assert states["adam"] == {
        "beta1_power": (1,),
        "beta2_power": (1,),
        "fc.weight.first": (4, 2),
        "fc.weight.second": (4, 2),
        "fc.bias.first": (4,),
        "fc.bias.second": (4,),
    }


def test_every_parameter_and_state_has_its_own_update() -> None:
    for name in ALGORITHMS:
        graph = build_model("mobilenet_v2", 2, optimizer=Optimizer.parse(name))
        kept = {tensor.name for tensor in graph.tensors if tensor.kind in ("parameter", "state")}
        assert set(graph.updates) == kept
        assert all(graph.updates[kept_name] == f"{kept_name}.updated" for kept_name in kept)
    adam = build_model("lenet", 2, optimizer=Optimizer("adam"))
    assert adam.updates["beta2_power"] == "beta2_power.updated"


def test_adam_reads_the_powers_after_their_update() -> None:
    graph = dense_step(Optimizer("adam"))
    kinds = [node.kernel.operator.name for node in graph.nodes if node.kernel.role == "update"]
    assert kinds == ["running_power", "running_power", "adam", "adam"]
    for node in graph.nodes:
        if node.kernel.operator.name == "adam":
            assert node.inputs[-2:] == ("beta1_power.updated", "beta2_power.updated")
            assert node.inputs[4:8] == ("learning_rate", "beta1", "beta2", "epsilon")
    power = next(t for t in tasks(graph) if t.kernel.operator.name == "running_power")
    assert (power.count, power.places) == (2, ("beta1_power", "beta2_power"))


RATES = {"adam": 0.01, "adamw": 0.01, "rmsprop": 0.002, "adagrad": 0.02, "nesterov": 0.02}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_training_on_one_batch_lowers_the_loss(name: str) -> None:
    optimizer = Optimizer.parse(f"{name}:learning_rate={RATES.get(name, 0.05)}")
    graph = build_model("lenet", 2, optimizer=optimizer)
    values = initial_values(graph, seed=0)
    losses = []
    for _ in range(25):
        step = evaluate(graph, values, [graph.loss, *graph.updates.values()])
        losses.append(step[graph.loss][0])
        values |= {old: step[updated] for old, updated in graph.updates.items()}
    assert losses[0] == pytest.approx(np.log(10), abs=0.3)
    assert losses[-1] < 0.75 * losses[0]


@pytest.mark.parametrize(
    "setting",
    ["weight_decay=0", "weight_decay=0.1", "clip_value=0.05", "clip_norm=0.1", "clip_norm=1000"],
)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_updates_are_pytorchs(name: str, setting: str) -> None:
    torch = pytest.importorskip("torch")
    from autotune.workloads.capture import ModuleStep, wanted_step

    optimizer = Optimizer.parse(f"{name}:learning_rate=0.05,{setting}")
    assert Optimizer.parse(optimizer.spec()) == optimizer
    graph = fused(dense_step(optimizer))
    values = initial_values(graph, seed=0)
    module = torch.nn.Linear(2, 4).double()
    for key, parameter in module.named_parameters():
        parameter.data = torch.as_tensor(values[f"fc.{key}"], dtype=torch.float64)
    eager = ModuleStep(wanted_step("net", flat(module), 3, (2, 1, 1)), optimizer)
    for _ in range(4):
        given = {"input": values["input"].astype(np.float64), "labels": values["labels"]}
        loss = eager.step(given)
        found = evaluate(graph, values, [graph.loss, *graph.updates.values()])
        assert float(found[graph.loss][0]) == pytest.approx(loss, rel=1e-6)
        values |= {old: found[new] for old, new in graph.updates.items()}
    for key, parameter in module.named_parameters():
        np.testing.assert_allclose(
            values[f"fc.{key}"], parameter.detach().numpy(), rtol=1e-5, atol=1e-7
        )


def flat(module: Any) -> Any:
    """A module on flattened inputs."""
    import torch

    return torch.nn.Sequential(torch.nn.Flatten(), module)
