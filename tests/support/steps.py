"""Small steps that several tests run."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.workloads import (
    Optimizer,
    StepBuilder,
    StepGraph,
    build_model,
    evaluate,
    initial_values,
)

Values = dict[str, NDArray[Any]]


def net(batch: int, *, norm: bool = False, optimizer: str = "sgd") -> StepGraph:
    """A small net with what forms treat differently: groups, joins, sums, dropout, pooling, flattening."""
    b = StepBuilder("net", batch, (3, 9, 8))
    x = b.conv("stem", b.input, 8, 3, stride=2, pad=1, bias=not norm, relu=not norm)
    if norm:
        x = b.batch_norm("stem.norm", x, relu6=True)
    y = b.conv("depthwise", x, 8, 3, pad=1, groups=8, relu=True)
    z = b.conv("pointwise", x, 8, 1)
    x = b.relu("relu", b.add("sum", y, z))
    x = b.concat("join", x, b.conv("grouped", x, 4, 3, pad=1, groups=2, relu=True))
    x = b.max_pool("pool", x, 2, stride=1)
    x = b.dropout("dropout", x, 0.5)
    x = b.linear("fc1", b.flatten(x), 7, relu=True)
    return b.finish(b.linear("fc2", x, 3), Optimizer.parse(optimizer))


def early_update() -> StepGraph:
    """LeNet's step with the last weight updated before its data gradient has read it."""
    graph = build_model("lenet", 1)
    update = next(node for node in graph.nodes if node.outputs == ("fc3.weight.updated",))
    nodes = [node for node in graph.nodes if node is not update]
    made = next(at for at, node in enumerate(nodes) if update.inputs[1] in node.outputs)
    graph = replace(graph, nodes=(*nodes[: made + 1], update, *nodes[made + 1 :]))
    graph.validate()
    return graph


def drawn_feed(graph: StepGraph, number: int) -> Values:
    """Data, labels and masks of a step."""
    drawn = initial_values(graph, 100 + number)
    return {n: a for n, a in drawn.items() if graph.by_name[n].kind in ("input", "label")}


def true_steps(
    graph: StepGraph, values: Mapping[str, NDArray[Any]], feeds: Sequence[Values]
) -> tuple[list[float], Values]:
    """Losses of steps one after the other, and all values after the last, in float64."""
    losses, now = [], dict(values)
    for feed in feeds:
        now |= feed
        found = evaluate(graph, now, [graph.loss, *graph.updates.values()])
        losses.append(float(found[graph.loss].reshape(-1)[0]))
        now |= {old: found[new] for old, new in graph.updates.items()}
    return losses, now


def changed_plan(bundle: Path, folder: Path, old: str, new: str) -> Path:
    """A copy of a step's files with a change in its plan."""
    copy = folder / "step"
    shutil.copytree(bundle, copy)
    text = (copy / "step.plan").read_text()
    assert old in text
    (copy / "step.plan").write_text(text.replace(old, new, 1))
    return copy
