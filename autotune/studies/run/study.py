"""A study: it proposes configurations, has them measured, and stores results, alone or with other processes."""

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

from autotune.studies.evaluators import Evaluator, Measured
from autotune.studies.run.identity import claim
from autotune.studies.run.storage import open_study
from autotune.studies.run.stored_trials import check_study
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
from autotune.waits import waiting

SamplerName = Literal["tpe", "nsga2", "random", "grid"]
SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)

_REASON, _BELIEF, _SEEN_KHZ, _MARKS, _MEMO = "reason", "belief", "seen_khz", "marks", "memo"
DEFAULT = "default"
"""Attribute of a trial outside the search: figures of a step with the default cores and clocks."""
_DEFAULT_BEFORE = "system's own choice"
"""The same in studies of earlier versions."""
_IDLE_ASKS = 20
_LOOK_S = 1.0


@dataclass(frozen=True)
class StudyRequest:
    """The request of a study.

    Attributes:
        space: Configurations that may be chosen.
        objective: The figure to minimise.
        limits: Limits to keep.
        trials: Number of configurations to measure, over all processes.
        sampler: The sampler that proposes configurations that the models do not.
        model: Whether the models of time and power guide the search. A grid goes through everything in order.
        seed: Seed of every random draw.
        workload: The workload, as a text. Processes that share a study must have the same.
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
    """A finished trial.

    Attributes:
        number: Optuna's number for it.
        configuration: The measured configuration.
        status: `ok`, `invalid` or `failed`.
        figures: Figures of a step; None unless `ok`.
        message: The error.
        reason: The source of the proposal: `probe`, `model`, or the sampler.
        belief: The models' prediction, if they proposed it.
        seen_khz: Mean clock of each cluster during the measurement, if it could be read.
        marks: Reasons to doubt the energy.
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
        """Returns the proposal as a run's events store it, with the names of the clusters."""
        return {
            "number": self.number,
            "configuration": self.configuration.to_json(names),
            "reason": self.reason,
            "belief": asdict(self.belief) if self.belief else None,
        }


def base_sampler(name: SamplerName, space: CpuSpace, trials: int, seed: int) -> BaseSampler:
    """Returns Optuna's sampler of that name for `trials` trials.

    It chooses positions among the values of the space.
    """
    if name == "tpe":
        return TreeParzen(space, seed)
    if name == "nsga2":
        return Evolution(space, trials, seed)
    return RandomSampler(seed=seed)


def make_sampler(request: StudyRequest) -> BaseSampler:
    """Returns the request's sampler."""
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
        request: The request.
        study: Optuna's study, with the sampler from `make_sampler`.
        worker: Name of this process among others; if empty, made from machine, process and its start.

    Raises:
        UsageError: The study has another identity.
    """

    def __init__(self, request: StudyRequest, study: optuna.Study, *, worker: str = "") -> None:
        self.request = request
        self._study = study
        claim(study, request.space, request.objective, request.limits, request.workload)
        self._claims = TrialLeases(study, request.space, request.trials, request.seed, worker)

    def run(
        self,
        evaluator: Evaluator,
        on_trial: Callable[[StudyTrial, Measured], None] = lambda *_: None,
        interrupted: Callable[[], bool] = lambda: False,
        record: Callable[[StudyTrial, Measured], None] = lambda *_: None,
    ) -> None:
        """Measures until the requested number of trials is reached or nothing is left to try.

        Configurations of crashed trials are measured first. An interrupted trial is given back.

        Args:
            evaluator: Measures configurations.
            on_trial: Called with each finished trial of this process.
            interrupted: Called between trials; returns whether to stop.
            record: Called with each trial as soon as it is measured, before it goes to the storage, which may be
                away.

        Raises:
            DeviceError: The device is gone; its trial is given back.
        """
        while not interrupted():
            self._claims.take_over_crashed()
            self._measure(evaluator, on_trial, interrupted, record)
            # Another process may still work on its last trial, or crash during it.
            if interrupted() or not self._claims.others_at_work():
                return
            time.sleep(_LOOK_S)

    def _measure(
        self,
        evaluator: Evaluator,
        on_trial: Callable[[StudyTrial, Measured], None],
        interrupted: Callable[[], bool],
        record: Callable[[StudyTrial, Measured], None],
    ) -> None:
        """Measures until no further trial can begin."""
        idle = 0
        while not interrupted() and (claimed := self._claims.claim()) is not None:
            trial, configuration = claimed
            if configuration is None:
                idle += 1
                # Most samplers do not check what is measured already.
                if idle % _IDLE_ASKS == 0 and not self._claims.queue_another():
                    return
                continue
            idle = 0
            try:
                with self._claims.heard_of(trial):
                    measured = evaluator.measure(configuration)
            except BaseException:
                with suppress(OptunaError):  # Otherwise it is given back when the run is resumed.
                    self._claims.give_back(trial.number)
                raise
            ended = self._ended(trial.number, configuration, measured)
            try:
                record(ended, measured)
            finally:
                self._tell(trial, ended)
            on_trial(ended, measured)

    def trials(self) -> list[StudyTrial]:
        """Returns the finished trials of all processes."""
        return [
            self._read(trial)
            for trial in self._study.get_trials(deepcopy=False)
            if trial.state.is_finished() and STATUS in trial.user_attrs
        ]

    def recall(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Adds to the storage what earlier parts of this process's run recorded but could not store.

        Args:
            events: Events of that run, including those of its trials.
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
                continue  # It belongs to another study: this one was started anew.
            has_status = STATUS in own.user_attrs
            others = taken_numbers([t for t in trials if t is not own and counts(t)])
            if (has_status and own.state.is_finished()) or number in others:
                continue
            figures = ended.figures
            numbers = list(values(self.request.objective, figures)) if figures else None
            state = TrialState.COMPLETE if figures else TrialState.FAIL
            if has_status:
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
        """Adds the figures of the default cores and clocks to the study, for people who view it.

        They are not a configuration, so they have no parameters, and no search counts them. The same figures are
        added once.

        Args:
            figures: Figures of a step.
        """
        known = asdict(figures)
        trials = self._study.get_trials(deepcopy=False)
        if any(
            t.user_attrs.get(DEFAULT, t.user_attrs.get(_DEFAULT_BEFORE)) == known for t in trials
        ):
            return
        copied = create_trial(
            values=list(values(self.request.objective, figures)),
            user_attrs={DEFAULT: known},
            constraints=self._excess(figures),
        )
        self._study.add_trial(copied)

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
        """Returns how far each limit that is set is exceeded."""
        limits = self.request.limits
        return dict(zip(limits.names, limits.excess(figures), strict=True))

    def _read(self, trial: FrozenTrial) -> StudyTrial:
        attributes = trial.user_attrs
        return StudyTrial(
            number=trial.number,
            configuration=self.request.space.at(attributes[NUMBER]),
            status=attributes[STATUS],
            figures=Figures(**attributes[FIGURES]) if FIGURES in attributes else None,
            message=attributes.get(MESSAGE, ""),
            reason=attributes.get(_REASON, ""),
            belief=Figures(**attributes[_BELIEF]) if _BELIEF in attributes else None,
            seen_khz=attributes.get(_SEEN_KHZ, {}),
            marks=tuple(attributes.get(_MARKS, ())),
            memo=attributes.get(_MEMO),
        )


def _recorded(event: Mapping[str, Any], names: Sequence[str]) -> StudyTrial:
    """Returns a finished trial from a run's event."""
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
    """Returns the attributes that the storage keeps of a finished trial.

    The status is last and marks it complete.
    """
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


@waiting("the study to be read")
def study_of(request: StudyRequest, storage: BaseStorage, name: str) -> Study:
    """Opens or creates the study that a request belongs to.

    Raises:
        UsageError: There is a study of that name with another identity, or it is damaged.
    """
    made = open_study(storage, name, value_names(request.objective), make_sampler(request))
    check_study(storage, made, request.space)
    return Study(request, made)
