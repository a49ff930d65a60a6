"""Tiles of a matrix product on a GPU, and what they need from a device. Without TVM, they cost microseconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.target import ImplicitGemm, Limits
from autotune.compiler.tiles.tile_space import Choices, TileSpace, dividing, names_of

PADDING, BANKS = 4, 16
"""Rows of a tile in local memory are padded to `PADDING` floats beyond a multiple of `BANKS`, if written across."""

SHARES = ("row_each", "column_each")
"""Number of loads of a work-item from each operand's tile, if the tile is pipelined."""

EACH = (1, 2, 3, 4, 6, 8, 12, 16)
"""Allowed values of `SHARES`."""

_FLOAT_BYTES = 4
_ALIKE = 16
"""Largest ratio of the sizes of two arrays for which TVM places one in the memory of the other."""
_SMALL = 1 << 18
"""Largest number of results of a product whose work-items may share a reduction."""
_MANY = 256
"""Fewest columns, beside few rows, for which a separate path for the columns can pay off."""


@dataclass(frozen=True)
class Product:
    """The sizes of a product: batch x rows x columns sums over depth. All are padded to lengths that tiles divide.

    Attributes:
        rows_along, columns_along: Whether the operand is contiguous in memory along the reduction.
        batch: Number of products of equal size.
        rows, columns, depth: Extents of the result and of the reduction.
        transformed: Whether the operands are transforms, which separate kernels have written to memory.
    """

    rows_along: bool
    columns_along: bool
    batch: int
    rows: int
    columns: int
    depth: int
    transformed: bool = False


@dataclass(frozen=True)
class ProductTile:
    """All decisions of a product's schedule.

    A work-group computes strided x items x vector rows, and columns likewise.

    Attributes:
        parts: Work-groups that share a reduction.
        slices: Work-items that share the part of the reduction that a work-group gathers at once.
        row_strided, column_strided: Separate (strided) parts of a work-item's rows and columns.
        row_items, column_items: Work-items along rows and columns.
        row_vector, column_vector: Neighbouring rows or columns in each part.
        deep: Steps of the reduction that are gathered at once.
        unrolled: How many of these steps are straight-line code.
        row_load, column_load: Elements of a load from global memory.
        staged: Whether operands go through local memory; otherwise they go straight into registers.
        pipelined: Whether the next tile is gathered into registers while the current one is multiplied.
        straight: Whether the columns go straight into registers although the rows are staged.
        row_image, column_image: Whether an operand is read as an image; see `image_reads`.
        half: Whether operands are stored in half precision on their way; see `half_storage`.
    """

    parts: int
    slices: int
    row_strided: int
    row_items: int
    row_vector: int
    column_strided: int
    column_items: int
    column_vector: int
    deep: int
    unrolled: int
    row_load: int
    column_load: int
    staged: bool
    pipelined: bool
    straight: bool = False
    row_image: bool = False
    column_image: bool = False
    half: bool = False

    @cached_property
    def items(self) -> int:
        """Number of work-items in a work-group."""
        return self.slices * self.row_items * self.column_items

    @cached_property
    def rows(self) -> int:
        """Number of rows of a work-group."""
        return self.row_strided * self.row_items * self.row_vector

    @cached_property
    def columns(self) -> int:
        """Number of columns of a work-group."""
        return self.column_strided * self.column_items * self.column_vector

    @property
    def own_rows(self) -> int:
        """Number of rows of a work-item."""
        return self.row_strided * self.row_vector

    @property
    def own_columns(self) -> int:
        """Number of columns of a work-item."""
        return self.column_strided * self.column_vector

    @property
    def accumulators(self) -> int:
        """Number of results that a work-item keeps in registers."""
        return self.own_rows * self.own_columns

    @property
    def columns_staged(self) -> bool:
        """Whether the columns go through local memory, as the rows do."""
        return self.staged and not self.straight

    @property
    def registers(self) -> int:
        """Number of values that a work-item keeps in registers: results, unrolled operands, and prefetches."""
        row_steps = 1 if self.staged else self.unrolled
        column_steps = 1 if self.columns_staged else self.unrolled
        operands = self.own_rows * row_steps + self.own_columns * column_steps
        ahead = self.row_each * self.row_load + self.column_each * self.column_load
        return self.accumulators + operands + (ahead if self.pipelined else 0)

    def shared_evenly(self) -> bool:
        """Returns whether the work-items of a work-group gather equal shares of the operands' tiles."""
        return self.deep * self.rows % (self.items * self.row_load) == 0 and (
            self.straight or self.deep * self.columns % (self.items * self.column_load) == 0
        )

    def summed_evenly(self) -> bool:
        """Returns whether the work-items of slices add equal shares of the sums: whole rows or parts of one."""
        row = self.column_vector
        for items in (self.row_items, self.slices):
            if row % items and items % row:
                return False
            row = max(1, row // items)
        return self.row_vector * self.column_vector % self.slices == 0

    @property
    def row_each(self) -> int:
        """Number of loads of a work-item from the tile of the rows."""
        return self.deep * self.rows // (self.items * self.row_load)

    @property
    def column_each(self) -> int:
        """Number of loads of a work-item from the tile of the columns."""
        return self.deep * self.columns // (self.items * self.column_load)

    def prefetched_in_blocks(self, product: Product) -> bool:
        """Returns whether each work-item prefetches a rectangular block of each operand's tile."""
        sides = (
            (product.rows_along, self.rows, self.row_load, self.row_each),
            (product.columns_along, self.columns, self.column_load, self.column_each),
        )
        return all(
            each in EACH
            and (wide if along_depth else self.deep) % each == 0
            and (self.deep if along_depth else wide) % load == 0
            for along_depth, wide, load, each in sides
        )

    def groups(self, product: Product) -> int:
        """Returns the number of work-groups of the launch."""
        tiles = (product.rows // self.rows) * (product.columns // self.columns)
        return tiles * product.batch * self.parts

    def local_bytes(self, product: Product) -> int:
        """Returns the bytes of local memory of a work-group."""
        row = _padded(self.rows) if product.rows_along else self.rows
        column = _padded(self.columns) if product.columns_along else self.columns
        gathered = [
            self.deep * row if self.staged else 0,
            self.deep * column if self.columns_staged else 0,
        ]
        if self.slices == 1:
            return sum(gathered) * _FLOAT_BYTES
        # Each separate (strided) part has sums of the whole tile.
        apart = self.row_strided * self.column_strided
        sums = self.slices * self.rows * self.columns * apart
        # TVM puts them into memory of operands of the same type, unless one is much smaller or larger than the
        # other.
        alike = [one for one in gathered if sums <= _ALIKE * one and one <= _ALIKE * sums]
        return (sum(gathered) + sums - min(sums, max(alike, default=0))) * _FLOAT_BYTES

    def features(self, product: Product) -> NDArray[np.float32]:
        """Returns features for a cost model. Sizes are logarithms to base 2."""
        groups, items = self.groups(product), self.items
        loads = self.deep * (self.rows / self.row_load + self.columns / self.column_load)
        sizes = (
            product.batch, product.rows, product.columns, product.depth,
            *(getattr(self, name) for name in (*SHARED, *OWN)),
            self.rows, self.columns, self.own_rows, self.own_columns,
            items, groups, items * groups, self.accumulators, self.local_bytes(product) or 1,
            product.depth // self.parts // self.deep,
            loads / items,
            self.rows * self.columns / (self.rows + self.columns),
            self.accumulators / (self.own_rows + self.own_columns),
            self.own_rows / self.own_columns,
        )  # fmt: skip
        flags = (
            product.rows_along,
            product.columns_along,
            *(getattr(self, name) for name in FLAGS),
        )
        return np.array([*map(math.log2, sizes), *flags], dtype=np.float32)


def _padded(extent: int) -> int:
    """Returns the row stride, in floats, of a tile in local memory, so that rows begin in different banks."""
    return extent + (PADDING - extent) % BANKS


FLAGS = ("staged", "pipelined", "straight", "row_image", "column_image", "half")
"""Decisions that need a different sketch."""

SHARED = ("parts", "slices")
"""Decisions that are sampled only in sketches whose reduction is shared in this way."""

OWN = names_of(ProductTile, *SHARED, *FLAGS)
"""Decisions that are sampled in every sketch."""


class ProductTiles(TileSpace[ProductTile]):
    """The tiles that a rule allows for a product and that a device can run.

    Args:
        product: The sizes to tile.
        rule: The allowed values.
        limits: Limits of a work-group.
        seed: Seed of the random draws.
    """

    def __init__(self, product: Product, rule: ImplicitGemm, limits: Limits, seed: int) -> None:
        super().__init__(ProductTile, choices(product, rule, limits), seed)
        self.product = product
        self._rule = rule
        self._limits = limits
        # A small product cannot have more work-items than results, or than elements to gather.
        most = max(self.choices["row_items"]) * max(self.choices["column_items"])
        if any(self.choices["staged"]):
            most = min(most, max(self.choices["deep"]) * min(product.rows, product.columns))
        self._fewest = min(most, rule.fewest_items)
        self._lanes = min(most, limits.sub_group_size)

    def features(self, tile: ProductTile) -> NDArray[np.float32]:
        """See `TileSpace`."""
        return tile.features(self.product)

    def together(self) -> Mapping[tuple[str, ...], Callable[..., bool]]:
        """See `TileSpace`: even splits. An uneven one would remove the guard on the result's stores."""
        rows, columns, depth = self.product.rows, self.product.columns, self.product.depth
        return {
            ("row_strided", "row_items", "row_vector"): lambda *cut: rows % math.prod(cut) == 0,
            ("column_strided", "column_items", "column_vector"): lambda *cut: (
                columns % math.prod(cut) == 0
            ),
            ("parts", "deep", "slices", "unrolled"): lambda parts, deep, *within: (
                depth % (parts * deep) == 0 and deep % math.prod(within) == 0
            ),
        }

    def settled(self, tile: ProductTile) -> ProductTile:
        """See `TileSpace`: with straight columns, a work-item shares its columns with no other."""
        if not tile.straight:
            return tile
        return replace(tile, row_items=1, column_load=1, pipelined=False, half=False)

    def plainest(self, tile: ProductTile) -> ProductTile:
        """See `TileSpace`: operands that go straight into registers are read for all unrolled steps at once."""
        unrolled = 1 if tile.columns_staged else tile.unrolled
        return replace(tile, unrolled=unrolled, row_load=1, column_load=1)

    def fits(self, tile: ProductTile) -> bool:
        """Returns whether the tile divides the product, and the device can run its work-groups."""
        rule, limits = self._rule, self._limits
        return (
            tile.items >= self._fewest
            and not limits.refused(
                (tile.column_items, tile.row_items, tile.slices), tile.local_bytes(self.product)
            )
            and tile.items % self._lanes == 0
            and tile.accumulators <= rule.most_accumulators
            and tile.accumulators * tile.unrolled <= rule.most_unrolled
            and tile.registers <= rule.most_registers
            and (tile.slices == 1 or tile.summed_evenly())
            # Records may contain half precision although it was not requested.
            and tile.half in self.choices["half"]
            and not (tile.half and self._halves_sums(tile))
            and (self._staged_well(tile) if tile.staged else self._straight(tile))
            and self.goes_together(tile)  # Last, because drawn tiles always satisfy it.
        )

    def _halves_sums(self, tile: ProductTile) -> bool:
        """Returns whether TVM would put sums into half-precision operands: of slices or transforms' parts."""
        return tile.slices > 1 or (tile.parts > 1 and self.product.transformed)

    def _staged_well(self, tile: ProductTile) -> bool:
        """Returns whether a staged tile can go through local memory."""
        return (
            tile.shared_evenly()
            and (not tile.straight or self._alone(tile))
            and (not tile.pipelined or tile.prefetched_in_blocks(self.product))
        )

    def _alone(self, tile: ProductTile) -> bool:
        """Returns whether no two work-items read the same columns, and decisions about reading them are settled."""
        return tile.rows == self.product.rows and tile == self.settled(tile)

    def _straight(self, tile: ProductTile) -> bool:
        """Returns whether a tile without local memory leaves all decisions about local memory at their defaults."""
        return (
            (tile.row_load, tile.column_load) == (1, 1)
            and not (tile.pipelined or tile.straight)
            and not (tile.half and (tile.row_image or tile.column_image))
        )


def choices(product: Product, rule: ImplicitGemm, limits: Limits) -> Choices:
    """Returns the allowed values of each decision of `ProductTile`. Sizes must divide the product.

    If local memory is ordinary memory, nothing goes through it, since that would only add a copy.
    """
    staged = rule.staged if limits.local_memory == "local" else (False,)
    through_local = any(staged)

    return {
        "parts": dividing(
            (1, *rule.parts), product.depth // math.gcd(product.depth, min(rule.depths))
        ),
        "slices": _slices(product, rule, limits),
        "row_strided": dividing(rule.strided, product.rows),
        "row_items": dividing(rule.row_items, product.rows),
        "row_vector": dividing(rule.vectors, product.rows),
        "column_strided": dividing(rule.strided, product.columns),
        "column_items": dividing(rule.column_items, product.columns),
        "column_vector": dividing(rule.vectors, product.columns),
        "deep": dividing(rule.depths, product.depth),
        "unrolled": rule.unrolled,
        "row_load": rule.loads if through_local else (1,),
        "column_load": rule.loads if through_local else (1,),
        "staged": staged,
        "pipelined": rule.pipelined if through_local else (False,),
        "row_image": rule.image_choices(limits),
        "column_image": rule.image_choices(limits),
        "half": rule.half,
        **({"straight": (False, True)} if through_local and _thin(product, rule) else {}),
    }


def _slices(product: Product, rule: ImplicitGemm, limits: Limits) -> Sequence[int]:
    """Returns how many work-items may share a reduction: only 1 for large results, which have enough items."""
    small = product.batch * product.rows * product.columns <= _SMALL
    if not small or limits.local_memory != "local":
        return (1,)
    return dividing((1, *rule.slices), product.depth)


def _thin(product: Product, rule: ImplicitGemm) -> bool:
    """Returns whether there are few rows, and so many columns that a work-group may have its own.

    Such a work-group has one work-item along the rows, and loads single columns; see `ProductTiles.settled`.
    """
    single = 1 in rule.row_items and 1 in rule.loads
    return single and product.rows <= rule.thin and product.columns >= _MANY
