"""Forms of traced steps: micro-batches and recomputation compute what the plain step does, in less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune import Step
from autotune.workloads import (
    Optimizer,
    StepForm,
    StepGraph,
    evaluate,
    formed,
    generated_feeds,
    initial_values,
    output_again,
    own_part,
    plan_memory,
)
from autotune.workloads.capture import capture_module

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

BATCH, WIDTH = 8, 160


class Blocks(nn.Module):
    """Residual blocks with normalisation, dropout and a gated product."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.head = nn.Linear(6, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(depth))
        self.wide = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(depth))
        self.drop = nn.Dropout(0.25)
        self.last = nn.Linear(WIDTH, 5)

    def forward(self, x: Any) -> Any:
        x = self.head(x)
        for norm, wide in zip(self.norms, self.wide, strict=True):
            gate, value = wide(norm(x)).chunk(2, -1)
            x = x + self.drop(F.silu(gate) * value)
        return self.last(x.mean(1))


def two_inputs(batch: int) -> Step:
    """A step with two inputs, targets of its own, a loss of its own and frozen parameters."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.a, self.b = nn.Embedding(11, 32), nn.Linear(32, 64), nn.Linear(7, 64)
            self.words.requires_grad_(False)

        def forward(self, words: Any, x: Any) -> Any:
            return torch.tanh(self.a(self.words(words))) * torch.sigmoid(self.b(x)).unsqueeze(1)

    module = Pair()
    words = torch.randint(0, 11, (batch, 9))
    words[0, 0] = 10
    return Step(
        module,
        inputs=(words, torch.randn(batch, 7)),
        targets=(torch.randn(batch, 9, 64),),
        loss=lambda found, wanted: F.smooth_l1_loss(found, wanted),
    )


def step(kind: str, form: StepForm, optimizer: str) -> tuple[StepGraph, dict[str, Any]]:
    """The step in a form, and the values of its sources; the data are the same for all forms."""
    samples = BATCH // form.micro_batches
    torch.manual_seed(0)
    given, options = (
        (Blocks(), {"input_shape": (20, 6)}) if kind == "blocks" else (two_inputs(samples), {})
    )
    found = capture_module(given, samples, optimizer=Optimizer.parse(optimizer), **options)
    graph = formed(found.graph, form)
    stored = {name: graph.by_name[name].stored(value) for name, value in found.values.items()}
    return graph, initial_values(graph, 1) | stored | next(generated_feeds(graph, 2))


def after(graph: StepGraph, values: dict[str, Any]) -> dict[str, Any]:
    found = evaluate(graph, values, [graph.loss, *graph.updates.values()])
    return {"loss": found[graph.loss]} | {old: found[new] for old, new in graph.updates.items()}


@pytest.mark.parametrize("kind", ["blocks", "two inputs"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw:weight_decay=0.1", "momentum:clip_norm=0.05"])
def test_every_form_of_a_traced_step_computes_the_same(kind: str, optimizer: str) -> None:
    plain = after(*step(kind, StepForm(), optimizer))
    for parts, segments in ((2, 0), (1, 3), (4, 2)):
        graph, values = step(kind, StepForm(micro_batches=parts, segments=segments), optimizer)
        assert (graph.batch, graph.parts) == (BATCH, parts)
        found = after(graph, values)
        assert found.keys() == plain.keys()
        for name, value in plain.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def test_recomputation_of_a_traced_step_needs_less_memory() -> None:
    plain, _ = step("blocks", StepForm(), "sgd")
    saving, _ = step("blocks", StepForm(segments=4), "sgd")
    assert not any(map(output_again, plain.nodes))
    assert sum(map(output_again, saving.nodes)) > 2
    assert plan_memory(saving).arena_bytes < 0.9 * plan_memory(plain).arena_bytes


def test_micro_batches_of_a_traced_step_are_pytorchs_gradient_accumulation() -> None:
    """Each part is normalised by its own statistics, and the running ones are updated by each part in turn."""
    torch.manual_seed(3)
    net = nn.Sequential(
        nn.Linear(6, 12), nn.BatchNorm1d(12), nn.GELU(), nn.Linear(12, 4), nn.LogSoftmax(1)
    )
    given = Step(
        net, inputs=(torch.randn(4, 6),), targets=(torch.tensor([0, 1, 2, 3]),), loss=F.nll_loss
    )
    rate = 0.1
    found = capture_module(given, 4, optimizer=Optimizer(learning_rate=rate))
    graph = formed(found.graph, StepForm(micro_batches=2))
    stored = {name: graph.by_name[name].stored(value) for name, value in found.values.items()}
    x, y = np.random.default_rng(0).normal(size=(8, 6)), np.arange(8) % 4
    data = {t.name: own_part(graph, t, x if t.kind == "input" else y) for t in graph.data}
    ours = after(graph, initial_values(graph, 1) | stored | data)
    theirs = net.double()
    for x_part, y_part in zip(torch.tensor(x).split(4), torch.tensor(y).split(4), strict=True):
        (F.nll_loss(theirs(x_part), y_part) / 2).backward()
    for name, parameter in theirs.named_parameters():
        wanted = parameter.detach() - rate * parameter.grad
        np.testing.assert_allclose(ours[name], wanted.numpy(), rtol=1e-6, atol=1e-8, err_msg=name)
    for name, buffer in theirs.named_buffers():
        if "running" in name:
            np.testing.assert_allclose(ours[name], buffer.numpy(), rtol=1e-6, err_msg=name)
