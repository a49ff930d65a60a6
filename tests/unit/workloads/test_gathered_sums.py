"""Sums of many small products of a traced step become one product; the step stays PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
from against_pytorch import compared

from autotune.workloads import Step, StepGraph

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
TOLERANCE = 1e-6


def weight_gradients(graph: StepGraph) -> list[tuple[int, ...]]:
    """Sizes m, n, k of the products that are weight gradients."""
    return sorted(
        (node.kernel.operator.m, node.kernel.operator.n, node.kernel.operator.k)
        for node in graph.nodes
        if node.kernel.operator.name == "matmul" and node.kernel.role == "weight_grad"
    )


class Last(nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.layer = kind(5, 8, batch_first=True, **options)
        self.head = nn.Linear(16 if options.get("bidirectional") else 8, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0][:, -1])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("kind", "options", "gates", "layers"),
    [
        (nn.LSTM, {}, 4, 1),
        pytest.param(
            nn.LSTM, {"num_layers": 2, "bidirectional": True}, 4, 4, marks=pytest.mark.slow
        ),
        (nn.GRU, {"bias": False}, 3, 1),
        (nn.RNN, {"num_layers": 2}, 1, 2),
    ],
)
def test_a_recurrent_weight_has_one_gradient_over_all_steps(
    kind: Any, options: dict[str, Any], gates: int, layers: int, last: bool
) -> None:
    torch.manual_seed(1)
    step = Step(Last(kind, **options), torch.randn(2, 9, 5), torch.tensor([0, 2]), F.cross_entropy)
    far, graph = compared(step, 2, channels_last=last)
    assert far < TOLERANCE
    recurrent = [sizes for sizes in weight_gradients(graph) if sizes[1:] == (8 * gates, 8)]
    assert len([m for m, _, _ in recurrent if m >= 2 * 7]) >= layers
    assert all(m > 2 for m, _, _ in recurrent)


class Shared(nn.Module):
    """One layer that is used several times, on parts of its input with these numbers of rows."""

    def __init__(self, *rows: int) -> None:
        super().__init__()
        self.rows, self.layer = rows, nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        parts = x.split(list(self.rows))
        results = [torch.tanh(self.layer(part)) * (number + 1) for number, part in enumerate(parts)]
        return (torch.cat(results) - self.layer.weight.mean()).pow(2).sum()


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ((2, 2, 2, 2, 2), [10]),
        ((2, 2, 2), [2, 2, 2]),
        ((2, 3, 2, 3, 2, 3, 2, 3), [8, 12]),
        ((2, 3, 2, 3, 2, 2), [3, 3, 8]),
    ],
)
def test_terms_of_one_shape_are_gathered_if_there_are_many(
    rows: tuple[int, ...], found: list[int]
) -> None:
    torch.manual_seed(1)
    step = Step(Shared(*rows), torch.randn(sum(rows), 6))
    far, graph = compared(step, sum(rows), channels_last=False)
    assert far < TOLERANCE
    assert [m for m, n, k in weight_gradients(graph) if (n, k) == (4, 6)] == found
