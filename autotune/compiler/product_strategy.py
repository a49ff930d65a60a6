"""MetaSchedule's search over schedules of a product: tiles are searched, and only those chosen become schedules.

A tile costs microseconds, a schedule some ten milliseconds; TVM's evolutionary search makes a schedule of every
sample, of which nine in ten do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler import implicit_gemm
from autotune.compiler.cost_model import ScheduleRanker
from autotune.compiler.product_tiles import Product, Tiles
from autotune.compiler.spaces import Space
from autotune.compiler.tile_search import TileSearch

_BREEDING = 24


def strategy(space: Space, ranker: ScheduleRanker, seed: int) -> Any:
    """The search as TVM's `SearchStrategy`.

    Args:
        space: The search space, with the rule of products.
        ranker: The cost model; see `ProductFeatures`.
        seed: Seed of what is random.
    """
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule import MeasureCandidate
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.search_strategy import PySearchStrategy

    @derived_object
    class Strategy(PySearchStrategy):  # type: ignore[misc]  # TVM ships no annotations
        def _initialize_with_tune_context(self, context: Any) -> None:
            self._module = context.mod

        def pre_tuning(
            self, max_trials: int, per_round: int, spaces: Any, database: Any, model: Any
        ) -> None:
            tiles = Tiles(
                implicit_gemm.product_of(self._module), *space.product_limits(), seed=seed
            )
            self._per_round = int(per_round)
            self._database = database
            self._workload = database.commit_workload(self._module)
            self._sketches = implicit_gemm.Sketches(self._module, spaces)
            self._search = TileSearch(tiles, ranker, space.search.explore, seed)

        def post_tuning(self) -> None:
            """Nothing is to be undone."""

        def generate_measure_candidates(self) -> Any:
            known = self._database.get_top_k(self._workload, _BREEDING)
            best = [implicit_gemm.tile_of(record.trace) for record in known]
            made = [
                self._sketches.schedule(tile)
                for tile in self._search.propose(self._per_round, best)
                if self._sketches.has(tile)
            ]
            return [MeasureCandidate(s, ArgInfo.from_entry_func(s.mod, True)) for s in made] or None

        def notify_runner_results(self, candidates: Any, results: Any) -> None:
            """The lane keeps the database and teaches the cost model."""

        def clone(self) -> Any:
            return Strategy()

    return Strategy()


class ProductFeatures:
    """Feature vectors of schedules of one product, from their tiles."""

    def __init__(self) -> None:
        self._product: Product | None = None

    def __call__(self, context: Any, candidates: Sequence[Any]) -> list[NDArray[np.float32]]:
        """Feature vectors of `MeasureCandidate`s of the product's tuning context, in their order."""
        if self._product is None:
            self._product = implicit_gemm.product_of(context.mod)
        tiles = [implicit_gemm.tile_of(one.sch.trace) for one in candidates]
        return [tile.features(self._product) for tile in tiles]
