"""What is tuned: operators, kernels, models and whole training steps, as plain data.

This room imports numpy and the standard library only; ``capture`` imports torch, when it is called.
"""

from autotune.workloads.autodiff import Value
from autotune.workloads.builder import StepBuilder
from autotune.workloads.capture import Captured, capture, capture_module
from autotune.workloads.data import Samples, batches, generated_samples, load_samples
from autotune.workloads.graph import Initial, Node, StepGraph, Task, Tensor, evaluate, tasks
from autotune.workloads.initial import given_values, initial_values
from autotune.workloads.models import MODELS, ModelInfo, build_model
from autotune.workloads.operators import (
    OPERATORS,
    ROLES,
    Adam,
    Add,
    AvgPool2d,
    BatchNorm,
    BatchStats,
    Bias,
    Concat,
    Conv2d,
    CrossEntropy,
    Dropout,
    GlobalAvgPool,
    Kernel,
    Matmul,
    MaxPool2d,
    Momentum,
    Operator,
    Relu,
    Role,
    RunningPower,
    RunningStats,
    Sgd,
    TensorSpec,
    operator_from_spec,
)
from autotune.workloads.optimizer import ALGORITHMS, Optimizer
from autotune.workloads.references import max_relative_error, random_inputs, reference
from autotune.workloads.spec import parse_kernel, parse_operator, parse_roles
from autotune.workloads.training_step import StepForm, TrainingStep, formed

__all__ = [
    "ALGORITHMS",
    "MODELS",
    "OPERATORS",
    "ROLES",
    "Adam",
    "Add",
    "AvgPool2d",
    "BatchNorm",
    "BatchStats",
    "Bias",
    "Captured",
    "Concat",
    "Conv2d",
    "CrossEntropy",
    "Dropout",
    "GlobalAvgPool",
    "Initial",
    "Kernel",
    "Matmul",
    "MaxPool2d",
    "ModelInfo",
    "Momentum",
    "Node",
    "Operator",
    "Optimizer",
    "Relu",
    "Role",
    "RunningPower",
    "RunningStats",
    "Samples",
    "Sgd",
    "StepBuilder",
    "StepForm",
    "StepGraph",
    "Task",
    "Tensor",
    "TensorSpec",
    "TrainingStep",
    "Value",
    "batches",
    "build_model",
    "capture",
    "capture_module",
    "evaluate",
    "formed",
    "given_values",
    "generated_samples",
    "initial_values",
    "load_samples",
    "max_relative_error",
    "operator_from_spec",
    "parse_kernel",
    "parse_operator",
    "parse_roles",
    "random_inputs",
    "reference",
    "tasks",
]
