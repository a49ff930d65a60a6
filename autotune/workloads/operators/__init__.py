"""The operators of a training step as plain data: shapes, roles, operands and cost."""

from autotune.workloads.operators.base import ROLES, DType, Operator, Role, TensorSpec
from autotune.workloads.operators.convolution import Conv2d
from autotune.workloads.operators.dense import Matmul
from autotune.workloads.operators.elementwise import Add, Bias, Concat, Dropout, Sgd
from autotune.workloads.operators.kernel import Kernel
from autotune.workloads.operators.loss import CrossEntropy
from autotune.workloads.operators.normalization import BatchNorm, BatchStats, RunningStats
from autotune.workloads.operators.pooling import GlobalAvgPool, MaxPool2d
from autotune.workloads.operators.registry import OPERATORS, operator_from_spec

__all__ = [
    "OPERATORS",
    "ROLES",
    "Add",
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
    "Operator",
    "Role",
    "RunningStats",
    "Sgd",
    "TensorSpec",
    "operator_from_spec",
]
