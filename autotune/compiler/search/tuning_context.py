"""MetaSchedule's tuning context of one kernel in one formulation: it makes schedules and keeps the best."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.formulations import Formulation, prim_func
from autotune.compiler.programs import Candidate, Unscheduled, plain, replay_trace
from autotune.compiler.rules import (
    TileRule,
    design_spaces,
    no_tensor_intrinsics,
    space_generator,
    streamed,
    streamed_on_gpu,
)
from autotune.compiler.search import tile_strategy
from autotune.compiler.search.cost_model import (
    FeatureExtractor,
    ScheduleRanker,
    metaschedule_model,
)
from autotune.compiler.search.rejections import RejectionCounter
from autotune.compiler.search.tile_strategy import TileFeatures
from autotune.compiler.search.transfer import adapted, passes
from autotune.compiler.target import Space
from autotune.errors import RecordError
from autotune.measurement import Outcome
from autotune.workloads.operators import Kernel

LOGGER = logging.getLogger("autotune.search")
_MAX_TRIALS = 1 << 30


class TuningContext:
    """Makes schedules of one program: samples, offspring of earlier ones, and replayed traces.

    TVM's context is created at its first use, so that a search without budget costs nothing.

    Args:
        kernel: The kernel to compute.
        formulation: The way to compute it.
        space: The search space.
        target: The TVM target.
        rule: Our own rule that schedules the formulation; None if MetaSchedule's rules do.
        ranker: The cost model.
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
        rule: TileRule | None,
        ranker: ScheduleRanker,
        seed: int,
        threads: int,
    ) -> None:
        self._kernel = kernel
        self._formulation = formulation
        self._space = space
        self._target = target
        self._rule = rule
        self._ranker = ranker
        self._seed = seed
        self._threads = threads
        self._name = f"{kernel.name}/{formulation.name}"
        self._features: Any = TileFeatures(rule) if rule else FeatureExtractor()
        self._rejections = RejectionCounter()
        self._opened: Any = None
        self._database: Any = None
        self._workload: Any = None
        self._unscheduled: Any = None
        self._evolves = False
        self._samples = False

    def workload_record(self) -> Any:
        """Returns the unscheduled program as a line of TVM's `database_workload.json`."""
        return plain(self._workload.as_json())

    def tuning_record(self, candidate: Candidate, outcome: Outcome) -> Any:
        """Returns a valid trial as TVM's `TuningRecord` in plain JSON data."""
        return plain(self._record(candidate, outcome).as_json())

    def remember(self, candidate: Candidate, outcome: Outcome) -> None:
        """Adds a valid trial to the database, from which evolution takes parents."""
        self._database.commit_tuning_record(self._record(candidate, outcome))

    def features(self, candidates: Sequence[Candidate]) -> list[NDArray[np.float32]]:
        """Returns feature vectors for the cost model, in the candidates' order."""
        found: list[NDArray[np.float32]] = self._features(
            self._context, [one.schedule for one in candidates]
        )
        return found

    def prepare_sampling(self) -> None:
        """Prepares for sampling.

        Before the cost model is trained, evolution would only choose at random, which sampling does at lower cost.
        So the context is created again, with generations, after the first training.

        Raises:
            ToolchainError: The space makes no schedule.
        """
        if self._samples and (self._evolves or not self._ranker.version):
            return
        self._open()
        # The sketches to sample from. For tiles, each is made with the first tile of its kind.
        self._opened.pre_tuning(
            _MAX_TRIALS,
            self._space.search.trials_per_round,
            [] if self._rule else design_spaces(self._opened.mod, self._target, self._space),
            self._database,
            metaschedule_model(self._ranker, self._features),
        )
        self._samples = True

    def sample(self) -> list[Candidate] | None:
        """Returns a round of candidates; None if MetaSchedule has no more."""
        proposed = self._context.generate_measure_candidates()
        return None if proposed is None else [self._candidate(one) for one in proposed]

    def sample_counts(self) -> tuple[int, dict[str, int]]:
        """Returns the number of fresh samples that passed all checks since the last call, and rejections by check.

        Rejections include mutations of earlier schedules.
        """
        return self._rejections.take()

    def reproducible(self, candidates: list[Candidate], count: int) -> list[Candidate]:
        """Takes up to `count` candidates from the front of a list: those that their own traces make again.

        A schedule of TVM may change the program that its sampler makes all others of (see `Unscheduled`), and those
        then have other programs than their traces say. They are dropped, and sampling begins anew. Tiles are of
        copies of the program, and need no check.
        """
        taken: list[Candidate] = []
        while candidates and len(taken) < count:
            candidate = candidates.pop(0)
            if self._rule or self._makes_again(candidate):
                taken.append(candidate)
            else:
                self._samples = False
        return taken

    def _makes_again(self, candidate: Candidate) -> bool:
        try:
            return self.replayed(candidate.trace).digest == candidate.digest
        except Exception:  # TVM raises its first error.
            return False

    def replayed(self, trace: Any) -> Candidate:
        """Returns the candidate of a trace.

        Raises:
            RecordError: The trace has something that our searches do not make.
            Exception: The trace does not fit. TVM raises its first error.
        """
        schedule = self._fresh_schedule()
        replay_trace(schedule, trace)
        # A trace of TVM's own rules includes the checks, which change the schedule. The check of a tile only
        # inspects it.
        if self._rule and not passes(self._context, schedule):
            raise ValueError("the tile does not fit the program")
        return self._measurable(schedule)

    def streamed(self) -> Candidate | None:
        """Returns the schedule of the space's rule `streaming`; None if TVM refuses it."""
        try:
            made = _first_schedule(self._fresh_schedule(), self._space, self._threads)
        except Exception as error:  # TVM raises its first error.
            reason = str(error).strip().splitlines()[-1]
            LOGGER.warning("%s has no first schedule: %s", self._name, reason)
            return None
        return self._measurable(made)

    def known(self, digest: str, trace: Any) -> Candidate | None:
        """Returns the candidate that another run measured; warns and returns None if it makes another program."""
        try:
            candidate = self.replayed(trace)
        except RecordError as error:
            LOGGER.warning("%s: %s", self._name, error.message)
            return None
        except Exception:  # TVM raises its first error.
            candidate = None
        if candidate is None or candidate.digest != digest:
            LOGGER.warning("%s: a known schedule does not fit any more", self._name)
            return None
        return candidate

    def variants(self, known: Candidate, count: int) -> list[Candidate]:
        """Returns up to `count` schedules derived from one of a similar kernel, all of which pass the checks."""
        made = []
        for variant in range(count):
            try:
                schedule = adapted(
                    self._fresh_schedule(), self._context, known.schedule.sch.trace, variant
                )
            except Exception:  # TVM raises its first error.
                break
            if schedule is not None:
                made.append(self._measurable(schedule))
        return made

    def _fresh_schedule(self) -> Any:
        if self._opened is None:
            self._open()
        return self._unscheduled.schedule()

    @property
    def _context(self) -> Any:
        if self._opened is None:
            self._open()
        return self._opened

    def _open(self) -> None:
        from tvm.s_tir import meta_schedule as ms

        self._evolves = self._ranker.version > 0
        self._samples = False
        logger = logging.getLogger(f"autotune.search.{self._name}")
        logger.handlers = [self._rejections]
        logger.setLevel(logging.INFO)
        logger.propagate = False
        with no_tensor_intrinsics():
            self._opened = ms.TuneContext(
                prim_func(self._kernel, self._formulation),
                target=self._target,
                space_generator=space_generator(self._space, self._rule),
                search_strategy=self._strategy(),
                task_name=self._name,
                rand_state=self._seed,
                num_threads=self._threads,
                logger=logger,
            )
        if self._database is None:
            self._database = ms.database.MemoryDatabase()
        self._unscheduled = Unscheduled(self._opened.mod)
        self._workload = self._database.commit_workload(self._opened.mod)

    def _strategy(self) -> Any:
        from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch

        search = self._space.search
        if self._rule:
            return tile_strategy.strategy(self._rule, search.explore, self._ranker, self._seed)
        return EvolutionarySearch(
            population_size=search.population if self._evolves else search.min_unmeasured,
            init_measured_ratio=search.measured_share,
            init_min_unmeasured=search.min_unmeasured,
            max_fail_count=search.max_failed_batches,
            genetic_num_iters=search.generations if self._evolves else 0,
            genetic_mutate_prob=search.mutation_probability,
            eps_greedy=search.explore,
        )

    def _record(self, candidate: Candidate, outcome: Outcome) -> Any:
        from tvm.s_tir.meta_schedule.database import TuningRecord

        schedule = candidate.schedule
        return TuningRecord(
            schedule.sch.trace,
            self._workload,
            list(outcome.samples),
            self._target,
            schedule.args_info,
        )

    def _measurable(self, schedule: Any) -> Candidate:
        from tvm.s_tir.meta_schedule import MeasureCandidate
        from tvm.s_tir.meta_schedule.arg_info import ArgInfo

        return self._candidate(
            MeasureCandidate(schedule, ArgInfo.from_entry_func(schedule.mod, True))
        )

    def _candidate(self, schedule: Any) -> Candidate:
        return Candidate.scheduled_by(self._kernel, self._formulation.name, schedule)


def _first_schedule(schedule: Any, space: Space, threads: int) -> Any:
    assert space.streaming is not None
    if space.limits is not None:
        return streamed_on_gpu(schedule, space.limits)
    return streamed(schedule, space.streaming, threads)
