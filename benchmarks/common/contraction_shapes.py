"""Shapes of the contractions in public families of models, from which a benchmark draws.

The tables have the widths, strides and image sizes that the papers and the public implementations of each family
give. A layer has another batch, and an image another size, as users set them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType

from autotune.workloads import Conv2d, Matmul
from autotune.workloads.operators import Bmm, Role

Contraction = Conv2d | Matmul | Bmm
Draw = random.Random
_MOST_FLOPS = 4e9
"""Larger kernels would take seconds of each trial on two cores."""


def _conv(
    draw: Draw, size: int, c: int, k: int, r: int, stride: int = 1, groups: int = 1
) -> Conv2d:
    """A square convolution with "same" padding, of images that are a little smaller or larger at times."""
    size = max(r, round(size * draw.choice([1.0, 1.0, 0.75, 1.25])))
    pad = (r - 1) // 2
    return Conv2d(
        draw.choice([1, 2, 4, 8]),
        c,
        size,
        size,
        k,
        r,
        r,
        (stride, stride),
        (pad, pad),
        (1, 1),
        groups,
        True,
    )


def _one(draw: Draw, layers: list[Contraction]) -> Contraction:
    return draw.choice(layers)


def _resnet(draw: Draw) -> Contraction:
    """ResNet, Wide ResNet and ResNeXt (He et al.; Zagoruyko and Komodakis; Xie et al.)."""
    stage = draw.randrange(4)
    size, width = 56 >> stage, 64 << stage
    kind = draw.randrange(6)
    if kind == 0:
        return _conv(draw, size, width, width, 3)
    if kind == 1:
        return _conv(
            draw,
            2 * size if stage else size,
            width // 2 if stage else 64,
            width,
            3,
            2 if stage else 1,
        )
    if kind == 2:
        return _conv(draw, size, 4 * width, width, 1)
    if kind == 3:
        return _conv(draw, size, width, 4 * width, 1)
    if kind == 4:
        return _conv(draw, 2 * size, 2 * width, 4 * width, 1, 2)
    return _conv(draw, size, 2 * width, 2 * width, 3, draw.choice([1, 2]), 32)


def _vgg(draw: Draw) -> Contraction:
    """VGG, AlexNet and ZFNet."""
    return _one(draw, [
        _conv(draw, 56, 128, 256, 3), _conv(draw, 28, 256, 512, 3), _conv(draw, 14, 512, 512, 3),
        _conv(draw, 112, 64, 64, 3), _conv(draw, 27, 64, 192, 5), _conv(draw, 13, 192, 384, 3),
        Matmul(draw.choice([1, 4, 8, 32]), 4096, 4096), _conv(draw, 64, 3, 64, 11, 4),
    ])  # fmt: skip


def _inception(draw: Draw) -> Contraction:
    """GoogLeNet and Inception v3, with their one-axis convolutions."""
    c, k = (
        draw.choice([192, 256, 288, 480, 512, 768, 832]),
        draw.choice([16, 32, 48, 64, 96, 128, 192, 224]),
    )
    size = draw.choice([35, 28, 17, 14, 8, 7])
    kind = draw.randrange(4)
    if kind == 0:
        return _conv(draw, size, c, k, 1)
    if kind == 1:
        return _conv(
            draw, size, k, draw.choice([96, 128, 208, 256, 320]), 3, draw.choice([1, 1, 2])
        )
    if kind == 2:
        return _conv(draw, size, 16 * draw.choice([1, 2, 3]), draw.choice([32, 64, 128]), 5)
    taps, across = draw.choice([((1, 7), (0, 3)), ((7, 1), (3, 0)), ((1, 3), (0, 1))])
    return Conv2d(draw.choice([1, 2, 4]), 128, 17, 17, 192, *taps, (1, 1), across, (1, 1), 1, True)


def _densenet(draw: Draw) -> Contraction:
    """DenseNet: many widths that are multiples of the growth rate."""
    size, growth = draw.choice([56, 28, 14, 7]), draw.choice([12, 24, 32, 48])
    c = 64 + growth * draw.randrange(1, 24)
    return _one(draw, [
        _conv(draw, size, c, 4 * growth, 1), _conv(draw, size, 4 * growth, growth, 3),
        _conv(draw, size, c, c // 2, 1),
    ])  # fmt: skip


def _mobile(draw: Draw) -> Contraction:
    """MobileNet v1 to v3, MNASNet and EfficientNet: depthwise and 1x1."""
    c = draw.choice([16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 160, 192, 240, 320])
    size, wide = draw.choice([112, 56, 28, 14, 7]), c * draw.choice([3, 4, 6])
    kind = draw.randrange(4)
    if kind == 0:
        return _conv(draw, size, c, wide, 1)
    if kind == 1:
        return _conv(draw, size, wide, draw.choice([c, c + 8, c + 16]), 1)
    if kind == 2:
        return _conv(draw, size, wide, wide, draw.choice([3, 5]), draw.choice([1, 2]), wide)
    return _conv(draw, draw.choice([224, 192, 160]), 3, draw.choice([16, 32, 40]), 3, 2)


def _shuffle(draw: Draw) -> Contraction:
    """ShuffleNet v2, SqueezeNet and GhostNet."""
    c = draw.choice([24, 58, 116, 122, 176, 232, 244, 352, 488])
    size = draw.choice([56, 28, 14, 7])
    return _one(draw, [
        _conv(draw, size, c, c, 1), _conv(draw, size, c, c, 3, draw.choice([1, 2]), c),
        _conv(draw, size, 16 * draw.randrange(1, 5), 64 * draw.randrange(1, 5), draw.choice([1, 3])),
    ])  # fmt: skip


def _regnet(draw: Draw) -> Contraction:
    """RegNet: groups of 8 to 64 channels."""
    group = draw.choice([8, 16, 24, 48, 64])
    c = group * draw.choice([2, 4, 7, 9, 14])
    size = draw.choice([56, 28, 14, 7])
    return _one(draw, [
        _conv(draw, size, c, c, 3, draw.choice([1, 2]), c // group), _conv(draw, size, c, c, 1),
        _conv(draw, 2 * size, c, 2 * c, 1, 2),
    ])  # fmt: skip


def _transformer(draw: Draw) -> Contraction:
    """ViT, DeiT, Swin and ConvNeXt: linear layers, attention, large depthwise filters."""
    width, tokens = (
        draw.choice([96, 128, 192, 256, 384, 512, 768]),
        draw.choice([49, 64, 128, 197, 196]),
    )
    heads = draw.choice([3, 4, 6, 8, 12])
    batch = draw.choice([1, 2, 4])
    return _one(draw, [
        Matmul(batch * tokens, width, draw.choice([width, 3 * width, 4 * width])),
        Matmul(batch * tokens, 4 * width, width),
        Bmm(batch * heads, tokens, tokens, draw.choice([32, 64])),
        Bmm(batch * heads, tokens, draw.choice([32, 64]), tokens),
        _conv(draw, draw.choice([56, 28, 14]), width, width, 7, 1, width),
        Conv2d(batch, 3, 224, 224, width, 16, 16, (16, 16), (0, 0), (1, 1), 1, True),
    ])  # fmt: skip


def _segmentation(draw: Draw) -> Contraction:
    """U-Net, FCN and DeepLab: transposed convolutions (as data gradients), dilation, large images."""
    size, c = draw.choice([(128, 32), (64, 64), (32, 128), (16, 256)])
    dilation = draw.choice([2, 4, 6])
    return _one(draw, [
        _conv(draw, size, c, c, 3), _conv(draw, size, 2 * c, c, 3),
        Conv2d(2, c, size, size, 2 * c, 2, 2, (2, 2), (0, 0), (1, 1), 1, True),
        Conv2d(2, c, size, size, 2 * c, 4, 4, (2, 2), (1, 1), (1, 1), 1, True),
        Conv2d(1, 256, 28, 28, 128, 3, 3, (1, 1), (dilation,) * 2, (dilation,) * 2, 1, True),
    ])  # fmt: skip


def _sequence(draw: Draw) -> Contraction:
    """Recurrent cells, temporal convolutions, keyword spotting and sensors."""
    hidden, taps = draw.choice([32, 64, 100, 128, 256]), draw.choice([3, 5, 7, 9])
    return _one(draw, [
        Matmul(draw.choice([1, 4, 16]), draw.choice([3, 4]) * hidden, hidden),
        Matmul(draw.choice([32, 128, 512]), 4 * hidden, draw.choice([16, 40, hidden])),
        Conv2d(4, hidden, 1, draw.choice([128, 250, 1000]), hidden, 1, taps, (1, draw.choice([1, 2])),
                       (0, taps // 2), (1, 1), 1, True),
    ])  # fmt: skip


FAMILIES: Mapping[str, Callable[[Draw], Contraction]] = MappingProxyType(
    {
        "resnet": _resnet,
        "vgg": _vgg,
        "inception": _inception,
        "densenet": _densenet,
        "mobile": _mobile,
        "shuffle": _shuffle,
        "regnet": _regnet,
        "transformer": _transformer,
        "segmentation": _segmentation,
        "sequence": _sequence,
    }
)


def drawn(count: int, seed: int) -> list[tuple[str, Contraction, Role]]:
    """Draws distinct contractions with a role each, as many of each family.

    Args:
        count: How many.
        seed: Seed of the draws.

    Returns:
        Family, operator and role.
    """
    draw = random.Random(seed)
    found: dict[tuple[Contraction, Role], str] = {}
    while len(found) < count:
        family = list(FAMILIES)[len(found) % len(FAMILIES)]
        operator = FAMILIES[family](draw)
        role = draw.choice(operator.usual_roles())
        if operator.flops(role) <= _MOST_FLOPS:
            found.setdefault((operator, role), family)
    return [(family, operator, role) for (operator, role), family in found.items()]
