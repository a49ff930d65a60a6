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
    """Optuna's TPE, which chooses positions among the values that the space has.

    Studies have clocks in MHz, which lie close together here and far apart there. Optuna's sampler sees a copy of
    the study in which trials have positions.

    Args:
        space: What may be chosen.
        seed: Of every draw.
    """

    def __init__(self, space: CpuSpace, seed: int) -> None:
        super().__init__(seed=seed)
        self._space = space
        self._copy: optuna.Study | None = None
        self._copied: set[int] = set()

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """See `BaseSampler.before_trial`; brings the copy up to date, once for all parameters."""
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
        """The copy, with what has ended since it was last asked for; what was passed over was no good choice."""
        copy = self._copy or optuna.create_study(directions=study.directions)
        ended = (TrialState.COMPLETE, TrialState.PRUNED)
        for trial in study.get_trials(deepcopy=False, states=ended):
            if trial.number in self._copied:
                continue
            self._copied.add(trial.number)
            chosen = positions(trial, self._space)
            if not chosen:
                continue  # It is no trial of a search, or of an earlier version's.
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
