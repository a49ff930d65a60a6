"""Classifiers of 32x32 images, the board models of the TX2 paper: DenseNet-40-12, ResNet-50, VGG-16 and others.

autotune kernels --model examples/cifar_nets.py:densenet_40_12 --batch 8
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

INPUT = (3, 32, 32)


class Net(nn.Module):
    """Layers in a row, for images of 32x32 pixels."""

    input_shape = INPUT

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def conv_norm(
    inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """A convolution without bias, batch norm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def head(channels: int, classes: int) -> nn.Sequential:
    """Mean over pixels, and a fully connected layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Dense(nn.Module):
    """A layer of a dense block: its output joins its input (Huang et al., CVPR 2017)."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(torch.relu(self.norm(x)))], 1)


def densenet_40_12(classes: int = 10) -> nn.Module:
    """40 layers, growth 12, no bottlenecks."""
    channels, layers = 16, [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
    for block in range(3):
        for _ in range(12):
            layers.append(Dense(channels, 12))
            channels += 12
        if block < 2:
            layers += [
                nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels, 1, bias=False), nn.AvgPool2d(2),
            ]  # fmt: skip
    return Net(*layers, nn.BatchNorm2d(channels), nn.ReLU(), head(channels, classes))


class Bottleneck(nn.Module):
    """A residual block of three convolutions, or of two (He et al., CVPR 2016)."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int, *, deep: bool) -> None:
        super().__init__()
        first = conv_norm(inputs, width, 1) if deep else nn.Identity()
        middle = conv_norm(width if deep else inputs, width, 3, stride)
        last = nn.Conv2d(width, outputs, 1 if deep else 3, padding=0 if deep else 1, bias=False)
        self.body = nn.Sequential(first, middle, last, nn.BatchNorm2d(outputs))
        self.side: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.side = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.side(x))


def resnet(depths: tuple[int, ...], classes: int, *, deep: bool) -> nn.Module:
    """A residual net with the stem of the CIFAR form: 3x3, stride 1, no pooling."""
    channels, layers = 64, [conv_norm(3, 64, 3)]
    for stage, depth in enumerate(depths):
        width = 64 << stage
        outputs = width * 4 if deep else width
        for number in range(depth):
            stride = 2 if stage and not number else 1
            layers.append(Bottleneck(channels, width, outputs, stride, deep=deep))
            channels = outputs
    return Net(*layers, head(channels, classes))


def resnet_50(classes: int = 10) -> nn.Module:
    """50 layers."""
    return resnet((3, 4, 6, 3), classes, deep=True)


def resnet_18(classes: int = 10) -> nn.Module:
    """18 layers."""
    return resnet((2, 2, 2, 2), classes, deep=False)


class Fire(nn.Module):
    """SqueezeNet's module (Iandola et al., 2016)."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.small, self.large = (
            nn.Conv2d(squeezed, expanded, 1),
            nn.Conv2d(squeezed, expanded, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.small(y)), torch.relu(self.large(y))], 1)


def squeezenet(classes: int = 10) -> nn.Module:
    """SqueezeNet with a stem for small images."""
    return Net(
        nn.Conv2d(3, 96, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        Fire(96, 16, 64), Fire(128, 16, 64), Fire(128, 32, 128), nn.MaxPool2d(2),
        Fire(256, 32, 128), Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), nn.MaxPool2d(2),
        Fire(512, 64, 256), nn.Dropout(0.5), nn.Conv2d(512, classes, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def vgg_16(classes: int = 10) -> nn.Module:
    """13 convolutions and three fully connected layers (Simonyan and Zisserman, 2015)."""
    channels, layers = 3, []
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers.append(conv_norm(channels, width, 3))
            channels = width
        layers.append(nn.MaxPool2d(2))
    return Net(
        *layers, nn.Flatten(), nn.Linear(512, 4096), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4096, 4096), nn.ReLU(),
        nn.Dropout(0.5), nn.Linear(4096, classes),
    )  # fmt: skip


def separable(inputs: int, outputs: int) -> nn.Sequential:
    """A depthwise and a pointwise convolution, and batch norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Separable(nn.Module):
    """A residual block of separable convolutions (Chollet, CVPR 2017)."""

    def __init__(self, inputs: int, widths: tuple[int, ...], stride: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in widths:
            layers += [
                nn.ReLU(),
                separable(inputs if len(layers) == 0 else layers[-1][1].out_channels, width),
            ]
        if stride > 1:
            layers.append(nn.MaxPool2d(3, stride, 1))
        self.body = nn.Sequential(*layers)
        self.side: nn.Module = nn.Identity()
        if stride > 1 or inputs != widths[-1]:
            self.side = nn.Sequential(
                nn.Conv2d(inputs, widths[-1], 1, stride, bias=False), nn.BatchNorm2d(widths[-1])
            )

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.side(x)


def xception(classes: int = 10) -> nn.Module:
    """36 convolutions, most of them separable."""
    middle = [Separable(728, (728, 728, 728), 1) for _ in range(8)]
    return Net(
        conv_norm(3, 32, 3), conv_norm(32, 64, 3), Separable(64, (128, 128), 2), Separable(128, (256, 256), 2),
        Separable(256, (728, 728), 1), *middle, Separable(728, (728, 1024), 2),
        separable(1024, 1536), nn.ReLU(), separable(1536, 2048), nn.ReLU(), head(2048, classes),
    )  # fmt: skip


class Inception(nn.Module):
    """Four branches (Szegedy et al., CVPR 2015)."""

    def __init__(
        self, inputs: int, one: int, three: tuple[int, int], five: tuple[int, int], pool: int
    ) -> None:
        super().__init__()
        self.one = conv_norm(inputs, one, 1)
        self.three = nn.Sequential(conv_norm(inputs, three[0], 1), conv_norm(*three, 3))
        self.five = nn.Sequential(conv_norm(inputs, five[0], 1), conv_norm(*five, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_norm(inputs, pool, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


def inception_v1(classes: int = 10) -> nn.Module:
    """GoogLeNet's modules after a stem for small images."""
    return Net(
        conv_norm(3, 192, 3),
        Inception(192, 64, (96, 128), (16, 32), 32), Inception(256, 128, (128, 192), (32, 96), 64),
        nn.MaxPool2d(3, 2, 1),
        Inception(480, 192, (96, 208), (16, 48), 64), Inception(512, 160, (112, 224), (24, 64), 64),
        Inception(512, 128, (128, 256), (24, 64), 64), Inception(512, 112, (144, 288), (32, 64), 64),
        Inception(528, 256, (160, 320), (32, 128), 128), nn.MaxPool2d(3, 2, 1),
        Inception(832, 256, (160, 320), (32, 128), 128), Inception(832, 384, (192, 384), (48, 128), 128),
        nn.Dropout(0.4), head(1024, classes),
    )  # fmt: skip


def alexnet(classes: int = 10) -> nn.Module:
    """Five convolutions and three fully connected layers (Krizhevsky et al., 2012), for small images."""
    return Net(
        nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 192, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(), nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.5),
        nn.Linear(1024, 4096), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, classes),
    )  # fmt: skip
