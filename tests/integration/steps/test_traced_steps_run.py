"""Traced steps as they are compiled and run: their losses follow PyTorch's over many steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from autotune.compiler.step import open_step, step_runs
from autotune.workloads import Optimizer, Step, TrainingStep, generated_feeds
from autotune.workloads.capture import ModuleStep, wanted_step
from autotune.workloads.training_step import StepForm

F = torch.nn.functional
BATCH, STEPS = 4, 20
FORM = StepForm("channels_last")


class Sequence(nn.Module):
    """A convolution along time, then an LSTM."""

    input_shape = (6, 32)

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.rnn = nn.Conv1d(6, 8, 5, stride=2), nn.LSTM(8, 12, batch_first=True)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Any) -> Any:
        y = F.leaky_relu(self.conv(x)).transpose(1, 2)
        return self.head(self.rnn(y)[0][:, -1])


class Transformer(nn.Module):
    """Patches, attention, layer norm, GELU."""

    input_shape = (3, 16, 16)

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, 32, 4, 4), nn.Parameter(torch.zeros(1, 16, 32))
        self.layer = nn.TransformerEncoderLayer(
            32, 4, 64, 0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.head = nn.Linear(32, 5)

    def forward(self, x: Any) -> Any:
        y = self.patch(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.layer(y).mean(1))


class Pixels(nn.Module):
    """A small U-Net: a class for each pixel."""

    input_shape = (3, 16, 16)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.SiLU()
        )
        self.down = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.Hardswish())
        self.up, self.last = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 4, 1)

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        return self.last(torch.cat([y, self.up(self.down(y))], 1))


def transfer() -> Any:
    """A frozen base whose norms are in evaluation mode, and a head that trains."""
    base = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(), nn.Flatten())
    base.requires_grad_(False).eval()
    module = nn.Sequential(base, nn.Linear(8 * 64, 5))
    return Step(module, torch.zeros(BATCH, 3, 16, 16), torch.arange(BATCH), F.cross_entropy)


MODELS: list[tuple[str, Callable[[], Any], str]] = [
    ("sequence", Sequence, "momentum"),
    ("transformer", Transformer, "adamw:learning_rate=0.003"),
    ("pixels", Pixels, "sgd"),
    ("transfer", transfer, "sgd"),
]


@pytest.mark.parametrize(
    ("make", "optimizer"), [row[1:] for row in MODELS], ids=[row[0] for row in MODELS]
)
def test_losses_follow_pytorchs(make: Callable[[], Any], optimizer: str) -> None:
    torch.manual_seed(3)
    given = make()
    step = TrainingStep("net", BATCH, optimizer=Optimizer.parse(optimizer), module=given)
    graph = step.graph(FORM)
    feeds = list(islice(generated_feeds(graph, 1), STEPS))
    runs = step_runs([])
    with (
        runs.library(graph) as library,
        open_step(graph, library, step.values(graph, 1)) as session,
    ):
        found = session.run(feeds).losses
    assert len(set(found)) == STEPS
    plain = [
        {name: graph.by_name[name].restored(value) for name, value in feed.items()}
        for feed in feeds
    ]
    for dtype, limit in ((torch.float32, 2e-3), (torch.float64, 2e-3)):
        wanted = wanted_step("net", copy.deepcopy(given), BATCH)
        wanted.module.to(dtype)
        eager = ModuleStep(wanted, Optimizer.parse(optimizer))
        losses = [eager.step(_typed(feed, dtype)) for feed in plain]
        assert found == pytest.approx(losses, rel=limit), dtype


def _typed(feed: dict[str, Any], dtype: Any) -> dict[str, Any]:
    return {
        name: torch.as_tensor(value, dtype=dtype) if value.dtype.kind == "f" else value
        for name, value in feed.items()
    }
