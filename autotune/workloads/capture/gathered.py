"""Sums of many small products become one product, as in the weight gradients of recurrent layers.

A recurrent layer uses one weight in each step of its loop. So the gradient of this weight is a sum of products
``A0 B0 + A1 B1 + ...``, which is ``[A0 A1 ...] [B0; B1; ...]``: one product with a longer reduction. The gradient
of its bias is a sum of sums over rows, which is one sum over all rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from autotune.workloads.capture.emitting import emitter
from autotune.workloads.capture.factory import import_torch

_FEWEST = 4
"""Terms that are worth the copy of their operands."""
_VIEWS = frozenset(
    [
        "alias.default",
        "detach.default",
        "permute.default",
        "reshape.default",
        "t.default",
        "view.default",
    ]
)


def gather_sums(graph: Any) -> None:
    """Replaces sums of products, and sums of sums over rows, in a traced graph. The graph is changed."""
    aten = import_torch().ops.aten
    joined: dict[tuple[Any, ...], Any] = {}
    for root in list(graph.nodes):
        if not _is_sum(root) or any(_is_sum(user) and len(root.users) == 1 for user in root.users):
            continue  # Not the outermost of its terms.
        groups: defaultdict[Any, list[Any]] = defaultdict(list)
        terms = _terms(root)
        for term in terms:
            source, views = _source(term)
            if len(term.users) == 1 and (kind := _kind(source, aten)) is not None:
                groups[kind, views].append(term)
        some = {key: group for key, group in groups.items() if len(group) >= _FEWEST}
        if not some:
            continue
        gathered = {term for group in some.values() for term in group}
        emit = emitter(root)
        made = []
        for (_, views), group in some.items():
            found = _gathered(emit, [_source(term)[0] for term in group], joined, aten)
            for name, rest in reversed(views):
                found = emit(name, found, *rest)
            made.append(found)
        total, *more = [*made, *(term for term in terms if term not in gathered)]
        for term in more:
            total = emit("add.Tensor", total, term)
        root.replace_all_uses_with(total)
    graph.eliminate_dead_code()


def _is_sum(node: Any) -> bool:
    """Whether a node is a plain sum of two tensors of one shape."""
    if node.op != "call_function" or str(node.target) != "aten.add.Tensor" or node.kwargs:
        return False
    shapes = {tuple(one.meta["val"].shape) for one in node.args if hasattr(one, "meta")}
    return len(node.args) == len(node.all_input_nodes) == 2 and shapes == {
        tuple(node.meta["val"].shape)
    }


def _terms(root: Any) -> list[Any]:
    """The terms of a sum, in the order of their computation."""
    found, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        if _is_sum(node) and (node is root or len(node.users) == 1):
            waiting += reversed(node.args)
        else:
            found.append(node)
    return found


def _source(term: Any) -> tuple[Any, tuple[tuple[str, tuple[Any, ...]], ...]]:
    """What a term is a view of, and the views, the last first: names and further arguments."""
    views = []
    while term.op == "call_function" and len(term.users) == 1:
        name = str(term.target).removeprefix("aten.")
        if name not in _VIEWS or term.kwargs:
            break
        rest = tuple(tuple(one) if isinstance(one, list) else one for one in term.args[1:])
        views.append((name, rest))
        term = term.args[0]
    return term, tuple(views)


def _kind(term: Any, aten: Any) -> Any:
    """What terms must share to be gathered; None for a term that cannot be."""
    if term.op != "call_function" or len(term.users) != 1:
        return None
    if term.target is aten.mm.default:
        first, second = term.args
        turned = _is_turned(first, aten)
        return "product", turned, first.meta["val"].shape, second.meta["val"].shape
    if term.target is aten.sum.dim_IntList and list(term.args[1]) == [0]:
        kept = term.args[2] if len(term.args) > 2 else False
        if term.kwargs or len(term.args) > 3 or len(term.args[0].meta["val"].shape) != 2:
            return None
        return "rows", kept, term.args[0].meta["val"].shape
    return None


def _is_turned(node: Any, aten: Any) -> bool:
    """Whether a matrix is another one, transposed."""
    if node.target is aten.t.default:
        return True
    return node.target is aten.permute.default and list(node.args[1]) == [1, 0]


def _gathered(
    emit: Callable[..., Any], group: Sequence[Any], joined: dict[tuple[Any, ...], Any], aten: Any
) -> Any:
    """One product or sum in the place of several."""

    def whole(parts: list[Any], axis: int) -> Any:
        key = (*parts, axis)
        if key not in joined:
            joined[key] = emit("cat.default", parts, axis)
        return joined[key]

    first = group[0]
    if first.target is not aten.mm.default:
        kept = first.args[2] if len(first.args) > 2 else False
        return emit("sum.dim_IntList", whole([one.args[0] for one in group], 0), [0], kept)
    right = whole([one.args[1] for one in group], 0)
    if _is_turned(first.args[0], aten):
        rows = whole([one.args[0].args[0] for one in group], 0)
        return emit("mm.default", emit("permute.default", rows, [1, 0]), right)
    return emit("mm.default", whole([one.args[0] for one in group], 1), right)
