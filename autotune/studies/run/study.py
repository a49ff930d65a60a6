"""A study: proposes configurations, has them measured, and keeps what came out; alone or with other processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import optuna
from optuna.exceptions import OptunaError
from optuna.samplers import BaseSampler, RandomSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.studies.bench import Bench, Measured
from autotune.studies.run.identity import claim
from autotune.studies.run.storage import open_study
from autotune.studies.run.trial_leases import MESSAGE, STATUS, TrialLeases, counts
from autotune.studies.search import (
    FIGURES,
    NUMBER,
    Evolution,
    GridSearch,
    ModelSearch,
    SearchSampler,
    TreeParzen,
    taken_numbers,
)
from autotune.studies.space import (
    CpuConfiguration,
    CpuSpace,
    Figures,
    Limits,
    Objective,
    value_names,
    values,
)

SamplerName = Literal["tpe", "nsga2", "random", "grid"]
SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)

_REASON, _BELIEF, _SEEN_KHZ, _MARKS, _MEMO = "reason", "belief", "seen_khz", "marks", "memo"
DEFAULT = "system's own choice"
"""Attribute of a trial that is none of the search's: what a step took with the system's own cores and clocks."""
_IDLE_ASKS = 20
_LOOK_S = 1.0


@dataclass(frozen=True)
class StudyRequest:
    """What a study is to do.

    Attributes:
        space: What may be chosen.
        objective: What is to be small.
        limits: What must be kept.
        trials: How many configurations to measure, over all processes.
        sampler: Who proposes what the models do not.
        model: Whether the models of time and power lead; a grid goes through everything in order.
        seed: Of every draw.
        workload: What is measured, as a text; processes that share a study have to mean the same.
    """

    space: CpuSpace
    objective: Objective
    limits: Limits
    trials: int
    sampler: SamplerName = "tpe"
    model: bool = True
    seed: int = 1
    workload: str = ""


@dataclass(frozen=True)
class StudyTrial:
    """A trial that has ended.

    Attributes:
        number: Optuna's number of it.
        configuration: What was measured.
        status: `ok`, `invalid` or `failed`.
        figures: What a step took; None unless `ok`.
        message: What went wrong.
        reason: Who proposed it: `probe`, `model`, or the sampler.
        belief: What the models expected of it, if they proposed it.
        seen_khz: Mean clock of each cluster while it was measured, where it could be read.
        marks: What makes the energy doubtful.
        memo: See `Measured.memo`.
    """

    number: int
    configuration: CpuConfiguration
    status: str
    figures: Figures | None
    message: str
    reason: str
    belief: Figures | None
    seen_khz: dict[str, float] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    memo: dict[str, Any] | None = None

    def proposal(self, names: Sequence[str]) -> dict[str, Any]:
        """What was proposed, as a run's events have it; with the names of the clusters."""
        return {
            "number": self.number,
            "configuration": self.configuration.to_json(names),
            "reason": self.reason,
            "belief": asdict(self.belief) if self.belief else None,
        }


def base_sampler(name: SamplerName, space: CpuSpace, trials: int, seed: int) -> BaseSampler:
    """Optuna's sampler of that name, for so many trials; it chooses positions among the values of the space."""
    if name == "tpe":
        return TreeParzen(space, seed)
    if name == "nsga2":
        return Evolution(space, trials, seed)
    return RandomSampler(seed=seed)


def make_sampler(request: StudyRequest) -> BaseSampler:
    """The request's sampler."""
    base = base_sampler(request.sampler, request.space, request.trials, request.seed)
    if request.sampler == "grid":
        return SearchSampler(request.space, base, GridSearch(request.space), every=0)
    if not request.model:
        return SearchSampler(request.space, base)
    search = ModelSearch(request.space, request.objective, request.limits, seed=request.seed)
    return SearchSampler(request.space, base, search)


class Study:
    """One process's part in a study that others may share.

    Args:
        request: What to do.
        study: Optuna's, with `make_sampler`'s sampler.
        worker: Names this process among others; machine, process and its start where it is empty.

    Raises:
        UsageError: The study is of something else.
    """

    def __init__(self, request: StudyRequest, study: optuna.Study, *, worker: str = "") -> None:
        self.request = request
        self._study = study
        claim(study, request.space, request.objective, request.limits, request.workload)
        self._claims = TrialLeases(study, request.space, request.trials, request.seed, worker)

    def run(
        self,
        bench: Bench,
        told: Callable[[StudyTrial, Measured], None] = lambda *_: None,
        interrupted: Callable[[], bool] = lambda: False,
        record: Callable[[StudyTrial, Measured], None] = lambda *_: None,
    ) -> None:
        """Measures until the request's number of trials is reached or nothing is left to try.

        What crashed before is measured again first. A trial that is interrupted is given back.

        Args:
            bench: Measures.
            told: Called with each trial of this process that has ended.
            interrupted: Asked between trials whether to stop.
            record: Called with each as soon as it is measured, before the storage is told, which may be away.

        Raises:
            DeviceError: The device is gone; its trial is given back.
        """
        while not interrupted():
            self._claims.take_over_crashed()
            self._measure(bench, told, interrupted, record)
            # Another process may still be at work on its last trial, or die over it.
            if interrupted() or not self._claims.others_at_work():
                return
            time.sleep(_LOOK_S)

    def _measure(
        self,
        bench: Bench,
        told: Callable[[StudyTrial, Measured], None],
        interrupted: Callable[[], bool],
        record: Callable[[StudyTrial, Measured], None],
    ) -> None:
        """Measures until nothing is left to begin."""
        idle = 0
        while not interrupted() and (claimed := self._claims.claim()) is not None:
            trial, configuration = claimed
            if configuration is None:
                idle += 1
                # Most samplers do not mind what is measured already.
                if idle % _IDLE_ASKS == 0 and not self._claims.queue_another():
                    return
                continue
            idle = 0
            try:
                with self._claims.heard_of(trial):
                    measured = bench.measure(configuration)
            except BaseException:
                with suppress(OptunaError):  # Else it is given back when the run goes on.
                    self._claims.give_back(trial.number)
                raise
            ended = self._ended(trial.number, configuration, measured)
            try:
                record(ended, measured)
            finally:
                self._tell(trial, ended)
            told(ended, measured)

    def trials(self) -> list[StudyTrial]:
        """What has ended, of all processes."""
        return [
            self._read(trial)
            for trial in self._study.get_trials(deepcopy=False)
            if trial.state.is_finished() and STATUS in trial.user_attrs
        ]

    def recall(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Tells the storage what an earlier part of this process's run has recorded and could not tell.

        Args:
            events: Of that run, those of its trials among them.
        """
        names = [cluster.name for cluster in self.request.space.clusters]
        for event in events:
            if event["event"] != "trial":
                continue
            ended = _recorded(event, names)
            trials = self._study.get_trials(deepcopy=False)
            own = next((t for t in trials if t.number == ended.number), None)
            number = own.user_attrs.get(NUMBER) if own is not None else None
            if (
                own is None
                or number is None
                or self.request.space.at(number) != ended.configuration
            ):
                continue  # Another study's: it was begun anew.
            told = STATUS in own.user_attrs
            others = taken_numbers([t for t in trials if t is not own and counts(t)])
            if (told and own.state.is_finished()) or number in others:
                continue
            figures = ended.figures
            numbers = list(values(self.request.objective, figures)) if figures else None
            state = TrialState.COMPLETE if figures else TrialState.FAIL
            if told:
                self._study.tell(own.number, numbers, state)
                continue
            self._study.tell(own.number, state=TrialState.FAIL, skip_if_finished=True)
            again = create_trial(
                state=state,
                values=numbers,
                params=own.params,
                distributions=own.distributions,
                user_attrs={**own.user_attrs, **_attributes(ended)},
                constraints=self._excess(figures) if figures else None,
            )
            self._study.add_trial(again)

    def tell_default(self, figures: Figures) -> None:
        """Adds what the system does by itself to the study, beside its trials, for those who look at it.

        It is no configuration, so it has no parameters, and no search counts it. The same figures are told once.

        Args:
            figures: What a step took.
        """
        known = asdict(figures)
        if any(t.user_attrs.get(DEFAULT) == known for t in self._study.get_trials(deepcopy=False)):
            return
        told = create_trial(
            values=list(values(self.request.objective, figures)),
            user_attrs={DEFAULT: known},
            constraints=self._excess(figures),
        )
        self._study.add_trial(told)

    def _ended(
        self, number: int, configuration: CpuConfiguration, measured: Measured
    ) -> StudyTrial:
        sampler = self._study.sampler
        proposal = sampler.proposals.get(number) if isinstance(sampler, SearchSampler) else None
        return StudyTrial(
            number=number,
            configuration=configuration,
            status=measured.status,
            figures=measured.figures,
            message=measured.message,
            reason=proposal.reason if proposal else self.request.sampler,
            belief=proposal.belief if proposal else None,
            seen_khz=measured.seen_khz,
            marks=measured.marks,
            memo=measured.memo,
        )

    def _tell(self, trial: optuna.Trial, ended: StudyTrial) -> None:
        figures = ended.figures
        for name, excess in (self._excess(figures) if figures else {}).items():
            trial.set_constraint(name, excess)
        for name, value in _attributes(ended).items():
            trial.set_user_attr(name, value)
        if figures is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, list(values(self.request.objective, figures)))

    def _excess(self, figures: Figures) -> dict[str, float]:
        """How far each limit that is set is broken."""
        limits = self.request.limits
        return dict(zip(limits.names, limits.excess(figures), strict=True))

    def _read(self, trial: FrozenTrial) -> StudyTrial:
        told = trial.user_attrs
        return StudyTrial(
            number=trial.number,
            configuration=self.request.space.at(told[NUMBER]),
            status=told[STATUS],
            figures=Figures(**told[FIGURES]) if FIGURES in told else None,
            message=told.get(MESSAGE, ""),
            reason=told.get(_REASON, ""),
            belief=Figures(**told[_BELIEF]) if _BELIEF in told else None,
            seen_khz=told.get(_SEEN_KHZ, {}),
            marks=tuple(told.get(_MARKS, ())),
            memo=told.get(_MEMO),
        )


def _recorded(event: Mapping[str, Any], names: Sequence[str]) -> StudyTrial:
    """A trial that has ended, as a run's events have it."""
    return StudyTrial(
        number=event["number"],
        configuration=CpuConfiguration.from_json(event["configuration"], names),
        status=event["status"],
        figures=Figures(**event["figures"]) if event["figures"] else None,
        message=event["message"],
        reason=event["reason"],
        belief=Figures(**event["belief"]) if event["belief"] else None,
        seen_khz=event.get("khz") or {},
        marks=tuple(event.get("marks") or ()),
    )


def _attributes(ended: StudyTrial) -> dict[str, Any]:
    """What the storage keeps of a trial that has ended; its status last, after which nothing is missing."""
    found = {
        _REASON: ended.reason,
        _BELIEF: asdict(ended.belief) if ended.belief else None,
        FIGURES: asdict(ended.figures) if ended.figures else None,
        _SEEN_KHZ: ended.seen_khz,
        _MARKS: list(ended.marks),
        _MEMO: ended.memo,
        MESSAGE: ended.message,
        STATUS: ended.status,
    }
    return {name: value for name, value in found.items() if value is not None}


def study_of(request: StudyRequest, storage: BaseStorage, name: str) -> Study:
    """Opens or makes the study that a request belongs to.

    Raises:
        UsageError: There is one of that name for something else.
    """
    made = open_study(storage, name, value_names(request.objective), make_sampler(request))
    return Study(request, made)
