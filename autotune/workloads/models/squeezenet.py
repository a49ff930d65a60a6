"""SqueezeNet (Iandola et al., 2016), as in torchvision."""

from __future__ import annotations

from autotune.workloads.autodiff import Value
from autotune.workloads.builder import StepBuilder
from autotune.workloads.models.base import ModelInfo

# Channels of each Fire module, fire2 to fire9: of the squeeze, and of each of the two expanding convolutions.
_FIRES = (
    (16, 64),
    (16, 64),
    (32, 128),
    (32, 128),
    (48, 192),
    (48, 192),
    (64, 256),
    (64, 256),
)


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


def _squeezenet(
    builder: StepBuilder, classes: int, *, channels: int, kernel: int, pooled: tuple[int, int]
) -> Value:
    """Appends a variant, given its first convolution and the Fire modules that are followed by pooling."""
    x = builder.conv("conv1", builder.input, channels, kernel, stride=2, relu=True)
    x = builder.max_pool("pool1", x, 3, stride=2, ceil=True)
    for number, (squeeze, expand) in enumerate(_FIRES, start=2):
        x = fire(builder, f"fire{number}", x, squeeze, expand)
        if number in pooled:
            x = builder.max_pool(f"pool{number}", x, 3, stride=2, ceil=True)
    x = builder.dropout("dropout", x, 0.5)
    x = builder.conv("classifier", x, classes, 1, relu=True)
    return builder.global_avg_pool("pool10", x)


def _squeezenet1_0(builder: StepBuilder, classes: int) -> Value:
    return _squeezenet(builder, classes, channels=96, kernel=7, pooled=(4, 8))


def _squeezenet1_1(builder: StepBuilder, classes: int) -> Value:
    return _squeezenet(builder, classes, channels=64, kernel=3, pooled=(3, 5))


SQUEEZENET1_0 = ModelInfo(
    "squeezenet1_0", (3, 224, 224), "SqueezeNet 1.0 as in torchvision", _squeezenet1_0
)
SQUEEZENET1_1 = ModelInfo(
    "squeezenet1_1", (3, 224, 224), "SqueezeNet 1.1 as in torchvision", _squeezenet1_1
)
