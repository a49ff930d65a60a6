"""From a module, or a reference to its factory, to a training step with the module's present values."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.workloads.aten import Program, aten_operators, index_ranges, lower_step
from autotune.workloads.builder import DEFAULT_OPTIMIZER, StepBuilder
from autotune.workloads.capture.aten_trace import trace_step
from autotune.workloads.capture.factory import import_torch, load_module, made_once
from autotune.workloads.capture.gradients import check_gradients, check_hooks, check_learns
from autotune.workloads.capture.hugging_face import PREFIX, hugging_face_step
from autotune.workloads.capture.lower import lower
from autotune.workloads.capture.trace import check_parameters, trace
from autotune.workloads.capture.user_step import Step, WantedStep, wanted_step
from autotune.workloads.data import Shape
from autotune.workloads.graph import StepGraph
from autotune.workloads.optimizer import Optimizer

LOGGER = logging.getLogger("autotune.workloads")


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


def load_model(reference: str, seed: int = 1, batch: int = 1) -> Any:
    """Makes what a model's name stands for; see `load_module` and `hugging_face_step`.

    Args:
        reference: ``package.module:factory``, ``path/to/file.py:factory`` or ``hf:NAME``.
        seed: PyTorch's seed, set before that.
        batch: Samples in a step.

    Returns:
        A ``torch.nn.Module``, or a ``Step`` with one.

    Raises:
        UsageError: torch or another package is missing; there is no such model; or making it fails.
    """
    if not reference.startswith(PREFIX):
        return load_module(reference, seed, batch)
    import_torch()
    return made_once((reference, seed, batch), seed, lambda: hugging_face_step(reference, batch))


def capture(
    reference: str,
    batch: int,
    *,
    input_shape: Shape | None = None,
    optimizer: Optimizer = DEFAULT_OPTIMIZER,
    seed: int = 1,
    train: Sequence[str] = (),
    channels_last: bool = False,
) -> Captured:
    """Captures what a user's own function makes; this runs the user's code.

    Output of that code goes to stderr. A file is imported once per process unless it changes, and the factory is
    called once per seed.

    Args:
        reference: ``hf:NAME``, ``package.module:factory`` or ``path/to/file.py:factory``. A factory takes no
            arguments, or one named ``batch``, and returns a ``torch.nn.Module`` or a ``Step``.
        batch: Samples in a step, at least 1.
        input_shape: Shape of a sample, of an image channels, height and width; None takes the module's attribute.
        optimizer: What updates the parameters.
        seed: PyTorch's seed, set before the factory runs.
        train: Patterns of the parameters that train; see ``Step``.
        channels_last: As in ``capture_module``.

    Returns:
        The step, named after the factory, and the module's values.

    Raises:
        UsageError: torch is missing; there is no such file, module or factory; the factory fails or returns
            something else; or any error of ``capture_module``.
    """
    name = reference.rpartition(":")[2].strip()
    with contextlib.redirect_stdout(sys.stderr):
        given = load_model(reference, seed, batch)
        return capture_module(
            given,
            batch,
            input_shape=input_shape,
            optimizer=optimizer,
            name=name,
            train=train,
            channels_last=channels_last,
        )


def capture_module(
    given: Any,
    batch: int,
    *,
    input_shape: Shape | None = None,
    optimizer: Optimizer = DEFAULT_OPTIMIZER,
    name: str | None = None,
    train: Sequence[str] = (),
    channels_last: bool = False,
) -> Captured:
    """Captures a ``torch.nn.Module``, which is put into training mode, or a ``Step``.

    A chain of the layers that the built-in models have is captured as those layers. Any other step is captured as
    PyTorch traces it: forward, loss and backward as one graph of operators. Batch norm counts no batches:
    ``num_batches_tracked`` is not part of a step.

    Args:
        given: The module or step, with float32 parameters in the processor's memory.
        batch: Samples in a step, at least 1.
        input_shape: Shape of a sample, of an image channels, height and width; None takes the module's attribute.
        optimizer: What updates the parameters.
        name: Name of the step; None takes the class's.
        train: Patterns of the parameters that train; see ``Step``. Empty for the step's own.
        channels_last: How a step of operators stores images. One of layers has its channels first; a graph pass
            changes that.

    Returns:
        The step and the module's values.

    Raises:
        UsageError: The input's shape is not known; a parameter has no shape yet or is not float32; the step cannot
            be traced, or uses an operator that is not supported; nothing trains.
    """
    module = given.module if isinstance(given, Step) else given
    name = name or type(module).__name__
    if batch < 1:
        raise UsageError(f"{name}: batch={batch} is too small", hint="batch starts at 1")
    if isinstance(module, import_torch().nn.Module):
        _check_wrappers(name, module)
        check_parameters(name, module)
        check_hooks(name, module)
    wanted = wanted_step(name, given, batch, input_shape, train)
    values = _values(module)
    graph = _layered(name, wanted, batch, optimizer)
    if graph is not None:
        _check_learns_once(name, wanted, {})
    else:
        program, classes = _program(name, wanted, batch)
        values |= program.constants
        values |= program.prepared.values(values)
        graph = lower_step(name, batch, program, optimizer, classes, channels_last=channels_last)
    kept = {tensor.name for tensor in graph.sources}
    return Captured(graph, {path: own for path, own in values.items() if path in kept})


def _layered(name: str, wanted: WantedStep, batch: int, optimizer: Optimizer) -> StepGraph | None:
    """The step as layers of the builder; None where it has others."""
    module, (x, *more) = wanted.module, wanted.inputs.values()
    trained = all(parameter.requires_grad for parameter in module.parameters())
    labels = list(wanted.labels.values())
    if wanted.own_loss or more or not trained or len(labels) != 1 or labels[0].ndim != 1:
        return None
    try:
        program = trace(name, module, tuple(x.shape))
        builder = StepBuilder(name, batch, tuple(x.shape[1:]))
        logits = lower(name, program, builder)
        check_gradients(name, module, tuple(x.shape))
        return builder.finish(logits, optimizer)
    except UsageError:
        return None


_MOST_NAMED = 4
_LEARNING: WeakKeyDictionary[Any, set[tuple[str, ...]]] = WeakKeyDictionary()
"""Names of parameters that were seen to learn together, by module."""


def _check_learns_once(name: str, wanted: WantedStep, classes: Mapping[str, int]) -> None:
    """Refuses a step that learns nothing; see `check_learns`."""
    known = _LEARNING.setdefault(wanted.module, set())
    trained = tuple(path for path, p in wanted.module.named_parameters() if p.requires_grad)
    if trained not in known:
        check_learns(name, wanted, classes)
        known.add(trained)


_Traced = tuple[Program, Mapping[str, int]]
_PROGRAMS: WeakKeyDictionary[Any, dict[object, _Traced]] = WeakKeyDictionary()
"""Traced steps by module, and then by all else that they depend on: tracing takes seconds."""


def _program(name: str, wanted: WantedStep, batch: int) -> _Traced:
    """The traced step, and how many values each of its integer inputs and labels takes."""
    known = _PROGRAMS.setdefault(wanted.module, {})
    key = (
        batch,
        tuple(
            (what, tuple(tensor.shape))
            for what, tensor in (*wanted.inputs.items(), *wanted.labels.items())
        ),
        tuple(path for path, p in wanted.module.named_parameters() if p.requires_grad),
        tuple(part.training for part in wanted.module.modules()),
        wanted.loss,
    )
    if key not in known:
        program = trace_step(name, wanted, aten_operators())
        _warn_untrained(name, wanted.module, program)
        classes = {**wanted.classes, **index_ranges(program)}
        _check_learns_once(name, wanted, classes)
        known[key] = program, classes
    return known[key]


def _warn_untrained(name: str, module: Any, program: Program) -> None:
    """Warns about parameters that require a gradient and get none, such as those of layers under `no_grad`."""
    wanted = [path for path, parameter in module.named_parameters() if parameter.requires_grad]
    left = [path for path in wanted if path not in program.gradients]
    if left:
        more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        LOGGER.warning(
            "%s: %s%s are not trained: the loss does not depend on them, or only under no_grad() or detach()",
            name, ", ".join(left[:_MOST_NAMED]), more,
        )  # fmt: skip


def _values(module: Any) -> dict[str, NDArray[Any]]:
    """Present parameters and buffers by their name in the ``state_dict``."""
    return {
        path: tensor.detach().numpy().astype("float32" if tensor.is_floating_point() else "int32")
        for path, tensor in (*module.named_parameters(), *module.named_buffers())
        if tensor.device.type == "cpu"
    }


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
