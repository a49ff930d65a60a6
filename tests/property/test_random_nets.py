"""Steps of random nets: the same results in every form, and right kernels in every formulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import check_kernel
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.workloads import (
    Optimizer,
    StepBuilder,
    StepForm,
    StepGraph,
    Value,
    evaluate,
    formed,
    given_values,
    initial_values,
    max_relative_error,
    tasks,
)

BATCH, CLASSES = 4, 3
ROUNDING = 1e-10  # sums of float64 values of about 1; the tensors compared are 1e-6 and more
Layer = tuple[str, int, int, bool]  # kind, channels, a number that settles the rest, relu

KINDS = ("conv", "depthwise", "norm", "max_pool", "avg_pool", "add", "concat", "dropout", "relu")
layers = st.tuples(
    st.sampled_from(KINDS), st.sampled_from([1, 2, 3, 5, 16]), st.integers(0, 99), st.booleans()
)
nets = st.tuples(
    st.lists(layers, min_size=2, max_size=6),
    st.booleans(),
    st.sampled_from(["sgd", "momentum", "adam"]),
)


def build(net: tuple[list[Layer], bool, str], batch: int) -> StepGraph:
    """The net that the numbers mean; what does not fit where it comes is left out."""
    recipe, by_mean, optimizer = net
    b = StepBuilder("random", batch, (3, 7, 6))
    x = b.conv("stem", b.input, 4, 3, pad=1, relu=True)
    for number, (kind, channels, rest, relu) in enumerate(recipe):
        x = appended(b, x, f"{kind}{number}", kind, channels, rest, relu)
    flat = b.global_avg_pool("mean", x) if by_mean else b.flatten(x)
    flat = b.linear("hidden", b.dropout("drop", flat, 0.3), 5, relu=True)
    return b.finish(b.linear("last", flat, CLASSES), Optimizer.parse(optimizer))


def appended(
    b: StepBuilder, x: Value, place: str, kind: str, channels: int, rest: int, relu: bool
) -> Value:
    _, c, h, w = x.shape
    match kind:
        case "conv":
            r, s = min(h, 1 + rest % 3), min(w, 1 + rest // 3 % 3)
            stride, pad = (1 + rest // 9 % 2, 1), (r // 2, (s - 1) // 2)
            return b.conv(
                place, x, channels, (r, s), stride=stride, pad=pad, bias=relu or rest % 2 == 0,
                relu=relu,
            )  # fmt: skip
        case "depthwise":
            return b.conv(place, x, c, 3, pad=1, stride=1 + rest % 2, groups=c, relu=relu)
        case "norm" if h * w >= 4:
            return b.batch_norm(place, x, relu=relu, relu6=not relu and rest % 2 == 0)
        case "max_pool" if min(h, w) >= 3:
            return b.max_pool(place, x, 3, stride=1 + rest % 2, pad=rest // 2 % 2, ceil=relu)
        case "avg_pool" if min(h, w) >= 2:
            return b.avg_pool(place, x, 2, stride=1 + rest % 2, pad=rest // 2 % 2)
        case "add":
            return b.add(place, x, b.conv(f"{place}.side", x, c, 1, relu=relu))
        case "concat":
            return b.concat(place, x, b.conv(f"{place}.side", x, channels, 1, relu=relu), x)
        case "dropout":
            return b.dropout(place, x, 0.4)
        case "relu":
            return b.relu(place, x, six=relu)
    return x


def results(graph: StepGraph) -> dict[str, NDArray[Any]]:
    """Loss and updated tensors of a step for the whole batch, as its kernels are defined."""
    generator = np.random.default_rng(0)
    images = generator.normal(size=(BATCH, 3, 7, 6)).astype(np.float32)
    labels = generator.integers(0, CLASSES, BATCH).astype(np.int32)
    values = initial_values(graph, 5) | given_values(graph, images, labels, 5, 0)
    found = evaluate(graph, values, [*graph.updates.values(), graph.loss])
    updated = {old: graph.by_name[new].restored(found[new]) for old, new in graph.updates.items()}
    return updated | {"loss": found[graph.loss]}


@settings(max_examples=60, deadline=None)
@given(nets, st.sampled_from([1, 2, 4]), st.integers(0, 4), st.sampled_from([False, True]))
@example(([("conv", 2, 0, False), ("norm", 1, 0, False)], False, "momentum"), 1, 0, True)
@example(([("conv", 2, 0, False), ("norm", 1, 0, False)], False, "adam"), 1, 0, True)
def test_every_form_computes_what_the_plain_step_computes(
    net: Any, parts: int, segments: int, last: bool
) -> None:
    plain = build(net, BATCH)
    if any(node.kernel.operator.name == "batch_norm" for node in plain.nodes):
        parts = 1  # each part would be normalised by its own statistics
    form = StepForm("channels_last" if last else "channels_first", parts, segments)
    graph = formed(build(net, BATCH // parts), form)
    expected, found = results(plain), results(graph)
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].shape == array.shape
        # A bias under batch normalisation has no gradient but what rounding leaves of it.
        assert max_relative_error(found[name], array) < 1e-7 or np.allclose(
            found[name], array, rtol=0, atol=ROUNDING
        ), name


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(nets, st.sampled_from([False, True]))
def test_every_formulation_of_every_fused_kernel_is_right(net: Any, last: bool) -> None:
    graph = formed(build(net, 2), StepForm("channels_last" if last else "channels_first"))
    for kernel in (task.kernel for task in tasks(graph)):
        check_kernel(kernel)
