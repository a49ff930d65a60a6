"""A study: proposes configurations, has them measured, and keeps what came out; alone or with other processes."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Literal, get_args

import numpy as np
import optuna
import psutil
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.errors import UsageError
from autotune.studies.bench import Bench, Measured
from autotune.studies.configuration import CpuConfiguration
from autotune.studies.model_search import GridSearch, ModelSearch
from autotune.studies.objective import METRICS, Figures, Limits, Objective, values
from autotune.studies.sampler import (
    FIGURES,
    NUMBER,
    SearchSampler,
    parameters,
    suggest,
    taken_numbers,
)
from autotune.studies.space import LARGEST_LISTED, CpuSpace
from autotune.studies.storage import open_study

LOGGER = logging.getLogger("autotune.studies")

SamplerName = Literal["tpe", "nsga2", "random", "grid"]
SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)

_WORKER, _BEAT, _MESSAGE, _REASON, _BELIEF = "worker", "beat", "message", "reason", "belief"
_STATUS, _SPACE = "status", "space"
STALE_S = 120.0
"""A trial of another host that has not been heard of for so long is taken for crashed."""
_BEAT_S = 20.0
_DECIDED_S = 10.0
"""Longest that another process takes from a trial's beginning to its configuration."""
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
    """

    space: CpuSpace
    objective: Objective
    limits: Limits
    trials: int
    sampler: SamplerName = "tpe"
    model: bool = True
    seed: int = 1


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
    """

    number: int
    configuration: CpuConfiguration
    status: str
    figures: Figures | None
    message: str
    reason: str
    belief: Figures | None


def base_sampler(name: SamplerName, seed: int) -> BaseSampler:
    """Optuna's sampler of that name."""
    if name == "tpe":
        return TPESampler(seed=seed)
    if name == "nsga2":
        return NSGAIISampler(seed=seed, population_size=16)
    if name == "random":
        return RandomSampler(seed=seed)
    return RandomSampler(seed=seed)


def make_sampler(request: StudyRequest) -> BaseSampler:
    """The request's sampler."""
    base = base_sampler(request.sampler, request.seed)
    if request.sampler == "grid":
        return SearchSampler(GridSearch(request.space), base, every=0)
    if not request.model:
        return base
    search = ModelSearch(request.space, request.objective, request.limits, seed=request.seed)
    return SearchSampler(search, base)


def directions(objective: Objective) -> list[str]:
    """Optuna's directions of an objective."""
    return ["minimize"] * (2 if objective == "pareto" else 1)


class Study:
    """One process's part in a study that others may share.

    Args:
        request: What to do.
        study: Optuna's, with `make_sampler`'s sampler.
        worker: Names this process among others; host, process and its start where it is empty.
    """

    def __init__(self, request: StudyRequest, study: optuna.Study, *, worker: str = "") -> None:
        self.request = request
        self._study = study
        self._worker = worker or this_worker()
        self._claim_space()

    def run(
        self,
        bench: Bench,
        told: Callable[[StudyTrial, Measured], None] = lambda *_: None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Measures until the request's number of trials is reached or nothing is left to try.

        What crashed before is measured again first. A trial that is interrupted is given back.

        Args:
            bench: Measures.
            told: Called with each trial of this process that has ended.
            interrupted: Asked between trials whether to stop.

        Raises:
            DeviceError: The device is gone; its trial is given back.
        """
        while not interrupted():
            self.take_over_crashed()
            self._measure(bench, told, interrupted)
            # Another process may still be at work on its last trial, or die over it.
            if interrupted() or not self._others_at_work():
                return
            time.sleep(_LOOK_S)

    def _measure(
        self,
        bench: Bench,
        told: Callable[[StudyTrial, Measured], None],
        interrupted: Callable[[], bool],
    ) -> None:
        """Measures until nothing is left to begin."""
        idle = 0
        while not interrupted() and (claimed := self._claim()) is not None:
            trial, configuration = claimed
            if configuration is None:
                idle += 1
                # Most samplers do not mind what is measured already.
                if idle % _IDLE_ASKS == 0 and not self._queue_another():
                    return
                continue
            idle = 0
            try:
                with self._heard_of(trial):
                    measured = bench.measure(configuration)
            except BaseException:
                self._study.tell(trial, state=TrialState.FAIL)
                self._again(trial.number)
                raise
            told(self._tell(trial, configuration, measured), measured)

    def trials(self) -> list[StudyTrial]:
        """What has ended, of all processes."""
        return [
            self._read(trial)
            for trial in self._study.get_trials(deepcopy=False)
            if trial.state.is_finished() and _STATUS in trial.user_attrs
        ]

    def _others_at_work(self) -> bool:
        return any(
            t.state == TrialState.RUNNING and NUMBER in t.user_attrs
            for t in self._study.get_trials(deepcopy=False)
        )

    def take_over_crashed(self) -> int:
        """Gives trials back whose process is gone; returns how many."""
        crashed = [
            t
            for t in self._study.get_trials(deepcopy=False)
            if t.state == TrialState.RUNNING and not self._alive(t)
        ]
        for trial in crashed:
            LOGGER.warning("trial %d was lost with its process: again", trial.number)
            self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
            self._again(trial.number)
        return len(crashed)

    @contextmanager
    def _heard_of(self, trial: optuna.Trial) -> Iterator[None]:
        """Tells other hosts meanwhile that the trial goes on."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_BEAT_S):
                trial.set_user_attr(_BEAT, time.time())

        thread = threading.Thread(target=beat, name="beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _claim_space(self) -> None:
        """Refuses a study of another device or space."""
        mine = space_id(self.request.space)
        known = self._study.user_attrs.get(_SPACE)
        if known is None:
            self._study.set_user_attr(_SPACE, mine)
        elif known != mine:
            raise UsageError(
                f"the study '{self._study.study_name}' is of another device or space",
                hint="devices of one model and the same ranges can share a study; or name another by --study",
            )

    def _claim(self) -> tuple[optuna.Trial, CpuConfiguration | None] | None:
        """A trial to measure; without a configuration where it has to be passed over; None when all is done."""
        if self._counted() >= self.request.trials:
            return None
        trial = self._study.ask()
        trial.set_user_attr(_WORKER, self._worker)
        trial.set_user_attr(_BEAT, time.time())
        configuration = suggest(trial, self.request.space)
        if configuration not in self.request.space:
            self._pass_over(trial, "not in the space")
            return trial, None
        number = self.request.space.number(configuration)
        trial.set_user_attr(NUMBER, number)
        # Numbers of trials are given out one by one, so of two processes that want the same one comes first.
        counted = [t for t in self._earlier(trial) if _counts(t)]
        if number in taken_numbers(counted):
            self._pass_over(trial, "measured already")
            return trial, None
        if len(counted) >= self.request.trials:
            self._pass_over(trial, "enough trials")
            return trial, None
        return trial, configuration

    def _earlier(self, trial: optuna.Trial) -> list[FrozenTrial]:
        """Trials of smaller numbers, when what they will measure is known of each."""
        deadline = time.monotonic() + _DECIDED_S
        while True:
            found = [t for t in self._study.get_trials(deepcopy=False) if t.number < trial.number]
            open_ones = [
                t for t in found if t.state == TrialState.RUNNING and NUMBER not in t.user_attrs
            ]
            if not open_ones or time.monotonic() > deadline:
                return found
            time.sleep(0.02)

    def _pass_over(self, trial: optuna.Trial, why: str) -> None:
        trial.set_user_attr(_MESSAGE, why)
        self._study.tell(trial, state=TrialState.PRUNED)

    def _counted(self) -> int:
        return sum(_counts(t) for t in self._study.get_trials(deepcopy=False))

    def _queue_another(self) -> bool:
        """Queues a configuration that is not measured, drawn evenly; whether there is one."""
        space = self.request.space
        trials = self._study.get_trials(deepcopy=False)
        taken = taken_numbers([t for t in trials if _counts(t)])
        rng = np.random.default_rng([self.request.seed, len(trials)])
        drawn = space.numbers(rng, max(LARGEST_LISTED, 2 * len(taken)))
        left = drawn[~np.isin(drawn, np.asarray(sorted(taken), np.int64))]
        if not left.size:
            return False
        self._study.enqueue_trial(dict(parameters(space.at(int(rng.choice(left))), space)))
        return True

    def _tell(
        self, trial: optuna.Trial, configuration: CpuConfiguration, measured: Measured
    ) -> StudyTrial:
        sampler = self._study.sampler
        proposal = (
            sampler.proposals.get(trial.number) if isinstance(sampler, SearchSampler) else None
        )
        trial.set_user_attr(_REASON, proposal.reason if proposal else self.request.sampler)
        if proposal and proposal.belief:
            trial.set_user_attr(_BELIEF, asdict(proposal.belief))
        trial.set_user_attr(_STATUS, measured.status)
        trial.set_user_attr(_MESSAGE, measured.message)
        if measured.figures is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            trial.set_user_attr(FIGURES, asdict(measured.figures))
            for name, excess in zip(
                _limited(self.request.limits),
                self.request.limits.excess(measured.figures),
                strict=True,
            ):
                trial.set_constraint(name, excess)
            self._study.tell(trial, list(values(self.request.objective, measured.figures)))
        return self._read(self._study.get_trials(deepcopy=False)[trial.number])

    def _again(self, number: int) -> None:
        """Queues a trial's configuration once more."""
        trial = self._study.get_trials(deepcopy=False)[number]
        if trial.params:
            self._study.enqueue_trial(dict(trial.params))

    def _alive(self, trial: FrozenTrial) -> bool:
        began = trial.datetime_start.timestamp() if trial.datetime_start else 0.0
        heard = trial.user_attrs.get(_BEAT, began)
        worker = trial.user_attrs.get(_WORKER)
        if worker is None:  # It has only just begun.
            return bool(time.time() - heard < STALE_S)
        if worker == self._worker:
            return False
        host, _, process = worker.partition("/")
        if host == socket.gethostname():
            return bool(process == _process(process.partition(":")[0]))
        return bool(time.time() - heard < STALE_S)

    def _read(self, trial: FrozenTrial) -> StudyTrial:
        told = trial.user_attrs
        return StudyTrial(
            number=trial.number,
            configuration=self.request.space.at(told[NUMBER]),
            status=told[_STATUS],
            figures=Figures(**told[FIGURES]) if FIGURES in told else None,
            message=told.get(_MESSAGE, ""),
            reason=told.get(_REASON, ""),
            belief=Figures(**told[_BELIEF]) if _BELIEF in told else None,
        )


def _counts(trial: FrozenTrial) -> bool:
    """Whether a trial is one of the request's: measured, failed under its configuration, or under way."""
    if trial.state == TrialState.RUNNING:
        return NUMBER in trial.user_attrs
    return trial.state.is_finished() and _STATUS in trial.user_attrs


def _limited(limits: Limits) -> list[str]:
    return [name for name in METRICS if getattr(limits, name) is not None]


def space_id(space: CpuSpace) -> str:
    """A text that is equal for equal spaces of devices of one model."""
    parts = [
        [c.name, list(c.cpus), [[s.cores, s.khz] for s in row]]
        for c, row in zip(space.clusters, space.settings, strict=True)
    ]
    whole = [parts, space.threads_per_core, space.together, space.only]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:16]


def this_worker() -> str:
    """Names this process: `host/pid:start`."""
    return f"{socket.gethostname()}/{_process(str(os.getpid()))}"


def _process(pid: str) -> str:
    """`pid:start` of a process that runs; empty of one that does not."""
    try:
        return f"{pid}:{psutil.Process(int(pid)).create_time():.0f}"
    except (psutil.Error, ValueError):
        return ""


def study_of(request: StudyRequest, storage: BaseStorage, name: str) -> Study:
    """Opens or makes the study that a request belongs to.

    Raises:
        UsageError: There is one of that name for something else.
    """
    made = open_study(storage, name, directions(request.objective), make_sampler(request))
    return Study(request, made)
