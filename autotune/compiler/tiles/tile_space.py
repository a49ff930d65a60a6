"""Tiles as the search uses them: drawn, changed, and described to a cost model. This module does not import TVM."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from itertools import chain, product
from random import Random
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

_TRIES = 20_000
"""Draws after which the search for fitting tiles gives up; also the most combinations that are all enumerated."""
_MUTATION_TRIES = 40

Choices = Mapping[str, Sequence[Any]]
"""Allowed values of each decision, by its name."""

Tile = TypeVar("Tile", bound=Hashable)
"""A frozen dataclass whose fields are the decisions of a schedule."""


def names_of(tile: type[Any], *without: str) -> tuple[str, ...]:
    """Returns the names of a tile's decisions, in order, except those in `without`."""
    return tuple(field.name for field in fields(tile) if field.name not in without)


def dividing(values: Sequence[int], extent: int) -> Sequence[int]:
    """Returns the values that divide an extent, or 1 if none does."""
    return [value for value in values if extent % value == 0] or [1]


class TileSpace(ABC, Generic[Tile]):
    """The tiles that a rule allows for one kernel and that a device can run.

    Args:
        make: The class of the tiles.
        choices: Allowed values of each decision. A decision that is left out has the default of the class.
        seed: Seed of the random draws.
    """

    def __init__(self, make: type[Tile], choices: Choices, seed: int) -> None:
        self._make = make
        self.choices = choices
        self._random = Random(seed)

    @abstractmethod
    def fits(self, tile: Tile) -> bool:
        """Returns whether the tile divides the kernel's sizes, and the device can run its work-groups."""

    def has(self, tile: Tile) -> bool:
        """Returns whether a tile fits and all its decisions are allowed. Records may have other values."""
        return all(
            getattr(tile, field.name) in self.choices.get(field.name, (field.default,))
            for field in fields(tile)  # type: ignore[arg-type]  # dataclasses
        ) and self.fits(tile)

    @abstractmethod
    def features(self, tile: Tile) -> NDArray[np.float32]:
        """Returns features for a cost model. Sizes are logarithms to base 2."""

    def settled(self, tile: Tile) -> Tile:
        """Returns the tile with those decisions set that follow from others."""
        return tile

    def plainest(self, tile: Tile) -> Tile:
        """Returns the tile with decisions reset that change its speed little.

        A round does not measure two tiles that are equal in this form while there are others.
        """
        return tile

    def together(self) -> Mapping[tuple[str, ...], Callable[..., bool]]:
        """Returns groups of decisions that are drawn together, each with a test of their values.

        Drawn independently, most tiles would not fit.
        """
        return {}

    @cached_property
    def _together(self) -> Mapping[tuple[str, ...], Callable[..., bool]]:
        return self.together()

    def goes_together(self, tile: Tile) -> bool:
        """Returns whether a tile's decisions pass the tests of `together`."""
        return all(
            fit(*(getattr(tile, name) for name in names)) for names, fit in self._together.items()
        )

    @cached_property
    def _drawn_from(self) -> list[tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
        """Decisions, alone or in groups, with their allowed values."""
        found = []
        for names, fit in self._together.items():
            values = product(*(self.choices[name] for name in names))
            found.append((names, [one for one in values if fit(*one)]))
        taken = {name for names, _ in found for name in names}
        alone = (name for name in self.choices if name not in taken)
        return [*found, *(((name,), [(one,) for one in self.choices[name]]) for name in alone)]

    @cached_property
    def _names(self) -> list[str]:
        """The decisions, in the order of `_drawn_from`."""
        return [name for names, _ in self._drawn_from for name in names]

    def _of(self, values: Iterable[tuple[Any, ...]]) -> Tile:
        """Returns the tile with these values of `_drawn_from`."""
        return self._make(**dict(zip(self._names, chain.from_iterable(values), strict=True)))

    @cached_property
    def _every(self) -> list[Tile] | None:
        """All tiles that fit; None if there are too many to enumerate."""
        values = [some for _, some in self._drawn_from]
        if math.prod(map(len, values)) > _TRIES:
            return None
        return [tile for tile in map(self._of, product(*values)) if self.fits(tile)]

    def drawn(self, count: int) -> Iterator[Tile]:
        """Yields up to `count` random tiles, possibly with duplicates; fewer if hardly any fits."""
        if self._every is not None:
            yield from self._random.sample(self._every, min(count, len(self._every)))
            return
        for _ in range(_TRIES):
            if count <= 0:
                return
            tile = self.settled(self._of(self._random.choice(some) for _, some in self._drawn_from))
            if self.fits(tile):
                count -= 1
                yield tile

    def mutated(self, tile: Tile) -> Tile:
        """Returns a tile that differs in one to three decisions, or the same tile if none was found that fits."""
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
