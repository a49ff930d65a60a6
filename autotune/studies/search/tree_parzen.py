"""TPE (Bergstra et al., 2011) over configurations."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.studies.search.sampler import positions
from autotune.studies.space import CpuSpace


class TreeParzen(TPESampler):
    """Optuna's TPE, choosing positions among the values that the space has.

    A study has clocks in MHz, which are unevenly spaced. Optuna's sampler sees a copy of the study whose trials
    have positions instead.

    Args:
        space: Configurations that may be chosen.
        seed: Seed of every random draw.
    """

    def __init__(self, space: CpuSpace, seed: int) -> None:
        super().__init__(seed=seed)
        self._space = space
        self._storage = optuna.storages.InMemoryStorage()
        self._copy: optuna.Study | None = None
        self._copied: set[int] = set()

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """See `BaseSampler.before_trial`. Updates the copy once for all parameters."""
        super().before_trial(study, trial)
        self._copy = self._brought_up_to_date(study)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """See `BaseSampler.sample_independent`."""
        assert self._copy is not None
        return super().sample_independent(self._copy, trial, param_name, param_distribution)

    def _brought_up_to_date(self, study: optuna.Study) -> optuna.Study:
        """Returns the copy with all trials that have ended. Skipped trials count as bad choices."""
        # A study that never asks for a trial shows samplers the trials of its first use only: it is opened anew.
        copy = optuna.create_study(
            storage=self._storage,
            study_name="positions",
            directions=study.directions,
            load_if_exists=True,
        )
        ended = (TrialState.COMPLETE, TrialState.PRUNED)
        for trial in study.get_trials(deepcopy=False, states=ended):
            if trial.number in self._copied:
                continue
            self._copied.add(trial.number)
            chosen = positions(trial, self._space)
            if not chosen:
                continue  # It is not a trial of a search, or it is from an earlier version.
            copy.add_trial(
                create_trial(
                    state=trial.state,
                    values=trial.values,
                    params=chosen,
                    distributions={name: IntDistribution(0, at) for name, at in chosen.items()},
                    constraints=trial.constraints,
                )
            )
        return copy
