"""Carries a joint search out: the study, rounds of schedules where it ends early, and what it gained."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.devices.topology import Cluster
from autotune.studies.bench import Bench, Measured
from autotune.studies.configuration import CpuConfiguration
from autotune.studies.cpu_config import CpuConfigRun, Outcome, Progress
from autotune.studies.finals import contenders, figures_ratio
from autotune.studies.joint import Choice, JointBench
from autotune.studies.objective import Figures
from autotune.studies.pareto import front, gain
from autotune.studies.repeats import Record
from autotune.studies.result import Found, found_of
from autotune.studies.study import Study

ROUND = "round"
"""The event of a configuration that is measured once more with other schedules."""
_SEQUENTIAL = "sequential_"
_BESIDE = "beside"
_ROUNDS_OF = 3


class KeptSchedules:
    """A bench that computes every step alike: tuned kernels first, cores and clocks afterwards.

    Args:
        bench: The joint search's.
        choice: With what.
    """

    def __init__(self, bench: JointBench, choice: Choice) -> None:
        self._bench, self.choice = bench, choice

    @property
    def clusters(self) -> Sequence[Cluster]:
        """See `Bench.clusters`."""
        return self._bench.clusters

    @property
    def device(self) -> dict[str, Any]:
        """See `Bench.device`."""
        return self._bench.device

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """See `Bench.measure`; the joint search learns nothing from it."""
        measured = self._bench.steps.measure(configuration, self.choice)
        return replace(measured, raw={**(measured.raw or {}), **self.choice.to_json()})


@dataclass(frozen=True)
class JointOutcome:
    """What a joint search found.

    Attributes:
        outcome: As of any search.
        sequential: What tuning kernels first and choosing cores afterwards found with as many steps, and how the
            two compare (docs/joint.md); None where that was left out.
    """

    outcome: Outcome
    sequential: dict[str, Any] | None


class JointRun:
    """A joint search, and the search that it is compared with.

    Args:
        study: The joint search's study.
        bench: Its bench.
        sequential: The study of the other search, with the same budget; None leaves it out.
        kept: The bench of that.
        record: See `CpuConfigRun`.
        progress: See `CpuConfigRun`.
        interrupted: See `CpuConfigRun`.
        blocks: See `CpuConfigRun`.
        reference_every: See `CpuConfigRun`.
        events: Those of an earlier part of this run.
    """

    def __init__(
        self,
        study: Study,
        bench: JointBench,
        sequential: Study | None,
        kept: KeptSchedules,
        record: Record,
        progress: Progress,
        *,
        interrupted: Callable[[], bool],
        blocks: int,
        reference_every: int,
        events: Sequence[Mapping[str, Any]],
    ) -> None:
        self._study, self._bench, self._kept = study, bench, kept
        self._sequential, self._record, self._progress = sequential, record, progress
        self._interrupted, self._blocks = interrupted, blocks
        self._every, self._events = reference_every, events
        self._names = [cluster.name for cluster in bench.clusters]

    def run(self) -> JointOutcome | None:
        """Measures; None where it was interrupted: what is measured is kept, and a later call goes on.

        Raises:
            DeviceError: The device is gone; as above.
        """
        outcome = self._search(self._study, self._bench, self._record, self._events, self._ended)
        if outcome is None or self._sequential is None:
            return None if outcome is None else JointOutcome(outcome, None)
        self._progress.notice(
            "and now as many steps with the kernels that their own runs found fastest"
        )
        other = self._search(
            self._sequential,
            self._kept,
            lambda kind, what, measured: self._record(_SEQUENTIAL + kind, what, measured),
            [
                {**event, "event": event["event"].removeprefix(_SEQUENTIAL)}
                for event in self._events
                if event["event"].startswith(_SEQUENTIAL)
            ],
            lambda: None,
        )
        return None if other is None else self._compared(outcome, other)

    def _search(
        self,
        study: Study,
        bench: Bench,
        record: Record,
        events: Sequence[Mapping[str, Any]],
        searched: Callable[[], None],
    ) -> Outcome | None:
        return CpuConfigRun(
            study, bench, record, self._progress, interrupted=self._interrupted, blocks=self._blocks,
            reference_every=self._every, events=events, searched=searched,
        ).run()  # fmt: skip

    def _ended(self) -> None:
        """A small space is soon measured whole: what is left of the budget finds its best schedules."""
        request = self._study.request
        trials = self._study.trials()
        left = request.trials - len(trials)
        left -= sum(event["event"] == ROUND for event in self._events)
        if left > 0:
            self._progress.phase("other schedules", left)
        for done, configuration in zip(range(left), self._rounds(), strict=False):
            if self._interrupted():
                return
            measured = self._bench.measure(configuration)
            what = {"configuration": configuration.to_json(self._names)}
            self._record(ROUND, what, measured)
            self._progress.step(done + 1, configuration.text(self._names))
        self._bench.settle()

    def _rounds(self) -> Iterator[CpuConfiguration]:
        request = self._study.request
        best = contenders(request.objective, request.limits, self._study.trials())[:_ROUNDS_OF]
        while best:
            yield from best

    def _compared(self, outcome: Outcome, other: Outcome) -> JointOutcome | None:
        assert self._sequential is not None
        mine, theirs = (
            found_of(self._study.request, outcome),
            found_of(self._sequential.request, other),
        )
        if mine.best is None or theirs.best is None:
            return JointOutcome(outcome, None)
        rivals = (mine.trials[mine.best].configuration, theirs.trials[theirs.best].configuration)
        pairs = self._beside(rivals)
        if pairs is None:
            return None
        figures = theirs.figures[theirs.best]
        told: dict[str, Any] = {
            "measured": len(other.trials),
            "best": {
                **rivals[1].to_json(self._names),
                "time_s": figures.time_s,
                "energy_j": figures.energy_j,
            },
            "blocks": len(pairs),
            "front": _fronts(mine, theirs),
        }
        for name in ("time_s", "energy_j"):
            told[name] = _ratio(pairs, name, self._study.request.seed)
        return JointOutcome(outcome, told)

    def _beside(
        self, rivals: tuple[CpuConfiguration, CpuConfiguration]
    ) -> list[tuple[Figures, Figures]] | None:
        """The best of both searches, measured in interleaved blocks; None where it was interrupted."""
        benches: tuple[Bench, Bench] = (self._bench, self._kept)
        known = [event for event in self._events if event["event"] == _BESIDE]
        told = [rival.to_json(self._names) for rival in rivals]
        if any(event["configuration"] != told[event["side"]] for event in known):
            known = []  # Of another best, before more was measured.
        self._progress.phase("both searches' best", 2 * self._blocks)
        order = random.Random(self._study.request.seed)
        pairs = []
        for block in range(self._blocks):
            sides = [0, 1]
            order.shuffle(sides)
            found: dict[int, Figures | None] = {}
            for number, side in enumerate(sides):
                at = 2 * block + number
                if at < len(known):
                    found[side] = Measured.of_event(known[at]).figures
                    continue
                if self._interrupted():
                    return None
                measured = benches[side].measure(rivals[side])
                self._record(_BESIDE, {"side": side, "configuration": told[side]}, measured)
                self._progress.step(at + 1, ("joint", "sequential")[side])
                found[side] = measured.figures
            if (one := found[0]) is not None and (two := found[1]) is not None:
                pairs.append((one, two))
        return pairs


def _fronts(mine: Found, theirs: Found) -> dict[str, Any] | None:
    """How the fronts of both searches compare; None without joules."""
    points = [
        [(f.time_s, f.energy_j) for f in found.figures if f.energy_j is not None]
        for found in (mine, theirs)
    ]
    if not all(points):
        return None
    dominated, more = gain(*([one[i] for i in front(one)] for one in points))
    return {"dominated": dominated, "hypervolume_gain": more}


def _ratio(pairs: Sequence[tuple[Figures, Figures]], name: str, seed: int) -> dict[str, Any] | None:
    """Sequential over joint, with its interval; None where it was not measured."""
    return figures_ratio([(b, a) for a, b in pairs], name, pairs[0], seed) if pairs else None
