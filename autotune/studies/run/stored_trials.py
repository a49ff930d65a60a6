"""Checks what a study's storage holds, before a search uses it. The storage may be a file from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import optuna
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from pydantic import ConfigDict, Field

from autotune.errors import UsageError
from autotune.reading import Count, Name, Number, Seconds, Unreadable, typed
from autotune.studies.run.storage import explained_damage
from autotune.studies.search import parameter_names
from autotune.studies.space import CpuSpace

_GENERATION, _PARENTS, _CONSTRAINT = ":generation", ":parent:", "constraints:"
"""Parts of attributes that Optuna's samplers keep."""
_Text = Annotated[str, Field(strict=True, max_length=100_000)]


@dataclass(frozen=True)
class _StoredFigures:
    __pydantic_config__ = ConfigDict(extra="forbid")

    time_s: Seconds
    energy_j: Number | None = None
    celsius: Number | None = None
    memory_bytes: Count | None = None
    deviation_j: Number | None = None


@dataclass(frozen=True)
class _Memo:
    """What a joint search keeps of a trial; see `JointEvaluator.recall`."""

    chosen: list[Count] | None = None
    form: Count = 0
    gpu: list[Count] | None = None
    task_s: list[Seconds | None] | None = None
    gpu_s: list[tuple[Count, Seconds]] | None = None
    foretold_s: list[Seconds | None] | None = None
    foretold: dict[Name, Number | None] | None = None


@dataclass(frozen=True)
class _Attributes:
    """What this project keeps of a trial; see `Study`."""

    configuration: Count | None = None
    figures: _StoredFigures | None = None
    belief: _StoredFigures | None = None
    default: _StoredFigures | None = None
    status: Name | None = None
    reason: Name | None = None
    message: _Text | None = None
    seen_khz: dict[Name, Number] | None = None
    marks: list[Name] | None = None
    memo: _Memo | None = None
    worker: Name = ""
    beat: Number | None = None


def check_study(storage: BaseStorage, study: optuna.Study, space: CpuSpace) -> None:
    """Refuses a study with trials that this project cannot have stored.

    Args:
        storage: The study's storage.
        study: Optuna's study.
        space: Configurations that may be chosen.

    Raises:
        UsageError: A trial is damaged; the message has its number and the place.
    """
    with explained_damage(study.study_name):
        if study.metric_names is not None:
            typed(list[Name], study.metric_names)
        trials = study.get_trials(deepcopy=False)
        known = storage.get_study_system_attrs(storage.get_study_id_from_name(study.study_name))
        for key, value in known.items():
            if _PARENTS in key:
                typed(list[Count], value)
        typed(dict[Name, Any], study.user_attrs)
        if any(direction != StudyDirection.MINIMIZE for direction in study.directions):
            raise Unreadable("its values are not to be minimised")
        for number, trial in enumerate(trials):
            try:
                if trial.number != number:
                    raise Unreadable("trials are not numbered from 0")
                _check_trial(trial, space, len(study.directions), len(trials))
            except (ValueError, UsageError) as error:
                raise Unreadable(f"trial {number}: {error}") from None


def _check_trial(trial: FrozenTrial, space: CpuSpace, objectives: int, trials: int) -> None:
    """Checks one trial.

    Raises:
        ValueError, UsageError: It is damaged.
    """
    attributes = typed(_Attributes, trial.user_attrs)
    if attributes.configuration is not None and space.at(attributes.configuration) not in space:
        raise Unreadable("the space does not have its configuration")
    if (
        trial.state.is_finished()
        and attributes.status is not None
        and attributes.configuration is None
    ):
        raise Unreadable("its configuration is missing")
    if trial.state == TrialState.COMPLETE:
        if len(typed(list[Number], trial.values)) != objectives:
            raise Unreadable(f"it has not {objectives} values")
        if attributes.configuration is not None and attributes.figures is None:
            raise Unreadable("its figures are missing")
    _check_system_attributes(trial.system_attrs, trials)
    for name in parameter_names(space) & trial.params.keys():
        value, among = trial.params[name], trial.distributions[name]
        if not isinstance(among, IntDistribution | FloatDistribution):
            raise Unreadable(f"{name} is not a number")
        if not among.low <= typed(Number, value) <= among.high:
            raise Unreadable(f"{name} is outside of its range")


def _check_system_attributes(attributes: dict[str, Any], trials: int) -> None:
    """Checks what Optuna's samplers keep of a trial.

    Raises:
        ValueError: It is damaged.
    """
    for key, value in attributes.items():
        if key.endswith(_GENERATION) and typed(Count, value) > trials:
            raise Unreadable("there are fewer generations than its own")
        if key.startswith(_CONSTRAINT):
            typed(Number, value)
    typed(dict[Name, Number], attributes.get("fixed_params", {}))
    typed(list[Number], attributes.get("constraints", []))
