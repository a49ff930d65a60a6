"""Nets for phones: MobileNetV2, MobileNetV3-small, EfficientNet-lite0, ShuffleNetV2.

autotune kernels --model examples/mobile_nets.py:mobilenet_v3_small --batch 8 --train last:2
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

INPUT = (3, 96, 96)


class Net(nn.Module):
    """Layers in a row, for images of 96x96 pixels."""

    input_shape = INPUT

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def conv_norm(
    inputs: int,
    outputs: int,
    size: int,
    stride: int = 1,
    groups: int = 1,
    act: nn.Module | None = None,
) -> nn.Sequential:
    """A convolution without bias, batch norm and perhaps an activation."""
    layers = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs),
    ]  # fmt: skip
    return nn.Sequential(*layers, *([] if act is None else [act]))


class Excite(nn.Module):
    """Squeeze and excitation (Hu et al., CVPR 2018)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(8, channels // 4 // 8 * 8)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), nn.ReLU(), nn.Conv2d(inner, channels, 1),
            nn.Hardsigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


class Inverted(nn.Module):
    """An inverted residual block (Sandler et al., CVPR 2018; Howard et al., ICCV 2019)."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        size: int,
        stride: int,
        act: nn.Module,
        *,
        excite: bool = False,
    ) -> None:
        super().__init__()
        self.same = stride == 1 and inputs == outputs
        layers = [conv_norm(inputs, hidden, 1, act=act)] if hidden != inputs else []
        layers.append(conv_norm(hidden, hidden, size, stride, hidden, act))
        if excite:
            layers.append(Excite(hidden))
        self.body = nn.Sequential(*layers, conv_norm(hidden, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.same else self.body(x)


def mobilenet_v3_small(classes: int = 10) -> nn.Module:
    """Eleven blocks, squeeze and excitation, hard swish (Howard et al., ICCV 2019)."""
    relu, swish = nn.ReLU(), nn.Hardswish()
    rows = (
        (16, 16, 3, 2, relu, True), (72, 24, 3, 2, relu, False), (88, 24, 3, 1, relu, False),
        (96, 40, 5, 2, swish, True), (240, 40, 5, 1, swish, True), (240, 40, 5, 1, swish, True),
        (120, 48, 5, 1, swish, True), (144, 48, 5, 1, swish, True), (288, 96, 5, 2, swish, True),
        (576, 96, 5, 1, swish, True), (576, 96, 5, 1, swish, True),
    )  # fmt: skip
    channels, layers = 16, [conv_norm(3, 16, 3, 2, act=swish)]
    for hidden, outputs, size, stride, act, excite in rows:
        layers.append(Inverted(channels, hidden, outputs, size, stride, act, excite=excite))
        channels = outputs
    return Net(
        *layers, conv_norm(96, 576, 1, act=swish), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(576, 1024),
        nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, classes),
    )  # fmt: skip


Row = tuple[int, int, int, int, int]
"""Of some blocks: hidden channels for each input channel, outputs, how many, filter size, stride of the first."""


def inverted_net(rows: tuple[Row, ...], head: int, classes: int) -> nn.Module:
    """Blocks by rows, with ReLU6, between a first convolution and a classifier."""
    act = nn.ReLU6()
    channels, layers = 32, [conv_norm(3, 32, 3, 2, act=act)]
    for factor, outputs, count, size, stride in rows:
        for number in range(count):
            step = stride if number == 0 else 1
            layers.append(Inverted(channels, channels * factor, outputs, size, step, act))
            channels = outputs
    return Net(
        *layers, conv_norm(channels, head, 1, act=act), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(head, classes),
    )  # fmt: skip


def mobilenet_v2(classes: int = 10) -> nn.Module:
    """Seventeen blocks (Sandler et al., CVPR 2018)."""
    rows = (
        (1, 16, 1, 3, 1), (6, 24, 2, 3, 2), (6, 32, 3, 3, 2), (6, 64, 4, 3, 2), (6, 96, 3, 3, 1), (6, 160, 3, 3, 2),
        (6, 320, 1, 3, 1),
    )  # fmt: skip
    return inverted_net(rows, 1280, classes)


def efficientnet_lite0(classes: int = 10) -> nn.Module:
    """EfficientNet-B0 without squeeze and excitation, with ReLU6 (Tan and Le, ICML 2019; the lite form)."""
    rows = (
        (1, 16, 1, 3, 1), (6, 24, 2, 3, 2), (6, 40, 2, 5, 2), (6, 80, 3, 3, 2), (6, 112, 3, 5, 1),
        (6, 192, 4, 5, 2), (6, 320, 1, 3, 1),
    )  # fmt: skip
    return inverted_net(rows, 1280, classes)


class Shuffled(nn.Module):
    """ShuffleNetV2's unit (Ma et al., ECCV 2018)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        self.stride, taken = stride, inputs if stride > 1 else half
        self.side: nn.Module = nn.Identity()
        if stride > 1:
            self.side = nn.Sequential(
                conv_norm(inputs, inputs, 3, stride, inputs),
                conv_norm(inputs, half, 1, act=nn.ReLU()),
            )
        self.body = nn.Sequential(
            conv_norm(taken, half, 1, act=nn.ReLU()), conv_norm(half, half, 3, stride, half),
            conv_norm(half, half, 1, act=nn.ReLU()),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        first, second = (x, x) if self.stride > 1 else x.chunk(2, 1)
        y = torch.cat([self.side(first), self.body(second)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet_v2(classes: int = 10) -> nn.Module:
    """ShuffleNetV2 1.0x."""
    channels, layers = 24, [conv_norm(3, 24, 3, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    for outputs, count in ((116, 4), (232, 8), (464, 4)):
        for number in range(count):
            layers.append(Shuffled(channels, outputs, 1 if number else 2))
            channels = outputs
    return Net(
        *layers,
        conv_norm(464, 1024, 1, act=nn.ReLU()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1024, classes),
    )
