"""Reads the traits of a schedule from its program.

The bytes that go through a cache are derived from the loop nest alone, as in Timeloop (Parashar et al., ISPASS
2019). If all data that a loop touches fits into the cache, each byte goes through once. If only the data of its
body fits, tensors that the loop does not move through stay, and the others are loaded again in each iteration. If
neither fits, everything is loaded again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autotune.workloads import CACHE_SIZES, NestTraits, ScheduleTraits


@dataclass(frozen=True)
class _Access:
    """A region of a tensor that a block reads or writes.

    Attributes:
        tensor: Name of the tensor.
        element_bytes: Size of an element.
        region: First element and number of elements in each dimension, in terms of variables of blocks and loops.
        written: Whether the region is written.
    """

    tensor: str
    element_bytes: int
    region: tuple[tuple[Any, int], ...]
    written: bool


@dataclass(frozen=True)
class _Node:
    """A loop, or a leaf block if `variable` is None.

    Attributes:
        variable: The loop's variable.
        extent: Number of its iterations.
        kind: TVM's `ForKind`.
        children: Loops and blocks inside.
        accesses: Accesses of a leaf.
        bindings: Variables of the blocks around a leaf, with their values, outermost first.
        operations: Floating-point operations of a leaf.
    """

    variable: Any = None
    extent: int = 1
    kind: int = 0
    children: tuple[_Node, ...] = ()
    accesses: tuple[_Access, ...] = ()
    bindings: tuple[tuple[Any, Any], ...] = ()
    operations: int = 0

    def leaves(self) -> list[_Node]:
        return [leaf for child in self.children for leaf in child.leaves()] or [self]


def traits(module: Any) -> ScheduleTraits:
    """Returns the traits of a scheduled `tvm.IRModule`, whose function is `main`."""
    return ScheduleTraits(tuple(_nest(root) for root in _nodes(module["main"].body, ())))


def _nest(root: _Node) -> NestTraits:
    flops, vector = _flops(root)
    nest = _Nest(root)
    return NestTraits(
        flops=flops,
        jobs=_jobs(root),
        vector_share=vector / flops if flops else 0.0,
        traffic=tuple(sum(nest.traffic(root, size).values()) for size in CACHE_SIZES),
    )


def _jobs(node: _Node) -> int:
    """Returns the number of iterations of the outermost directly nested parallel loops."""
    from tvm.tirx import ForKind

    if node.kind != ForKind.PARALLEL:
        return max((_jobs(child) for child in node.children), default=1)
    inner = node.children[0] if len(node.children) == 1 else None
    together = inner is not None and inner.kind == ForKind.PARALLEL
    return node.extent * (_jobs(inner) if inner is not None and together else 1)


def _flops(node: _Node) -> tuple[float, float]:
    """Returns the number of operations, and how many of them are in vectorised loops."""
    from tvm.tirx import ForKind

    if not node.children:
        return float(node.operations), 0.0
    inside = [_flops(child) for child in node.children]
    flops = node.extent * sum(every for every, _ in inside)
    if node.kind == ForKind.VECTORIZED:
        return flops, flops
    return flops, node.extent * sum(vector for _, vector in inside)


_Bytes = dict[tuple[str, bool], float]
"""Bytes by tensor, and by whether it is written."""


class _Nest:
    """Computes how much data a nest touches, and how much of it goes through a cache."""

    def __init__(self, root: _Node) -> None:
        self.root = root
        self._loops = _loops(root)
        self._known: dict[int, _Bytes] = {}

    def touched(self, node: _Node) -> _Bytes:
        """Returns the bytes that a node reads and writes in one iteration of its outer loops, each byte once."""
        if id(node) not in self._known:
            self._known[id(node)] = self._boxes(node)
        return self._known[id(node)]

    def traffic(self, node: _Node, cache_bytes: int) -> _Bytes:
        """Returns the bytes of a node that go through a cache."""
        touched = self.touched(node)
        if not node.children or _held(touched) <= cache_bytes:
            return touched
        body, within = _Bytes(), _Bytes()
        for child in node.children:
            for key, size in self.traffic(child, cache_bytes).items():
                body[key] = body.get(key, 0.0) + size
            for key, size in self.touched(child).items():
                within[key] = max(size, within.get(key, 0.0))
        fits = _held(within) <= cache_bytes
        return {
            key: size if fits and touched[key] <= within[key] else node.extent * size
            for key, size in body.items()
        }

    def _boxes(self, node: _Node) -> _Bytes:
        from tvm import ir
        from tvm.sym import Analyzer

        running = _loops(node)
        found = _Bytes()
        for leaf in node.leaves():
            analyzer = Analyzer()
            for variable, extent in self._loops.items():
                analyzer.bind(variable, ir.Range(0, extent if variable in running else 1))
            for variable, value in leaf.bindings:
                analyzer.bind(variable, value)
            for access in leaf.accesses:
                size = float(access.element_bytes)
                for first, count in access.region:
                    bound = analyzer.const_int_bound(analyzer.simplify(first))
                    size *= int(bound.max_value) - int(bound.min_value) + count
                key = access.tensor, access.written
                found[key] = max(size, found.get(key, 0.0))
        return found


def _held(touched: _Bytes) -> float:
    """Returns the bytes that a cache needs to hold the touched data."""
    sizes: dict[str, float] = {}
    for (tensor, _), size in touched.items():
        sizes[tensor] = max(size, sizes.get(tensor, 0.0))
    return sum(sizes.values())


def _loops(node: _Node) -> dict[Any, int]:
    own = {} if node.variable is None else {node.variable: node.extent}
    for child in node.children:
        own |= _loops(child)
    return own


def _nodes(stmt: Any, bindings: tuple[tuple[Any, Any], ...]) -> tuple[_Node, ...]:
    """Returns the loops and leaf blocks directly within a statement."""
    from tvm import tirx
    from tvm.s_tir import SBlockRealize

    if isinstance(stmt, tirx.SeqStmt):
        return tuple(node for part in stmt.seq for node in _nodes(part, bindings))
    if isinstance(stmt, tirx.For):
        children = _nodes(stmt.body, bindings)
        return (_Node(stmt.loop_var, int(stmt.extent), int(stmt.kind), children),)
    if isinstance(stmt, SBlockRealize):
        block = stmt.block
        variables = [iteration.var for iteration in block.iter_vars]
        bound = (*bindings, *zip(variables, stmt.iter_values, strict=True))
        return _nodes(block.body, bound) or (
            _Node(
                accesses=_accesses(block), bindings=bound, operations=_operations(block.body.value)
            ),
        )
    return ()


def _accesses(block: Any) -> tuple[_Access, ...]:
    return tuple(
        _Access(
            str(region.source.name),
            region.source.dtype.itemsize,
            tuple((range_.min, int(range_.extent)) for range_ in region.region),
            written,
        )
        for regions, written in ((block.reads, False), (block.writes, True))
        for region in regions
    )


def _operations(value: Any) -> int:
    """Returns the floating-point operations of an expression: sums, products, quotients, extremes and functions."""
    from tvm import ir, tirx

    if isinstance(value, ir.Call):
        inside = sum(_operations(argument) for argument in value.args)
        return inside + (0 if str(value.op.name).endswith("if_then_else") else 1)
    if isinstance(value, tirx.Select):
        return _operations(value.true_value) + _operations(value.false_value)
    if isinstance(value, tirx.Cast):
        return _operations(value.value)
    if not (hasattr(value, "a") and hasattr(value, "b")) or not str(value.ty.dtype).startswith(
        "float"
    ):
        return 0
    return 1 + _operations(value.a) + _operations(value.b)
