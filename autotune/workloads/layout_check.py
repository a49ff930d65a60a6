"""Checks that a step's kernels read each tensor in its stored order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.workloads.graph import Node
from autotune.workloads.layout import Layout, operand_layouts
from autotune.workloads.operators import Kernel, Matmul

Order = tuple[tuple[int, ...], tuple[int, ...]]


def agrees(node: Node, kernel: Kernel, layouts: Mapping[str, Layout]) -> bool:
    """Returns whether a node may compute as ``kernel`` does, on tensors that are stored as in ``layouts``.

    A node may see a tensor in another shape than the tensor's own. This does not matter if tensors are stored as
    the model defines them. If they are reordered, only some views still have the same elements.

    Args:
        node: A node of the plain step, without an epilogue.
        kernel: The kernel that is to replace the node's.
        layouts: Layouts of the reordered tensors.
    """
    names = (*node.inputs, *node.outputs)
    orders = [_order(layouts.get(name)) for name in names]
    if isinstance(kernel.operator, Matmul):
        return _matmul_agrees(node, layouts)
    if kernel.streamed is not None and kernel == node.kernel:
        specs = (*kernel.inputs, *kernel.outputs)
        wide = max(spec.elements for spec in specs)
        found = {o for o, spec in zip(orders, specs, strict=True) if spec.elements == wide}
        rest = [o for o, spec in zip(orders, specs, strict=True) if spec.elements != wide]
        return len(found) == 1 and not any(rest)
    read, written = operand_layouts(kernel)
    return orders == [_order(layout) for layout in (*read, *written)]


def _matmul_agrees(node: Node, layouts: Mapping[str, Layout]) -> bool:
    """Returns whether both tensors with input features have them in one order, and nothing else is reordered."""
    role = node.kernel.role
    names = (*node.inputs, *node.outputs)
    featured = {"forward": (0, 1), "data_grad": (1, 2), "weight_grad": (0, 2)}[role]
    columns = [_columns(layouts.get(names[at])) for at in featured]
    (other,) = {0, 1, 2} - set(featured)
    same = columns[0] is not None and columns[0] == columns[1]
    return same and not _order(layouts.get(names[other]))


def _columns(layout: Layout | None) -> Order | tuple[()] | None:
    """Returns the order of a matrix's columns; None if its rows are not the slowest axis."""
    if layout is None:
        return ()
    if layout.order[0] != 0:
        return None
    return _merged(layout.view[1:], [axis - 1 for axis in layout.order[1:]])


def _order(layout: Layout | None) -> Order | tuple[()]:
    return () if layout is None else _merged(layout.view, layout.order)


def _merged(view: Sequence[int], order: Sequence[int]) -> Order | tuple[()]:
    """Returns a reordering in its shortest form: equal forms mean equal orders. It is empty if nothing moves.

    Axes of size 1 are dropped, and axes that stay neighbours are merged.
    """
    kept = [axis for axis in order if view[axis] > 1]
    runs: list[list[int]] = []
    rank = {axis: at for at, axis in enumerate(sorted(kept))}
    for axis in kept:
        if runs and rank[axis] == rank[runs[-1][-1]] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if len(runs) < 2:
        return ()
    by_place = sorted(runs)
    sizes = []
    for run in by_place:
        size = 1
        for axis in run:
            size *= view[axis]
        sizes.append(size)
    return tuple(sizes), tuple(by_place.index(run) for run in runs)
