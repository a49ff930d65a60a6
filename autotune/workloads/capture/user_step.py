"""What a user wants to train: a module with its loss, example tensors and the parameters that train."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from autotune.errors import UsageError, choices
from autotune.workloads.capture.factory import import_torch
from autotune.workloads.capture.functional import call_with
from autotune.workloads.capture.messages import quiet, untraceable
from autotune.workloads.data import Shape
from autotune.workloads.operators import LARGEST_TENSOR

INPUT, LABELS = "input", "labels"
FROZEN_EVAL = "frozen:eval"
"""Stands among the patterns of parameters that train; see `select_trained`."""
_MOST_AXES = 7
"""Of a sample."""


@dataclass(frozen=True)
class Step:
    """A training step of your own, as a factory for ``--model file.py:factory`` may return it.

    Attributes:
        module: The ``torch.nn.Module``, in the mode in which it trains; parts may be in evaluation mode.
        inputs: Example tensors of what the module takes: one tensor, a tuple of arguments, or a dict of named
            arguments. Nested lists, tuples and dicts of tensors are allowed. Float tensors are float32.
        targets: Example tensors that the loss takes after the module's result; one tensor or a tuple.
        loss: Called as ``loss(module(*inputs), *targets)``; None where the module returns the loss itself, or a
            result whose ``loss`` it is, as models of Hugging Face do when labels are among their inputs.
        train: Patterns of the names of parameters that train, such as ``("head.*",)``, or ``("last:2",)`` for the
            last two layers that have parameters. None trains those that require a gradient. With ``frozen:eval``
            among them, layers that do not train are put into evaluation mode.

    Example:
        >>> def make():
        ...     module = torch.nn.Linear(8, 1)
        ...     loss = torch.nn.functional.binary_cross_entropy_with_logits
        ...     return autotune.Step(module, torch.zeros(4, 8), torch.zeros(4, 1), loss)
    """

    module: Any
    inputs: Any
    targets: Any = ()
    loss: Callable[..., Any] | None = None
    train: Sequence[str] | None = None


@dataclass(frozen=True)
class WantedStep:
    """A step that has been checked, with its tensors by name.

    Attributes:
        module: The module.
        loss: Takes the module's result and the labels.
        inputs: Example tensors of the module's arguments, by the name that the step gives them.
        labels: Example tensors of the loss's other arguments, by the same.
        classes: How many values an integer tensor takes, by its name.
        arguments: Makes the module's arguments, positional and named, from the inputs in order.
        own_loss: Whether the loss is the user's own.
    """

    module: Any
    loss: Callable[..., Any]
    inputs: Mapping[str, Any]
    labels: Mapping[str, Any]
    classes: Mapping[str, int]
    arguments: Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]] = field(
        default=lambda tensors: (tuple(tensors), {})
    )
    own_loss: bool = False


def wanted_step(
    name: str,
    given: Any,
    batch: int,
    input_shape: Shape | None = None,
    train: Sequence[str] = (),
) -> WantedStep:
    """Checks what a factory returned, and completes it.

    A module alone gets a loss by its result: cross entropy with class labels of ``[n, classes]``, or of
    ``[n, classes, ...]`` for each of the other indices; a result with one element is the loss itself.

    Args:
        name: The model's name, for messages.
        given: A ``torch.nn.Module`` or a ``Step``.
        batch: Samples in a step.
        input_shape: Shape of a sample; None takes the module's attribute ``input_shape``. Of a ``Step``, None.
        train: Patterns of parameters that train, as ``Step.train``; empty for the step's own.

    Returns:
        The step.

    Raises:
        UsageError: It is neither; its tensors are of kinds that are not supported; the input's shape is not known;
            there is no loss for such a result; or a pattern names no parameter.
    """
    torch = import_torch()
    if isinstance(given, Step):
        return _own(name, given, batch, input_shape, train or given.train)
    if not isinstance(given, torch.nn.Module):
        raise UsageError(f"{name}: this is not a torch.nn.Module", hint="give the model itself")
    shape = checked_shape(
        name, getattr(given, "input_shape", None) if input_shape is None else input_shape
    )
    if batch * math.prod(shape) > LARGEST_TENSOR:
        raise UsageError(
            f"{name}: an input of shape {(batch, *shape)} has more than {LARGEST_TENSOR} elements",
            hint="use a smaller --batch or --input-shape",
        )
    given.train()
    select_trained(name, given, train)
    x = torch.zeros((batch, *shape))
    result = _result(name, given, (x,), {})
    if isinstance(result, torch.Tensor) and not result.is_floating_point():
        raise UsageError(
            f"{name}: forward returns {str(result.dtype).removeprefix('torch.')}, which has no gradient",
            hint="return logits of shape [n, classes]; leave argmax and the like to the caller",
        )
    if not isinstance(result, torch.Tensor):
        kind = "something other than one tensor"
        raise UsageError(
            f"{name}: forward returns {kind}",
            hint="return logits of shape [n, classes], or let the factory return an autotune.Step with a loss",
        )
    sizes = tuple(result.shape)
    if result.numel() == 1 and batch > 1:
        return WantedStep(given, _own_loss, {INPUT: x}, {}, {})
    if len(sizes) < 2 or sizes[0] != batch:
        raise UsageError(
            f"{name}: forward returns shape {sizes}",
            hint=f"return logits of shape [n, classes], here ({batch}, classes), or an autotune.Step with a loss",
        )
    if sizes[1] == 1:
        raise UsageError(
            f"{name}: the model has one class, and the cross entropy of one class is 0: nothing would be learnt",
            hint="give it an output for each class, or let the factory return an autotune.Step with a loss such as "
            "binary_cross_entropy_with_logits",
        )
    labels = torch.zeros((batch, *sizes[2:]), dtype=torch.int64)
    loss = torch.nn.functional.cross_entropy
    return WantedStep(given, loss, {INPUT: x}, {LABELS: labels}, {LABELS: sizes[1]})


def _own(
    name: str, step: Step, batch: int, input_shape: Shape | None, train: Sequence[str] | None
) -> WantedStep:
    torch = import_torch()
    if not isinstance(step.module, torch.nn.Module):
        raise UsageError(f"{name}: Step.module is not a torch.nn.Module", hint="give the model")
    if input_shape is not None:
        raise UsageError(f"{name} has its own inputs", hint="leave --input-shape out")
    named = isinstance(step.inputs, Mapping)
    positional = () if named else _tuple(step.inputs)
    whole = (positional, dict(step.inputs) if named else {})
    flat, spec = torch.utils._pytree.tree_flatten(whole)
    targets = _tuple(step.targets)
    inputs = _by_name(name, INPUT, flat)
    labels = _by_name(name, LABELS, targets)
    for what, tensor in (*inputs.items(), *labels.items()):
        if tensor.ndim and tensor.shape[0] != batch:
            raise UsageError(
                f"{name}: {what} has {tensor.shape[0]} samples, and the batch has {batch}",
                hint=f"give --batch {tensor.shape[0]}, or let the factory take an argument batch",
            )
    select_trained(name, step.module, train or ())
    classes = {
        what: max(2, int(tensor.max()) + 1)
        for what, tensor in (*inputs.items(), *labels.items())
        if not tensor.is_floating_point() and tensor.numel()
    }

    def arguments(tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        found: tuple[tuple[Any, ...], dict[str, Any]]
        found = torch.utils._pytree.tree_unflatten(list(tensors), spec)
        return found

    loss = step.loss or _own_loss
    return WantedStep(step.module, loss, inputs, labels, classes, arguments, own_loss=True)


def _own_loss(value: Any) -> Any:
    """The loss of a module that returns it: alone, or as `loss` of its result, as Hugging Face's models do.

    Raises:
        UsageError: The result has no loss.
    """
    torch = import_torch()
    found = value
    if not isinstance(value, torch.Tensor):
        found = value.get("loss") if isinstance(value, Mapping) else getattr(value, "loss", None)
    if not isinstance(found, torch.Tensor):
        raise UsageError(
            f"the module returns {type(value).__name__}, and no loss",
            hint="give Step a loss that takes the module's result; a model of Hugging Face returns its loss where "
            "labels are among its inputs",
        )
    return found.reshape(()) if found.numel() == 1 else found


def _tuple(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, tuple | list) else (given,)


def _by_name(name: str, what: str, tensors: Sequence[Any]) -> dict[str, Any]:
    torch = import_torch()
    found = {}
    for number, tensor in enumerate(tensors):
        key = what if len(tensors) == 1 else f"{what}.{number}"
        if not isinstance(tensor, torch.Tensor):
            raise UsageError(
                f"{name}: {key} is {type(tensor).__name__}, not a tensor",
                hint="give example tensors; other settings belong into the module",
            )
        if str(tensor.dtype).removeprefix("torch.") not in ("float32", "int64", "int32", "bool"):
            raise UsageError(f"{name}: {key} is {tensor.dtype}", hint="use float32 or integers")
        found[key] = tensor
    return found


def select_trained(name: str, module: Any, patterns: Sequence[str]) -> None:
    """Lets only the parameters that match a pattern require a gradient; all stay as they are without patterns.

    Args:
        name: The model's name, for messages.
        module: The module, whose parameters are changed.
        patterns: Such as ``head.*`` or ``last:2``. ``frozen:eval`` puts every part of the module that has
            parameters, none of which trains, into evaluation mode: batch norms use their running statistics, and
            dropout does nothing.

    Raises:
        UsageError: A pattern matches nothing.
    """
    names = [path for path, _ in module.named_parameters()]
    chosen: set[str] = set()
    wanted = [pattern for pattern in patterns if pattern != FROZEN_EVAL]
    for pattern in wanted:
        if pattern.startswith("last:"):
            found = _last(name, module, pattern)
        else:
            found = {path for path in names if fnmatchcase(path, pattern)}
        if not found:
            raise UsageError(
                f"{name}: no parameter matches {pattern!r}",
                hint=choices(pattern, names, "parameters:"),
            )
        chosen |= found
    for path, parameter in module.named_parameters():
        if wanted:
            parameter.requires_grad_(path in chosen)
    for part in module.modules() if FROZEN_EVAL in patterns else ():
        own = list(part.parameters())
        if own and not any(parameter.requires_grad for parameter in own):
            part.eval()


def _last(name: str, module: Any, pattern: str) -> set[str]:
    """The parameters of the last layers that have some."""
    number = pattern.removeprefix("last:")
    if not number.isdecimal() or int(number) < 1:
        raise UsageError(f"{name}: {pattern!r} names no layers", hint="such as last:2")
    layers = [
        {f"{path}.{own}" if path else own for own, _ in part.named_parameters(recurse=False)}
        for path, part in module.named_modules()
    ]
    found = [layer for layer in layers if layer][-int(number) :]
    return set().union(*found)


def _result(name: str, module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The module's result on tensors without memory."""
    torch = import_torch()
    try:
        with quiet(), torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
            state = {
                path: mode.from_tensor(tensor)
                for path, tensor in (*module.named_parameters(), *module.named_buffers())
            }
            fake = [mode.from_tensor(tensor) for tensor in arguments]
            return call_with(module, state, tuple(fake), named)
    except Exception as error:
        shape = tuple(arguments[0].shape) if arguments else ()
        raise untraceable(name, shape, error) from error


def checked_shape(name: str, shape: object) -> Shape:
    """The shape of a sample.

    Raises:
        UsageError: It is not known, or is not one to seven sizes.
    """
    if shape is None:
        raise UsageError(
            f"{name}: the shape of its input is not known",
            hint="pass --input-shape 3x32x32, or give the module an attribute input_shape = (3, 32, 32)",
        )
    sizes = tuple(shape) if isinstance(shape, tuple | list) else ()
    if not 1 <= len(sizes) <= _MOST_AXES or not all(
        isinstance(size, int) and size >= 1 for size in sizes
    ):
        raise UsageError(
            f"{name}: input shape {shape!r} is not one to {_MOST_AXES} sizes",
            hint="such as --input-shape 3x32x32, or input_shape = (3, 32, 32) in the module: channels, height and "
            "width of images, positions and features of sequences, or features alone",
        )
    return sizes
