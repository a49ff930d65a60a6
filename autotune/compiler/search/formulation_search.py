"""The search of one formulation: it proposes schedules and learns from their outcomes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from autotune.compiler.formulations import Formulation, prim_func
from autotune.compiler.programs import Candidate
from autotune.compiler.rules import NO_SCHEDULE, recorded_tile, tile_rule, tiles_of
from autotune.compiler.search.cost_model import Lesson, ScheduleRanker
from autotune.compiler.search.tuning_context import TuningContext
from autotune.compiler.target import Space
from autotune.errors import RecordError, ToolchainError
from autotune.measurement import Outcome
from autotune.records import Schedule
from autotune.workloads.operators import Kernel

LOGGER = logging.getLogger("autotune.search")
_EMPTY_ROUNDS = 3


@dataclass
class SearchState:
    """State of a search that the budget needs.

    Attributes:
        trials: Number of candidates proposed: measured, failed or in flight.
        best_s: Best time in seconds; infinity before the first valid one.
        recent_gain_s: Seconds saved per trial in the last round.
        empty_rounds: Number of successive rounds that found nothing new.
        exhausted: Whether the space has nothing new.
        failure: Why the space makes no schedule at all; empty if it does.
        credit: Number of trials that records replace; the budget counts them as spent.
        expected: Expected time by the records, relative to the kernel's best formulation; None without records.
    """

    trials: int = 0
    best_s: float = math.inf
    recent_gain_s: float = 0.0
    empty_rounds: int = 0
    exhausted: bool = False
    failure: str = ""
    credit: int = 0
    expected: float | None = None

    @property
    def tried(self) -> int:
        """Number of trials, including those that records replace."""
        return self.trials + self.credit


class _Given:
    """Schedules that are proposed before anything else.

    Args:
        context: Makes them.
        seen: Digests of all proposed schedules; those taken are added.
    """

    def __init__(self, context: TuningContext, seen: set[str]) -> None:
        self._context = context
        self._seen = seen
        self._waiting: list[Callable[[], Candidate | None]] = []
        """Each makes a schedule when it is proposed; None if it does not fit."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Adds candidates."""
        self._waiting += [partial(_itself, one) for one in candidates]

    def add_known(self, known: Iterable[tuple[str, Any]]) -> None:
        """Adds schedules of other runs: digest and trace of each."""
        self._waiting += [partial(self._context.known, *one) for one in known]

    def begin_streamed(self) -> None:
        """Puts the schedule of the rule `streaming` first."""
        self._waiting.insert(0, self._context.streamed)

    def take(self, count: int) -> list[Candidate]:
        """Returns up to `count` that still fit and were not proposed."""
        found: list[Candidate] = []
        while self._waiting and len(found) < count:
            candidate = self._waiting.pop(0)()
            if candidate is not None and candidate.digest not in self._seen:
                self._seen.add(candidate.digest)
                found.append(candidate)
        return found


def _itself(candidate: Candidate) -> Candidate:
    return candidate


class FormulationSearch:
    """Proposes schedules of one kernel in one formulation, and learns from their outcomes.

    Args:
        kernel: The kernel to compute.
        formulation: The way to compute it.
        space: The search space.
        target: The TVM target.
        ranker: The cost model. Searches whose formulations the same rule schedules share it.
        seed: Seed of the search, at least 1.
        threads: Threads that sampling may use.
    """

    def __init__(
        self,
        kernel: Kernel,
        formulation: Formulation,
        *,
        space: Space,
        target: Any,
        ranker: ScheduleRanker,
        seed: int,
        threads: int,
    ) -> None:
        self.kernel = kernel
        self.formulation = formulation
        self.state = SearchState()
        self._space = space
        self._ranker = ranker
        self._seed = seed
        self._rule = tile_rule(space, formulation.rule) if formulation.rule else None
        self._context = TuningContext(
            kernel,
            formulation,
            space=space,
            target=target,
            rule=self._rule,
            ranker=ranker,
            seed=seed,
            threads=threads,
        )
        self._seen: set[str] = set()
        self._waiting: list[Candidate] = []
        self._given = _Given(self._context, self._seen)
        self._ranked_by = 0

    @property
    def name(self) -> str:
        return f"{self.kernel.name}/{self.formulation.name}"

    @property
    def outlook(self) -> float:
        """Factor on its best time when formulations compete for trials; see `Search.outlook`."""
        return self._space.search.outlook.get(self.formulation.name, 1.0)

    def workload_record(self) -> Any:
        """Returns the unscheduled program as a line of TVM's `database_workload.json`."""
        return self._context.workload_record()

    def tuning_record(self, candidate: Candidate, outcome: Outcome) -> Any:
        """Returns a valid trial as TVM's `TuningRecord` in plain JSON data."""
        return self._context.tuning_record(candidate, outcome)

    def samples(self) -> tuple[int, dict[str, int]]:
        """Returns the number of fresh samples that passed all checks since the last call, and rejections."""
        return self._context.sample_counts()

    def give(self, known: Sequence[tuple[str, Any]]) -> None:
        """Adds schedules that other runs found. They are proposed before anything else.

        Args:
            known: Digest and trace of each. A trace whose program has another digest is left out.
        """
        self._given.add_known(known)

    def begin_streamed(self) -> bool:
        """Proposes the schedule of the rule `streaming` first, if MetaSchedule's rules schedule the formulation.

        Returns:
            Whether it does.
        """
        if self._rule is not None:
            return False
        self._given.begin_streamed()
        return True

    @property
    def given(self) -> int:
        """Number of given schedules that are not yet proposed."""
        return len(self._given)

    def lesson(self, known: Sequence[Schedule]) -> Lesson:
        """Returns what a cost model of tiles can learn from earlier measurements of this kernel.

        No schedule is made, which would take milliseconds each. Schedules that are not tiles of the rule are left
        out.
        """
        assert self._rule is not None
        tiles = tiles_of(self._rule, prim_func(self.kernel, self.formulation), self._seed)
        features, seconds = [], []
        for one in known:
            try:
                tile = recorded_tile(self._rule, one.trace)
            except RecordError as error:
                LOGGER.warning("%s: %s", self.name, error.message)
                continue
            if tiles.fits(tile):
                features.append(tiles.features(tile))
                seconds.append(one.best_s)
        return Lesson(features, seconds)

    def teach(self, lessons: Sequence[Lesson]) -> None:
        """Trains the cost model, which all searches of this rule share, with measurements of other kernels."""
        self._ranker.teach(lessons)

    def recall(self, known: Sequence[Schedule], *, learn: bool = True) -> list[Candidate]:
        """Adds schedules that were measured before on an equal device: as parents, and as data for the cost model.

        Args:
            known: The schedules.
            learn: Whether they train the cost model.

        Returns:
            Those that still make the measured program, in order. They are proposed again only by `repeat`.
        """
        fitting: list[Candidate] = []
        fresh: list[tuple[Candidate, float]] = []
        for one in known:
            candidate = self._context.known(one.digest, one.trace)
            if candidate is None:
                continue
            fitting.append(candidate)
            if candidate.digest not in self._seen:
                self._seen.add(candidate.digest)
                self._context.remember(candidate, Outcome("ok", (one.best_s,)))
                fresh.append((candidate, one.best_s))
        if fresh and learn:
            features = self._context.features([one for one, _ in fresh])
            self._ranker.learn(self.name, features, [seconds for _, seconds in fresh])
        return fitting

    def repeat(self, candidates: Sequence[Candidate]) -> None:
        """Proposes recalled schedules before anything else, so that they are measured once more."""
        self._seen.difference_update(one.digest for one in candidates)
        self._given.add(candidates)

    def adapt(self, known: Sequence[Candidate], variants: int, count: int) -> int:
        """Derives schedules from those of similar kernels. They are proposed before anything else.

        Args:
            known: Schedules of similar kernels in the same formulation, the most promising first.
            variants: Number of schedules to derive from each.
            count: Number of schedules to propose: the first that fits, and those that the cost model ranks highest.
                The others compete with fresh samples later.

        Returns:
            The number of schedules that are proposed.
        """
        made: dict[str, Candidate] = {}
        for one in known:
            for candidate in self._context.variants(one, variants):
                if candidate.digest not in self._seen:
                    made.setdefault(candidate.digest, candidate)
        if not made:
            return 0
        first, *others = made.values()
        ranked = [first, *self._best_first(others)]
        self._given.add(ranked[:count])
        for candidate in ranked[count:]:
            self._seen.add(candidate.digest)
            self._waiting.append(candidate)
        return len(ranked[:count])

    def propose(self, count: int) -> list[Candidate]:
        """Returns up to `count` distinct schedules that were never measured; empty if none was found.

        MetaSchedule proposes a whole round at once. Proposals beyond `count` wait for the next call. If the cost
        model has been trained since, they then compete with fresh proposals. A search is exhausted if several
        rounds find nothing new, or if its space makes no schedule.
        """
        if given := self._given.take(count):
            self.state.trials += len(given)
            return given
        try:
            self._context.prepare_sampling()
        except ToolchainError as error:
            self.state.exhausted = True
            self.state.failure = error.message
            return []
        if not self._waiting or self._ranker.version != self._ranked_by:
            self._waiting += self._fresh_round()
            if len(self._waiting) > count:
                self._waiting = self._best_first(self._waiting)
            self._ranked_by = self._ranker.version
        taken = self._context.reproducible(self._waiting, count)
        self.state.trials += len(taken)
        return taken

    def observe(self, tried: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Learns from outcomes: valid schedules become parents; outcomes not due to the device train the model."""
        answered = [(candidate, outcome) for candidate, outcome in tried if not outcome.of_device]
        if not answered:
            return
        for candidate, outcome in answered:
            if outcome.ok:
                self._context.remember(candidate, outcome)
        features = self._context.features([candidate for candidate, _ in answered])
        seconds = [outcome.seconds for _, outcome in answered]
        self._ranker.learn(self.name, features, seconds)
        self._note(seconds)

    def replay(self, trace: Any) -> Candidate:
        """Rebuilds the candidate of an earlier trial from its trace. It will not be proposed again."""
        candidate = self._context.replayed(trace)
        self._seen.add(candidate.digest)
        self.state.trials += 1
        return candidate

    def _best_first(self, candidates: list[Candidate]) -> list[Candidate]:
        if not self._ranker.version:
            return candidates
        features = self._context.features(candidates)
        scores = list(self._ranker.score(features)) if candidates else []
        order = sorted(range(len(candidates)), key=lambda index: -scores[index])
        return [candidates[index] for index in order]

    def _fresh_round(self) -> list[Candidate]:
        proposed = self._context.sample()
        fresh: list[Candidate] = []
        for candidate in proposed or ():
            if candidate.digest not in self._seen:
                self._seen.add(candidate.digest)
                fresh.append(candidate)
        self.state.empty_rounds = 0 if fresh else self.state.empty_rounds + 1
        if proposed is None or self.state.empty_rounds >= _EMPTY_ROUNDS:
            self.state.exhausted = not fresh
        if self.state.exhausted and not self._seen:
            self.state.failure = NO_SCHEDULE
        return fresh

    def _note(self, seconds: Sequence[float]) -> None:
        state = self.state
        best = min(state.best_s, *seconds)
        known = math.isfinite(state.best_s) and math.isfinite(best)
        state.recent_gain_s = (state.best_s - best) / len(seconds) if known else 0.0
        state.best_s = best
