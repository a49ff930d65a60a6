"""Kernels that differ only in which part of a tensor they read become one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from against_pytorch import distance

from autotune.workloads import StepForm, TrainingStep

torch = pytest.importorskip("torch")
nn = torch.nn

BATCH = 3


class Recurrent(nn.Module):
    """A recurrent layer, and a classifier of its last output."""

    def __init__(self, kind: type, times: int, **options: Any) -> None:
        super().__init__()
        self.input_shape = (times, 5)
        self.rnn = kind(5, 8, batch_first=True, **options)
        self.head = nn.Linear(16 if options.get("bidirectional") else 8, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.rnn(x)[0][:, -1])


def kernels(module: Any) -> Counter[str]:
    graph = TrainingStep("net", BATCH, module=module).graph(StepForm("channels_last"))
    return Counter(node.kernel.name for node in graph.nodes)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_more_time_steps_are_more_calls_of_the_same_kernels(kind: type) -> None:
    short, long = (kernels(Recurrent(kind, times)) for times in (6, 12))
    assert len(long) <= len(short) + 2
    # Forward and backward of each time step more have a call at least.
    assert sum(long.values()) >= sum(short.values()) + 2 * 6


@pytest.mark.parametrize(
    ("kind", "options"),
    [(nn.LSTM, {"bidirectional": True}), (nn.GRU, {"num_layers": 2}), (nn.RNN, {})],
)
def test_the_step_stays_pytorchs(kind: type, options: dict[str, Any]) -> None:
    torch.manual_seed(3)
    assert distance(Recurrent(kind, 6, **options), BATCH, channels_last=False) < 1e-10


class Parts(nn.Module):
    """A function of several parts of a tensor, each with its own function."""

    input_shape = (24,)

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.head = nn.Linear(24, 24)
        self.tail = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        y = self.head(x)
        total = 0.0
        for at in range(self.count):
            z = y[:, 4 * at : 4 * at + 4] @ y[:, 4 * at : 4 * at + 4].T
            total = total + (z @ x[:, 2 * at : 2 * at + 4])
        return self.tail(total)


@pytest.mark.parametrize("count", [2, 5])
def test_parts_of_a_tensor_are_read_where_they_are(count: int) -> None:
    torch.manual_seed(4)
    assert distance(Parts(count), BATCH, channels_last=False) < 1e-10
