"""What a step computes of frozen tensors alone is computed once, before the first step.

Batch norms in evaluation mode whose parameters are frozen become a scale and a shift for each channel. If a
convolution with frozen filters comes before, they become part of its filters and its bias.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.workloads.aten import Prepared
from autotune.workloads.capture.emitting import Emit, arguments_of, emitter
from autotune.workloads.capture.factory import import_torch

_NORMS = (
    "aten._native_batch_norm_legit_no_training.default",
    "aten._native_batch_norm_legit_functional.default",
)
_NORM_BACKWARD, _CONVOLUTION = "aten.native_batch_norm_backward.default", "aten.convolution.default"
_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "alias.default", "clone.default", "expand.default", "permute.default", "reshape.default",
        "select.int", "slice.Tensor", "squeeze.dim", "squeeze.dims", "t.default", "transpose.int",
        "unsqueeze.default", "view.default",
    )
)  # fmt: skip
_UNSET = ("empty", "new_empty")
"""Beginnings of the names of operators whose results have no values yet."""
_OF_A_SHAPE = ("full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like")
"""The same, of those that take only the shape of a tensor."""
Arrays = Mapping[str, NDArray[Any]]


def prepared(graph: Any, frozen: Mapping[str, Any], taken: frozenset[str]) -> Prepared:
    """Takes out of a traced graph what depends on frozen tensors alone. The graph gets a source for each result.

    Args:
        graph: The graph, which is changed.
        frozen: Its sources that never change, by the name in the module's ``state_dict``.
        taken: Names that are in use.
    """
    _fold_norms(graph, _constants(graph, frozenset(frozen.values())))
    constant = _constants(graph, frozenset(frozen.values()))
    wanted = [
        node
        for node in graph.nodes
        if node in constant and _computes(node) and _is_used(node, constant) and _is_small(node)
    ]
    names = []
    number = 0
    for _ in wanted:
        number += 1
        while f"prepared.{number}" in taken:
            number += 1
        names.append(f"prepared.{number}")
    origins = _with_origins(wanted)
    needed = [path for path, node in frozen.items() if node in origins]
    compute = _function_of(
        [frozen[path] for path in needed], [one for one in graph.nodes if one in origins], wanted
    )

    def values(own: Arrays) -> dict[str, NDArray[Any]]:
        torch = import_torch()
        given = [torch.from_numpy(np.array(own[path])) for path in needed]
        with torch.no_grad():
            results = compute(*[one.double() if one.is_floating_point() else one for one in given])
        return {
            name: np.asarray(
                result, np.float32 if result.is_floating_point() else np.int32, order="C"
            )
            for name, result in zip(names, results, strict=True)
        }

    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node, name in zip(wanted, names, strict=True):
        with graph.inserting_before(first):
            source = graph.placeholder(name.replace(".", "_"))
        source.meta = dict(node.meta)
        node.replace_all_uses_with(source)
    graph.eliminate_dead_code()
    return Prepared(tuple(names), values)


def _computes(node: Any) -> bool:
    return node.op == "call_function" and str(node.target) not in _VIEWS


def _is_used(node: Any, constant: set[Any]) -> bool:
    """Whether something that changes from step to step takes a node, or a view of it."""
    return any(
        user not in constant or (not _computes(user) and _is_used(user, constant))
        for user in node.users
    )


def _constants(graph: Any, frozen: frozenset[Any]) -> set[Any]:
    """The nodes that depend on frozen tensors, and on nothing else but numbers."""
    random = import_torch().Tag.nondeterministic_seeded
    found: set[Any] = set(frozen)
    numbers: set[Any] = set()
    for node in graph.nodes:
        known = node.op == "call_function" and all(
            one in found or one in numbers for one in node.all_input_nodes
        )
        name = str(node.target).partition(".")[2]
        if not known or name.startswith(_UNSET) or random in getattr(node.target, "tags", ()):
            continue
        of_numbers = numbers.issuperset(node.all_input_nodes)
        (numbers if of_numbers or name.startswith(_OF_A_SHAPE) else found).add(node)
    return found


def _is_small(node: Any) -> bool:
    """Whether a result is one tensor, no larger than the frozen tensors that it is computed of."""
    if not hasattr(node.meta.get("val"), "numel"):
        return False
    sources = [one for one in _with_origins([node]) if one.op == "placeholder"]
    return bool(node.meta["val"].numel() <= sum(one.meta["val"].numel() for one in sources))


def _with_origins(nodes: Sequence[Any]) -> set[Any]:
    """Nodes, and all that they are computed of."""
    found: set[Any] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _function_of(sources: Sequence[Any], nodes: Sequence[Any], wanted: Sequence[Any]) -> Any:
    """A function of some sources that computes nodes, in order, and returns those that are wanted."""
    torch = import_torch()
    copied = torch.fx.Graph()
    known = {node: copied.placeholder(node.name) for node in sources}
    for node in nodes:
        if node not in known:
            known[node] = copied.node_copy(node, known.__getitem__)
    copied.output(tuple(known[node] for node in wanted))
    return torch.fx.Interpreter(torch.fx.GraphModule({}, copied)).run


def _fold_norms(graph: Any, constant: set[Any]) -> None:
    for node in list(graph.nodes):
        name = str(node.target)
        if node.op != "call_function" or name not in (*_NORMS, _NORM_BACKWARD):
            continue
        given = arguments_of(node)
        statistics = [
            given["weight"],
            given.get("bias"),
            given["running_mean"],
            given["running_var"],
        ]
        trains = given.get("training", given.get("train", False))
        if trains or not all(one is None or one in constant for one in statistics):
            continue
        used = {one.args[1]: one for one in node.users if one.target is operator.getitem}
        if name == _NORM_BACKWARD:
            if list(given["output_mask"]) == [True, False, False] and 0 in used:
                _replace(used[0], partial(_scaled_gradient, norm=given))
        elif 0 in used:
            x = given["input"]
            alone = len(x.users) == 1 and str(x.target) == _CONVOLUTION
            filters = arguments_of(x) if alone else {}
            if alone and not filters["transposed"] and _is_constant(filters, constant):
                _replace(used[0], partial(_convolved, norm=given, convolution=filters))
            else:
                _replace(used[0], partial(_normalised, norm=given))
    graph.eliminate_dead_code()


def _is_constant(convolution: Mapping[str, Any], constant: set[Any]) -> bool:
    return all(
        one is None or one in constant for one in (convolution["weight"], convolution["bias"])
    )


def _replace(node: Any, made: Callable[[Emit], Any]) -> None:
    """Puts what ``made`` emits in the place of a node."""
    node.replace_all_uses_with(made(emitter(node)))


def _scale(emit: Emit, norm: Mapping[str, Any]) -> Any:
    inverse = emit("rsqrt.default", emit("add.Scalar", norm["running_var"], norm["eps"]))
    weight = norm["weight"]
    return inverse if weight is None else emit("mul.Tensor", inverse, weight)


def _shift(emit: Emit, norm: Mapping[str, Any], scale: Any) -> Any:
    moved = emit("mul.Tensor", norm["running_mean"], scale)
    bias = norm["bias"]
    return emit("neg.default", moved) if bias is None else emit("sub.Tensor", bias, moved)


def _by_channel(emit: Emit, vector: Any, rank: int) -> Any:
    return emit("reshape.default", vector, [1, -1, *[1] * (rank - 2)])


def _rank(node: Any) -> int:
    return len(node.meta["val"].shape)


def _normalised(emit: Emit, norm: Mapping[str, Any]) -> Any:
    """x * scale + shift."""
    x, scale = norm["input"], _scale(emit, norm)
    wide, shift = (_by_channel(emit, one, _rank(x)) for one in (scale, _shift(emit, norm, scale)))
    return emit("add.Tensor", emit("mul.Tensor", x, wide), shift)


def _convolved(emit: Emit, norm: Mapping[str, Any], convolution: Mapping[str, Any]) -> Any:
    """The convolution with filters * scale, and bias * scale + shift."""
    scale = _scale(emit, norm)
    shift = _shift(emit, norm, scale)
    weight, bias = convolution["weight"], convolution["bias"]
    wide = emit("reshape.default", scale, [-1, *[1] * (_rank(weight) - 1)])
    if bias is not None:
        shift = emit("add.Tensor", emit("mul.Tensor", bias, scale), shift)
    rest = [value for name, value in convolution.items() if name not in ("input", "weight", "bias")]
    scaled = emit("mul.Tensor", weight, wide)
    return emit("convolution.default", convolution["input"], scaled, shift, *rest)


def _scaled_gradient(emit: Emit, norm: Mapping[str, Any]) -> Any:
    """dy * scale."""
    dy = norm["grad_out"]
    return emit("mul.Tensor", dy, _by_channel(emit, _scale(emit, norm), _rank(dy)))
