"""The request of a search over CPU configurations, alone or together with schedules."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from autotune.errors import RecordError, UsageError
from autotune.jobs.device import (
    ChosenDevice,
    celsius,
    check_meter,
    finite,
    lasting,
    lasting_space,
    limits,
    one_of,
    ranges,
)
from autotune.jobs.requests.defaults import JOINT_TRIALS, LARGEST, SEARCH_TRIALS, SEED
from autotune.jobs.requests.step import StepRequest
from autotune.jobs.requests.trusted import outside
from autotune.reading import Unreadable, typed
from autotune.records import Run
from autotune.studies.run import SAMPLERS, StudyRequest, check_storage
from autotune.studies.space import OBJECTIVES, CpuSpace, Limits, needs_energy

_LARGEST_SEED = 2**32 - 1
"""The largest seed. Optuna's samplers use NumPy's older generator, which takes no larger one."""
_MOST_TRIALS = 2**31


@dataclass(frozen=True)
class SearchRequest:
    """A search as it is recorded in `run.json`. None stands for an option that was not given.

    Attributes:
        joint: Whether schedules are searched too.
        objective: `latency`, `energy`, `edp` or `pareto`.
        step: The step that is measured; None for another program.
        command, steps_from: Another program, and a pattern for the line at the end of each of its steps.
        device, ssh, emulate: Where it is measured.
        deadline, energy_budget, max_temperature, memory_limit: Limits, as text with units.
        trials: Configurations to measure.
        sampler, model: Which sampler proposes configurations; whether models of time and power guide it.
        space: A named space of cores and clocks, or a file.
        meter: Name of a meter.
        blocks: How often the best and the default are measured again.
        start_temperature: Highest temperature, in degrees Celsius, at which a measurement begins.
        least_seconds: Least duration of a measurement, in seconds.
        storage, study: Storage through which processes share the study, and the study's name there.
        seed: Seed of the search.
        per_operator: Whether a configuration for each operator is planned too.
        exhaustive: Whether the rest of the space is measured.
        reference_every: Configurations between two measurements that detect drift.
        sequential: Whether cores and clocks are also searched alone, for comparison.
        kernel_trials: Candidates of kernels that are tuned first.
    """

    joint: bool = False
    objective: str | None = None
    step: StepRequest | None = None
    command: str | None = None
    steps_from: str | None = None
    device: str | None = None
    ssh: tuple[str, ...] = ()
    emulate: str | None = None
    deadline: str | None = None
    energy_budget: str | None = None
    max_temperature: float | None = None
    memory_limit: str | None = None
    trials: int | None = None
    sampler: str | None = None
    model: bool | None = None
    space: str | None = None
    meter: str | None = None
    blocks: int | None = None
    start_temperature: float | None = None
    least_seconds: float | None = None
    storage: str | None = None
    study: str | None = None
    seed: int | None = None
    per_operator: bool | None = None
    exhaustive: bool | None = None
    reference_every: int | None = None
    sequential: bool | None = None
    kernel_trials: int | None = None

    @property
    def command_name(self) -> str:
        """The command that makes such a search, without `autotune`."""
        return "joint" if self.joint else "cpu-config"

    @property
    def emulated(self) -> bool:
        """Whether the device is a model."""
        return self.emulate is not None

    def outside(self) -> list[str | None]:
        """Returns the names under which what it uses from outside is allowed; see `trusted.outside`."""
        return outside(command=self.command, ssh=self.ssh, storage=self.storage)

    def checked(self) -> SearchRequest:
        """Returns the request with its values checked, and with paths that are valid in any working directory.

        Everything is checked that is known without the device.

        Raises:
            UsageError: An option is invalid.
        """
        finite("--blocks", self.blocks, 0)
        finite("--reference-every", self.reference_every, 0)
        finite("--least-seconds", self.least_seconds, 0)
        finite("--start-temperature", self.start_temperature)
        celsius("--max-temperature", self.max_temperature)
        finite("--seed", self.seed, 0)
        if (self.seed or 0) > _LARGEST_SEED:
            raise UsageError(f"--seed is {self.seed}", hint=f"give one up to {_LARGEST_SEED}")
        if self.study is not None and not self.study.strip():
            raise UsageError("--study is empty", hint="give a name, or leave it out")
        objective = one_of("--objective", self.objective or "latency", OBJECTIVES)
        one_of("--sampler", self.sampler or "tpe", SAMPLERS)
        ranges(self.space)
        check_meter(self.meter or "auto", needed=needs_energy(objective, self._limits()))
        if self.per_operator and self.step is None:
            raise UsageError(
                "--per-operator needs --model: another program does not go through settings",
                hint="`autotune profile --command` shows what its calls take",
            )
        if self.kernel_trials is not None and not 1 <= self.kernel_trials < _MOST_TRIALS:
            raise UsageError(
                f"--kernel-trials is {self.kernel_trials}", hint="give a whole number from 1 on"
            )
        usual = JOINT_TRIALS if self.joint else SEARCH_TRIALS
        trials = usual if self.trials is None else self.trials
        if trials < 1:
            raise UsageError(f"--trials is {trials}", hint="give a number from 1 on")
        storage = lasting(self.storage)
        if storage is not None:
            check_storage(storage)
        return replace(self, trials=trials, space=lasting_space(self.space), storage=storage)

    def study_request(self, chosen: ChosenDevice) -> StudyRequest:
        """Returns the study of this search on a device.

        Raises:
            UsageError: An option is invalid, or does not suit this device.
        """
        objective = one_of("--objective", self.objective or "latency", OBJECTIVES)
        sampler = one_of("--sampler", self.sampler or "tpe", SAMPLERS)
        assert self.trials is not None
        request = StudyRequest(
            space=self._space(chosen),
            objective=objective,
            limits=self._limits(),
            trials=self.trials,
            sampler=sampler,
            model=True if self.model is None else self.model,
            seed=SEED if self.seed is None else self.seed,
            workload=self.workload_text(),
        )
        if self.exhaustive:
            size = request.space.size
            if size > LARGEST:
                raise UsageError(
                    f"--exhaustive: the space has {size} configurations, and {LARGEST} are measured at most",
                    hint="give a smaller --space",
                )
            request = replace(request, trials=size)
        return request

    def _limits(self) -> Limits:
        return limits(self.deadline, self.energy_budget, self.max_temperature, self.memory_limit)

    def _space(self, chosen: ChosenDevice) -> CpuSpace:
        """Returns the configurations that the device supports and `space` allows."""
        allowed = ranges(self.space)
        try:
            return CpuSpace.of(chosen.info.clusters, allowed, clocks=chosen.info.rooted)
        except UsageError as error:
            if self.space is None:
                raise
            raise UsageError(f"--space {self.space}: {error.message}", hint=error.hint) from error

    def workload_text(self) -> str:
        """Returns text that identifies the workload, for shared studies.

        Runs are identified by their names, because their folders differ between hosts.
        """
        if self.step is None:
            return json.dumps([self.command, self.steps_from])
        step = self.step.to_json()
        names = {
            key: sorted(Path(run).name for run in step[key])
            for key in ("runs", "gpu_runs")
            if step.get(key)
        }
        others = {key: value for key, value in step.items() if key != "gpu_runs"}
        return json.dumps({**others, **names, **({"joint": True} if self.joint else {})})

    def to_json(self) -> dict[str, Any]:
        """Returns the request as `run.json` stores it."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        step = None if self.step is None else self.step.to_json()
        return {**plain, "ssh": list(self.ssh), "step": step}

    @classmethod
    def of_run(cls, run: Run) -> SearchRequest:
        """Returns the request of a run.

        Raises:
            RecordError: The run is not a search, or is damaged.
        """
        content = run.about.get("request", {})
        if not isinstance(content, dict) or "objective" not in content:
            raise RecordError(
                f"{run.path} is not a run of `autotune cpu-config` or `autotune joint`"
            )
        known = {field.name for field in fields(cls)}
        step = content.get("step")
        plain = {key: value for key, value in content.items() if key in known and key != "step"}
        plain |= {"ssh": tuple(plain.get("ssh") or ())}
        try:
            found = typed(cls, plain)
        except Unreadable as error:
            raise RecordError(f"{run.path}: the run's request is damaged: {error}") from error
        return found if step is None else replace(found, step=StepRequest.from_json(step))


__all__ = ["SearchRequest"]
