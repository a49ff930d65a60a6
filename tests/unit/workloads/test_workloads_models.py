"""The models: kernels by operator and role, parameter counts, shapes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from autotune.errors import UsageError
from autotune.workloads import MODELS, Conv2d, MaxPool2d, StepGraph, build_model, tasks


def by_role(graph: StepGraph) -> dict[str, dict[str, int]]:
    """Kernel runs: role -> operator -> count."""
    counts: dict[str, Counter[str]] = {}
    for node in graph.nodes:
        counts.setdefault(node.kernel.role, Counter())[node.kernel.operator.name] += 1
    return {role: dict(operators) for role, operators in counts.items()}


def test_lenet_kernels() -> None:
    graph = build_model("lenet", 8)
    assert by_role(graph) == {
        "forward": {"conv2d": 2, "bias": 5, "max_pool2d": 2, "matmul": 3, "cross_entropy": 1},
        "data_grad": {"cross_entropy": 1, "matmul": 3, "bias": 4, "max_pool2d": 2, "conv2d": 1},
        "weight_grad": {"conv2d": 2, "matmul": 3, "bias": 5},
        "update": {"sgd": 10},
    }
    assert len(graph.nodes) == len(tasks(graph)) == 44
    assert graph.parameter_count == 61706


def test_squeezenet1_1_kernels() -> None:
    graph = build_model("squeezenet1_1", 8)
    assert by_role(graph) == {
        "forward": {
            "conv2d": 26,
            "bias": 26,
            "max_pool2d": 3,
            "concat": 8,
            "dropout": 1,
            "global_avg_pool": 1,
            "cross_entropy": 1,
        },
        "data_grad": {
            "cross_entropy": 1,
            "global_avg_pool": 1,
            "dropout": 1,
            "concat": 8,
            "max_pool2d": 3,
            "bias": 26,
            "conv2d": 25,
            "add": 8,
        },
        "weight_grad": {"conv2d": 26, "bias": 26},
        "update": {"sgd": 52},
    }
    operators = [n.kernel.operator for n in graph.nodes if n.kernel.role == "forward"]
    pools = [o for o in operators if isinstance(o, MaxPool2d)]
    assert [(pool.h, pool.oh) for pool in pools] == [(111, 55), (55, 27), (27, 13)]
    last = [o for o in operators if isinstance(o, Conv2d)][-1]
    assert (last.c, last.k, last.oh, last.ow) == (512, 10, 13, 13)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("alexnet", 61_100_840),
        ("mobilenet_v2", 3_504_872),
        ("squeezenet1_0", 1_248_424),
        ("squeezenet1_1", 1_235_496),
        ("googlenet", 6_624_904),
    ],
)
def test_models_have_torchvisions_parameter_count(name: str, parameters: int) -> None:
    assert build_model(name, 1, classes=1000).parameter_count == parameters


def test_mobilenet_v2_blocks() -> None:
    graph = build_model("mobilenet_v2", 4)
    counts = by_role(graph)
    assert counts["forward"]["conv2d"] == counts["forward"]["batch_norm"] == 52
    assert counts["forward"]["add"] == 10
    assert counts["update"] == {"running_stats": 52, "sgd": 158}
    convolutions = [n.kernel.operator for n in graph.nodes if n.kernel.role == "forward"]
    depthwise = [o for o in convolutions if isinstance(o, Conv2d) and o.groups > 1]
    assert len(depthwise) == 17
    assert all(o.groups == o.c == o.k for o in depthwise)
    assert (depthwise[-1].c, depthwise[-1].oh) == (960, 7)


def test_googlenet_joins_four_branches_nine_times() -> None:
    graph = build_model("googlenet", 4)
    joins = [n for n in graph.nodes if n.place.endswith("concat") and n.kernel.role == "forward"]
    assert [len(node.inputs) for node in joins] == [4] * 9
    assert graph.by_name["inception5b.concat"].shape == (4, 1024, 7, 7)
    pools = [n.kernel.operator for n in graph.nodes if n.kernel.role == "forward"]
    assert [o.oh for o in pools if isinstance(o, MaxPool2d)][:2] == [56, 28]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_models_say_what_they_are(model) -> None:  # type: ignore[no-untyped-def]
    graph = build_model(model.name, 3, classes=7)
    assert graph.name == model.name
    assert graph.batch == 3
    assert graph.by_name["input"].shape == (3, *model.input_shape)
    assert graph.by_name["labels"].shape == (3,)
    replaced = {tensor.name for tensor in graph.tensors if tensor.kind in ("parameter", "state")}
    assert set(graph.updates) == replaced
    assert model.parameters == build_model(model.name, 1).parameter_count
    assert model.description and "\n" not in model.description
    assert graph.flops > 0


@pytest.mark.parametrize(
    ("name", "batch", "classes", "part"),
    [
        ("resnet", 8, 10, "models: lenet, alexnet, mobilenet_v2"),
        ("lenet", 0, 10, "batch=0 is too small"),
        ("lenet", 8, 0, "classes=0 is too small"),
        ("lenet", 10**7, 10, "more than 2147483647"),
    ],
)
def test_bad_requests_are_one_clear_line(name: str, batch: int, classes: int, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_model(name, batch, classes)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_room_imports_neither_tvm_nor_torch() -> None:
    code = (
        "import sys, autotune.workloads; "
        "print([m for m in ('tvm', 'tvm_ffi', 'torch', 'optuna') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
