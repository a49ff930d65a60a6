"""AlexNet ("One weird trick", Krizhevsky, 2014), as in torchvision."""

from __future__ import annotations

from autotune.workloads.autodiff import Value
from autotune.workloads.builder import StepBuilder
from autotune.workloads.models.base import ModelInfo


def _alexnet(builder: StepBuilder, classes: int) -> Value:
    x = builder.conv("conv1", builder.input, 64, 11, stride=4, pad=2, relu=True)
    x = builder.max_pool("pool1", x, 3, stride=2)
    x = builder.conv("conv2", x, 192, 5, pad=2, relu=True)
    x = builder.max_pool("pool2", x, 3, stride=2)
    x = builder.conv("conv3", x, 384, 3, pad=1, relu=True)
    x = builder.conv("conv4", x, 256, 3, pad=1, relu=True)
    x = builder.conv("conv5", x, 256, 3, pad=1, relu=True)
    x = builder.max_pool("pool5", x, 3, stride=2)
    x = builder.dropout("dropout6", builder.flatten(x), 0.5)
    x = builder.linear("fc6", x, 4096, relu=True)
    x = builder.dropout("dropout7", x, 0.5)
    x = builder.linear("fc7", x, 4096, relu=True)
    return builder.linear("fc8", x, classes)


ALEXNET = ModelInfo("alexnet", (3, 224, 224), "AlexNet as in torchvision", _alexnet)
