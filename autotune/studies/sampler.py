"""A search as an Optuna sampler, and configurations as Optuna's parameters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from autotune.studies.configuration import ClusterSetting, CpuConfiguration
from autotune.studies.model_search import Known, Proposal, Search
from autotune.studies.objective import Figures
from autotune.studies.space import CpuSpace, threads_of

NUMBER = "configuration"
"""Attribute of a trial: the number of its configuration in the space."""
FIGURES = "figures"
"""Attribute of a trial that was measured: what a step took."""


def suggest(trial: optuna.Trial, space: CpuSpace) -> CpuConfiguration:
    """Asks a trial for a configuration, which may be one that a listed space does not hold.

    Cores of each cluster come first; a clock is asked only of clusters that train, as its position,
    so that neighbours are neighbours. The last cluster trains where no other does.
    """
    chosen: list[ClusterSetting] = []
    for cluster, row in zip(space.clusters, space.settings, strict=True):
        taken = any(s.cores for s in chosen)
        parts = any(0 < s.cores < len(c.cpus) for s, c in zip(chosen, space.clusters, strict=False))
        if taken and (space.together == "never" or (space.together == "whole" and parts)):
            chosen.append(ClusterSetting(0))
            continue
        counts = _counts(row)
        needed = len(chosen) == len(space.clusters) - 1 and not taken
        cores = counts[
            _position(trial, f"{cluster.name}.cores", len(counts), int(needed and counts[0] == 0))
        ]
        if taken and cores and space.together == "whole":
            cores = counts[-1]
        clocks = [s.khz for s in row if s.cores == cores]
        khz = clocks[_position(trial, f"{cluster.name}.clock", len(clocks))] if cores else None
        chosen.append(ClusterSetting(cores, khz))
    ratio = space.threads_per_core[_position(trial, "threads", len(space.threads_per_core))]
    return CpuConfiguration(tuple(chosen), threads_of(sum(s.cores for s in chosen), ratio))


def _counts(row: Sequence[ClusterSetting]) -> list[int]:
    return sorted({setting.cores for setting in row})


def _position(trial: optuna.Trial, name: str, options: int, lowest: int = 0) -> int:
    """Position of what the trial chooses; where there is one option, nothing is asked."""
    if options - lowest == 1:
        return lowest
    return trial.suggest_int(name, lowest, options - 1)


def parameters(configuration: CpuConfiguration, space: CpuSpace) -> dict[str, int]:
    """What `suggest` must be told for it to give this configuration."""
    found: dict[str, int] = {}
    for cluster, row, setting in zip(
        space.clusters, space.settings, configuration.clusters, strict=True
    ):
        found[f"{cluster.name}.cores"] = _counts(row).index(setting.cores)
        clocks = [s.khz for s in row if s.cores == setting.cores]
        found[f"{cluster.name}.clock"] = clocks.index(setting.khz)
    found["threads"] = next(
        index
        for index, ratio in enumerate(space.threads_per_core)
        if threads_of(configuration.cores, ratio) == configuration.threads
    )
    return found


class SearchSampler(BaseSampler):
    """What a search proposes; after its probes, at times another sampler's choice.

    The other sampler is there for what the models have wrong. It works with any storage: everything that it knows
    it reads from the study.

    Args:
        search: Proposes.
        base: The other sampler.
        every: Each how manieth trial after the probes is the other sampler's; 0 for none.
    """

    def __init__(self, search: Search, base: BaseSampler, *, every: int = 5) -> None:
        self.search = search
        self._base = base
        self._every = every
        self._planned: dict[int, dict[str, int]] = {}
        self.proposals: dict[int, Proposal] = {}
        """By the trial's number, of trials that this process began."""

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """See `BaseSampler.before_trial`; the other sampler is told of each trial, whoever proposes it."""
        self._base.before_trial(study, trial)
        if "fixed_params" in trial.system_attrs:
            return  # Queued: it is known already.
        trials = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        taken = taken_numbers(trials)
        known = known_trials(trials)
        late = len(taken) - len(self.search.probes)
        if self._every and late >= 0 and late % self._every == self._every - 1:
            return
        proposal = self.search.propose(known, taken)
        if proposal is not None:
            self.proposals[trial.number] = proposal
            space = self.search.space
            self._planned[trial.number] = parameters(space.at(proposal.number), space)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """See `BaseSampler.infer_relative_search_space`."""
        if trial.number in self._planned:
            return {}
        return self._base.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """See `BaseSampler.sample_relative`."""
        if trial.number in self._planned:
            return {}
        return self._base.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """See `BaseSampler.sample_independent`."""
        planned = self._planned.get(trial.number)
        if planned is not None:
            return planned[param_name]
        return self._base.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """See `BaseSampler.after_trial`."""
        self._planned.pop(trial.number, None)
        self._base.after_trial(study, trial, state, values)


def taken_numbers(trials: Collection[FrozenTrial]) -> set[int]:
    """Configurations that are measured, failed, or under way."""
    states = (TrialState.COMPLETE, TrialState.FAIL, TrialState.RUNNING)
    return {t.user_attrs[NUMBER] for t in trials if t.state in states and NUMBER in t.user_attrs}


def known_trials(trials: Collection[FrozenTrial]) -> list[Known]:
    """What was measured and is valid."""
    return [
        Known(t.user_attrs[NUMBER], Figures(**t.user_attrs[FIGURES]))
        for t in trials
        if t.state == TrialState.COMPLETE and FIGURES in t.user_attrs
    ]
