"""The schedule rule of products: tiles of work-groups, work-items and registers, staged in local memory.

A product is a block that a `gemm` formulation marks. Its operands are gathered tile by tile into local memory,
each work-item keeps a tile of the result in registers (Volkov and Demmel, "Benchmarking GPUs to tune dense linear
algebra", SC 2008), and where the result is small and the reduction long, work-groups share the reduction, and a
second kernel adds their parts (split-K).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autotune.compiler.product_tiles import (
    NAMES,
    PADDING,
    PRODUCT,
    Product,
    Tile,
    Tiles,
)
from autotune.compiler.spaces import ImplicitGemm, Limits

_ADDING_ITEMS = 128
_BANKS = 16
_SKETCHES = 512
_PIPELINE = "software_pipeline_stage"


def schedule_rule(rule: ImplicitGemm, limits: Limits) -> Any:
    """The rule as TVM's `ScheduleRule`: a sketch for each way to share the reduction and to overlap loads."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule

    @derived_object
    class Rule(PyScheduleRule):  # type: ignore[misc]  # TVM ships no annotations
        def _initialize_with_tune_context(self, context: Any) -> None:
            """Nothing of the context is needed."""

        def apply(self, sch: Any, block: Any) -> list[Any]:
            product = _product_of(sch.get(block))
            if product is None:
                return [sch]
            tiles = Tiles(product, rule, limits, seed=1)
            sketches = [_Sketch(sch.copy(), tiles, tile) for tile in _samples(tiles)]
            return [sketch.made(block) for sketch in sketches]

        def clone(self) -> Any:
            return Rule()

    return Rule()


def check(rule: ImplicitGemm, limits: Limits) -> Any:
    """A `Postproc` that refuses tiles which do not divide the product, or are too large for the device."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.postproc import PyPostproc

    @derived_object
    class Fits(PyPostproc):  # type: ignore[misc]  # TVM ships no annotations
        def _initialize_with_tune_context(self, context: Any) -> None:
            self._tiles = Tiles(product_of(context.mod), rule, limits, seed=1)

        def apply(self, sch: Any) -> bool:
            return self._tiles.fits(tile_of(sch.trace))

        def clone(self) -> Any:
            return Fits()

    return Fits()


def product_of(module: Any) -> Product:
    """The product of an unscheduled program of a `gemm` formulation."""
    from tvm.s_tir import Schedule

    sch = Schedule(module)
    (product,) = filter(
        None, (_product_of(sch.get(b)) for b in sch.get_child_blocks(sch.get_sblock("root")))
    )
    return product


def _product_of(block: Any) -> Product | None:
    if PRODUCT not in block.annotations:
        return None
    rows_along, columns_along = (bool(int(way)) for way in block.annotations[PRODUCT])
    batch, rows, columns, depth = (int(var.dom.extent) for var in block.iter_vars)
    return Product(rows_along, columns_along, batch, rows, columns, depth)


def _samples(tiles: Tiles) -> list[Tile]:
    """A tile of each kind of sketch that the product has."""
    return list({tile.kind: tile for tile in tiles.drawn(_SKETCHES)}.values())


def _decisions(tile: Tile) -> list[str]:
    """Names of a sketch's decisions, in the order of its trace."""
    return list(NAMES[:-1] if tile.parts > 1 else NAMES[1:-1])


def tile_of(trace: Any) -> Tile:
    """The tile that a trace of the rule makes."""
    values: list[Any] = []
    pipelined = False
    for instruction in trace.insts:
        kind = instruction.kind.name
        if kind == "SampleCategorical":
            candidates = instruction.attrs[0]
            values.append(int(candidates[int(trace.get_decision(instruction))]))
        elif kind == "Annotate" and str(instruction.attrs[0]) == _PIPELINE:
            pipelined = True
    if len(values) < len(NAMES) - 1:
        values = [1, *values]
    return Tile(**dict(zip(NAMES, [*values, pipelined], strict=True)))


class Sketches:
    """Makes schedules of tiles from the rule's sketches.

    Args:
        module: The unscheduled program.
        sketches: What the rule made of it.
    """

    def __init__(self, module: Any, sketches: Sequence[Any]) -> None:
        self._module = module
        self._traces = {tile_of(sketch.trace).kind: sketch.trace for sketch in sketches}

    def has(self, tile: Tile) -> bool:
        """Whether there is a sketch of the tile's kind."""
        return tile.kind in self._traces

    def schedule(self, tile: Tile) -> Any:
        """The schedule with every decision as the tile has it."""
        from tvm.s_tir import Schedule

        schedule = Schedule(self._module)
        wanted = iter(_decisions(tile))

        def decide(instruction: Any, inputs: Any, attributes: Any, decision: Any) -> Any:
            if instruction.kind.name != "SampleCategorical":
                return decision
            return [int(one) for one in attributes[0]].index(getattr(tile, next(wanted)))

        self._traces[tile.kind].apply_to_schedule(schedule, False, decide)
        return schedule


class _Sketch:
    """A sketch in the making, by the decisions of one tile."""

    def __init__(self, sch: Any, tiles: Tiles, tile: Tile) -> None:
        self._sch = sch
        self._product = tiles.product
        self._choices = tiles.choices
        self._through_local = tiles.staged
        self._tile = tile
        self._split = tile.parts > 1

    def made(self, block: Any) -> Any:
        """Schedules everything; the schedule."""
        sch = self._sch
        sch.unannotate(block, PRODUCT)
        last = self._joined_consumers(block)
        if self._split:
            outer, _ = sch.split(sch.get_loops(block)[3], [self._decided("parts"), None])
            self._cut(sch.rfactor(outer, 0))
            self._add_parts(block)
        else:
            self._cut(block)
        # At the end: to move a block takes its guard away.
        sch.reverse_compute_inline(last)
        return sch

    def _decided(self, name: str) -> Any:
        """A decision of the search."""
        values = [int(value) for value in self._choices[name]]
        chances = [1.0 / len(values)] * len(values)
        return self._sch.sample_categorical(
            values, chances, decision=values.index(getattr(self._tile, name))
        )

    def _joined_consumers(self, block: Any) -> Any:
        """Makes one block of all that follows the product, element by element."""
        (last,) = self._sch.get_consumers(block)
        while following := self._sch.get_consumers(last):
            self._sch.compute_inline(last)
            (last,) = following
        return last

    def _add_parts(self, block: Any) -> None:
        """The second kernel: a work-item adds the parts of one element."""
        sch, product = self._sch, self._product
        elements = product.batch * product.rows * product.columns
        *result, part = sch.get_loops(block)
        written = sch.cache_write(block, 0, "local")
        groups, items = sch.split(sch.fuse(*result), [None, math.gcd(elements, _ADDING_ITEMS)])
        sch.bind(groups, "blockIdx.x")
        sch.bind(items, "threadIdx.x")
        sch.reverse_compute_at(written, items, preserve_unit_loops=True)
        sch.decompose_reduction(block, part)

    def _cut(self, block: Any) -> None:
        """Cuts the product into tiles, and gathers its operands where a work-group uses them."""
        sch = self._sch
        written = sch.cache_write(block, 0, "local")
        operands = sch.get_producers(block)
        if self._split:
            batch, rows, columns, parts, depth = sch.get_loops(block)
            outer = [parts, batch]
        else:
            batch, rows, columns, depth = sch.get_loops(block)
            outer = [batch]
        row_cut = [self._decided(f"row_{name}") for name in ("strided", "items", "vector")]
        column_cut = [self._decided(f"column_{name}") for name in ("strided", "items", "vector")]
        steps, within = sch.split(depth, [None, self._decided("deep")])
        within, step = sch.split(within, [None, self._decided("unrolled")])
        row_group, row_part, row_item, row = sch.split(rows, [None, *row_cut])
        column_group, column_part, column_item, column = sch.split(columns, [None, *column_cut])
        sch.reorder(
            *outer, row_group, column_group, row_part, column_part, row_item, column_item,
            steps, within, step, row, column,
        )  # fmt: skip
        sch.bind(sch.fuse(*outer, row_group), "blockIdx.y")
        sch.bind(column_group, "blockIdx.x")
        sch.bind(row_part, "vthread.y")
        sch.bind(column_part, "vthread.x")
        sch.bind(row_item, "threadIdx.y")
        sch.bind(column_item, "threadIdx.x")
        sch.reverse_compute_at(written, column_item, preserve_unit_loops=True)
        items = (row_cut[1], column_cut[1])
        along = (self._product.rows_along, self._product.columns_along)
        for index, (operand, along_depth) in enumerate(zip(operands, along, strict=True)):
            load = self._decided(("row_load", "column_load")[index])
            if not self._through_local:
                self._gather(operand, within, along_depth=along_depth)
                continue
            registers = sch.cache_read(block, index, "local")
            sch.compute_at(registers, step, preserve_unit_loops=True)
            sch.vectorize(sch.get_loops(registers)[-1])
            self._stage(operand, steps, items, load, along_depth=along_depth)
        for loop in (step, row, *sch.get_loops(written)[-2:]):
            sch.unroll(loop)
        sch.vectorize(column)
        sch.decompose_reduction(block, steps)
        if self._tile.pipelined:
            sch.annotate(steps, _PIPELINE, [0, 0, 1])
            sch.annotate(steps, "software_pipeline_order", [0, 1, 2])

    def _gather(self, operand: Any, within: Any, *, along_depth: bool) -> None:
        """Gathers what a work-item needs for some steps into its registers, vectors of neighbours in memory."""
        sch = self._sch
        sch.set_scope(operand, 0, "local")
        sch.compute_at(operand, within, preserve_unit_loops=True)
        deep, wide = sch.get_loops(operand)[-2:]
        if along_depth:
            sch.reorder(wide, deep)
            deep, wide = wide, deep
        sch.unroll(deep)
        sch.vectorize(wide)

    def _stage(
        self, operand: Any, steps: Any, items: tuple[Any, Any], load: Any, *, along_depth: bool
    ) -> None:
        """Gathers an operand's tile into local memory, all work-items together, neighbours in memory first."""
        sch = self._sch
        sch.set_scope(operand, 0, "shared")
        sch.compute_at(operand, steps, preserve_unit_loops=True)
        deep, wide = sch.get_loops(operand)[-2:]
        if along_depth:
            sch.reorder(wide, deep)
            sch.storage_align(operand, 0, axis=-2, factor=_BANKS, offset=PADDING)
        _, row_item, column_item, lanes = sch.split(
            sch.fuse(*sch.get_loops(operand)[-2:]), [None, *items, load]
        )
        sch.bind(row_item, "threadIdx.y")
        sch.bind(column_item, "threadIdx.x")
        sch.vectorize(lanes)
