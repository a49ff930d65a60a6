"""Tiles as a search sees them: what can be drawn, changed, and told to a cost model. No TVM here."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from itertools import product
from random import Random
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

_TRIES = 20_000
_MUTATION_TRIES = 40

Choices = Mapping[str, Sequence[Any]]
"""Values of each decision, by its name."""

Tile = TypeVar("Tile", bound=Hashable)
"""A frozen dataclass whose fields are the decisions of a schedule."""


def names_of(tile: type[Any], *without: str) -> tuple[str, ...]:
    """Names of a tile's decisions, in their order, but for some."""
    return tuple(field.name for field in fields(tile) if field.name not in without)


def dividing(values: Sequence[int], extent: int) -> Sequence[int]:
    """Those of the values that divide an extent; 1 where none does."""
    return [value for value in values if extent % value == 0] or [1]


class TileSpace(ABC, Generic[Tile]):
    """The tiles of one kernel that a rule has and a device can run.

    Args:
        make: The class of the tiles.
        choices: What each decision may be; one that is left out is the tiles' usual.
        seed: Seed of what is drawn.
    """

    def __init__(self, make: type[Tile], choices: Choices, seed: int) -> None:
        self._make = make
        self.choices = choices
        self._random = Random(seed)

    @abstractmethod
    def fits(self, tile: Tile) -> bool:
        """Whether the kernel can be cut so, and a work-group of the device can run it."""

    @abstractmethod
    def features(self, tile: Tile) -> NDArray[np.float32]:
        """What a cost model needs to know, sizes as logarithms to the base 2."""

    def settled(self, tile: Tile) -> Tile:
        """The tile, with the decisions that follow from others."""
        return tile

    @cached_property
    def _every(self) -> list[Tile] | None:
        """All tiles that fit; None where there are too many to look at each."""
        if math.prod(map(len, self.choices.values())) > _TRIES:
            return None
        made = (
            self._make(**dict(zip(self.choices, values, strict=True)))
            for values in product(*self.choices.values())
        )
        return [tile for tile in made if self.fits(tile)]

    def drawn(self, count: int) -> Iterator[Tile]:
        """Up to `count` tiles at random, perhaps with doubles; fewer where hardly any fits."""
        if self._every is not None:
            yield from self._random.sample(self._every, min(count, len(self._every)))
            return
        names = list(self.choices)
        for _ in range(_TRIES):
            if count <= 0:
                return
            drawn = {name: self._random.choice(self.choices[name]) for name in names}
            tile = self.settled(self._make(**drawn))
            if self.fits(tile):
                count -= 1
                yield tile

    def mutated(self, tile: Tile) -> Tile:
        """A tile that differs in one or two decisions; the same, where none was found that fits."""
        names = [name for name, values in self.choices.items() if len(values) > 1]
        for _ in range(_MUTATION_TRIES if names else 0):
            changed = self._random.sample(
                names, min(len(names), self._random.choice((1, 1, 2, 2, 3)))
            )
            drawn = {name: self._random.choice(self.choices[name]) for name in changed}
            other = self.settled(replace(tile, **drawn))  # type: ignore[type-var]  # dataclasses
            if other != tile and self.fits(other):
                return other
        return tile
