"""Rules that tile one kind of formulation, and their interface to MetaSchedule.

Such a formulation marks its main block. Its rule makes a sketch for each kind of schedule. The sketch's decisions
are categorical samples in a fixed order; together they are a tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Protocol

from autotune.compiler.programs import Unscheduled
from autotune.compiler.target import Limits
from autotune.compiler.tiles import TileSpace, names_of
from autotune.errors import RecordError

RESULT, SUMMED = 0, 2
"""Kinds of a block's axes, in TVM's numbering."""
_ITEMS = 128


class TileRule(Protocol):
    """How one kind of formulation is tiled."""

    mark: str
    """Annotation of the block that is tiled."""

    def tiles(self, block: Any, seed: int) -> TileSpace[Any]:
        """Returns the tiles of a marked block."""

    def kind(self, tile: Any) -> Any:
        """Returns a key of the tile's sketch. Tiles with equal keys share a sketch; only their decisions differ."""

    def decisions(self, tile: Any) -> Sequence[str]:
        """Returns the names of a sketch's decisions, in the order of its trace."""

    def tile(self, decided: Sequence[int], trace: Any) -> Any:
        """Returns the tile of a trace, from its decisions."""

    def sketch(self, sch: Any, block: Any, tiles: Any, tile: Any) -> Any:
        """Schedules everything, and returns the schedule."""


class PlainTiles:
    """Base class of rules whose sketches sample every field of a tile."""

    made: type[Any]
    """The class of the tiles."""

    def kind(self, tile: Any) -> Any:
        """See `TileRule`."""

    def decisions(self, tile: Any) -> Sequence[str]:
        """See `TileRule`."""
        return names_of(self.made)

    def tile(self, decided: Sequence[int], trace: Any) -> Any:
        """See `TileRule`."""
        return self.made(*decided)


def check(rule: TileRule) -> Any:
    """Returns a `Postproc` that refuses tiles that do not divide the kernel, or are too large for the device."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.postproc import PyPostproc

    @derived_object
    class Fits(PyPostproc):  # type: ignore[misc]  # TVM ships no annotations
        def _initialize_with_tune_context(self, context: Any) -> None:
            self._tiles = tiles_of(rule, context.mod, seed=1)

        def apply(self, sch: Any) -> bool:
            return self._tiles.fits(tile_of(rule, sch.trace))

        def clone(self) -> Any:
            return Fits()

    return Fits()


def tiles_of(rule: TileRule, module: Any, seed: int) -> TileSpace[Any]:
    """Returns the tiles of an unscheduled program whose formulation belongs to the rule."""
    return rule.tiles(_marked(rule, module), seed)


def _marked(rule: TileRule, module: Any) -> Any:
    """Returns the block of an unscheduled program that the rule tiles."""
    from tvm.s_tir import Schedule

    sch = Schedule(module)
    blocks = map(sch.get, sch.get_child_blocks(sch.get_sblock("root")))
    (marked,) = (block for block in blocks if rule.mark in block.annotations)
    return marked


def tile_of(rule: TileRule, trace: Any) -> Any:
    """Returns the tile of one of the rule's traces."""
    return rule.tile(
        [
            int(instruction.attrs[0][int(trace.get_decision(instruction))])
            for instruction in _samples(trace)
        ],
        trace,
    )


def recorded_tile(rule: TileRule, trace: Any) -> Any:
    """Returns the tile of a trace in plain JSON data, as records store it, without making a schedule.

    Raises:
        RecordError: The trace does not belong to the rule.
    """
    try:
        written, decisions = trace
        instructions = [
            SimpleNamespace(kind=SimpleNamespace(name=name), inputs=inputs, attrs=attributes)
            for name, inputs, attributes, _ in written
        ]
        decided = {id(instructions[index]): decision for index, decision in decisions}
        read = SimpleNamespace(insts=instructions, get_decision=lambda one: decided[id(one)])
        return tile_of(rule, read)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise RecordError(f"a trace in the records is of another version: {error!r}") from error


def _samples(trace: Any) -> list[Any]:
    """Returns the instructions of a trace that make decisions."""
    return [one for one in trace.insts if one.kind.name == "SampleCategorical"]


def sampled(sch: Any, values: Sequence[int], value: int) -> Any:
    """Adds a decision to a sketch: one of the allowed values."""
    values = [int(one) for one in values]
    chances = [1.0 / len(values)] * len(values)
    return sch.sample_categorical(values, chances, decision=values.index(value))


def joined_consumers(sch: Any, block: Any, items: int) -> Any:
    """Joins the element-wise blocks that follow a block into one, and returns it.

    If they are not a chain, or have results in between (as an update with moments has), the rest become separate
    kernels, with `items` work-items in a group.
    """
    last = joined_chain(sch, block)
    for one in followers(sch, last).values():
        among_items(sch, sch.get_loops(one), items)
    return last


def joined_chain(sch: Any, block: Any) -> Any:
    """Joins the chain that follows a block, up to a result or a fork, into one block, and returns it."""
    (last,) = sch.get_consumers(block)
    while len(following := sch.get_consumers(last)) == 1 and not is_result(sch, last):
        sch.compute_inline(last)
        (last,) = following
    return last


def followers(sch: Any, block: Any) -> dict[str, Any]:
    """Returns the blocks that follow a block, nearest first, by name."""
    found: dict[str, Any] = {}
    waiting = list(sch.get_consumers(block))
    while waiting:
        one = waiting.pop(0)
        name = str(sch.get(one).name_hint)
        if name not in found:
            found[name] = one
            waiting += sch.get_consumers(one)
    return found


def extents(block: Any, kind: int) -> list[int]:
    """Returns the extents of a block's axes of one kind, `RESULT` or `SUMMED`."""
    return [int(var.dom.extent) for var in block.iter_vars if int(var.iter_type) == kind]


def is_result(sch: Any, block: Any) -> bool:
    """Returns whether a block writes a result of the program."""
    written = sch.get(block).writes[0].source
    return any(written.same_as(one) for one in sch.mod["main"].params)


def side_items(limits: Limits) -> int:
    """Returns the work-items of a group in kernels other than the main one: a power of two."""
    most = min(_ITEMS, limits.max_threads_per_block, limits.max_item_sizes[0])
    return 1 << most.bit_length() - 1


def add_parts(sch: Any, block: Any, items: int) -> None:
    """Schedules the second kernel of a shared reduction: a work-item adds up the parts of one element."""
    *result, part = sch.get_loops(block)
    written = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(written, among_items(sch, result, items), preserve_unit_loops=True)
    sch.decompose_reduction(block, part)


def into_registers(sch: Any, operands: Sequence[Any], loop: Any) -> None:
    """Reads operands into registers, as much as one iteration of a loop needs."""
    for operand in operands:
        before = len(sch.get_loops(operand))
        sch.set_scope(operand, 0, "local")
        sch.compute_at(operand, loop, preserve_unit_loops=True)
        for one in sch.get_loops(operand)[-before:]:
            sch.unroll(one)


def among_items(sch: Any, loops: Sequence[Any], items: int) -> Any:
    """Splits outer loops into groups of `items` work-items, or fewer, and returns the loop of a work-item."""
    extent = math.prod(int(sch.get(loop).extent) for loop in loops)
    groups, item = sch.split(sch.fuse(*loops), [None, math.gcd(extent, items)])
    sch.bind(groups, "blockIdx.x")
    sch.bind(item, "threadIdx.x")
    return item


class Sketches:
    """Makes schedules of tiles from a rule's sketches. A sketch is made for the first tile of its kind.

    Args:
        rule: The rule.
        module: The unscheduled program.
    """

    def __init__(self, rule: TileRule, module: Any) -> None:
        self._rule = rule
        self._unscheduled = Unscheduled(module)
        block = _marked(rule, module)
        self._tiles = rule.tiles(block, seed=1)
        self._block = str(block.name_hint)
        self._traces: dict[Any, Any] = {}

    def schedule(self, tile: Any) -> Any:
        """Returns the schedule with the tile's decisions."""
        kind = self._rule.kind(tile)
        if kind not in self._traces:
            sketch = self._sketch(tile)
            self._traces[kind] = sketch.trace
            return sketch
        schedule = self._unscheduled.schedule()
        wanted = iter(self._rule.decisions(tile))

        def decide(instruction: Any, inputs: Any, attributes: Any, decision: Any) -> Any:
            if instruction.kind.name != "SampleCategorical":
                return decision
            return [int(one) for one in attributes[0]].index(getattr(tile, next(wanted)))

        self._traces[kind].apply_to_schedule(schedule, False, decide)
        return schedule

    def _sketch(self, tile: Any) -> Any:
        sch = self._unscheduled.schedule()
        block = sch.get_sblock(self._block)
        sch.unannotate(block, self._rule.mark)
        return self._rule.sketch(sch, block, self._tiles, tile)
