"""Finds what a trace does not show: gradients that differ from those of its operators, or that are all 0."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from autotune.errors import UsageError
from autotune.workloads.capture.factory import import_torch
from autotune.workloads.capture.functional import call_with
from autotune.workloads.capture.messages import quiet
from autotune.workloads.capture.user_step import WantedStep
from autotune.workloads.user_code import describe

HINT = "a captured step has the gradients of its operators: remove it"
_SMALL = 1e-3
"""Gradients up to this share of the loss, or of 1, may be rounding errors: they are computed in float64 too."""
_AGREES = 1e-3
"""A gradient whose float64 value is below this share of its float32 value was a rounding error: it is 0."""


def check_hooks(name: str, module: Any) -> None:
    """Refuses a module with hooks on the gradients of its submodules or parameters.

    Raises:
        UsageError: There is such a hook; the message names its place.
    """
    for path, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise UsageError(f"{name}: {path or 'the model'} has a hook on its gradient", hint=HINT)
    for path, parameter in module.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise UsageError(f"{name}: the parameter {path} has a hook on its gradient", hint=HINT)


def check_gradients(name: str, module: Any, shape: tuple[int, ...]) -> None:
    """Refuses a forward pass that hooks gradients, or has functions with their own backward pass.

    The module runs once more on tensors without memory, and PyTorch's autograd record of it is read.

    Args:
        name: The model's name, for messages.
        module: A module that has been traced and whose operators are supported.
        shape: Shape of the input, [n, c, h, w].

    Raises:
        UsageError: There is such a hook or function; the message names it.
    """
    torch = import_torch()
    hooks = (torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook)

    class RefuseHooks(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function in hooks:
                raise UsageError(f"{name}: forward puts a hook on a gradient", hint=HINT)
            return function(*args, **(kwargs or {}))

    try:
        with quiet(), RefuseHooks(), torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
            state = {
                path: torch.empty_like(tensor, requires_grad=tensor.requires_grad)
                for path, tensor in (*module.named_parameters(), *module.named_buffers())
            }
            result = call_with(module, state, (torch.empty(shape),), {})
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"{name}: its gradients cannot be checked: {describe(error)}",
            hint="forward must work on tensors of any device",
        ) from error
    for step in _history(result.grad_fn):
        if isinstance(step, torch.autograd.function.BackwardCFunction):
            function = type(step).__name__.removesuffix("Backward")
            raise UsageError(
                f"{name}: the autograd function {function} has a backward pass of its own",
                hint=HINT,
            )


def check_learns(name: str, wanted: WantedStep, values: Mapping[str, int]) -> None:
    """Refuses a step whose gradients are all 0, on its example tensors and on random ones.

    Gradients that cancel, as those of equal logits, leave rounding errors instead of 0. So small gradients are
    computed in float64 too. There a rounding error is smaller by many orders of magnitude, and a gradient is not.
    The module runs once in PyTorch, seldom more often. Its buffers and PyTorch's random numbers stay as they are.

    Args:
        name: The model's name, for messages.
        wanted: The step, which has been traced.
        values: How many values each input or label takes that must be whole, by name.

    Raises:
        UsageError: No parameter would change.
    """
    torch = import_torch()
    examples = {**wanted.inputs, **wanted.labels}
    with quiet(), torch.random.fork_rng(devices=()):
        drawn = {
            what: torch.randn(tensor.shape)
            if tensor.is_floating_point() and what not in values
            else torch.randint(values.get(what, 2), tensor.shape).to(tensor.dtype)
            for what, tensor in examples.items()
        }
        for given in (examples, drawn):
            try:
                if _learns(wanted, given):
                    return
            except Exception:  # The user's code may not take such values; a run will tell.
                return
    raise UsageError(
        f"{name}: the gradient of every parameter is 0: nothing would be learnt",
        hint="the loss is constant, as the cross entropy of one class is: give the model an output for each class, "
        "or take a loss such as binary_cross_entropy_with_logits",
    )


def _learns(wanted: WantedStep, given: Mapping[str, Any]) -> bool:
    """Whether a parameter has a gradient that is neither 0 nor a rounding error."""
    loss, single = _gradients(wanted, given, import_torch().float32)
    if not all(map(math.isfinite, single)):  # Other values may have finite ones.
        return True
    if not any(single) or max(single) > _SMALL * max(1.0, loss):
        return any(single)
    _, double = _gradients(wanted, given, import_torch().float64)
    return any(0 < _AGREES * rough <= exact for rough, exact in zip(single, double, strict=True))


def _gradients(
    wanted: WantedStep, given: Mapping[str, Any], kind: Any
) -> tuple[float, list[float]]:
    """Computes in PyTorch, in float `kind`.

    Returns:
        The magnitude of the loss, and that of the largest gradient of each parameter that trains.
    """
    torch = import_torch()

    def cast(tensor: Any) -> Any:
        return tensor.detach().to(kind) if tensor.is_floating_point() else tensor.clone()

    parameters = {
        path: cast(parameter).requires_grad_(parameter.requires_grad)
        for path, parameter in wanted.module.named_parameters()
    }
    buffers = {path: cast(buffer).clone() for path, buffer in wanted.module.named_buffers()}
    arguments, named = wanted.arguments([cast(given[what]) for what in wanted.inputs])
    result = call_with(wanted.module, {**parameters, **buffers}, arguments, named)
    loss = wanted.loss(result, *(cast(given[what]) for what in wanted.labels))
    trained = [parameter for parameter in parameters.values() if parameter.requires_grad]
    found = torch.autograd.grad(loss, trained, allow_unused=True)
    sizes = [0.0 if one is None else float(one.abs().max()) for one in found]
    return abs(float(loss.detach())), sizes


def _history(last: Any) -> Iterator[Any]:
    """Yields every node of PyTorch's backward pass."""
    seen, waiting = set(), [last]
    while waiting:
        step = waiting.pop()
        if step is not None and step not in seen:
            seen.add(step)
            waiting.extend(earlier for earlier, _ in step.next_functions)
            yield step
