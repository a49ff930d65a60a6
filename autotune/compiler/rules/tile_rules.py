"""Rules that cut one kind of formulation into tiles, and what MetaSchedule needs to search them.

Such a formulation marks its main block. Its rule makes a sketch of each kind of schedule, whose decisions are
categorical samples in a fixed order: a tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Protocol

from autotune.compiler.target import Limits
from autotune.compiler.tiles import TileSpace, names_of
from autotune.errors import RecordError

_ITEMS = 128


class TileRule(Protocol):
    """How one kind of formulation is cut."""

    mark: str
    """Annotation of the block that is cut."""

    def tiles(self, block: Any, seed: int) -> TileSpace[Any]:
        """The tiles of a marked block."""

    def kind(self, tile: Any) -> Any:
        """What sets the sketches of two tiles apart, beside their decisions."""

    def decisions(self, tile: Any) -> Sequence[str]:
        """Names of a sketch's decisions, in the order of its trace."""

    def tile(self, decided: Sequence[int], trace: Any) -> Any:
        """The tile of a trace, from what it decides."""

    def sketch(self, sch: Any, block: Any, tiles: Any, tile: Any) -> Any:
        """Schedules everything; the schedule."""


class PlainTiles:
    """What rules have in common whose sketches decide every field of a tile."""

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
    """A `Postproc` that refuses tiles which do not divide the kernel, or are too large for the device."""
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
    """The tiles of an unscheduled program that a formulation of the rule made."""
    return rule.tiles(_marked(rule, module), seed)


def _marked(rule: TileRule, module: Any) -> Any:
    """The block of an unscheduled program that the rule cuts."""
    from tvm.s_tir import Schedule

    sch = Schedule(module)
    blocks = map(sch.get, sch.get_child_blocks(sch.get_sblock("root")))
    (marked,) = (block for block in blocks if rule.mark in block.annotations)
    return marked


def tile_of(rule: TileRule, trace: Any) -> Any:
    """The tile that a trace of the rule makes."""
    return rule.tile(
        [
            int(instruction.attrs[0][int(trace.get_decision(instruction))])
            for instruction in _samples(trace)
        ],
        trace,
    )


def recorded_tile(rule: TileRule, trace: Any) -> Any:
    """The tile of a trace in plain JSON data, as records have it; no schedule is made for it.

    Raises:
        RecordError: It is no trace of the rule's.
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
    """The instructions of a trace that decide."""
    return [one for one in trace.insts if one.kind.name == "SampleCategorical"]


def sampled(sch: Any, values: Sequence[int], value: int) -> Any:
    """Makes a decision of the search a part of a sketch: a value among those that there are."""
    values = [int(one) for one in values]
    chances = [1.0 / len(values)] * len(values)
    return sch.sample_categorical(values, chances, decision=values.index(value))


def joined_consumers(sch: Any, block: Any, items: int) -> Any:
    """Makes one block of what follows a block, element by element; the block.

    Where that is no chain, or has results on its way, as an update with moments has, the rest become kernels of
    their own, with so many work-items in a group.
    """
    last = joined_chain(sch, block)
    for one in followers(sch, last).values():
        among_items(sch, sch.get_loops(one), items)
    return last


def joined_chain(sch: Any, block: Any) -> Any:
    """Makes one block of the chain that follows a block, up to a result or a fork; the block."""
    (last,) = sch.get_consumers(block)
    while len(following := sch.get_consumers(last)) == 1 and not is_result(sch, last):
        sch.compute_inline(last)
        (last,) = following
    return last


def followers(sch: Any, block: Any) -> dict[str, Any]:
    """The blocks that follow one, near ones first, by their names."""
    found: dict[str, Any] = {}
    waiting = list(sch.get_consumers(block))
    while waiting:
        one = waiting.pop(0)
        name = str(sch.get(one).name_hint)
        if name not in found:
            found[name] = one
            waiting += sch.get_consumers(one)
    return found


def is_result(sch: Any, block: Any) -> bool:
    """Whether a block writes a result of the program."""
    written = sch.get(block).writes[0].source
    return any(written.same_as(one) for one in sch.mod["main"].params)


def side_items(limits: Limits) -> int:
    """Work-items of a group in kernels beside the product or the windows: a power of two."""
    most = min(_ITEMS, limits.max_threads_per_block, limits.max_item_sizes[0])
    return 1 << most.bit_length() - 1


def add_parts(sch: Any, block: Any, items: int) -> None:
    """The second kernel of a shared reduction: a work-item adds the parts of one element."""
    *result, part = sch.get_loops(block)
    written = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(written, among_items(sch, result, items), preserve_unit_loops=True)
    sch.decompose_reduction(block, part)


def into_registers(sch: Any, operands: Sequence[Any], loop: Any) -> None:
    """Reads operands into registers, as much of them as an iteration of a loop needs."""
    for operand in operands:
        before = len(sch.get_loops(operand))
        sch.set_scope(operand, 0, "local")
        sch.compute_at(operand, loop, preserve_unit_loops=True)
        for one in sch.get_loops(operand)[-before:]:
            sch.unroll(one)


def among_items(sch: Any, loops: Sequence[Any], items: int) -> Any:
    """Shares outer loops among groups of so many work-items, or fewer; the loop of an item."""
    extent = math.prod(int(sch.get(loop).extent) for loop in loops)
    groups, item = sch.split(sch.fuse(*loops), [None, math.gcd(extent, items)])
    sch.bind(groups, "blockIdx.x")
    sch.bind(item, "threadIdx.x")
    return item


class Sketches:
    """Makes schedules of tiles from a rule's sketches, each of which is made when the first tile of its kind is.

    Args:
        rule: The rule.
        module: The unscheduled program.
    """

    def __init__(self, rule: TileRule, module: Any) -> None:
        self._rule = rule
        self._module = module
        block = _marked(rule, module)
        self._tiles = rule.tiles(block, seed=1)
        self._block = str(block.name_hint)
        self._traces: dict[Any, Any] = {}

    def schedule(self, tile: Any) -> Any:
        """The schedule with every decision as the tile has it."""
        from tvm.s_tir import Schedule

        kind = self._rule.kind(tile)
        if kind not in self._traces:
            sketch = self._sketch(tile)
            self._traces[kind] = sketch.trace
            return sketch
        schedule = Schedule(self._module)
        wanted = iter(self._rule.decisions(tile))

        def decide(instruction: Any, inputs: Any, attributes: Any, decision: Any) -> Any:
            if instruction.kind.name != "SampleCategorical":
                return decision
            return [int(one) for one in attributes[0]].index(getattr(tile, next(wanted)))

        self._traces[kind].apply_to_schedule(schedule, False, decide)
        return schedule

    def _sketch(self, tile: Any) -> Any:
        from tvm.s_tir import Schedule

        sch = Schedule(self._module)
        block = sch.get_sblock(self._block)
        sch.unannotate(block, self._rule.mark)
        return self._rule.sketch(sch, block, self._tiles, tile)
