"""Leases of trials in a shared study.

Processes claim trials, show that they are alive, and take over from crashed ones.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np
import optuna
import psutil
from optuna.exceptions import OptunaError
from optuna.trial import FrozenTrial, TrialState

from autotune.devices import BOOT_ID
from autotune.studies.search import NUMBER, parameters, suggest, taken_numbers
from autotune.studies.space import LARGEST_LISTED, CpuConfiguration, CpuSpace

LOGGER = logging.getLogger("autotune.studies")

MESSAGE, STATUS = "message", "status"
"""Attributes of a trial: the error, and the status. A trial has a status once it has ended."""
_WORKER, _BEAT = "worker", "beat"
STALE_S = 120.0
"""A trial of another machine counts as crashed if its beat has not changed for this long, seen from here."""
_BEAT_S = 20.0
_DECIDED_S = 10.0
"""Longest time that another process needs from a trial's beginning to its configuration."""


class TrialLeases:
    """One process's leases of a study's trials. It knows other processes only through the study.

    Args:
        study: Optuna's study.
        space: Configurations that may be chosen.
        trials: Number of configurations to measure, over all processes.
        seed: Seed of configurations that are drawn when the sampler proposes nothing new.
        worker: Name of this process among others; if empty, made from machine, process and its start.
    """

    def __init__(
        self, study: optuna.Study, space: CpuSpace, trials: int, seed: int, worker: str = ""
    ) -> None:
        self._study, self._space = study, space
        self._trials, self._seed = trials, seed
        self._worker = worker or this_worker()
        self._beats: dict[int, tuple[object, float]] = {}

    def claim(self) -> tuple[optuna.Trial, CpuConfiguration | None] | None:
        """Returns a trial to measure; without a configuration if it has to be skipped; None when all is done."""
        if self._counted() >= self._trials:
            return None
        trial = self._study.ask()
        trial.set_user_attr(_WORKER, self._worker)
        trial.set_user_attr(_BEAT, time.time())
        configuration = suggest(trial, self._space)
        if configuration not in self._space:
            self._pass_over(trial, "not in the space")
            return trial, None
        number = self._space.number(configuration)
        trial.set_user_attr(NUMBER, number)
        # Trial numbers are unique and ordered. Of two processes that want the same configuration, the lower number
        # wins.
        counted = [t for t in self._earlier(trial) if counts(t)]
        if number in taken_numbers(counted):
            self._pass_over(trial, "measured already")
            return trial, None
        if len(counted) >= self._trials:
            self._pass_over(trial, "enough trials")
            return trial, None
        return trial, configuration

    @contextmanager
    def heard_of(self, trial: optuna.Trial) -> Iterator[None]:
        """Shows other machines that the trial goes on, while the context is open."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_BEAT_S):
                with suppress(OptunaError):  # A storage that is away now may return in time.
                    trial.set_user_attr(_BEAT, time.time())

        thread = threading.Thread(target=beat, name="beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def give_back(self, number: int) -> None:
        """Ends a trial that was not measured, and queues its configuration again."""
        self._study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
        trial = self._study.get_trials(deepcopy=False)[number]
        # By its number, because earlier versions had other parameters.
        known = trial.user_attrs.get(NUMBER)
        if known is not None:
            self._study.enqueue_trial(dict(parameters(self._space.at(known), self._space)))
        elif trial.params:
            self._study.enqueue_trial(dict(trial.params))

    def take_over_crashed(self) -> int:
        """Gives back trials whose process is gone, and returns their number."""
        crashed = [
            t
            for t in self._study.get_trials(deepcopy=False)
            if t.state == TrialState.RUNNING and not self._alive(t)
        ]
        for trial in crashed:
            LOGGER.warning("trial %d was lost with its process: measuring again", trial.number)
            self.give_back(trial.number)
        return len(crashed)

    def others_at_work(self) -> bool:
        """Returns whether a trial is under way."""
        return any(
            t.state == TrialState.RUNNING and NUMBER in t.user_attrs
            for t in self._study.get_trials(deepcopy=False)
        )

    def queue_another(self) -> bool:
        """Queues an unmeasured configuration, drawn uniformly, and returns whether there is one."""
        space = self._space
        trials = self._study.get_trials(deepcopy=False)
        taken = taken_numbers([t for t in trials if counts(t)])
        rng = np.random.default_rng([self._seed, len(trials)])
        drawn = space.numbers(rng, max(LARGEST_LISTED, 2 * len(taken)))
        left = drawn[~np.isin(drawn, np.asarray(sorted(taken), np.int64))]
        if not left.size:
            return False
        self._study.enqueue_trial(dict(parameters(space.at(int(rng.choice(left))), space)))
        return True

    def _earlier(self, trial: optuna.Trial) -> list[FrozenTrial]:
        """Returns trials with smaller numbers, once their configurations are known or the wait has timed out."""
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
        trial.set_user_attr(MESSAGE, why)
        self._study.tell(trial, state=TrialState.PRUNED)

    def _counted(self) -> int:
        return sum(counts(t) for t in self._study.get_trials(deepcopy=False))

    def _alive(self, trial: FrozenTrial) -> bool:
        worker = trial.user_attrs.get(_WORKER, "")
        if worker == self._worker:
            return False
        machine, _, process = worker.partition("/")
        if machine == _machine():
            return bool(process == _process(process.partition(":")[0]))
        # A trial of another machine, or one that has only just begun. Its clock may differ from ours, so only a
        # change of its beat counts.
        beat, now = trial.user_attrs.get(_BEAT), time.monotonic()
        known, since = self._beats.get(trial.number, (None, now))
        if trial.number not in self._beats or known != beat:
            self._beats[trial.number] = (beat, now)
            return True
        return now - since < STALE_S


def counts(trial: FrozenTrial) -> bool:
    """Returns whether a trial counts for the request: measured, failed under its configuration, or under way."""
    if trial.state == TrialState.RUNNING:
        return NUMBER in trial.user_attrs
    return trial.state.is_finished() and STATUS in trial.user_attrs


def this_worker() -> str:
    """Returns a name for this process: `machine/pid:start`."""
    return f"{_machine()}/{_process(str(os.getpid()))}"


@cache
def _machine() -> str:
    """Returns a name for the scope in which process numbers are valid: host, boot, and process namespace.

    It differs between hosts with one name, copies of one disk, and containers with their host's name.
    """
    parts = []
    with suppress(OSError):
        parts.append(Path(BOOT_ID).read_text(encoding="ascii").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    digest = hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]
    return f"{socket.gethostname()}-{digest}"


def _process(pid: str) -> str:
    """Returns `pid:start` of a running process; empty if it does not run."""
    try:
        return f"{pid}:{psutil.Process(int(pid)).create_time():.0f}"
    except (psutil.Error, ValueError):
        return ""
