"""The models, one file per family, registered in ``MODELS``."""

from __future__ import annotations

from autotune.errors import UsageError, choices
from autotune.workloads.builder import DEFAULT_OPTIMIZER, StepBuilder
from autotune.workloads.graph import StepGraph
from autotune.workloads.models.alexnet import ALEXNET
from autotune.workloads.models.base import DEFAULT_CLASSES, ModelInfo
from autotune.workloads.models.googlenet import GOOGLENET
from autotune.workloads.models.lenet import LENET
from autotune.workloads.models.mobilenet import MOBILENET_V2
from autotune.workloads.models.squeezenet import SQUEEZENET1_0, SQUEEZENET1_1
from autotune.workloads.optimizer import Optimizer

__all__ = ["DEFAULT_CLASSES", "MODELS", "ModelInfo", "build_model"]

MODELS: tuple[ModelInfo, ...] = (
    LENET,
    ALEXNET,
    MOBILENET_V2,
    SQUEEZENET1_0,
    SQUEEZENET1_1,
    GOOGLENET,
)


def build_model(
    name: str,
    batch: int,
    classes: int = DEFAULT_CLASSES,
    optimizer: Optimizer = DEFAULT_OPTIMIZER,
) -> StepGraph:
    """Builds the training step of a model.

    Args:
        name: A model's name, one of ``MODELS``.
        batch: Number of samples in a step, at least 1.
        classes: Number of classes, at least 1.
        optimizer: The optimiser; plain SGD by default.

    Returns:
        The validated step: forward, mean cross entropy, backward and updates.

    Raises:
        UsageError: Unknown model, or ``batch`` or ``classes`` below 1 or far too large.
    """
    models = {model.name: model for model in MODELS}
    if name not in models:
        hint = choices(name, models, "models:")
        hint += "; of PyTorch: FILE.py:FUNCTION; of Hugging Face: hf:NAME"
        if name.endswith(".py"):
            hint = f"name the function that makes your module too: {name}:make"
        raise UsageError(f"unknown model {name!r}", hint=hint)
    for what, value in (("batch", batch), ("classes", classes)):
        if value < 1:
            raise UsageError(f"{name}: {what}={value} is too small", hint=f"{what} starts at 1")
    model = models[name]
    builder = StepBuilder(name, batch, model.input_shape)
    return builder.finish(model.layers(builder, classes), optimizer)
