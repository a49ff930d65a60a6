"""Tiles of a matrix product on a GPU, and what they ask of a device: no TVM here, so they cost microseconds."""

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
"""Rows of a tile in local memory are so much longer than a multiple of the banks, where they are written across."""

SHARES = ("row_each", "column_each")
"""Loads of a work-item from each operand's tile, of a tile that is pipelined."""

EACH = (1, 2, 3, 4, 6, 8, 12, 16)
"""What those may be."""

_FLOAT_BYTES = 4
_ALIKE = 16
"""Times that arrays may differ in size where TVM puts one in the place of another."""
_SMALL = 1 << 18
"""Most results of a product whose work-items may share a reduction."""
_MANY = 256
"""Columns beside few rows, below which nothing is gained by another way of theirs."""


@dataclass(frozen=True)
class Product:
    """A product: batch x rows x columns sums over depth, all padded to lengths that tiles divide.

    Attributes:
        rows_along, columns_along: Whether an operand's neighbours in memory follow the reduction.
        batch: Products of equal sizes.
        rows, columns, depth: Extents of the result and of the reduction.
        transformed: Whether its operands are transforms, which kernels of their own have put into memory.
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
    """Every decision of a product's schedule. A work-group has strided x items x vector rows, and as many columns.

    Attributes:
        parts: Work-groups that share a reduction.
        slices: Work-items that share what a work-group gathers of it at once.
        row_strided, column_strided: Parts of a work-item's rows and columns that lie apart.
        row_items, column_items: Work-items along them.
        row_vector, column_vector: Neighbours in each part.
        deep: Steps of the reduction that are gathered at once.
        unrolled: Those of them that are straight-line code.
        row_load, column_load: Elements of a load from global memory.
        staged: Whether operands go through local memory, rather than straight into registers.
        pipelined: Whether the next tile is gathered, into registers, while one is multiplied.
        straight: Whether the columns go straight into registers though the rows are staged.
        row_image, column_image: Whether an operand is read as an image; see `image_reads`.
        half: Whether operands are kept in half precision on their way; see `half_storage`.
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
        """Work-items of a work-group."""
        return self.slices * self.row_items * self.column_items

    @cached_property
    def rows(self) -> int:
        """Rows of a work-group."""
        return self.row_strided * self.row_items * self.row_vector

    @cached_property
    def columns(self) -> int:
        """Columns of a work-group."""
        return self.column_strided * self.column_items * self.column_vector

    @property
    def own_rows(self) -> int:
        """Rows of a work-item."""
        return self.row_strided * self.row_vector

    @property
    def own_columns(self) -> int:
        """Columns of a work-item."""
        return self.column_strided * self.column_vector

    @property
    def accumulators(self) -> int:
        """Results that a work-item keeps in registers."""
        return self.own_rows * self.own_columns

    @property
    def columns_staged(self) -> bool:
        """Whether the columns go through local memory, as the rows do."""
        return self.staged and not self.straight

    @property
    def registers(self) -> int:
        """Values that a work-item keeps in registers: results, operands of unrolled steps, what is read ahead."""
        row_steps = 1 if self.staged else self.unrolled
        column_steps = 1 if self.columns_staged else self.unrolled
        operands = self.own_rows * row_steps + self.own_columns * column_steps
        ahead = self.row_each * self.row_load + self.column_each * self.column_load
        return self.accumulators + operands + (ahead if self.pipelined else 0)

    def shared_evenly(self) -> bool:
        """Whether the work-items of a work-group gather equal shares of the operands' tiles."""
        return self.deep * self.rows % (self.items * self.row_load) == 0 and (
            self.straight or self.deep * self.columns % (self.items * self.column_load) == 0
        )

    def summed_evenly(self) -> bool:
        """Whether the slices' work-items add equal shares of what these found, whole rows or parts of one."""
        row = self.column_vector
        for items in (self.row_items, self.slices):
            if row % items and items % row:
                return False
            row = max(1, row // items)
        return self.row_vector * self.column_vector % self.slices == 0

    @property
    def row_each(self) -> int:
        """Loads of a work-item from the tile of the rows."""
        return self.deep * self.rows // (self.items * self.row_load)

    @property
    def column_each(self) -> int:
        """Loads of a work-item from the tile of the columns."""
        return self.deep * self.columns // (self.items * self.column_load)

    def prefetched_in_blocks(self, product: Product) -> bool:
        """Whether what a work-item reads ahead is a block of each operand's tile."""
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
        """Work-groups of the launch."""
        tiles = (product.rows // self.rows) * (product.columns // self.columns)
        return tiles * product.batch * self.parts

    def local_bytes(self, product: Product) -> int:
        """Local memory of a work-group."""
        row = _padded(self.rows) if product.rows_along else self.rows
        column = _padded(self.columns) if product.columns_along else self.columns
        gathered = [
            self.deep * row if self.staged else 0,
            self.deep * column if self.columns_staged else 0,
        ]
        if self.slices == 1:
            return sum(gathered) * _FLOAT_BYTES
        # Each part that lies apart has sums of the whole tile.
        apart = self.row_strided * self.column_strided
        sums = self.slices * self.rows * self.columns * apart
        # TVM puts them where operands of their type were, unless one is too small or too large for the other.
        alike = [one for one in gathered if sums <= _ALIKE * one and one <= _ALIKE * sums]
        return (sum(gathered) + sums - min(sums, max(alike, default=0))) * _FLOAT_BYTES

    def features(self, product: Product) -> NDArray[np.float32]:
        """What a cost model needs to know, sizes as logarithms to the base 2."""
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
    """Floats from one row of a tile in local memory to the next, so that rows begin in different banks."""
    return extent + (PADDING - extent) % BANKS


FLAGS = ("staged", "pipelined", "straight", "row_image", "column_image", "half")
"""Decisions that make another sketch."""

SHARED = ("parts", "slices")
"""Decisions that only a sketch samples where a reduction is shared so."""

OWN = names_of(ProductTile, *SHARED, *FLAGS)
"""Decisions that every sketch samples."""


class ProductTiles(TileSpace[ProductTile]):
    """The tiles of a product that a rule has and a device can run.

    Args:
        product: What is cut.
        rule: The choices.
        limits: What a work-group may use.
        seed: Seed of what is drawn.
    """

    def __init__(self, product: Product, rule: ImplicitGemm, limits: Limits, seed: int) -> None:
        super().__init__(ProductTile, choices(product, rule, limits), seed)
        self.product = product
        self._rule = rule
        self._limits = limits
        # A small product has no more items than results, nor than what they gather.
        most = max(self.choices["row_items"]) * max(self.choices["column_items"])
        if any(self.choices["staged"]):
            most = min(most, max(self.choices["deep"]) * min(product.rows, product.columns))
        self._fewest = min(most, rule.fewest_items)
        self._lanes = min(most, limits.sub_group_size)

    def features(self, tile: ProductTile) -> NDArray[np.float32]:
        """See `TileSpace`."""
        return tile.features(self.product)

    def together(self) -> Mapping[tuple[str, ...], Callable[..., bool]]:
        """See `TileSpace`: cuts without rest; an uneven one would take the guard off the result's stores."""
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
        """See `TileSpace`: with straight columns, a work-item shares its columns with none."""
        if not tile.straight:
            return tile
        return replace(tile, row_items=1, column_load=1, pipelined=False, half=False)

    def plainest(self, tile: ProductTile) -> ProductTile:
        """See `TileSpace`: what goes straight into registers is read for as many steps as are unrolled."""
        unrolled = 1 if tile.columns_staged else tile.unrolled
        return replace(tile, unrolled=unrolled, row_load=1, column_load=1)

    def fits(self, tile: ProductTile) -> bool:
        """Whether the product can be cut so, and a work-group of the device can run it."""
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
            # Records may have what nobody asked for now.
            and tile.half in self.choices["half"]
            and not (tile.half and self._halves_sums(tile))
            and (self._staged_well(tile) if tile.staged else self._straight(tile))
            and self.goes_together(tile)  # Last: what is drawn does.
        )

    def _halves_sums(self, tile: ProductTile) -> bool:
        """Whether TVM would put sums where operands in half precision were: of slices, or of transforms' parts."""
        return tile.slices > 1 or (tile.parts > 1 and self.product.transformed)

    def _staged_well(self, tile: ProductTile) -> bool:
        """Whether a tile's way through local memory is one."""
        return (
            tile.shared_evenly()
            and (not tile.straight or self._alone(tile))
            and (not tile.pipelined or tile.prefetched_in_blocks(self.product))
        )

    def _alone(self, tile: ProductTile) -> bool:
        """Whether no other work-item of any group needs the columns of one, and nothing is decided of their way."""
        return tile.rows == self.product.rows and tile == self.settled(tile)

    def _straight(self, tile: ProductTile) -> bool:
        """Whether a tile without local memory decides nothing that only such memory has."""
        return (
            (tile.row_load, tile.column_load) == (1, 1)
            and not (tile.pipelined or tile.straight)
            and not (tile.half and (tile.row_image or tile.column_image))
        )


def choices(product: Product, rule: ImplicitGemm, limits: Limits) -> Choices:
    """What each decision may be; see `ProductTile`. Only what divides the product.

    Nothing goes through local memory where that is ordinary memory: it would only be copied.
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
    """Work-items that may share a reduction: of small results only, for others have work-items enough without."""
    small = product.batch * product.rows * product.columns <= _SMALL
    if not small or limits.local_memory != "local":
        return (1,)
    return dividing((1, *rule.slices), product.depth)


def _thin(product: Product, rule: ImplicitGemm) -> bool:
    """Whether there are few rows, and so many columns that a work-group may have its own.

    Then it has one work-item along the rows, and loads single columns; see `ProductTiles.settled`.
    """
    single = 1 in rule.row_items and 1 in rule.loads
    return single and product.rows <= rule.thin and product.columns >= _MANY
