"""The schedule rule for products: tiles of work-groups, work-items and registers, staged in local memory.

A product is a block that a `gemm` formulation marks. Its operands are gathered tile by tile into local memory, and
each work-item keeps a tile of the result in registers (Volkov and Demmel, "Benchmarking GPUs to tune dense linear
algebra", SC 2008). If the result is small and the reduction long, the reduction is shared: by work-groups, whose
parts a second kernel adds up (split-K), and by the work-items of a group, which add up theirs in local memory
(sliced-K, as in NVIDIA's CUTLASS).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.compiler.formulations import PRODUCT, TRANSFORM
from autotune.compiler.programs import HALF, IMAGE
from autotune.compiler.rules.tile_rules import (
    add_parts,
    among_items,
    joined_consumers,
    sampled,
    side_items,
)
from autotune.compiler.target import ImplicitGemm, Limits
from autotune.compiler.tiles import (
    BANKS,
    EACH,
    FLAGS,
    OWN,
    PADDING,
    SHARED,
    SHARES,
    Product,
    ProductTile,
    ProductTiles,
)

_PIPELINE = "software_pipeline_stage"
_ITEMS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
"""Work-items along the columns, along the rows, and along the slices of a reduction."""
_SIDES = {"row": 1, "column": 2}
"""Values of the `IMAGE` annotation: which operand is read as an image."""


class GpuProductsRule:
    """The `TileRule` of products, with one sketch for each way to share the reduction and to overlap loads.

    Args:
        rule: The allowed values.
        limits: Limits of a work-group.
    """

    mark = PRODUCT

    def __init__(self, rule: ImplicitGemm, limits: Limits) -> None:
        self._rule = rule
        self._limits = limits

    def tiles(self, block: Any, seed: int) -> ProductTiles:
        """See `TileRule`."""
        rows_along, columns_along, *transformed = (
            bool(int(flag)) for flag in block.annotations[PRODUCT]
        )
        batch, rows, columns, depth = (int(var.dom.extent) for var in block.iter_vars)
        product = Product(
            rows_along, columns_along, batch, rows, columns, depth, transformed=any(transformed)
        )
        return ProductTiles(product, self._rule, self._limits, seed)

    def kind(self, tile: ProductTile) -> tuple[bool, ...]:
        """See `TileRule`: how a reduction is shared, and the flags, which are not sampled."""
        return tile.parts > 1, tile.slices > 1, *(getattr(tile, name) for name in FLAGS)

    def decisions(self, tile: ProductTile) -> Sequence[str]:
        """See `TileRule`."""
        shared = tuple(name for name in SHARED if getattr(tile, name) > 1)
        return *shared, *OWN, *(SHARES if tile.pipelined else ())

    def tile(self, decided: Sequence[int], trace: Any) -> ProductTile:
        """See `TileRule`."""
        notes = [one for one in trace.insts if one.kind.name == "Annotate"]
        pipelined = any(str(one.attrs[0]) == _PIPELINE for one in notes)
        images = {int(one.inputs[1]) for one in notes if str(one.attrs[0]) == IMAGE}
        scopes = [str(one.attrs[1]) for one in trace.insts if one.kind.name == "SetScope"]
        if pipelined:  # These follow from the other decisions.
            decided = decided[: -len(SHARES)]
        rows_scope, columns_scope = scopes[-2:]
        sliced = any(_ITEMS[2] in map(str, one.attrs) for one in trace.insts)
        split = len(decided) - len(OWN) > sliced
        shared = [name for name, there in zip(SHARED, (split, sliced), strict=True) if there]
        numbers = dict.fromkeys(SHARED, 1) | dict(zip((*shared, *OWN), decided, strict=True))
        return ProductTile(
            **numbers,
            staged=pipelined or rows_scope == "shared",
            pipelined=pipelined,
            straight=(rows_scope, columns_scope) == ("shared", "local"),
            row_image=_SIDES["row"] in images,
            column_image=_SIDES["column"] in images,
            half=any(str(one.attrs[0]) == HALF for one in notes),
        )

    def sketch(self, sch: Any, block: Any, tiles: ProductTiles, tile: ProductTile) -> Any:
        """See `TileRule`."""
        return _Sketch(sch, tiles, tile, side_items(self._limits)).made(block)


class _Sketch:
    """Builds a sketch by the decisions of one tile. `items` are the work-items of a group in additional kernels."""

    def __init__(self, sch: Any, tiles: ProductTiles, tile: ProductTile, items: int) -> None:
        self._sch = sch
        self._tiles = tiles
        self._product = tiles.product
        self._tile = tile
        self._split = tile.parts > 1
        self._items = items

    def made(self, block: Any) -> Any:
        """Schedules everything, and returns the schedule."""
        sch = self._sch
        transforms = _transforms(sch)
        # The result block: the product, or what its transform computes from it.
        last = joined_consumers(sch, transforms[-1] if transforms else block, self._items)
        for transform in transforms:
            _in_registers(sch, transform, self._items)
        for operand in transforms[:-1] if self._tile.half else ():
            sch.annotate(operand, HALF, 1)
        if self._split:
            outer, _ = sch.split(sch.get_loops(block)[3], [self._decided("parts"), None])
            self._cut(sch.rfactor(outer, 0))
            add_parts(sch, block, self._items)
        else:
            self._cut(block)
        # At the end, because moving a block removes its guard.
        sch.reverse_compute_inline(last)
        return sch

    def _decided(self, name: str) -> Any:
        values = EACH if name in SHARES else self._tiles.choices[name]
        return sampled(self._sch, values, getattr(self._tile, name))

    def _cut(self, block: Any) -> None:
        """Splits the product into tiles, and gathers its operands where a work-group uses them."""
        sch = self._sch
        slices = [self._decided("slices")] if self._tile.slices > 1 else []
        cuts = [
            [self._decided(f"{side}_{name}") for name in ("strided", "items", "vector")]
            for side in _SIDES
        ]
        deep = self._decided("deep")
        items = [*slices, *(cut[1] for cut in cuts)]
        if slices:
            block, written = self._sliced(block, cuts, deep, items)
        else:
            written = self._whole(block, cuts, deep)
        *_, row, column, steps, within = sch.get_loops(block)
        within, step = sch.split(within, [None, self._decided("unrolled")])
        sch.reorder(steps, within, step, row, column)
        operands = sch.get_producers(block)
        along = (self._product.rows_along, self._product.columns_along)
        for operand, (side, number) in zip(operands, _SIDES.items(), strict=True):
            if getattr(self._tile, f"{side}_image"):
                sch.annotate(operand, IMAGE, number)
        if self._tile.half and not self._tile.staged and not self._product.transformed:
            for operand in operands:
                self._pack(operand)
        prefetches = self._tile.pipelined
        loads = [self._decided("row_load"), self._decided("column_load")]
        staged = (self._tile.staged, self._tile.columns_staged)
        for index, (operand, along_depth) in enumerate(zip(operands, along, strict=True)):
            if not staged[index]:
                self._gather(operand, within, along_depth=along_depth)
                continue
            registers = sch.cache_read(block, index, "local")
            sch.compute_at(registers, step, preserve_unit_loops=True)
            sch.vectorize(sch.get_loops(registers)[-1])
            if prefetches:
                block_of = [self._decided(SHARES[index]), loads[index]]
                self._prefetch(operand, registers, steps, items, block_of, along_depth=along_depth)
            else:
                self._stage(operand, steps, items, loads[index], along_depth=along_depth)
        written_row, written_column = sch.get_loops(written)[-2:]
        for loop in (step, row, written_row):
            sch.unroll(loop)
        sch.vectorize(column)
        if slices:
            sch.vectorize(written_column)
        else:
            sch.unroll(written_column)
        sch.decompose_reduction(block, steps)
        if prefetches:
            # The stages of each operand are its reads and its copy into local memory; then the product. In the
            # body's order.
            sch.annotate(steps, _PIPELINE, [0, 0, 0, 0, 1])
            sch.annotate(steps, "software_pipeline_order", [0, 3, 1, 4, 2])

    def _whole(self, block: Any, cuts: Sequence[Sequence[Any]], deep: Any) -> Any:
        """Gives each work-item a part of the product, and returns the block that writes the result."""
        sch = self._sch
        written = sch.cache_write(block, 0, "local")
        _, rows, columns, (depth,) = self._in_groups(block, cuts)
        sch.split(depth, [None, deep])
        item = self._in_items(rows, columns)
        sch.reverse_compute_at(written, item, preserve_unit_loops=True)
        return written

    def _sliced(
        self, block: Any, cuts: Sequence[Sequence[Any]], deep: Any, items: Sequence[Any]
    ) -> tuple[Any, Any]:
        """Gives each work-item a part of one slice's product, and then a part of the sum over slices.

        Slices split the steps that are gathered at once.

        Returns:
            The block of a slice's product, and the block that writes it into local memory.
        """
        sch = self._sch
        _, within = sch.split(sch.get_loops(block)[-1], [None, deep])
        one, _ = sch.split(within, [items[0], None])
        product = sch.rfactor(one, 0)
        summed = sch.cache_write(block, 0, "local")
        part, rows, columns, (added,) = self._in_groups(block, cuts)
        _, *shares = sch.split(sch.fuse(*rows, *columns), [None, *items])
        self._bind(shares)
        sch.unroll(added)
        sch.reverse_compute_at(summed, shares[-1], preserve_unit_loops=True)
        written = sch.cache_write(product, 0, "local")
        # Moved while its scope is local to a work-item, because shared memory would be moved out of the parts.
        sch.set_scope(written, 0, "local")
        sch.compute_at(written, part, preserve_unit_loops=True)
        sch.set_scope(written, 0, "shared")
        outer = len(sch.get_loops(block)) - len(shares) - 2
        one, *_, row, column = sch.get_loops(written)[outer:]
        own_rows, own_columns = (
            sch.split(loop, [None, cut[2]]) for loop, cut in zip((row, column), cuts, strict=True)
        )
        item = self._in_items(own_rows, own_columns, one)
        sch.compute_at(product, item, preserve_unit_loops=True)
        return product, written

    def _in_groups(
        self, block: Any, cuts: Sequence[Sequence[Any]]
    ) -> tuple[Any, list[Any], list[Any], list[Any]]:
        """Splits a block's result into tiles of work-groups, and each tile into strided parts.

        Returns:
            The innermost loop over the strided parts; the loops over a part's rows; the loops over its columns (for
            both, first the loop that work-items share); and the loops of the reduction.
        """
        sch = self._sch
        batch, rows, columns, *inner = sch.get_loops(block)
        parts, reduction = inner[: self._split], inner[self._split :]
        row_group, row_part, *own_rows = sch.split(rows, [None, *cuts[0]])
        column_group, column_part, *own_columns = sch.split(columns, [None, *cuts[1]])
        sch.reorder(
            *parts, batch, row_group, column_group, row_part, column_part,
            *own_rows, *own_columns, *reduction,
        )  # fmt: skip
        sch.bind(sch.fuse(*parts, batch, row_group), "blockIdx.y")
        sch.bind(column_group, "blockIdx.x")
        sch.bind(row_part, "vthread.y")
        sch.bind(column_part, "vthread.x")
        return column_part, own_rows, own_columns, reduction

    def _in_items(self, rows: Sequence[Any], columns: Sequence[Any], *slices: Any) -> Any:
        """Gives a part's rows and columns to work-items, and returns the loop over work-items along the columns."""
        (row_item, row), (column_item, column) = rows, columns
        self._sch.reorder(*slices, row_item, column_item, row, column)
        self._bind([*slices, row_item, column_item])
        return column_item

    def _bind(self, loops: Sequence[Any]) -> None:
        """Binds loops to work-items; those of the last loop are neighbours."""
        for loop, axis in zip(reversed(loops), _ITEMS, strict=False):
            self._sch.bind(loop, axis)

    def _keep(self, operand: Any) -> None:
        """Marks an operand's staged copy to be in half precision, if the tile asks for it."""
        if self._tile.half:
            self._sch.annotate(operand, HALF, 1)

    def _pack(self, operand: Any) -> None:
        """Copies an operand's source into global memory in half precision, in a separate kernel."""
        packed = self._sch.cache_read(operand, 0, "global")
        self._keep(packed)
        among_items(self._sch, self._sch.get_loops(packed), self._items)

    def _gather(self, operand: Any, within: Any, *, along_depth: bool) -> None:
        """Gathers a work-item's operands of some steps into its registers, as vectors of contiguous elements."""
        sch = self._sch
        sch.set_scope(operand, 0, "local")
        across, along = self._moved(operand, within, along_depth=along_depth)
        sch.unroll(across)
        sch.vectorize(along)

    def _moved(self, block: Any, loop: Any, *, along_depth: bool) -> tuple[Any, Any]:
        """Computes an operand's block in a loop, and returns its loops; the last runs over contiguous elements."""
        sch = self._sch
        sch.compute_at(block, loop, preserve_unit_loops=True)
        deep, wide = sch.get_loops(block)[-2:]
        if not along_depth:
            return deep, wide
        sch.reorder(wide, deep)
        return wide, deep

    def _prefetch(
        self,
        operand: Any,
        registers: Any,
        steps: Any,
        items: Sequence[Any],
        block_of: Sequence[Any],
        *,
        along_depth: bool,
    ) -> None:
        """Reads the next tile into registers while the current one is multiplied, then copies it to local memory.

        A work-item reads one rectangular block of it, so that no registers are wasted.
        """
        sch = self._sch
        each, load = block_of
        shared = sch.cache_read(registers, 0, "shared")
        self._keep(shared)
        sch.set_scope(operand, 0, "local")
        if along_depth:
            sch.storage_align(shared, 0, axis=-2, factor=BANKS, offset=PADDING)
        for block in (shared, operand):
            across, along = self._moved(block, steps, along_depth=along_depth)
            across, own = sch.split(across, [None, each])
            along, lanes = sch.split(along, [None, load])
            sch.reorder(across, along, own, lanes)
            self._bind(sch.split(sch.fuse(across, along), items))
            sch.unroll(own)
            sch.vectorize(lanes)

    def _stage(
        self, operand: Any, steps: Any, items: Sequence[Any], load: Any, *, along_depth: bool
    ) -> None:
        """Gathers an operand's tile into local memory by all work-items, contiguous elements first."""
        sch = self._sch
        sch.set_scope(operand, 0, "shared")
        self._keep(operand)
        across, along = self._moved(operand, steps, along_depth=along_depth)
        if along_depth:
            sch.storage_align(operand, 0, axis=-2, factor=BANKS, offset=PADDING)
        _, *shares, lanes = sch.split(sch.fuse(across, along), [None, *items, load])
        self._bind(shares)
        sch.vectorize(lanes)


def _transforms(sch: Any) -> list[Any]:
    """Returns the blocks that transform tiles, in program order."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    return [block for block in blocks if TRANSFORM in sch.get(block).annotations]


def _in_registers(sch: Any, transform: Any, items: int) -> None:
    """Makes a work-item transform one tile: it reads the tile, transforms its columns, and then its rows."""
    sch.unannotate(transform, TRANSFORM)
    row, column, *tile = sch.get_loops(transform)
    sch.reorder(*tile, row, column)
    (half,) = sch.get_producers(transform)
    (read,) = sch.get_producers(half)
    item = among_items(sch, tile, items)
    for block in (half, read):
        sch.set_scope(block, 0, "local")
        sch.compute_at(block, item, preserve_unit_loops=True)
    for block in (transform, half, read):
        for loop in sch.get_loops(block)[2:]:
            sch.unroll(loop)
