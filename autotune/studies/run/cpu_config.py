"""Runs a search for a CPU configuration: first the study, then the best and the default again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autotune.studies.evaluators import Evaluator, Measured
from autotune.studies.run.finals import Final, contenders, measure_again
from autotune.studies.run.repeats import REFERENCE_EVERY, Record, Reference, Repeats
from autotune.studies.run.study import Study, StudyTrial
from autotune.studies.space import CpuConfiguration


class Progress(Protocol):
    """Receives the progress of a search."""

    def phase(self, name: str, total: int) -> None:
        """Reports that a phase of `total` measurements begins."""

    def step(self, done: int, text: str) -> None:
        """Reports how many measurements are done."""

    def notice(self, text: str) -> None:
        """Reports something that people should know at once."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a search.

    Attributes:
        trials: The trials.
        finals: Configurations that were measured again, including the default.
        references: Changes of the reference during the search.
        verdicts: Results of challenges.
        marks: Reasons to doubt the figures.
        others: Trials measured by other processes of a shared study.
    """

    trials: tuple[StudyTrial, ...]
    finals: tuple[Final, ...]
    references: tuple[Reference, ...] = ()
    verdicts: tuple[dict[str, Any], ...] = ()
    marks: tuple[str, ...] = ()
    others: tuple[StudyTrial, ...] = ()


class CpuConfigRun:
    """Carries out a search.

    Args:
        study: The study, of one process or several.
        evaluator: Measures configurations.
        record: Called with the kind of each measurement (`trial`, `final`, and those of `Repeats`), a description
            of its subject, and its outcome.
        progress: Receives progress.
        interrupted: Called between measurements; returns whether to stop.
        blocks: How often the best are measured again; 0 leaves out this and challenges.
        reference_every: Trials between runs of the reference; 0 leaves them out.
        events: Events of earlier parts of this run.
        searched: Called when the search has ended, before the best are measured again. Returns further
            configurations to measure again.
    """

    def __init__(
        self,
        study: Study,
        evaluator: Evaluator,
        record: Record,
        progress: Progress,
        *,
        interrupted: Callable[[], bool] = lambda: False,
        blocks: int = 5,
        reference_every: int = REFERENCE_EVERY,
        events: Sequence[Mapping[str, Any]] = (),
        searched: Callable[[], Sequence[CpuConfiguration]] = tuple,
    ) -> None:
        self._study, self._evaluator, self._searched = study, evaluator, searched
        self._record, self._progress = record, progress
        self._interrupted, self._blocks = interrupted, blocks
        self._names = [cluster.name for cluster in evaluator.clusters]
        self._repeats = Repeats(
            evaluator,
            study.request,
            record,
            progress.notice,
            every=reference_every,
            challenges=blocks > 0,
            interrupted=interrupted,
        )
        self._repeats.recall(events)
        self._events = events
        self._own = {
            CpuConfiguration.from_json(e["configuration"], self._names)
            for e in events
            if e["event"] == "trial"
        }

    def run(self) -> Outcome | None:
        """Measures and returns the outcome; None if interrupted. Measurements are kept, and a later call continues.

        Raises:
            DeviceError: The device is gone. Measurements are kept here too.
        """
        request = self._study.request
        self._progress.phase("configurations", request.trials)
        self._study.recall(self._events)
        self._study.run(self._evaluator, self._trial_ended, self._interrupted, self._recorded)
        if self._interrupted():
            return None
        beside = self._searched()
        trials = self._study.trials()
        again = contenders(request.objective, request.limits, trials) if self._blocks else []
        incumbent = self._repeats.incumbent
        if again and incumbent is not None and incumbent not in again:
            again[-1] = incumbent  # Winner of its challenges; others had luckier runs.
        if again:
            again += [one for one in beside if one not in again]
        finals: list[Final] = []
        if again:
            self._progress.phase("best again", self._blocks * (len(again) + 1))
            earlier = self._finals_before()
            done = 0

            def on_measured(configuration: CpuConfiguration | None, measured: Measured) -> None:
                nonlocal done
                done += 1
                what = configuration.to_json(self._names) if configuration else None
                self._record("final", {"configuration": what}, measured)
                self._progress.step(done, self._text(configuration))

            finals = measure_again(
                self._evaluator,
                again,
                blocks=self._blocks,
                seed=request.seed,
                on_measured=on_measured,
                interrupted=self._interrupted,
                earlier=earlier,
            )
        if self._interrupted():
            return None
        for final in finals:
            if final.configuration is None:
                self._study.tell_default(final.figures)
        repeats = self._repeats
        return Outcome(
            tuple(trials),
            tuple(finals),
            tuple(repeats.references),
            tuple(repeats.verdicts),
            tuple(repeats.marks()),
            tuple(t for t in trials if t.configuration not in self._own),
        )

    def _finals_before(self) -> list[tuple[CpuConfiguration | None, Measured]]:
        """Returns this run's final measurements so far, since its last trial."""
        found: list[tuple[CpuConfiguration | None, Measured]] = []
        for event in self._events:
            if event["event"] == "trial":
                found.clear()
            elif event["event"] == "final":
                what = event["configuration"]
                key = CpuConfiguration.from_json(what, self._names) if what else None
                found.append((key, Measured.of_event(event)))
        return found

    def _recorded(self, trial: StudyTrial, measured: Measured) -> None:
        self._record("trial", trial.proposal(self._names), measured)
        self._own.add(trial.configuration)

    def _trial_ended(self, trial: StudyTrial, _: Measured) -> None:
        self._progress.step(len(self._study.trials()), self._text(trial.configuration))
        self._repeats.after(trial)

    def _text(self, configuration: CpuConfiguration | None) -> str:
        return configuration.text(self._names) if configuration else "the default"
