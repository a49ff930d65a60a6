"""The search over tiles: a population is evolved with the cost model between measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.search.cost_model import ScheduleRanker
from autotune.compiler.tiles import Tile, TileSpace

_FRESH = 384
_PARENTS = 64
_CHILDREN = 192
_GENERATIONS = 4
_EXPLORATIONS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Multiples of the committee's standard deviation. Each tile of a round is chosen with one of them."""
_BREEDING_EXPLORATION = 3.0
"""The multiple that is used to select parents."""


class TileSearch(Generic[Tile]):
    """Proposes tiles that were not proposed before.

    Args:
        tiles: The available tiles.
        ranker: The cost model, trained on `TileSpace.features`.
        explore: Share of a round that is chosen at random.
        seed: Seed of random choices.
    """

    def __init__(
        self, tiles: TileSpace[Tile], ranker: ScheduleRanker, explore: float, seed: int
    ) -> None:
        self._tiles = tiles
        self._ranker = ranker
        self._explore = explore
        self._random = Random(seed)
        self._proposed: set[Tile] = set()
        self._scores: dict[Tile, float] = {}
        self._scored_by = 0

    def propose(self, count: int, best: Sequence[Tile]) -> list[Tile]:
        """Returns up to `count` new tiles; fewer if the space has no more.

        Args:
            count: Number of tiles wanted.
            best: The fastest measured tiles, as parents.
        """
        fresh = self._new(self._tiles.drawn(_FRESH))
        chosen = self._random.sample(fresh, min(count, len(fresh)))
        if chosen and self._ranker.version:
            bred = self._new(self._evolved([*dict.fromkeys([*best, *fresh])]))
            by_model = count - sum(self._random.random() < self._explore for _ in range(count))
            chosen = [*self._promising(bred, by_model), *chosen, *bred]
        chosen = self._unlike(chosen)[:count]
        self._proposed.update(chosen)
        return chosen

    def _new(self, tiles: Iterable[Tile]) -> list[Tile]:
        return [tile for tile in dict.fromkeys(tiles) if tile not in self._proposed]

    def _promising(self, tiles: Sequence[Tile], count: int) -> list[Tile]:
        """Returns up to `count` tiles, each the best for its own multiple and unlike those before it."""
        weights = self._random.sample(_EXPLORATIONS * -(-count // len(_EXPLORATIONS)), count)
        if not tiles or not weights:
            return []
        scores = self._ranker.upper_bounds([self._tiles.features(tile) for tile in tiles], weights)
        found: dict[Tile, Tile] = {}
        for order in np.argsort(-scores, kind="stable"):
            for tile in map(tiles.__getitem__, order):
                if (plainest := self._tiles.plainest(tile)) not in found:
                    found[plainest] = tile
                    break
        return [*found.values()]

    def _unlike(self, tiles: Sequence[Tile]) -> list[Tile]:
        """Returns the tiles, with those unlike any before them first: one of several similar tiles tells enough."""
        first: dict[Tile, Tile] = {}
        for tile in tiles:
            first.setdefault(self._tiles.plainest(tile), tile)
        return [*dict.fromkeys([*first.values(), *tiles])]

    def _evolved(self, population: list[Tile]) -> list[Tile]:
        """Returns the population after some generations, the most promising tiles first."""
        for _ in range(_GENERATIONS):
            population = self._ranked(population)[:_PARENTS]
            weights = self._score(population)
            parents = self._random.choices(population, weights=list(weights), k=_CHILDREN)
            children = [self._tiles.mutated(parent) for parent in parents]
            population = [*dict.fromkeys([*population, *children])]
        return self._ranked(population)

    def _ranked(self, population: Sequence[Tile]) -> list[Tile]:
        return [population[index] for index in np.argsort(-self._score(population), kind="stable")]

    def _score(self, population: Sequence[Tile]) -> NDArray[np.float64]:
        if self._scored_by != self._ranker.version:
            self._scores.clear()
            self._scored_by = self._ranker.version
        unknown = [tile for tile in dict.fromkeys(population) if tile not in self._scores]
        if unknown:
            (found,) = self._ranker.upper_bounds(
                [self._tiles.features(t) for t in unknown], (_BREEDING_EXPLORATION,)
            )
            self._scores.update(zip(unknown, map(float, found), strict=True))
        return np.array([self._scores[tile] for tile in population])
