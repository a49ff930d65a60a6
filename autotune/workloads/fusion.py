"""Fuses kernels over a whole step, so that a kernel need not read back what another wrote: epilogues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from autotune.errors import UsageError
from autotune.workloads.graph import Node, StepGraph
from autotune.workloads.operators import Add, Expression, Kernel

_Position = tuple[int, int]


def fused(graph: StepGraph) -> StepGraph:
    """Makes an element-wise kernel the epilogue of the kernel whose result only it reads.

    Bias and activation join a convolution. The mask of a ReLU's gradient joins the data gradient before it. An
    update joins the gradient of its parameter, which is then never stored. A gradient with its update runs after
    the last kernel that reads the old value, so that the new value can take its place.

    Args:
        graph: A valid step without epilogues.

    Returns:
        A valid step that computes the same. Tensors that are no longer written are removed.
    """
    nodes = _Fusion(graph).result()
    used = {name for node in nodes for name in (*node.inputs, *node.outputs)}
    tensors = tuple(tensor for tensor in graph.tensors if tensor.name in used)
    result = replace(graph, tensors=tensors, nodes=nodes)
    result.validate()
    return result


class _Fusion:
    """The nodes by turn: the index of a node in the plain step, and a number among the nodes put after it."""

    def __init__(self, graph: StepGraph) -> None:
        self._loss = graph.loss
        self._nodes: dict[_Position, Node] = {}
        self._maker: dict[str, _Position] = {}
        self._readers: dict[str, set[_Position]] = {}
        self._moved = 0
        for at, node in enumerate(_counters_first(graph)):
            self._put((at, 0), node)

    def result(self) -> tuple[Node, ...]:
        for turn in list(self._nodes):
            self._join(turn)
        return tuple(self._nodes[turn] for turn in sorted(self._nodes))

    def _put(self, turn: _Position, node: Node) -> None:
        self._nodes[turn] = node
        for name in node.outputs:
            self._maker[name] = turn
        for name in node.inputs:
            self._readers.setdefault(name, set()).add(turn)

    def _take(self, turn: _Position) -> None:
        node = self._nodes.pop(turn)
        for name in node.inputs:
            self._readers[name].discard(turn)

    def _join(self, turn: _Position) -> None:
        """Makes an element-wise node the epilogue of its producer, if it can be."""
        for follower, position in _streams(self._nodes[turn]):
            name = follower.inputs[position]
            made = self._maker.get(name)
            if made is None or self._readers[name] != {turn} or name == self._loss:
                continue
            producer = self._nodes[made]
            if len(producer.outputs) != 1 or producer.kernel.replaces:
                continue
            added = tuple(n for at, n in enumerate(follower.inputs) if at != position)
            after = self._after(turn, follower, made, added)
            if after is None:
                continue
            kernel = _with_follower(producer.kernel, follower.kernel)
            if kernel is None:
                continue
            inputs = (*producer.inputs, *added)
            joined = Node(kernel, inputs, follower.outputs, producer.place)
            self._take(turn)
            self._take(made)
            self._moved += 1
            self._put(made if after == made else (after[0], self._moved), joined)
            return

    def _after(
        self, turn: _Position, follower: Node, made: _Position, added: Sequence[str]
    ) -> _Position | None:
        """The turn that the joined node follows, or has where it is its producer's; None if it would have to wait.

        An update waits for the last other reader of the value that it replaces. Nothing else waits, since waiting
        would keep the producer's operands in memory.
        """
        waits = max([made, *(self._maker[name] for name in added if name in self._maker)])
        if not follower.kernel.replaces:
            return made if waits == made else None
        readers = {t for old, _ in follower.replaced for t in self._readers[old]}
        return max([waits, *(readers - {turn})])


def _with_follower(kernel: Kernel, follower: Kernel) -> Kernel | None:
    """Returns the kernel with another kernel in its epilogue; None if that kernel needs another shape."""
    try:
        return Kernel(kernel.operator, kernel.role, (*kernel.epilogue, follower))
    except UsageError:
        return None


def _counters_first(graph: StepGraph) -> list[Node]:
    """Returns the nodes, starting with those that depend on no other (Adam's counters), which updates need."""
    made = {name for node in graph.nodes for name in node.outputs}
    early = {
        at
        for at, node in enumerate(graph.nodes)
        if made.isdisjoint(node.inputs) and node.kernel.replaces
    }
    others = (node for at, node in enumerate(graph.nodes) if at not in early)
    return [*(graph.nodes[at] for at in sorted(early)), *others]


def _streams(node: Node) -> Iterator[tuple[Node, int]]:
    """The inputs that may stream, each with the node as it is then: either one of a sum, any of a description's."""
    operator = node.kernel.operator
    if isinstance(operator, Add):
        yield from ((node, at) for at in (0, 1) if node.inputs[0] != node.inputs[1])
    elif isinstance(operator, Expression) and node.kernel.role == "forward":
        for at in operator.kernel.streams():
            if node.inputs.count(node.inputs[at]) > 1:
                continue  # It would still be read from memory.
            inputs = (*(n for i, n in enumerate(node.inputs) if i != at), node.inputs[at])
            kernel = Kernel(operator.streaming(at), node.kernel.role)
            yield replace(node, kernel=kernel, inputs=inputs), len(inputs) - 1
    elif node.kernel.streamed is not None:
        yield node, node.kernel.streamed
