"""GoogLeNet (Szegedy et al., CVPR 2015), as in torchvision: with batch norm, without the auxiliary classifiers."""

from __future__ import annotations

from autotune.workloads.autodiff import Value
from autotune.workloads.builder import StepBuilder
from autotune.workloads.models.base import ModelInfo

# Channels of an Inception module: 1x1; 3x3 reduced and output; the second 3x3 reduced and output; pool projection.
Channels = tuple[int, int, int, int, int, int]
_EPSILON_MILLIONTHS = 1000


def _convolve(
    builder: StepBuilder, place: str, x: Value, channels: int, kernel: int, *, stride: int = 1
) -> Value:
    """Appends a convolution without bias (same size at stride 1), then batch norm and ReLU."""
    x = builder.conv(place, x, channels, kernel, stride=stride, pad=kernel // 2, bias=False)
    return builder.batch_norm(f"{place}.norm", x, epsilon_millionths=_EPSILON_MILLIONTHS, relu=True)


def _inception(builder: StepBuilder, place: str, x: Value, channels: Channels) -> Value:
    """Appends four branches and joins them. The paper's 5x5 branch has 3x3 filters, as in torchvision."""
    pointwise, reduced3, out3, reduced5, out5, projected = channels
    first = _convolve(builder, f"{place}.branch1", x, pointwise, 1)
    second = _convolve(builder, f"{place}.branch2.reduce", x, reduced3, 1)
    second = _convolve(builder, f"{place}.branch2", second, out3, 3)
    third = _convolve(builder, f"{place}.branch3.reduce", x, reduced5, 1)
    third = _convolve(builder, f"{place}.branch3", third, out5, 3)
    fourth = builder.max_pool(f"{place}.pool", x, 3, stride=1, pad=1, ceil=True)
    fourth = _convolve(builder, f"{place}.branch4", fourth, projected, 1)
    return builder.concat(f"{place}.concat", first, second, third, fourth)


def _googlenet(builder: StepBuilder, classes: int) -> Value:
    x = _convolve(builder, "conv1", builder.input, 64, 7, stride=2)
    x = builder.max_pool("pool1", x, 3, stride=2, ceil=True)
    x = _convolve(builder, "conv2", x, 64, 1)
    x = _convolve(builder, "conv3", x, 192, 3)
    x = builder.max_pool("pool2", x, 3, stride=2, ceil=True)
    x = _inception(builder, "inception3a", x, (64, 96, 128, 16, 32, 32))
    x = _inception(builder, "inception3b", x, (128, 128, 192, 32, 96, 64))
    x = builder.max_pool("pool3", x, 3, stride=2, ceil=True)
    x = _inception(builder, "inception4a", x, (192, 96, 208, 16, 48, 64))
    x = _inception(builder, "inception4b", x, (160, 112, 224, 24, 64, 64))
    x = _inception(builder, "inception4c", x, (128, 128, 256, 24, 64, 64))
    x = _inception(builder, "inception4d", x, (112, 144, 288, 32, 64, 64))
    x = _inception(builder, "inception4e", x, (256, 160, 320, 32, 128, 128))
    x = builder.max_pool("pool4", x, 2, stride=2, ceil=True)
    x = _inception(builder, "inception5a", x, (256, 160, 320, 32, 128, 128))
    x = _inception(builder, "inception5b", x, (384, 192, 384, 48, 128, 128))
    x = builder.global_avg_pool("pool5", x)
    x = builder.dropout("dropout", x, 0.2)
    return builder.linear("classifier", x, classes)


GOOGLENET = ModelInfo(
    "googlenet",
    (3, 224, 224),
    "GoogLeNet as in torchvision, without auxiliary classifiers",
    _googlenet,
)
