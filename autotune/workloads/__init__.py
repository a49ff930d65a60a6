"""What is tuned: operators, kernels, models and whole training steps, as plain data.

This room imports numpy and the standard library only; ``capture`` imports torch, when it is called.
"""

from autotune.workloads.autodiff import Value
from autotune.workloads.builder import StepBuilder
from autotune.workloads.capture import Captured, capture, capture_module
from autotune.workloads.crossing import (
    GPU_ALIGNMENT,
    Order,
    Traffic,
    counterparts,
    reordered,
    traffic,
)
from autotune.workloads.data import Samples, batches, generated_samples, load_samples
from autotune.workloads.graph import Initial, Node, StepGraph, Task, Tensor, evaluate, tasks
from autotune.workloads.initial import given_values, initial_values
from autotune.workloads.memory import (
    ALIGNMENT,
    MemoryPlan,
    live_bytes,
    plan_memory,
    replaced_in_place,
)
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
from autotune.workloads.recompute import output_again
from autotune.workloads.references import max_relative_error, random_inputs, reference
from autotune.workloads.schedule_traits import CACHE_SIZES, NestTraits, ScheduleTraits
from autotune.workloads.spec import parse_kernel, parse_operator, parse_roles, short_name
from autotune.workloads.training_step import LAYOUTS, LayoutName, StepForm, TrainingStep, formed

__all__ = [
    "Adam",
    "Add",
    "ALGORITHMS",
    "ALIGNMENT",
    "AvgPool2d",
    "batches",
    "BatchNorm",
    "BatchStats",
    "Bias",
    "build_model",
    "CACHE_SIZES",
    "capture",
    "capture_module",
    "Captured",
    "Concat",
    "Conv2d",
    "counterparts",
    "CrossEntropy",
    "Dropout",
    "evaluate",
    "formed",
    "generated_samples",
    "given_values",
    "GlobalAvgPool",
    "GPU_ALIGNMENT",
    "Initial",
    "initial_values",
    "Kernel",
    "LayoutName",
    "LAYOUTS",
    "live_bytes",
    "load_samples",
    "Matmul",
    "max_relative_error",
    "MaxPool2d",
    "MemoryPlan",
    "ModelInfo",
    "MODELS",
    "Momentum",
    "NestTraits",
    "Node",
    "Operator",
    "operator_from_spec",
    "OPERATORS",
    "Optimizer",
    "Order",
    "output_again",
    "parse_kernel",
    "parse_operator",
    "parse_roles",
    "plan_memory",
    "random_inputs",
    "reference",
    "Relu",
    "reordered",
    "replaced_in_place",
    "Role",
    "ROLES",
    "RunningPower",
    "RunningStats",
    "Samples",
    "ScheduleTraits",
    "Sgd",
    "short_name",
    "StepBuilder",
    "StepForm",
    "StepGraph",
    "Task",
    "tasks",
    "Tensor",
    "TensorSpec",
    "Traffic",
    "traffic",
    "TrainingStep",
    "Value",
]
