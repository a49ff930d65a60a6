"""NSGA-II (Deb et al., 2002) over configurations, for studies of a few tens of trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import NSGAIISampler
from optuna.trial import FrozenTrial, TrialState

from autotune.studies.search.sampler import positions
from autotune.studies.space import CpuSpace

_SMALLEST, _LARGEST = 4, 16
_CROSSOVER = 0.9
_WIDER = 0.5


class Evolution(NSGAIISampler):
    """NSGA-II with Optuna's generations and survivors; a child is a blend of its parents' parameters.

    A cluster that does not train has no clock. So few parameters are common to all trials, and Optuna would cross
    only those. A generation is a sixth of the trials, from 4 to 16, because larger ones would leave the result to
    chance. Trials proposed by models belong to a generation too.

    Args:
        space: Configurations that may be chosen. This sampler chooses positions among its values.
        trials: Number of trials to measure.
        seed: Seed of every random draw.
    """

    def __init__(self, space: CpuSpace, trials: int, seed: int) -> None:
        super().__init__(population_size=min(_LARGEST, max(_SMALLEST, trials // 6)), seed=seed)
        self._space = space
        self._seed = seed
        self._children: dict[int, dict[str, int]] = {}

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """See `BaseSampler.before_trial`. Records the trial's generation."""
        super().before_trial(study, trial)
        self.get_trial_generation(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """See `BaseSampler.sample_relative`. A child's parameters are given when they are asked for."""
        parents = self.get_parent_population(study, self.get_trial_generation(study, trial))
        if parents:
            rng = np.random.default_rng([self._seed, trial.number])
            self._children[trial.number] = _child(parents, self._space, rng)
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """See `BaseSampler.sample_independent`."""
        value = self._children.get(trial.number, {}).get(param_name)
        assert isinstance(param_distribution, IntDistribution)
        if value is not None:
            return min(max(value, param_distribution.low), param_distribution.high)
        return super().sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """See `BaseSampler.after_trial`."""
        self._children.pop(trial.number, None)
        super().after_trial(study, trial, state, values)


def _child(
    parents: Sequence[FrozenTrial], space: CpuSpace, rng: np.random.Generator
) -> dict[str, int]:
    """Returns a blend of two tournament winners. On average one parameter is left out, to be drawn anew.

    A parameter is drawn from the range between the parents, widened by half at each end (BLX-alpha; Eshelman and
    Schaffer, 1993). This works because core counts and clock positions are ordered.
    """
    first, second = (positions(_winner(parents, rng), space) for _ in range(2))
    if rng.random() > _CROSSOVER:
        second = first
    names = sorted({*first, *second})
    found = {}
    for name in names:
        ends = [parent[name] for parent in (first, second) if name in parent]
        wider = _WIDER * (max(ends) - min(ends))
        value = round(rng.uniform(min(ends) - wider, max(ends) + wider))
        if rng.random() >= 1 / len(names):
            found[name] = value
    return found


def _winner(parents: Sequence[FrozenTrial], rng: np.random.Generator) -> FrozenTrial:
    """Returns the better of two drawn parents: the one that exceeds limits less, else the one that dominates."""
    one, other = (parents[int(n)] for n in rng.integers(len(parents), size=2))
    broken, less = _broken(one), _broken(other)
    if broken != less:
        return one if broken < less else other
    worse = all(b <= a for a, b in zip(one.values, other.values, strict=True))
    return other if worse else one


def _broken(trial: FrozenTrial) -> float:
    return sum(max(0.0, excess) for excess in trial.constraints.values())
