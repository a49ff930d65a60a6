"""Wraps a search as an Optuna sampler, and configurations as Optuna's parameters."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from autotune.devices import Cluster
from autotune.studies.search.model_search import Known, Proposal, Search
from autotune.studies.space import ClusterSetting, CpuConfiguration, CpuSpace, Figures, threads_of

_Number = TypeVar("_Number", int, float)

NUMBER = "configuration"
"""Attribute of a trial: the number of its configuration in the space."""
FIGURES = "figures"
"""Attribute of a measured trial: the figures of a step."""


THREADS = "threads per core"
"""Name of the parameter that chooses the number of threads per core."""


def suggest(trial: optuna.Trial, space: CpuSpace) -> CpuConfiguration:
    """Asks a trial for a configuration. It may be one that is missing from a listed space.

    Parameters have units that people know: `big cores`, `big MHz`, `threads per core`. The cores of each cluster
    come first. A clock is asked only for clusters that train. The last cluster trains if no other does. A value
    that the space does not have, such as one queued by hand, is replaced by the nearest value that it has.
    """
    chosen: list[ClusterSetting] = []
    for cluster, row in zip(space.clusters, space.settings, strict=True):
        taken = any(s.cores for s in chosen)
        parts = any(0 < s.cores < len(c.cpus) for s, c in zip(chosen, space.clusters, strict=False))
        if taken and (space.together == "never" or (space.together == "whole" and parts)):
            chosen.append(ClusterSetting(0))
            continue
        counts = _counts(row)
        if len(chosen) == len(space.clusters) - 1 and not taken:
            counts = [n for n in counts if n] or counts
        elif taken and space.together == "whole":
            counts = [n for n in counts if n in (0, counts[-1])]
        cores = _whole(trial, _cores(cluster), counts)
        khz = None
        if cores:
            clocks = _clocks(row, cores)
            khz = clocks[_real(trial, _clock(cluster), sorted(clocks))]
        chosen.append(ClusterSetting(cores, khz))
    ratio = _real(trial, THREADS, _ratios(space))
    return CpuConfiguration(tuple(chosen), threads_of(sum(s.cores for s in chosen), ratio))


def parameters(configuration: CpuConfiguration, space: CpuSpace) -> dict[str, float]:
    """Returns the parameters with which `suggest` gives this configuration."""
    found: dict[str, float] = {}
    for cluster, row, setting in zip(
        space.clusters, space.settings, configuration.clusters, strict=True
    ):
        found[_cores(cluster)] = setting.cores
        if setting.cores:
            found[_clock(cluster)] = next(
                mhz for mhz, khz in _clocks(row, setting.cores).items() if khz == setting.khz
            )
    found[THREADS] = next(
        ratio
        for ratio in space.threads_per_core
        if threads_of(configuration.cores, ratio) == configuration.threads
    )
    return found


def options(space: CpuSpace, name: str, chosen: Mapping[str, Any]) -> Sequence[float]:
    """Returns values that the space has for a parameter, ascending.

    Args:
        space: Configurations that may be chosen.
        name: The parameter's name.
        chosen: Parameters that were chosen before it.
    """
    for cluster, row in zip(space.clusters, space.settings, strict=True):
        if name == _cores(cluster):
            return _counts(row)
        if name == _clock(cluster):
            # If there is only one count of cores, it is no parameter.
            cores = chosen.get(_cores(cluster), _counts(row)[-1])
            return sorted(_clocks(row, _nearest(_counts(row), cores)))
    return _ratios(space)


def parameter_names(space: CpuSpace) -> set[str]:
    """Returns the names of all parameters of a space."""
    return {name(cluster) for cluster in space.clusters for name in (_cores, _clock)} | {THREADS}


def positions(trial: FrozenTrial, space: CpuSpace) -> dict[str, int]:
    """Returns the positions of a trial's parameters among the values that the space has."""
    found = {}
    for name in (
        parameter_names(space) & trial.params.keys()
    ):  # Earlier versions named parameters differently.
        known = list(options(space, name, trial.params))
        found[name] = known.index(_nearest(known, trial.params[name]))
    return found


def _cores(cluster: Cluster) -> str:
    return f"{cluster.name} cores"


def _clock(cluster: Cluster) -> str:
    return f"{cluster.name} MHz"


def _counts(row: Sequence[ClusterSetting]) -> list[int]:
    return sorted({setting.cores for setting in row})


def _ratios(space: CpuSpace) -> list[float]:
    return sorted(set(space.threads_per_core))


def _clocks(row: Sequence[ClusterSetting], cores: int) -> dict[float, int | None]:
    """Returns clocks for `cores` cores by their MHz.

    A clock that is left to the system stands just above the fixed ones, since it is the highest under load.
    """
    found: dict[float, int | None] = {
        s.khz / 1000: s.khz for s in row if s.cores == cores and s.khz is not None
    }
    if any(s.cores == cores and s.khz is None for s in row):
        found[max(found, default=0.0) + 1.0] = None
    return found


def _whole(trial: optuna.Trial, name: str, counts: Sequence[int]) -> int:
    """Returns a count that the trial chooses. A single option is taken without asking."""
    if len(counts) == 1:
        return counts[0]
    step = math.gcd(*(b - a for a, b in pairwise(counts)))
    return _nearest(counts, trial.suggest_int(name, counts[0], counts[-1], step=step))


def _real(trial: optuna.Trial, name: str, values: Sequence[float]) -> float:
    """Returns a value that the trial chooses. A single option is taken without asking."""
    if len(values) == 1:
        return values[0]
    return _nearest(values, trial.suggest_float(name, values[0], values[-1]))


def _nearest(values: Sequence[_Number], wanted: float) -> _Number:
    return min(values, key=lambda value: abs(value - wanted))


class SearchSampler(BaseSampler):
    """Samples the proposals of a search and, now and then after its probes, those of another sampler.

    The other sampler covers errors of the models. It works with any storage, because it reads all it knows from the
    study. It chooses positions among the space's values, since clocks are unevenly spaced.

    Args:
        space: Configurations that may be chosen.
        base: The other sampler.
        search: Proposes configurations; None leaves every trial to the other sampler.
        every: After the probes, every n-th trial is the other sampler's; 0 for none.
    """

    def __init__(
        self, space: CpuSpace, base: BaseSampler, search: Search | None = None, *, every: int = 5
    ) -> None:
        self._space, self._search = space, search
        self._base = base
        self._every = every
        self._planned: dict[int, dict[str, float]] = {}
        self.proposals: dict[int, Proposal] = {}
        """Proposals by trial number, for trials that this process began."""

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """See `BaseSampler.before_trial`. The other sampler is told of each trial, whoever proposes it."""
        self._base.before_trial(study, trial)
        search = self._search
        if search is None or "fixed_params" in trial.system_attrs:
            return  # The configuration of a queued trial is known already.
        trials = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        taken = taken_numbers(trials)
        known = known_trials(trials)
        late = len(taken) - len(search.probes)
        if self._every and late >= 0 and late % self._every == self._every - 1:
            return
        proposal = search.propose(known, taken)
        if proposal is not None:
            self.proposals[trial.number] = proposal
            self._planned[trial.number] = parameters(self._space.at(proposal.number), self._space)

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
        known = options(self._space, param_name, trial.params)
        may = [at for at, value in enumerate(known) if param_distribution._contains(value)]
        asked = IntDistribution(may[0], may[-1])
        at = self._base.sample_independent(study, trial, param_name, asked)
        return known[_nearest(may, at)]

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
    """Returns configurations that are measured, failed, or under way."""
    states = (TrialState.COMPLETE, TrialState.FAIL, TrialState.RUNNING)
    return {t.user_attrs[NUMBER] for t in trials if t.state in states and NUMBER in t.user_attrs}


def known_trials(trials: Collection[FrozenTrial]) -> list[Known]:
    """Returns valid measurements."""
    return [
        Known(t.user_attrs[NUMBER], Figures(**t.user_attrs[FIGURES]))
        for t in trials
        if t.state == TrialState.COMPLETE and FIGURES in t.user_attrs
    ]
