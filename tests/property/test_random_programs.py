"""Random PyTorch programs: a captured step has PyTorch's loss and gradients, whatever the program is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from against_pytorch import distance

from autotune.errors import UsageError
from autotune.workloads import Step

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

COUNT, EXHAUSTIVE = 1000, 10_000
TOLERANCE = 1e-5
SHAPES = (
    (2, 6), (3, 5, 4), (2, 4, 7, 6), (2, 3, 8, 8), (1, 5), (2, 1, 6), (1, 3, 1), (2, 1, 6, 5),
    (1, 4, 1, 7), (2, 3, 6, 1),
)  # fmt: skip

Draw = random.Random
Layer = Callable[[Draw, tuple[int, ...], nn.ParameterList], Callable[[Any], Any] | None]
"""Draws an operation on a tensor of a shape; None where there is none for that shape."""


def parameter(own: nn.ParameterList, *sizes: int) -> int:
    """Adds a parameter; returns its place."""
    own.append(nn.Parameter(torch.randn(*sizes) * 0.5 + 0.3))
    return len(own) - 1


def element_wise(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    function = draw.choice([
        torch.tanh, torch.sigmoid, F.silu, F.gelu, F.relu, F.softplus, F.hardswish, F.elu, torch.sin, torch.erf,
        F.leaky_relu, F.mish, F.logsigmoid, torch.abs, torch.square, lambda x: torch.exp(-x.abs()),
        lambda x: torch.rsqrt(x.square() + 1), lambda x: x.clamp(-0.5, 0.8), lambda x: torch.log1p(x.square()),
    ])  # fmt: skip
    return lambda x: function(x)


def broadcast(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    sizes = [n if draw.random() < 0.5 else 1 for n in shape[draw.randrange(len(shape)) :]]
    at = parameter(own, *sizes)
    function = draw.choice(
        [torch.add, torch.mul, torch.sub, torch.maximum, lambda a, b: a / (b.square() + 1)]
    )
    return lambda x: function(x, own[at])


def turned(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    axes = list(range(1, len(shape)))
    draw.shuffle(axes)
    return lambda x: x.permute(0, *axes)


def cut(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    axis = draw.randrange(1, len(shape))
    if shape[axis] < 3:
        return None
    start, step = draw.randrange(2), draw.choice([1, 1, 2])
    where = (slice(None),) * axis + (slice(start, None, step),)
    return lambda x: x[where]


def joined(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    axis = draw.randrange(1, len(shape))
    if math.prod(shape) > 2000:
        return None
    return lambda x: torch.cat([x, x.flip(axis) * 0.5], axis)


def flattened(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    return (lambda x: x.flatten(1)) if len(shape) > 2 else None


def unflattened(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    last = shape[-1]
    parts = [d for d in range(2, last) if last % d == 0]
    if not parts or len(shape) > 3:
        return None
    part = draw.choice(parts)
    return lambda x: x.unflatten(-1, (part, last // part))


def padded(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    if math.prod(shape) > 2000:
        return None
    margins = tuple(draw.randrange(-1, 3) if shape[-1] > 2 else draw.randrange(2) for _ in range(2))
    return lambda x: F.pad(x, margins, value=0.25)


def reduced(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    axis, keep = draw.randrange(1, len(shape)), draw.random() < 0.6 or len(shape) < 3
    function = draw.choice([torch.sum, torch.mean, torch.amax, torch.logsumexp, torch.std])
    if function is torch.std and shape[axis] < 2:
        return None
    return lambda x: x - function(x, axis, keepdim=True) if keep else function(x, axis)


def weighted(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    at = parameter(own, draw.randrange(1, 8), shape[-1])
    return lambda x: F.linear(x, own[at])


def attended(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    if len(shape) != 3:
        return None
    return lambda x: F.softmax(x @ x.transpose(1, 2), -1) @ x


def convolved(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    if len(shape) not in (3, 4) or min(shape[2:]) < 3:
        return None
    pixels, channels = len(shape) - 2, shape[1]
    groups = draw.choice([g for g in (1, 2, channels) if channels % g == 0])
    transposed = draw.random() < 0.3 and math.prod(shape) < 1500
    size = [draw.randrange(1, 4) for _ in range(pixels)]
    stride, dilation = draw.randrange(1, 3), draw.randrange(1, 2 if transposed else 3)
    if any((one - 1) * dilation + 1 > n + 2 for one, n in zip(size, shape[2:], strict=True)):
        return None
    out = groups * draw.randrange(1, 3)
    if transposed:
        at = parameter(own, channels, out // groups, *size)
        function = F.conv_transpose1d if pixels == 1 else F.conv_transpose2d
        return lambda x: function(x, own[at], stride=stride, groups=groups)
    at = parameter(own, out, channels // groups, *size)
    function = F.conv1d if pixels == 1 else F.conv2d
    return lambda x: function(x, own[at], None, stride, 1, dilation, groups)


def pooled(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    if len(shape) != 4 or min(shape[2:]) < 4:
        return None
    ceil = draw.random() < 0.5
    return draw.choice([
        lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=ceil),
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=ceil, count_include_pad=False),
        lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
        lambda x: F.interpolate(x, size=(5, 6), mode="bilinear"),
        lambda x: F.interpolate(x, size=(5, 6), mode="nearest"),
    ])  # fmt: skip


def normalised(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    if shape[-1] < 2:
        return None
    choices: list[Callable[[Any], Any]] = [
        lambda x: F.layer_norm(x, (shape[-1],)), lambda x: F.rms_norm(x, (shape[-1],), eps=1e-5),
    ]  # fmt: skip
    if len(shape) == 4:
        choices.append(lambda x: F.batch_norm(x, None, None, training=True))
        choices.append(lambda x: F.group_norm(x, 1))
    return draw.choice(choices)


def looked_up(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    """Rows of a table, which integers of the data name."""
    rows, width = draw.choice([7, 60, 400]), shape[-1]
    at = parameter(own, rows, width)
    places = draw.choice([
        lambda ids: ids, lambda ids: ids * 3 % rows, lambda ids: (ids.ne(2).int().cumsum(1) * ids + 5) % rows,
        lambda ids: ids - 7, lambda ids: (ids - ids.flip(1)).abs(),
    ])  # fmt: skip
    function = draw.choice(
        [lambda table, ids: table[ids], lambda table, ids: table[ids, :] * table[0]]
    )
    wide = (shape[0], *[1] * (len(shape) - 2), width)
    return lambda x: x * function(own[at], places(own.ids)).mean(1).view(wide) + x


def gathered(draw: Draw, shape: tuple[int, ...], own: nn.ParameterList) -> Any:
    """Elements along the last axis, which integers of the data name, or sums of such elements."""
    last, between = shape[-1], shape[1:-1]
    if math.prod(shape) > 2000:
        return None

    def names(count: int) -> Any:
        wide = own.ids[:, :count].view(shape[0], *[1] * len(between), -1)
        return (wide % last).expand(shape[0], *between, -1)

    size = draw.randrange(1, 9)
    return draw.choice([
        lambda x: x.gather(-1, names(5)),
        lambda x: torch.zeros_like(x).scatter_add(-1, names(min(5, last)), x[..., : min(5, last)]),
        lambda x: x.cumsum(-1) / last,
        lambda x: x.roll(size, -1),
        lambda x: x.index_select(-1, torch.arange(size) % last),
        lambda x: x.index_add(-1, torch.tensor([0]), x[..., -1:]),
    ])  # fmt: skip


LAYERS: tuple[Layer, ...] = (
    element_wise, element_wise, broadcast, broadcast, turned, cut, joined, flattened, unflattened, padded, reduced,
    weighted, attended, convolved, convolved, pooled, normalised, looked_up, gathered,
)  # fmt: skip


class Program(nn.Module):
    """A chain of random operations, some of which also read what an earlier one made."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.own = nn.ParameterList()
        self.shape = draw.choice(SHAPES)
        self.own.ids = self.ids = torch.randint(0, 7, (self.shape[0], 5))
        self.steps: list[tuple[Callable[[Any], Any], int]] = []
        self.own.append(nn.Parameter(torch.randn(*self.shape[1:])))
        values = [torch.randn(self.shape)]
        for _ in range(draw.randrange(2, 7)):
            layer = draw.choice(LAYERS)(draw, tuple(values[-1].shape), self.own)
            if layer is None:
                continue
            made = layer(values[-1].detach())
            if made.numel() == 0 or not made.isfinite().all():
                continue
            same = [at for at, one in enumerate(values) if one.shape == made.shape]
            again = draw.choice(same) if same and draw.random() < 0.4 else -1
            self.steps.append((layer, again))
            values.append(made)

    def forward(self, x: Any, ids: Any) -> Any:
        self.own.ids = ids
        values = [x + self.own[0]]
        for layer, again in self.steps:
            made = layer(values[-1])
            values.append(made + 0.5 * values[again] if again >= 0 else made)
        return values[-1].square().mean() + values[-1].mean()


def check(seed: int, layouts: Iterable[bool]) -> None:
    torch.manual_seed(seed)
    program = Program(seed)
    x = torch.randn(program.shape)
    step = Step(program, (x, program.ids))
    program(*step.inputs).backward()
    learns = any(one.grad is not None and one.grad.any() for one in program.parameters())
    program.zero_grad()
    for channels_last in layouts:
        try:
            far = distance(step, program.shape[0], channels_last=channels_last)
        except UsageError as refused:  # Nothing reaches through it: a ReLU of negative values, say.
            assert "the gradient of every parameter is 0" in refused.message
            assert not learns
        else:
            assert far < TOLERANCE, (seed, channels_last, program.steps)


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 10))]
)
def test_a_random_programs_step_is_pytorchs(part: int, exhaustive: bool) -> None:
    count = (EXHAUSTIVE if exhaustive else COUNT) // 10
    for seed in range(part * count, (part + 1) * count):
        check(seed, (False, True) if exhaustive else (seed % 2 == 1,))
