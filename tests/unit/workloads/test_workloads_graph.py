"""Step graphs: validation, tasks, the builder, and gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autotune.errors import UsageError
from autotune.workloads import (
    Initial,
    StepBuilder,
    StepGraph,
    Tensor,
    build_model,
    evaluate,
    initial_values,
    tasks,
)
from autotune.workloads.models.squeezenet import fire


def tiny_step() -> StepGraph:
    """One fully connected layer on two features."""
    builder = StepBuilder("tiny", 3, (2, 1, 1))
    return builder.finish(builder.linear("fc", builder.flatten(builder.input), 4))


def fire_step() -> StepGraph:
    """A Fire module between convolutions, with every other layer that the builder knows."""
    builder = StepBuilder("fire", 2, (2, 9, 9))
    x = builder.conv("conv1", builder.input, 4, 3, stride=2, pad=1, relu=True)
    x = builder.conv("depthwise", x, 4, 3, pad=1, groups=4, bias=False)
    x = fire(builder, "fire2", x, 3, 4)
    x = builder.max_pool("pool", x, 2, stride=2, ceil=True)
    x = builder.dropout("dropout", x, 0.25)
    x = builder.conv("classifier", x, 5, 1, relu=True)
    return builder.finish(builder.global_avg_pool("mean", x))


def shared_step() -> StepGraph:
    """A value used three times, once flattened and twice in one concat."""
    builder = StepBuilder("shared", 2, (1, 4, 4))
    x = builder.conv("conv", builder.input, 2, 3, relu=True)
    twice = builder.concat("twice", x, x)
    four = builder.concat("four", builder.max_pool("pool", twice, 1, stride=1), twice)
    return builder.finish(builder.linear("fc", builder.flatten(four), 3))


def residual_step() -> StepGraph:
    """Residual sums with a ReLU after them, average pooling, and layers that share parameters."""
    builder = StepBuilder("residual", 3, (2, 7, 8))
    x = builder.conv("stem", builder.input, 4, (3, 1), stride=(2, 1), pad=(1, 0), dilation=(1, 2))
    y = builder.conv("shared", x, 4, 3, pad=1, relu=True)
    y = builder.conv("again", y, 4, 3, pad=1, weight="shared.weight", bias="shared.bias")
    x = builder.relu("relu", builder.add("sum", x, y))
    x = builder.relu("relu6", builder.conv("wide", x, 3, 1, bias=False), six=True)
    x = builder.avg_pool("pool", x, (2, 3), stride=(1, 2), pad=(1, 0))
    x = builder.linear("fc1", builder.flatten(x), 5)
    x = builder.linear("fc2", builder.batch_norm("norm", x, relu=True), 5, bias=False)
    return builder.finish(builder.linear("fc3", x, 5, weight="fc2.weight", bias="fc1.bias"))


def lenet_step() -> StepGraph:
    """LeNet-5 on two samples."""
    return build_model("lenet", 2)


@pytest.mark.parametrize("build", [tiny_step, fire_step, shared_step, residual_step, lenet_step])
def test_gradients_agree_with_finite_differences(build: Callable[[], StepGraph]) -> None:
    graph = build()
    values = {
        name: value if value.dtype == np.int32 else value.astype(np.float64)
        for name, value in initial_values(graph, seed=11).items()
    }
    values["learning_rate"] = np.ones(1)
    step = evaluate(graph, values, graph.updates.values())
    generator = np.random.default_rng(7)
    epsilon = 1e-6
    for parameter in graph.parameters:
        before = values[parameter.name]
        gradient = (before - step[graph.updates[parameter.name]]).ravel()
        picked = generator.choice(parameter.elements, min(6, parameter.elements), replace=False)
        for at in picked:
            losses = []
            for sign in (1, -1):
                moved = before.ravel().copy()
                moved[at] += sign * epsilon
                changed = {**values, parameter.name: moved}
                losses.append(evaluate(graph, changed, [graph.loss])[graph.loss][0])
            slope = (losses[0] - losses[1]) / (2 * epsilon)
            assert slope == pytest.approx(gradient[at], rel=1e-5, abs=1e-8), (parameter.name, at)


def test_training_on_one_batch_lowers_the_loss() -> None:
    graph = lenet_step()
    values = initial_values(graph, seed=0)
    values["learning_rate"] = np.full(1, 0.1)
    losses = []
    for _ in range(40):
        step = evaluate(graph, values, [graph.loss, *graph.updates.values()])
        losses.append(step[graph.loss][0])
        values |= {name: step[updated] for name, updated in graph.updates.items()}
    assert losses[0] == pytest.approx(np.log(10), abs=0.3)
    assert losses[-1] < 0.5 * losses[0]


def test_evaluate_keeps_what_is_wanted() -> None:
    graph = fire_step()
    values = initial_values(graph, seed=1)
    everything = evaluate(graph, values)
    assert set(everything) == {tensor.name for tensor in graph.tensors}
    for tensor in graph.tensors:
        assert everything[tensor.name].shape == tensor.shape
    some = evaluate(graph, values, ["loss", "pool.index", "input"])
    assert set(some) == {"loss", "pool.index", "input"}
    for name, value in some.items():
        np.testing.assert_array_equal(value, everything[name])


def test_evaluate_of_missing_or_misshapen_values() -> None:
    graph = tiny_step()
    values = initial_values(graph, seed=1)
    with pytest.raises(UsageError, match="no tensor 'nothing'"):
        evaluate(graph, values, ["nothing"])
    with pytest.raises(UsageError, match=r"no value for the parameter 'fc\.bias'"):
        evaluate(graph, {name: v for name, v in values.items() if name != "fc.bias"})
    with pytest.raises(UsageError, match=r"'fc\.bias' got 5 elements"):
        evaluate(graph, {**values, "fc.bias": np.zeros(5)})


def test_add_sums_the_gradients_of_a_squeeze_output() -> None:
    graph = fire_step()
    adds = [node for node in graph.nodes if node.kernel.operator.name == "add"]
    assert [node.place for node in adds] == ["fire2.squeeze"]
    assert adds[0].inputs == ("fire2.squeeze.grad", "fire2.squeeze.grad2")


def test_the_input_gets_no_gradient() -> None:
    for graph in (tiny_step(), fire_step(), shared_step(), residual_step(), lenet_step()):
        assert not [tensor for tensor in graph.tensors if tensor.name.startswith("input.grad")]
        operands = {name for node in graph.nodes for name in node.outputs}
        assert not operands & {tensor.name for tensor in graph.sources}


def test_tasks_count_distinct_kernels_in_order_of_appearance() -> None:
    graph = build_model("squeezenet1_1", 8)
    found = tasks(graph)
    assert sum(task.count for task in found) == len(graph.nodes)
    assert len({task.kernel for task in found}) == len(found)
    assert len({task.kernel.name for task in found}) == len(found)
    assert all(task.count == len(task.places) for task in found)
    first = [next(i for i, n in enumerate(graph.nodes) if n.kernel == t.kernel) for t in found]
    assert first == sorted(first)
    assert found == tasks(build_model("squeezenet1_1", 8))
    compute = [task for task in found if task.kernel.is_compute]
    expand = next(task for task in compute if "fire4.expand3x3" in task.places)
    assert expand.places == ("fire4.expand3x3", "fire5.expand3x3")


def with_tensor(graph: StepGraph, name: str, **changes: object) -> StepGraph:
    """The graph with one tensor changed."""
    return replace(
        graph,
        tensors=tuple(
            replace(tensor, **changes) if tensor.name == name else tensor  # type: ignore[arg-type]
            for tensor in graph.tensors
        ),
    )


def broken_steps() -> dict[str, StepGraph]:
    """Steps that are wrong in one way each, by what the message must say."""
    graph = tiny_step()
    first, *others = graph.nodes
    extra = Tensor("extra", (1,), "float32", "activation")
    return {
        "'extra' is never written": replace(graph, tensors=(*graph.tensors, extra)),
        "'input' is defined 2 times": replace(graph, tensors=(graph.tensors[0], *graph.tensors)),
        "before it is written": replace(graph, nodes=(*others, first)),
        "already has a value": replace(graph, nodes=(first, *graph.nodes)),
        "that is not defined": replace(
            graph, tensors=tuple(t for t in graph.tensors if t.name != "fc.bias")
        ),
        "'input' is float32[3, 2, 2, 1]": with_tensor(graph, "input", shape=(3, 2, 2, 1)),
        "'labels' is float32[3]": with_tensor(graph, "labels", dtype="float32"),
        "has 1 inputs, its kernel 2": replace(
            graph, nodes=(replace(first, inputs=first.inputs[:1]), *others)
        ),
        "not one for each parameter": replace(
            graph, nodes=graph.nodes[:-1], tensors=graph.tensors[:-1]
        ),
        "of kind gradient": with_tensor(graph, "fc.bias.updated", kind="gradient"),
        "loss 'fc' is not a tensor with one element": replace(graph, loss="fc"),
    }


@pytest.mark.parametrize("part", broken_steps())
def test_validate_names_what_is_wrong(part: str) -> None:
    tiny_step().validate()
    with pytest.raises(UsageError) as caught:
        broken_steps()[part].validate()
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_layers_are_one_clear_line() -> None:
    builder = StepBuilder("bad", 2, (2, 8, 8))
    wide = builder.conv("conv", builder.input, 4, 3)
    narrow = builder.max_pool("pool", builder.input, 2, stride=2)
    flat = builder.flatten(builder.input)
    attempts: list[tuple[str, Callable[[], object]]] = [
        ("pads? larger", lambda: builder.conv("a", builder.input, 4, 9)),
        ("already", lambda: builder.conv("conv", builder.input, 4, 3)),
        ("use flatten", lambda: builder.linear("b", wide, 3)),
        ("takes \\[n, c, h, w\\]", lambda: builder.max_pool("c", flat, 2, stride=2)),
        ("must agree", lambda: builder.concat("d", wide, narrow)),
        ("not in \\[0, 1\\)", lambda: builder.dropout("e", wide, 1.0)),
        ("bias=True", lambda: builder.conv("f", wide, 4, 3, bias=False, relu=True)),
        ("no parameter to train", lambda: builder.finish(flat)),
        ("does not depend on conv.weight", lambda: builder.finish(builder.linear("g", flat, 3))),
        ("empty", lambda: StepBuilder("empty", 0, (1, 2, 3))),
    ]
    for part, attempt in attempts:
        with pytest.raises(UsageError, match=part) as caught:
            attempt()
        assert "\n" not in str(caught.value)


def test_initial_values_are_reproducible_and_say_what_is_missing() -> None:
    graph = fire_step()
    values = initial_values(graph, seed=2)
    for tensor in graph.sources:
        assert values[tensor.name].shape == tensor.shape
        assert values[tensor.name].dtype == tensor.dtype
        np.testing.assert_array_equal(
            values[tensor.name], initial_values(graph, seed=2)[tensor.name]
        )
    bound = 1 / np.sqrt(2 * 9)
    weight = values["conv1.weight"]
    assert np.abs(weight).max() <= bound < 1.2 * np.abs(weight).max()
    assert np.abs(values["conv1.bias"]).max() <= bound
    assert set(np.unique(values["dropout.mask"])) == {0.0, np.float32(1 / 0.75)}
    assert graph.by_name["dropout.mask"].initial == Initial("mask", 0.25)
    assert set(values["labels"].tolist()) <= set(range(5))
    with pytest.raises(UsageError, match="seed -1 is negative"):
        initial_values(graph, seed=-1)
    with pytest.raises(UsageError, match="does not say how it starts"):
        initial_values(with_tensor(graph, "input", initial=None), seed=0)
