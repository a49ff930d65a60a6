"""MobileNetV2 (Sandler et al., CVPR 2018), as in torchvision."""

from __future__ import annotations

from autotune.workloads.autodiff import Value
from autotune.workloads.builder import StepBuilder
from autotune.workloads.models.base import ModelInfo

# Expansion, channels, repeats and first stride of each group of blocks: table 2 of the paper.
_BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _convolve(
    builder: StepBuilder,
    place: str,
    x: Value,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    relu6: bool = True,
) -> Value:
    """Appends a convolution without bias (same size at stride 1), then batch norm and ReLU6."""
    x = builder.conv(
        place, x, channels, kernel, stride=stride, pad=kernel // 2, groups=groups, bias=False
    )
    return builder.batch_norm(f"{place}.norm", x, relu6=relu6)


def _inverted_residual(
    builder: StepBuilder, place: str, x: Value, expansion: int, channels: int, stride: int
) -> Value:
    """Appends 1x1 expansion, 3x3 depthwise filters and 1x1 projection; adds its input if the shapes agree."""
    narrow, wide = x.shape[1], x.shape[1] * expansion
    y = x if expansion == 1 else _convolve(builder, f"{place}.expand", x, wide, 1)
    y = _convolve(builder, f"{place}.depthwise", y, wide, 3, stride=stride, groups=wide)
    y = _convolve(builder, f"{place}.project", y, channels, 1, relu6=False)
    return builder.add(f"{place}.sum", x, y) if (stride, narrow) == (1, channels) else y


def _mobilenet_v2(builder: StepBuilder, classes: int) -> Value:
    x = _convolve(builder, "stem", builder.input, 32, 3, stride=2)
    number = 0
    for expansion, channels, repeats, first_stride in _BLOCKS:
        for repeat in range(repeats):
            number += 1
            stride = first_stride if repeat == 0 else 1
            x = _inverted_residual(builder, f"block{number}", x, expansion, channels, stride)
    x = _convolve(builder, "head", x, 1280, 1)
    x = builder.global_avg_pool("pool", x)
    x = builder.dropout("dropout", x, 0.2)
    return builder.linear("classifier", x, classes)


MOBILENET_V2 = ModelInfo(
    "mobilenet_v2", (3, 224, 224), "MobileNetV2 as in torchvision", _mobilenet_v2
)
