"""MetaSchedule's search over tiles. Only the chosen tiles become schedules.

A tile costs microseconds, a schedule about ten milliseconds. TVM's evolutionary search makes a schedule of every
sample, and nine of ten do not fit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.rules import Sketches, TileRule, tile_of, tiles_of
from autotune.compiler.search.cost_model import ScheduleRanker
from autotune.compiler.search.tile_search import TileSearch
from autotune.compiler.tiles import TileSpace

LOGGER = logging.getLogger(__name__)
_BREEDING = 24


def strategy(rule: TileRule, explore: float, ranker: ScheduleRanker, seed: int) -> Any:
    """Returns the search as a `SearchStrategy` of TVM.

    Args:
        rule: The rule that tiles the program.
        explore: Share of a round that is chosen at random.
        ranker: The cost model; see `TileFeatures`.
        seed: Seed of random choices.
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
            self._tiles = tiles_of(rule, self._module, seed)
            self._per_round = int(per_round)
            self._database = database
            self._workload = database.commit_workload(self._module)
            self._sketches = Sketches(rule, self._module)
            self._search = TileSearch(self._tiles, ranker, explore, seed)

        def post_tuning(self) -> None:
            """Does nothing: there is nothing to undo."""

        def generate_measure_candidates(self) -> Any:
            known = self._database.get_top_k(self._workload, _BREEDING)
            best = filter(self._tiles.has, (tile_of(rule, record.trace) for record in known))
            tiles = self._search.propose(self._per_round, [*best])
            made = filter(None, map(self._made, tiles))
            found = [MeasureCandidate(s, ArgInfo.from_entry_func(s.mod, True)) for s in made]
            return found if tiles else None

        def _made(self, tile: Any) -> Any | None:
            try:
                return self._sketches.schedule(tile)
            except Exception as error:  # TVM raises the first mismatch.
                LOGGER.warning("no schedule of %s: %s", tile, str(error).strip().splitlines()[-1])
                return None

        def notify_runner_results(self, candidates: Any, results: Any) -> None:
            """Does nothing: `FormulationSearch` updates the database and trains the cost model."""

        def clone(self) -> Any:
            return Strategy()

    return Strategy()


class TileFeatures:
    """Computes feature vectors of one program's schedules from their tiles."""

    def __init__(self, rule: TileRule) -> None:
        self._rule = rule
        self._tiles: TileSpace[Any] | None = None

    def __call__(self, context: Any, candidates: Sequence[Any]) -> list[NDArray[np.float32]]:
        """Returns the feature vectors of `MeasureCandidate`s of the program's tuning context, in order."""
        if self._tiles is None:
            self._tiles = tiles_of(self._rule, context.mod, seed=1)
        tiles = [tile_of(self._rule, one.sch.trace) for one in candidates]
        return [self._tiles.features(tile) for tile in tiles]
