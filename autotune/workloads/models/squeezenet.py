"""SqueezeNet (Iandola et al., 2016), as in torchvision."""

from __future__ import annotations

from autotune.workloads.autodiff import Value
from autotune.workloads.builder import StepBuilder
from autotune.workloads.models.base import ModelInfo


def fire(builder: StepBuilder, place: str, x: Value, squeeze: int, expand: int) -> Value:
    """Appends a Fire module: a 1x1 convolution whose output feeds a 1x1 and a 3x3 convolution.

    Args:
        builder: The builder.
        place: The module's name, such as ``fire2``.
        x: [n, c, h, w].
        squeeze: Channels of the first convolution.
        expand: Channels of each of the two others.

    Returns:
        [n, 2 * expand, h, w].
    """
    narrow = builder.conv(f"{place}.squeeze", x, squeeze, 1, relu=True)
    pointwise = builder.conv(f"{place}.expand1x1", narrow, expand, 1, relu=True)
    spatial = builder.conv(f"{place}.expand3x3", narrow, expand, 3, pad=1, relu=True)
    return builder.concat(f"{place}.concat", pointwise, spatial)


def _squeezenet1_1(builder: StepBuilder, classes: int) -> Value:
    x = builder.conv("conv1", builder.input, 64, 3, stride=2, relu=True)
    x = builder.max_pool("pool1", x, 3, stride=2, ceil=True)
    x = fire(builder, "fire2", x, 16, 64)
    x = fire(builder, "fire3", x, 16, 64)
    x = builder.max_pool("pool3", x, 3, stride=2, ceil=True)
    x = fire(builder, "fire4", x, 32, 128)
    x = fire(builder, "fire5", x, 32, 128)
    x = builder.max_pool("pool5", x, 3, stride=2, ceil=True)
    x = fire(builder, "fire6", x, 48, 192)
    x = fire(builder, "fire7", x, 48, 192)
    x = fire(builder, "fire8", x, 64, 256)
    x = fire(builder, "fire9", x, 64, 256)
    return _classifier(builder, x, classes)


def _squeezenet1_0(builder: StepBuilder, classes: int) -> Value:
    x = builder.conv("conv1", builder.input, 96, 7, stride=2, relu=True)
    x = builder.max_pool("pool1", x, 3, stride=2, ceil=True)
    x = fire(builder, "fire2", x, 16, 64)
    x = fire(builder, "fire3", x, 16, 64)
    x = fire(builder, "fire4", x, 32, 128)
    x = builder.max_pool("pool4", x, 3, stride=2, ceil=True)
    x = fire(builder, "fire5", x, 32, 128)
    x = fire(builder, "fire6", x, 48, 192)
    x = fire(builder, "fire7", x, 48, 192)
    x = fire(builder, "fire8", x, 64, 256)
    x = builder.max_pool("pool8", x, 3, stride=2, ceil=True)
    x = fire(builder, "fire9", x, 64, 256)
    return _classifier(builder, x, classes)


def _classifier(builder: StepBuilder, x: Value, classes: int) -> Value:
    x = builder.dropout("dropout", x, 0.5)
    x = builder.conv("classifier", x, classes, 1, relu=True)
    return builder.global_avg_pool("pool10", x)


SQUEEZENET1_0 = ModelInfo(
    "squeezenet1_0", (3, 224, 224), "SqueezeNet 1.0 as in torchvision", _squeezenet1_0
)
SQUEEZENET1_1 = ModelInfo(
    "squeezenet1_1", (3, 224, 224), "SqueezeNet 1.1 as in torchvision", _squeezenet1_1
)
