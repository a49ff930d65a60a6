"""Runs a joint search: the study, extra rounds of schedules if it ends early, and a measurement of its gain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autotune.devices import Cluster
from autotune.errors import StableDeviceError
from autotune.studies.evaluators import Evaluator, Measured
from autotune.studies.joint.joint import Choice, JointEvaluator
from autotune.studies.joint.placement_run import PlacementRun
from autotune.studies.run import (
    CpuConfigRun,
    Found,
    Outcome,
    Progress,
    Record,
    Study,
    best_point,
    contenders,
    figures_of,
    figures_ratio,
    found_of,
    in_both,
    interleaved_blocks,
)
from autotune.studies.space import CpuConfiguration, Figures, front, gain

ROUND = "round"
"""The event of a configuration that is measured again with other schedules."""
_SEQUENTIAL = "sequential_"
_BESIDE = "beside"
_ROUNDS_OF = 3


class KeptSchedules:
    """An evaluator that uses kernels tuned in advance. Cores and clocks are chosen afterwards.

    Args:
        evaluator: The joint search's evaluator.
        choice: The schedules that were tuned for the cores of a configuration.
    """

    def __init__(
        self, evaluator: JointEvaluator, choice: Callable[[CpuConfiguration | None], Choice]
    ) -> None:
        self._evaluator, self._choice = evaluator, choice

    @property
    def clusters(self) -> Sequence[Cluster]:
        """See `Evaluator.clusters`."""
        return self._evaluator.clusters

    @property
    def device(self) -> dict[str, Any]:
        """See `Evaluator.device`."""
        return self._evaluator.device

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """See `Evaluator.measure`. The joint search learns nothing from it."""
        choice = self._choice(configuration)
        measured = self._evaluator.steps.measure(configuration, choice)
        return replace(measured, raw={**(measured.raw or {}), **choice.to_json()})


@dataclass(frozen=True)
class Sequential:
    """The search that a joint search is compared with: kernels first, then cores and clocks, with the same budget.

    Attributes:
        study: Its study.
        evaluator: Its evaluator.
    """

    study: Study
    evaluator: KeptSchedules


@dataclass(frozen=True)
class JointOutcome:
    """The outcome of a joint search.

    Attributes:
        outcome: The outcome, as of any search.
        sequential: The outcome of tuning kernels first and choosing cores afterwards with as many steps, and the
            comparison of the two (docs/joint.md); None if this was left out.
        placement: The best configuration's step on the CPU, on the GPU and on both; None if no GPU takes part.
    """

    outcome: Outcome
    sequential: dict[str, Any] | None
    placement: dict[str, Any] | None


class JointRun:
    """A joint search, and the search that it is compared with.

    Args:
        study: The joint search's study.
        evaluator: Its evaluator.
        sequential: The search to compare with; None leaves it out.
        record: See `CpuConfigRun`.
        progress: See `CpuConfigRun`.
        interrupted: See `CpuConfigRun`.
        blocks: See `CpuConfigRun`.
        reference_every: See `CpuConfigRun`.
        events: Events of earlier parts of this run.
    """

    def __init__(
        self,
        study: Study,
        evaluator: JointEvaluator,
        sequential: Sequential | None,
        record: Record,
        progress: Progress,
        *,
        interrupted: Callable[[], bool],
        blocks: int,
        reference_every: int,
        events: Sequence[Mapping[str, Any]],
    ) -> None:
        self._study, self._evaluator = study, evaluator
        self._sequential, self._record, self._progress = sequential, record, progress
        self._interrupted, self._blocks = interrupted, blocks
        self._every, self._events = reference_every, events
        self._names = [cluster.name for cluster in evaluator.clusters]
        self._placing: PlacementRun | None = None
        self._placed: dict[str, Any] | None = None

    def run(self) -> JointOutcome | None:
        """Measures and returns the outcome; None if interrupted. Measurements are kept, and a later call continues.

        Raises:
            DeviceError: The device is gone. Measurements are kept here too.
        """
        self._placing = self._placement_run()
        outcome = self._search(
            self._study, self._evaluator, self._record, self._events, self._ended
        )
        if outcome is None:
            return None
        mine = found_of(self._study.request, outcome)
        if not self._placed_again(mine):
            return None
        placement = self._placed
        if self._sequential is None:
            return JointOutcome(outcome, None, placement)
        self._progress.notice(
            "comparison: the same number of steps with the kernels that their runs found fastest"
        )
        other = self._search(
            self._sequential.study,
            self._sequential.evaluator,
            lambda kind, what, measured: self._record(_SEQUENTIAL + kind, what, measured),
            [
                {**event, "event": event["event"].removeprefix(_SEQUENTIAL)}
                for event in self._events
                if event["event"].startswith(_SEQUENTIAL)
            ],
            tuple,
        )
        if other is None:
            return None
        theirs = found_of(self._sequential.study.request, other)
        if mine.best is None or theirs.best is None:
            return JointOutcome(outcome, None, placement)
        comparison = self._compared(mine, theirs, other, self._sequential.evaluator)
        return None if comparison is None else JointOutcome(outcome, comparison, placement)

    def _placement_run(self) -> PlacementRun | None:
        """Measures what the search must know about the GPU; returns None if no GPU takes part in the step."""
        if self._evaluator.placing is None:
            return None
        run = PlacementRun(
            self._evaluator, self._evaluator.placing, self._record, self._progress, interrupted=self._interrupted,
            blocks=self._blocks, objective=self._study.request.objective, seed=self._study.request.seed,
            events=self._events,
        )  # fmt: skip
        try:
            run.probe()
        except StableDeviceError as error:
            self._progress.notice(f"{error.message}; all calls stay on the CPU")
            self._evaluator.placing = None
            return None
        return run

    def _search(
        self,
        study: Study,
        evaluator: Evaluator,
        record: Record,
        events: Sequence[Mapping[str, Any]],
        searched: Callable[[], Sequence[CpuConfiguration]],
    ) -> Outcome | None:
        return CpuConfigRun(
            study, evaluator, record, self._progress, interrupted=self._interrupted, blocks=self._blocks,
            reference_every=self._every, events=events, searched=searched,
        ).run()  # fmt: skip

    def _ended(self) -> list[CpuConfiguration]:
        """Spends the rest of the budget on better schedules, since a small space is soon measured completely.

        Returns:
            The best configuration for the CPU alone, if all calls stay there; else an empty list.
        """
        request = self._study.request
        trials = self._study.trials()
        left = request.trials - len(trials)
        left -= sum(event["event"] == ROUND for event in self._events)
        if left > 0:
            self._progress.phase("other schedules", left)
        for done, configuration in zip(range(left), self._rounds(), strict=False):
            if self._interrupted():
                return []
            measured = self._evaluator.measure(configuration)
            what = {"configuration": configuration.to_json(self._names)}
            self._record(ROUND, what, measured)
            self._progress.step(done + 1, configuration.text(self._names))
        best = self._best()
        if self._placing is not None and best and self._blocks:
            self._placed = self._placing.compared(best[0], request.limits)
        self._evaluator.settle()
        if self._placed is None or self._placed["best"] != "cpu":
            return []
        return [CpuConfiguration.from_json(self._placed["cpu_configuration"], self._names)]

    def _placed_again(self, mine: Found) -> bool:
        """Compares the final best configuration with the CPU alone, if the best has changed.

        Returns false if interrupted.
        """
        if self._placing is None or self._placed is None or mine.best is None:
            return True
        best = mine.trials[mine.best].configuration
        known = best.to_json(self._names) == self._placed["configuration"]
        if not known and self._evaluator.choose(best).gpu:
            self._placed["again"] = self._placing.compared_again(best)
        return not self._interrupted()

    def _rounds(self) -> Iterator[CpuConfiguration]:
        best = self._best()[:_ROUNDS_OF]
        while best:
            yield from best

    def _best(self) -> list[CpuConfiguration]:
        request = self._study.request
        return contenders(request.objective, request.limits, self._study.trials())

    def _compared(
        self, mine: Found, theirs: Found, other: Outcome, kept: KeptSchedules
    ) -> dict[str, Any] | None:
        """Compares the two searches; returns None if interrupted."""
        assert mine.best is not None and theirs.best is not None
        rivals = (mine.trials[mine.best].configuration, theirs.trials[theirs.best].configuration)
        pairs = self._beside(rivals, kept)
        if pairs is None:
            return None
        result: dict[str, Any] = {
            "measured": len(other.trials),
            "best": best_point(theirs, other, self._names),
            "blocks": len(pairs),
            "front": _fronts(mine, theirs),
        }
        for name in ("time_s", "energy_j"):
            result[name] = _ratio(pairs, name, self._study.request.seed)
        return result

    def _beside(
        self, rivals: tuple[CpuConfiguration, CpuConfiguration], kept: KeptSchedules
    ) -> list[tuple[Figures, Figures]] | None:
        """Measures the best of both searches in interleaved blocks; returns None if interrupted."""
        known = [event for event in self._events if event["event"] == _BESIDE]
        configurations = [rival.to_json(self._names) for rival in rivals]
        if any(event["configuration"] != configurations[event["side"]] for event in known):
            known = []  # These measured another best, before further trials.
        self._progress.phase("both searches' best", 2 * self._blocks)

        def record(side: int, measured: Measured, done: int) -> None:
            self._record(_BESIDE, {"side": side, "configuration": configurations[side]}, measured)
            self._progress.step(done, ("joint", "sequential")[side])

        mine, theirs = interleaved_blocks(
            [partial(self._evaluator.measure, rivals[0]), partial(kept.measure, rivals[1])],
            blocks=self._blocks,
            seed=self._study.request.seed,
            on_measured=record,
            interrupted=self._interrupted,
            earlier=[(event["side"], Measured.of_event(event)) for event in known],
        )
        if self._interrupted():
            return None
        return in_both(figures_of(mine), figures_of(theirs))


def _fronts(mine: Found, theirs: Found) -> dict[str, Any] | None:
    """Compares the fronts of both searches; returns None without joules."""
    points = [
        [(f.time_s, f.energy_j) for f in found.figures if f.energy_j is not None]
        for found in (mine, theirs)
    ]
    if not all(points):
        return None
    dominated, more = gain(*([one[i] for i in front(one)] for one in points))
    return {"dominated": dominated, "hypervolume_gain": more}


def _ratio(pairs: Sequence[tuple[Figures, Figures]], name: str, seed: int) -> dict[str, Any] | None:
    """Returns the ratio of sequential to joint, with its interval; None if it was not measured."""
    return figures_ratio([(b, a) for a, b in pairs], name, pairs[0], seed) if pairs else None
