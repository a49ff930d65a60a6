"""From a module, or a reference to its factory, to a training step with the module's present values."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.workloads.builder import DEFAULT_OPTIMIZER, StepBuilder
from autotune.workloads.capture.factory import import_torch, load_module
from autotune.workloads.capture.gradients import check_gradients, check_hooks
from autotune.workloads.capture.lower import lower
from autotune.workloads.capture.trace import trace
from autotune.workloads.data import MOST_AXES, Shape
from autotune.workloads.graph import StepGraph
from autotune.workloads.optimizer import Optimizer


@dataclass(frozen=True)
class Captured:
    """A training step made from a module.

    Attributes:
        graph: The step. Parameters and running statistics have the names of the module's ``state_dict``.
        values: The module's present parameters and running statistics, float32, by those names.
            ``initial_values(graph, seed) | values`` has a value for every source of the step.
    """

    graph: StepGraph
    values: Mapping[str, NDArray[Any]]


def capture(
    reference: str,
    batch: int,
    *,
    input_shape: Shape | None = None,
    optimizer: Optimizer = DEFAULT_OPTIMIZER,
    seed: int = 1,
) -> Captured:
    """Captures the module that a user's factory makes. This runs the user's code.

    Output of that code goes to stderr. A file is imported once per process unless it changes, and the factory is
    called once per seed.

    Args:
        reference: ``package.module:factory`` or ``path/to/file.py:factory``. The factory takes no arguments, and
            returns a ``torch.nn.Module`` whose forward takes one tensor and returns logits, [n, classes].
        batch: Number of samples in a step, at least 1.
        input_shape: Shape of a sample; for an image: channels, height and width. None takes the module's attribute.
        optimizer: The optimiser of the parameters.
        seed: PyTorch's seed, set before the factory runs.

    Returns:
        The step, named after the factory, and the module's values.

    Raises:
        UsageError: torch is missing; there is no such file, module or factory; the factory fails or returns
            something else; or any error of ``capture_module``.
    """
    name = reference.rpartition(":")[2].strip()
    with contextlib.redirect_stdout(sys.stderr):
        module = load_module(reference, seed)
        return capture_module(
            module, batch, input_shape=input_shape, optimizer=optimizer, name=name
        )


def capture_module(
    module: Any,
    batch: int,
    *,
    input_shape: Shape | None = None,
    optimizer: Optimizer = DEFAULT_OPTIMIZER,
    name: str | None = None,
) -> Captured:
    """Captures a ``torch.nn.Module`` in training mode. The module itself is put into this mode.

    Batch norm does not count batches: ``num_batches_tracked`` is not part of the step.

    Args:
        module: The module, with float32 parameters in the processor's memory.
        batch: Number of samples in a step, at least 1.
        input_shape: Shape of a sample; for an image: channels, height and width. None takes the module's attribute.
        optimizer: The optimiser of the parameters.
        name: Name of the step; None takes the class's name.

    Returns:
        The step and the module's values.

    Raises:
        UsageError: The input's shape is unknown; a parameter is frozen, unused or not float32; forward cannot be
            traced, uses an unsupported operator, changes gradients by hooks or by functions with their own backward
            pass, or does not return [n, classes].
    """
    name = name or type(module).__name__
    if not isinstance(module, import_torch().nn.Module):
        raise UsageError(f"{name}: this is not a torch.nn.Module", hint="give the model itself")
    _check_wrappers(name, module)
    if batch < 1:
        raise UsageError(f"{name}: batch={batch} is too small", hint="batch starts at 1")
    shape = _checked(
        name, getattr(module, "input_shape", None) if input_shape is None else input_shape
    )
    check_hooks(name, module)
    program = trace(name, module, (batch, *shape))
    builder = StepBuilder(name, batch, shape)
    logits = lower(name, program, builder)
    check_gradients(name, module, (batch, *shape))
    graph = builder.finish(logits, optimizer)
    kept = {tensor.name for tensor in graph.sources} & program.values.keys()
    return Captured(graph, {name: program.values[name] for name in program.values if name in kept})


def _check_wrappers(name: str, module: Any) -> None:
    """Refuses modules that only wrap the model: a step has one device and its own compiler."""
    torch = import_torch()
    wrappers = (
        (torch.nn.DataParallel, "nn.DataParallel", "model.module"),
        (torch.nn.parallel.DistributedDataParallel, "DistributedDataParallel", "model.module"),
        (torch.jit.ScriptModule, "torch.jit.script or torch.jit.trace", "the model before that"),
        (torch._dynamo.OptimizedModule, "torch.compile", "the model before that"),
    )
    for path, part in module.named_modules():
        for kind, written, inner in wrappers:
            if isinstance(part, kind):
                raise UsageError(
                    f"{name}: {path or 'the model'} is wrapped by {written}",
                    hint=f"a step needs no wrapper: return {inner}",
                )


def _checked(name: str, shape: object) -> Shape:
    if shape is None:
        raise UsageError(
            f"{name}: the shape of its input is not known",
            hint="pass --input-shape 3x32x32, or give the module an attribute input_shape = (3, 32, 32)",
        )
    sizes = tuple(shape) if isinstance(shape, tuple | list) else ()
    if not 1 <= len(sizes) <= MOST_AXES or not all(
        isinstance(size, int) and size >= 1 for size in sizes
    ):
        raise UsageError(
            f"{name}: input shape {shape!r} is not one to {MOST_AXES} sizes",
            hint="such as --input-shape 3x32x32, or input_shape = (3, 32, 32) in the module: channels, height and "
            "width of images, positions and features of sequences, or features alone",
        )
    return sizes
