"""LeNet-5 (LeCun et al., 1998) with ReLU and max pooling."""

from __future__ import annotations

from autotune.workloads.autodiff import Value
from autotune.workloads.builder import StepBuilder
from autotune.workloads.models.base import ModelInfo


def _lenet(builder: StepBuilder, classes: int) -> Value:
    x = builder.conv("conv1", builder.input, 6, 5, pad=2, relu=True)
    x = builder.max_pool("pool1", x, 2, stride=2)
    x = builder.conv("conv2", x, 16, 5, relu=True)
    x = builder.max_pool("pool2", x, 2, stride=2)
    x = builder.linear("fc1", builder.flatten(x), 120, relu=True)
    x = builder.linear("fc2", x, 84, relu=True)
    return builder.linear("fc3", x, classes)


LENET = ModelInfo("lenet", (1, 28, 28), "LeNet-5 with ReLU and max pooling", _lenet)
