"""Traces forward, loss and backward of a PyTorch module as one graph of ATen operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from autotune.errors import UsageError
from autotune.workloads.aten import Operation, Program, Ref, Source
from autotune.workloads.capture.emitting import arguments_of
from autotune.workloads.capture.factory import import_torch
from autotune.workloads.capture.functional import call_with
from autotune.workloads.capture.gathered import gather_sums
from autotune.workloads.capture.messages import quiet, untraceable, written_line
from autotune.workloads.capture.prepared import prepared
from autotune.workloads.capture.user_step import WantedStep

_DTYPES = {"float32": "float32", "int64": "int32", "int32": "int32", "bool": "bool"}


def trace_step(name: str, step: WantedStep, lowered: Collection[str]) -> Program:
    """Traces a step without computing anything: every tensor is a fake one.

    Args:
        name: The model's name, for messages.
        step: The step, its module in the mode in which it trains. Parameters that do not require a gradient, or
            that the loss does not depend on, are frozen.
        lowered: The ATen operators that can be lowered; others are taken apart where PyTorch can do that.

    Returns:
        The step without the update.

    Raises:
        UsageError: Forward, loss or backward cannot be traced; nothing trains; a tensor has a type that is not
            float32, an integer or a truth value.
    """
    torch = import_torch()
    module, inputs, labels = step.module, step.inputs, step.labels
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    asked = {path: p.requires_grad for path, p in parameters.items()}
    groups = (parameters, buffers, dict(inputs), dict(labels))
    flat = [tensor for group in groups for tensor in group.values()]
    names = [path for group in groups for path in group]

    def whole(*tensors: Any) -> tuple[Any, ...]:
        given = iter(tensors)
        own = {path: next(given) for path in parameters}
        # The module changes these, and a step may not change what it is given.
        state = {path: next(given).clone() for path in buffers}
        data = [next(given) for _ in inputs]
        arguments, named = step.arguments(data)
        result = call_with(module, {**own, **state}, arguments, named)
        value = step.loss(result, *given)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            raise UsageError(
                f"{name}: the loss is not one number",
                hint="return the mean or the sum of the losses",
            )
        trained = [own[path] for path, wanted in asked.items() if wanted]
        if not trained:
            raise UsageError(
                f"{name}: the loss depends on no parameter that trains",
                hint="let some parameters require a gradient",
            )
        if not value.requires_grad:
            raise _NothingTrainsError
        found = iter(torch.autograd.grad(value, trained, allow_unused=True))
        gradients = [next(found) if wanted else None for wanted in asked.values()]
        return (value, *gradients, *state.values())

    decompositions = _decompositions(torch, lowered)
    try:
        with quiet(), _noted_modules(torch, module) as untracked:
            graph = _traced(
                torch, whole, flat, [asked.get(path, False) for path in names], decompositions
            )
    except _NothingTrainsError:
        where = f": {untracked[0]} runs under torch.no_grad()" if untracked else ""
        raise UsageError(
            f"{name}: the loss depends on no parameter that trains{where}",
            hint="take torch.no_grad(), torch.inference_mode() and .detach() out of what leads to the loss",
        ) from None
    except UsageError:
        raise
    except Exception as error:
        shape = tuple(next(iter(inputs.values())).shape) if inputs else ()
        raise untraceable(name, shape, error) from error
    gather_sums(graph)
    return _Reader(name, graph, names, groups).program()


class _NothingTrainsError(Exception):
    """The loss has no gradient."""


def _traced(
    torch: Any,
    step: Callable[..., Any],
    flat: Sequence[Any],
    trains: Sequence[bool],
    decompositions: Mapping[Any, Any],
) -> Any:
    """The graph of a step: first as PyTorch runs it, then without mutations and in core operators."""
    make_fx = import_module("torch.fx.experimental.proxy_tensor").make_fx
    attention = import_module("torch.nn.attention")
    # Each is a tensor of its own, also if an input and a label are the same example.
    given = [
        tensor.detach().requires_grad_(trained) if tensor.is_floating_point() else tensor.clone()
        for tensor, trained in zip(flat, trains, strict=True)
    ]
    with (
        torch.fx.traceback.preserve_node_meta(),
        attention.sdpa_kernel([attention.SDPBackend.FLASH_ATTENTION, attention.SDPBackend.MATH]),
        torch.backends.mkldnn.flags(enabled=False),
    ):
        first = make_fx(
            step,
            decomposition_table={torch.ops.aten.native_batch_norm.default: _batch_norm(torch)},
            tracing_mode="fake",
            _allow_non_fake_inputs=True,
            record_stack_traces=True,
        )(*given)
        for node in first.graph.nodes:
            # Decompositions give some tensors other strides. A reshape is a view wherever that is possible.
            if node.target is torch.ops.aten.view.default:
                node.target = torch.ops.aten.reshape.default
        with torch.no_grad():
            second = make_fx(
                torch.func.functionalize(torch.fx.Interpreter(first).run, remove="mutations"),
                decomposition_table=decompositions,
                tracing_mode="fake",
                _allow_non_fake_inputs=True,
            )(*[tensor.detach() for tensor in given])
    return second.graph


def _batch_norm(torch: Any) -> Callable[..., Any]:
    """Batch norm with its mutation of the running statistics in plain sight; its schema does not tell of it."""

    def normalised(
        x: Any,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Any:
        y, saved, inverse, new_mean, new_var = torch.ops.aten._native_batch_norm_legit_functional(
            x, weight, bias, mean, var, training, momentum, eps
        )
        if training:
            mean.copy_(new_mean)
            var.copy_(new_var)
        return y, saved, inverse

    def untracked(
        x: Any,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Any:
        if mean is not None:
            return normalised(x, weight, bias, mean, var, training, momentum, eps)
        return torch.ops.aten._native_batch_norm_legit.no_stats(
            x, weight, bias, True, momentum, eps
        )

    return untracked


def _decompositions(torch: Any, lowered: Collection[str]) -> dict[Any, Any]:
    """How PyTorch takes apart the operators that are not lowered as they are."""
    return {
        operator: taken_apart
        for operator, taken_apart in _every_decomposition(torch).items()
        if str(operator) not in lowered
    }


@cache
def _every_decomposition(torch: Any) -> dict[Any, Any]:
    """How PyTorch takes operators apart. Collecting this takes a quarter of a second."""
    others = {
        operator: taken_apart
        for operator, taken_apart in torch._decomp.decomposition_table.items()
        # PyTorch's reference implementations lead to operators of another kind.
        if not inspect.unwrap(taken_apart).__module__.startswith("torch._refs")
    }
    every = others | dict(torch._decomp.core_aten_decompositions())
    return {
        operator: taken_apart
        for operator, taken_apart in every.items()
        if isinstance(operator, torch._ops.OpOverload)
    }


@contextmanager
def _noted_modules(torch: Any, module: Any) -> Iterator[list[str]]:
    """Marks what a module's parts compute with their paths, in the metadata of the traced nodes.

    Yields:
        What is written here while they run: the parts that ran without recording gradients.
    """
    untracked: list[str] = []
    entered: list[Any] = []
    handles = []
    for path, part in module.named_modules():

        def enter(part: Any, _arguments: Any, path: str = path) -> None:
            if not torch.is_grad_enabled():
                untracked.append(path or type(part).__name__)
            noted = torch.fx.traceback.annotate({"module": path})
            noted.__enter__()
            entered.append(noted)

        def leave(_part: Any, _arguments: Any, _result: Any) -> None:
            entered.pop().__exit__(None, None, None)

        handles.append(part.register_forward_pre_hook(enter))
        handles.append(part.register_forward_hook(leave, always_call=True))
    try:
        yield untracked
    finally:
        for handle in handles:
            handle.remove()


class _Reader:
    """Reads a traced graph.

    Args:
        name: The model's name, for messages.
        graph: The graph; its results are the loss, a gradient for each parameter, and the buffers.
        names: Path of each source, in order.
        groups: Parameters, buffers, inputs and labels by path.
    """

    def __init__(
        self,
        name: str,
        graph: Any,
        names: Sequence[str],
        groups: tuple[Mapping[str, Any], ...],
    ) -> None:
        self._name = name
        self._graph = graph
        self._names = names
        self._parameters, self._buffers, self._inputs, self._labels = groups
        self._several: dict[str, tuple[str, int]] = {}
        """Name of a node that picks a result -> the operation, and the number of the result."""

    def program(self) -> Program:
        (output,) = (node for node in self._graph.nodes if node.op == "output")
        value, *rest = output.args[0]
        rest = self._without_counters(output, value, rest)
        gradients = dict(zip(self._parameters, rest, strict=False))
        after = dict(zip(self._buffers, rest[len(self._parameters) :], strict=True))
        sources = self._sources()
        never = {
            path: sources[path]
            for path in (*self._parameters, *self._buffers)
            if gradients.get(path) is None and (path not in after or _stays(after[path]))
        }
        once = prepared(self._graph, never, frozenset(self._names))
        self._names = [*self._names, *once.names]
        sources = self._sources()
        operations = tuple(self._operations())
        constants = self._constants()
        changed = {path: self._ref(node) for path, node in after.items() if not _stays(node)}
        return Program(
            sources=tuple(
                self._source(node, path, gradients.get(path) is not None)
                for path, node in sources.items()
                if node.users or path not in self._buffers or path in changed
            )
            + tuple(source for source, _ in constants.values()),
            constants={name: array for name, (_, array) in constants.items()},
            operations=operations,
            loss=self._ref(value),
            gradients={
                path: self._ref(node) for path, node in gradients.items() if node is not None
            },
            buffers=changed,
            prepared=once,
        )

    def _sources(self) -> dict[str, Any]:
        """The nodes of the sources by path."""
        nodes = [node for node in self._graph.nodes if node.op == "placeholder"]
        return dict(zip(self._names, nodes, strict=True))

    def _without_counters(self, output: Any, value: Any, rest: list[Any]) -> list[Any]:
        """Drops buffers of integers that nothing but their own update reads, such as counts of batches."""
        kept = len(self._parameters)
        floats = [tensor.is_floating_point() for tensor in self._buffers.values()]
        without = [
            *rest[:kept],
            *(node if known else None for node, known in zip(rest[kept:], floats, strict=True)),
        ]
        output.args = ((value, *without),)
        self._graph.eliminate_dead_code()
        for path, node in self._sources().items():
            if path in self._buffers and node.users:
                before = rest[kept + list(self._buffers).index(path)]
                if before not in without and not _stays(before):
                    raise UsageError(
                        f"{self._name}: the buffer {path} counts steps, and forward reads it",
                        hint="make it float32",
                    )
        return without

    def _constants(self) -> dict[str, tuple[Source, Any]]:
        """Tensors that forward makes of numbers, by name."""
        found = {}
        for node in self._graph.nodes:
            if node.op == "get_attr":
                tensor = getattr(self._graph.owning_module, node.target)
                if not hasattr(tensor, "dtype"):
                    raise UsageError(
                        f"{self._name}: forward uses a {type(tensor).__name__}, which is no tensor",
                        hint="quantized layers have such; train the model before it is quantized",
                    )
                dtype = self._dtype("a tensor of numbers in forward", tensor)
                array = tensor.detach().numpy().astype("float32" if dtype == "float32" else "int32")
                source = Source(node.name, "frozen", node.name, tuple(tensor.shape), dtype)
                found[node.name] = source, array
        return found

    def _source(self, node: Any, path: str, trained: bool) -> Source:
        tensor = node.meta["val"]
        kind: Any = "trained" if trained else "frozen"
        if path in self._buffers:
            kind = "buffer"
        elif path in self._inputs or path in self._labels:
            kind = "input" if path in self._inputs else "label"
        return Source(
            node.name, kind, path, tuple(tensor.shape), self._dtype(f"the tensor {path}", tensor)
        )

    def _dtype(self, what: str, tensor: Any) -> Any:
        found = str(tensor.dtype).removeprefix("torch.")
        if found not in _DTYPES:
            raise UsageError(f"{self._name}: {what} makes {found}", hint=_hint_of(found))
        return _DTYPES[found]

    def _operations(self) -> Iterator[Operation]:
        for node in self._graph.nodes:
            if node.op != "call_function":
                continue
            if getattr(node.target, "__name__", "") == "getitem":
                self._several[node.name] = (node.args[0].name, node.args[1])
                continue
            if "_assert_" in str(node.target):
                continue
            yield self._operation(node)

    def _operation(self, node: Any) -> Operation:
        arguments = {name: self._plain(value) for name, value in arguments_of(node).items()}
        results = node.meta["val"]
        tensors = results if isinstance(results, tuple | list) else (results,)
        module = (node.meta.get("custom") or {}).get("module", "")
        written = written_line(node)
        what = f"{node.target} in {module or 'the step'}"
        if written:
            # PyTorch converts by itself too: under autocast, and before an FFT.
            what = written if "_to_copy" in str(node.target) else f"{written} ({what})"
        if "as_strided" in str(node.target) and not node.args[0].meta["val"].is_contiguous():
            raise UsageError(
                f"{self._name}: {what} depends on how its input lies in memory",
                hint="call .contiguous() before .as_strided(), or use views that name axes",
            )
        return Operation(
            name=node.name,
            operator=str(node.target),
            arguments=arguments,
            shapes=tuple(tuple(int(n) for n in getattr(one, "shape", ())) for one in tensors),
            dtypes=tuple("" if one is None else self._dtype(what, one) for one in tensors),
            module=module,
            written=written,
            readers=len(node.users),
        )

    def _plain(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(self._plain(item) for item in value)
        if hasattr(value, "users"):
            return self._ref(value)
        return str(value) if type(value).__module__.startswith("torch") else value

    def _ref(self, node: Any) -> Ref:
        if node.name in self._several:
            return Ref(*self._several[node.name])
        return Ref(node.name)


def _hint_of(dtype: str) -> str:
    """What to do instead of making a tensor of a type that kernels do not have."""
    if dtype.startswith("complex"):
        return "complex numbers, as of torch.fft, are not supported: compute with real tensors"
    if dtype in ("bfloat16", "float16"):
        return "a step is computed in float32: leave the conversion, or torch.autocast, out"
    return "a step is computed in float32: leave the conversion out, or call model.float()"


def _stays(node: Any) -> bool:
    """Whether a buffer's value after the step is the one before it; None is that of a buffer that is left out."""
    while (
        node is not None
        and node.op == "call_function"
        and str(node.target).split(".")[1] in ("clone", "alias")
    ):
        node = node.args[0]
    return node is None or bool(node.op == "placeholder")
