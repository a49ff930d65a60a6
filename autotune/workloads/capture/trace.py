"""Traces a module's forward pass with torch.export."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from autotune.errors import UsageError
from autotune.workloads.capture.emitting import arguments_of
from autotune.workloads.capture.factory import import_torch
from autotune.workloads.capture.messages import quiet, untraceable, written_line
from autotune.workloads.capture.program import Operation, Program, Reference

COUNTER = "num_batches_tracked"  # Read only by batch norms without momentum, which are refused.


def trace(name: str, module: Any, shape: tuple[int, ...]) -> Program:
    """Traces a module on one input, without computing anything.

    Args:
        name: The model's name, for messages.
        module: A ``torch.nn.Module`` in training mode.
        shape: Shape of the input, [n, c, h, w].

    Returns:
        The forward pass.

    Raises:
        UsageError: torch is missing; a parameter is not used; tracing
            fails; or forward does not take one tensor and return one of shape [n, classes].
    """
    torch = import_torch()
    try:
        with quiet(), _inference_regions(torch) as regions:
            exported = torch.export.export(module, (torch.empty(shape),), strict=False)
    except Exception as error:
        raise untraceable(name, shape, error) from error
    if regions:
        raise UsageError(
            f"{name}: torch.inference_mode() in forward is not supported",
            hint="what runs in it is not trained; take it out",
        )
    return _program(name, module, exported, shape[0])


@contextmanager
def _inference_regions(torch: Any) -> Iterator[list[Any]]:
    """Yields a list of entered `torch.inference_mode` regions, since torch.export does not report them."""
    entered: list[Any] = []
    enter = torch.inference_mode.__enter__

    def noted(region: Any) -> Any:
        if region.mode:
            entered.append(region)
        return enter(region)

    torch.inference_mode.__enter__ = noted
    try:
        yield entered
    finally:
        torch.inference_mode.__enter__ = enter


def check_parameters(name: str, module: Any) -> None:
    """Refuses parameters without a shape, of another type than float32, or on another device.

    Raises:
        UsageError: There is one; the message names it.
    """
    torch = import_torch()
    for path, parameter in module.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            what, hint = "has no shape yet", "run the model once before it is returned"
        elif parameter.dtype != torch.float32:
            what, hint = f"is {str(parameter.dtype).removeprefix('torch.')}", "call model.float()"
        elif parameter.device.type != "cpu":
            what, hint = f"lies on device {parameter.device}", "create the model on the cpu"
        else:
            continue
        raise UsageError(f"{name}: the parameter {path} {what}", hint=hint)
    for path, part in module.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.momentum is None:
            raise UsageError(
                f"{name}: batch norm {path or 'itself'} averages over all batches (momentum=None)",
                hint="give it a momentum, such as 0.1",
            )


def _program(name: str, module: Any, exported: Any, batch: int) -> Program:
    signature = exported.graph_signature
    parameters = _first_names(
        signature.inputs_to_parameters, module.named_parameters(remove_duplicate=False)
    )
    buffers = _first_names(
        signature.inputs_to_buffers, module.named_buffers(remove_duplicate=False)
    )
    used = {node.name for node in exported.graph.nodes if node.users}
    read = {path for source, path in parameters.items() if source in used}
    if unread := [path for path in parameters.values() if path not in read]:
        raise UsageError(
            f"{name}: forward does not use the parameter {unread[0]}",
            hint="remove it from the model, or use it",
        )
    counters = {source for source, path in buffers.items() if path.rpartition(".")[2] == COUNTER}
    classes = {path: type(part) for path, part in module.named_modules()}
    operations = tuple(
        _operation(node, classes)
        for node in exported.graph.nodes
        if node.op == "call_function"
        and not _counts_batches(node, counters)
        and "_assert_" not in str(node.target)  # True once, true for every batch.
    )
    return Program(
        input=signature.user_inputs[0],
        parameters=parameters,
        buffers=buffers,
        modules=frozenset(classes),
        operations=operations,
        output=_output(name, exported, batch),
        values={
            path: tensor.detach().numpy().copy()
            for path, tensor in (*module.named_parameters(), *module.named_buffers())
            if str(tensor.dtype) == "torch.float32" and tensor.device.type == "cpu"
        },
    )


def _first_names(sources: Mapping[str, str], named: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Returns each source's name in the module; a tensor with several names has the first."""
    by_path = dict(named)
    first: dict[int, str] = {}
    for path, tensor in by_path.items():
        first.setdefault(id(tensor), path)
    return {source: first[id(by_path[path])] for source, path in sources.items()}


def _counts_batches(node: Any, counters: set[str]) -> bool:
    """Returns whether a node is a batch norm's count of batches; such a node is added to the counters."""
    if str(node.target) != "aten.add_.Tensor" or node.args[0].name not in counters:
        return False
    counters.add(node.name)
    return True


def _output(name: str, exported: Any, batch: int) -> str:
    (result,) = (node for node in exported.graph.nodes if node.op == "output")
    outputs = result.args[0]
    whole = exported.call_spec.out_spec.is_leaf()
    shape = _shape(outputs[0]) if whole and len(outputs) == 1 else ()
    if len(shape) != 2 or shape[0] != batch:
        what = f"shape {shape}" if shape else "something other than one tensor"
        raise UsageError(
            f"{name}: forward returns {what}",
            hint=f"it must return logits of shape [n, classes], here ({batch}, classes)",
        )
    return str(outputs[0].name)


def _operation(node: Any, classes: Mapping[str, type]) -> Operation:
    schema = getattr(node.target, "_schema", None)
    arguments = {name: _plain(value) for name, value in arguments_of(node).items()}
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]).partition("@")[0] if stack else ""
    kind = classes.get(path)
    return Operation(
        name=node.name,
        operator=str(node.target) if schema else getattr(node.target, "__name__", str(node.target)),
        arguments=arguments,
        module=path,
        layer=f"nn.{kind.__name__}"
        if kind is not None and kind.__module__.startswith("torch.nn.modules.")
        else "",
        written=written_line(node),
        shape=_shape(node),
        dtype=str(getattr(node.meta.get("val"), "dtype", "")).removeprefix("torch."),
        readers=tuple(user.name for user in node.users),
        in_place=bool(
            schema and schema.is_mutable and str(node.target).split(".")[1].endswith("_")
        ),
    )


def _shape(node: Any) -> tuple[int, ...]:
    sizes = getattr(getattr(node, "meta", {}).get("val"), "shape", ())
    return tuple(int(size) for size in sizes)


def _plain(value: Any) -> object:
    """Replaces graph nodes by references, also inside lists."""
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    return Reference(value.name) if hasattr(value, "users") else value
