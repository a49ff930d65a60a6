"""What a step computes of frozen tensors alone is computed once; the step stays PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from against_pytorch import captured, compared, distance

from autotune.errors import UsageError
from autotune.workloads import Step, StepGraph

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
TOLERANCE = 2e-6  # What is computed once is stored in float32.
SHAPE = (3, 6, 7)
EVAL = ("head.*", "frozen:eval")


class Net(nn.Module):
    """A body, a mean over pixels if there are any, and a head."""

    def __init__(self, width: int, *body: Any) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)
        self.head = nn.Linear(width, 4)

    def forward(self, x: Any) -> Any:
        y = self.body(x)
        return self.head(y.mean((2, 3)) if y.ndim == 4 else y)


def seasoned(module: Any) -> Any:
    """Gives batch norms statistics and parameters as after some training."""
    torch.manual_seed(2)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.3)
            part.running_var.uniform_(0.5, 2.0)
            if part.affine:
                nn.init.uniform_(part.weight, 0.5, 1.5)
                nn.init.normal_(part.bias, 0, 0.2)
    return module


class WeightOfAFrozenScale(nn.Module):
    """A weight that is computed of frozen parameters, and noise that is drawn for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.v, self.g = nn.Parameter(torch.randn(5, 5)), nn.Parameter(torch.rand(5, 1))

    def forward(self, x: Any) -> Any:
        weight = F.softplus(self.g) * self.v / self.v.norm(dim=1, keepdim=True)
        return F.dropout(self.g, 0.5).squeeze(1) + x @ weight.t()


NETS: list[tuple[str, Callable[[], Any], tuple[int, ...], int]] = [
    ("conv and norm", lambda: Net(
        8, nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=4), nn.BatchNorm2d(8), nn.Hardswish()), SHAPE, 2),
    ("no affine", lambda: Net(4, nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, affine=False), nn.Tanh()), SHAPE, 1),
    ("transposed", lambda: Net(
        6, nn.ConvTranspose2d(3, 6, 2, stride=2), nn.BatchNorm2d(6), nn.LeakyReLU()), SHAPE, 2),
    ("norm first", lambda: Net(4, nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3)), SHAPE, 2),
    ("vectors", lambda: Net(6, nn.Linear(5, 6), nn.BatchNorm1d(6), nn.SELU()), (5,), 2),
    ("of parameters", lambda: Net(5, WeightOfAFrozenScale(), nn.Tanh()), (5,), 1),
]  # fmt: skip


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("make", "shape", "once"), [r[1:] for r in NETS], ids=[r[0] for r in NETS])
def test_a_frozen_part_in_evaluation_mode_is_pytorchs(
    make: Callable[[], Any], shape: tuple[int, ...], once: int, last: bool
) -> None:
    torch.manual_seed(1)
    net = seasoned(make())
    options: dict[str, Any] = {"channels_last": last, "input_shape": shape, "train": EVAL}
    far, graph = compared(net, 2, **options)
    assert far < TOLERANCE
    assert len(_once(graph)) >= once
    assert "sqrt" not in _text(graph)


def _once(graph: StepGraph) -> list[str]:
    return [t.name for t in graph.tensors if t.name.startswith("prepared.")]


def _text(graph: StepGraph) -> str:
    return "\n".join(node.kernel.spec for node in graph.nodes)


def test_norms_join_the_filters_of_the_convolution_before_them() -> None:
    net = seasoned(NETS[0][1]())
    graph, _ = captured(net, 2, channels_last=True, input_shape=SHAPE, train=EVAL)
    forward = [node for node in graph.nodes if node.kernel.operator.name == "conv2d"]
    assert [node.inputs[1].partition(".")[0] for node in forward] == ["prepared", "prepared"]
    sizes = sorted(graph.by_name[name].elements for name in _once(graph))
    assert sizes == [8, 8, 8 * 2 * 9, 8 * 3 * 9]  # Two shifts and two filters: no scale is left.


def test_norms_keep_the_batchs_statistics_unless_told() -> None:
    net = seasoned(NETS[0][1]())
    graph, _ = captured(net, 2, channels_last=True, input_shape=SHAPE, train=("head.*",))
    assert {"body.1.running_mean", "body.4.running_var"} <= set(graph.updates)
    assert not _once(graph)


class Adapted(nn.Module):
    """A layer that trains before a frozen part."""

    def __init__(self) -> None:
        super().__init__()
        self.adapter = nn.Conv2d(3, 3, 1)
        self.base = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4)
        )

    def forward(self, x: Any) -> Any:
        return self.base(self.adapter(x)).mean((2, 3))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("train", [("adapter.*",), ("adapter.*", "base.1.*")])
def test_gradients_pass_through_a_frozen_part(train: tuple[str, ...], last: bool) -> None:
    torch.manual_seed(1)
    net = seasoned(Adapted())
    options: dict[str, Any] = {"input_shape": SHAPE, "train": (*train, "frozen:eval")}
    assert distance(net, 2, channels_last=last, **options) < TOLERANCE


def test_evaluation_mode_leaves_what_trains_alone() -> None:
    head = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 4))
    net = nn.Sequential(nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5)), head)
    graph, _ = captured(net, 3, channels_last=False, input_shape=(5,), train=("1.*", "frozen:eval"))
    masks = [t for t in graph.tensors if t.initial and t.initial.distribution == "mask"]
    assert [mask.shape for mask in masks] == [(3, 8)]
    assert net[1].training
    assert not net[0].training


def test_a_module_that_changes_later_is_captured_with_its_new_values() -> None:
    net = seasoned(NETS[0][1]())
    options: dict[str, Any] = {"channels_last": True, "input_shape": SHAPE, "train": EVAL}
    _, before = captured(net, 2, **options)
    with torch.no_grad():
        net.body[0].weight.mul_(2)
    graph, after = captured(net, 2, **options)
    changed = [name for name in _once(graph) if (before[name] != after[name]).any()]
    assert len(changed) == 1
    assert distance(net, 2, **options) < TOLERANCE


def test_a_steps_own_modes_and_patterns_count_too() -> None:
    net = seasoned(NETS[0][1]())
    step = Step(
        net, torch.zeros(2, *SHAPE), torch.zeros(2, dtype=torch.int64), F.cross_entropy, EVAL
    )
    far, graph = compared(step, 2, channels_last=True)
    assert far < TOLERANCE
    assert _once(graph)


def test_evaluation_mode_with_nothing_that_trains_is_refused() -> None:
    net = NETS[0][1]().requires_grad_(False)
    with pytest.raises(UsageError, match="depends on no parameter that trains"):
        captured(net, 2, channels_last=True, input_shape=SHAPE, train=("frozen:eval",))
