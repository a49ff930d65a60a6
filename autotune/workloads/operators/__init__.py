"""The operators of a training step as plain data: shapes, roles, operands and cost."""

from autotune.workloads.operators.activation import Relu
from autotune.workloads.operators.base import ROLES, DType, Operator, Role, TensorSpec
from autotune.workloads.operators.convolution import Conv2d
from autotune.workloads.operators.dense import Matmul
from autotune.workloads.operators.elementwise import Add, Bias, Concat, Dropout
from autotune.workloads.operators.kernel import Kernel
from autotune.workloads.operators.loss import CrossEntropy
from autotune.workloads.operators.normalization import BatchNorm, BatchStats, RunningStats
from autotune.workloads.operators.optimizers import Adam, Momentum, RunningPower, Sgd
from autotune.workloads.operators.pooling import AvgPool2d, GlobalAvgPool, MaxPool2d
from autotune.workloads.operators.registry import OPERATORS, operator_from_spec

__all__ = [
    "OPERATORS",
    "ROLES",
    "Adam",
    "Add",
    "AvgPool2d",
    "BatchNorm",
    "BatchStats",
    "Bias",
    "Concat",
    "Conv2d",
    "CrossEntropy",
    "DType",
    "Dropout",
    "GlobalAvgPool",
    "Kernel",
    "Matmul",
    "MaxPool2d",
    "Momentum",
    "Operator",
    "Relu",
    "Role",
    "RunningPower",
    "RunningStats",
    "Sgd",
    "TensorSpec",
    "operator_from_spec",
]
