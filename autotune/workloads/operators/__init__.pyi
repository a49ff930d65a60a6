from .activation import Relu
from .attention import Attention
from .base import LARGEST_TENSOR, ROLES, DType, Operator, Role, TensorSpec
from .batched import Bmm
from .convolution import Conv2d
from .dense import Matmul
from .described import Expression
from .elementwise import Add, Bias, Concat, Dropout
from .kernel import Kernel
from .loss import CrossEntropy
from .normalization import BatchNorm, BatchStats, RunningStats
from .optimizers import Adam, Momentum, RunningPower, Sgd
from .own import MOST_AXES, OWN_NAME, OwnKernel
from .pooling import AvgPool2d, GlobalAvgPool, MaxPool2d
from .registry import OPERATORS, operator_from_spec, spelled

__all__ = [
    "Adam",
    "Add",
    "Attention",
    "AvgPool2d",
    "BatchNorm",
    "BatchStats",
    "Bias",
    "Bmm",
    "Concat",
    "Conv2d",
    "CrossEntropy",
    "Dropout",
    "DType",
    "Expression",
    "GlobalAvgPool",
    "Kernel",
    "LARGEST_TENSOR",
    "Matmul",
    "MaxPool2d",
    "Momentum",
    "MOST_AXES",
    "Operator",
    "operator_from_spec",
    "OPERATORS",
    "OWN_NAME",
    "OwnKernel",
    "Relu",
    "Role",
    "ROLES",
    "RunningPower",
    "RunningStats",
    "Sgd",
    "spelled",
    "TensorSpec",
]
