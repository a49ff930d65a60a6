"""The request of `autotune kernels`, before it is resolved for a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune.compiler.formulations import formulations, registered
from autotune.compiler.programs import own_kernel
from autotune.compiler.target import (
    ImplicitGemm,
    Space,
    TargetSpec,
    TuneRequest,
    on_cores,
    spaces,
    targets,
)
from autotune.errors import UsageError, choices
from autotune.jobs.device import chosen_cores, fleet_of, target_on
from autotune.jobs.requests.defaults import KERNEL_TRIALS, SEED, TRIALS_PER_KERNEL
from autotune.jobs.requests.step import StepRequest
from autotune.jobs.requests.trusted import allow, check_allowed, outside
from autotune.workloads import (
    OwnKernel,
    StepGraph,
    Task,
    TrainingStep,
    parse_kernels,
    parse_roles,
    tasks,
)

Precision = Literal["fp32", "fp16"]
_LARGEST = 2**31


@dataclass(frozen=True)
class KernelsRequest:
    """Which kernels are tuned, for which target, and for how long. None stands for an option that was not given.

    Attributes:
        step: The training step whose kernels are tuned; None with `op`.
        op: One operator, as `--op` takes it, or `file.py:function` for a kernel of your own; None with `step`.
        role: Roles of `op`, separated by commas; None for all of them.
        target: Name of a target; `cpu` by default.
        target_json: File with a TVM target, instead of `target`.
        trials: Candidates to measure, over all kernels. By default 256, or 4 for each kernel if that is more.
        seed: Seed of the search; 1 by default.
        space: File with a search space, instead of the target's own.
        precision: `fp16` also tries kernels that keep operands of products in half precision.
        tracker, key: Devices behind a TVM tracker.
        cluster: The cluster of cores that kernels are tuned for.
        emulate: Profile of an emulated device; its model gives the times.
        start_from: Runs or records; their best schedules are tried first.
        records: Databases of records that the search learns from before it begins.
    """

    step: StepRequest | None = None
    op: str | None = None
    role: str | None = None
    target: str | None = None
    target_json: Path | None = None
    trials: int | None = None
    seed: int | None = None
    space: Path | None = None
    precision: Precision | None = None
    tracker: str | None = None
    key: str | None = None
    cluster: str | None = None
    emulate: str | None = None
    start_from: tuple[Path, ...] = ()
    records: tuple[Path, ...] = ()

    def resolved(self) -> ResolvedRequest:
        """Returns the request resolved for the device that was named. Asks the tracker if one was named.

        Raises:
            UsageError: An option is invalid.
            DeviceError: The tracker does not answer, or has no such device.
        """
        if (self.step is None) == (self.op is None):
            raise UsageError(
                "give either --model or --op", hint="`autotune models` lists the models"
            )
        if self.step is not None and self.role is not None:
            raise UsageError("--role goes with --op", hint="a model is tuned in all its roles")
        trials = None if self.trials is None else positive("--trials", self.trials)
        seed = positive("--seed", SEED if self.seed is None else self.seed)
        target = self.target_spec()
        cores, fleet = chosen_cores(
            self.cluster, self.emulate, target, fleet_of(self.tracker, self.key)
        )
        if fleet is not None:
            allow(outside(tracker=fleet.tracker))
            target = target_on(target, fleet)
        if cores is not None:
            target = on_cores(target, len(cores.cpus))
        space = self._space(target)
        wanted = graph = own = None
        if self.step is not None:
            wanted = self.step.training_step()
            graph = wanted.graph(self.step.form(wanted.batch, space.layout))
            workload, found = graph.name, tasks(graph)
        elif (own := _own_place(str(self.op))) is not None:
            allow(outside(own=own))
            workload, found = own.rpartition(":")[2], (_own_task(own, self.role),)
        else:
            workload, found = str(self.op).split(":", 1)[0], _tasks(str(self.op), self.role)
        if self.precision == "fp16":
            _check_products(found, space)
        tuned = TuneRequest(
            target=target,
            space=space,
            workload=workload,
            batch=wanted.batch if wanted else None,
            tasks=found,
            trials=trials or max(KERNEL_TRIALS, TRIALS_PER_KERNEL * len(found)),
            seed=seed,
            fleet=fleet,
            cores=cores,
            start_from=tuple(str(one.absolute()) for one in self.start_from),
            records=tuple(str(one.absolute()) for one in self.records),
            own=own,
        )
        return ResolvedRequest(tuned, self.step, wanted, graph)

    def target_spec(self) -> TargetSpec:
        """Returns the target that was named, as it is before a device is asked.

        Raises:
            UsageError: There is no such target, or two are named.
        """
        if self.target is not None and self.target_json is not None:
            raise UsageError(
                "--target and --target-json exclude each other", hint="give one of them"
            )
        if self.target_json is not None:
            return targets.from_json(self.target_json)
        return targets.find(self.target or ("cpu" if self.emulate is None else "arm-cpu"))

    def _space(self, target: TargetSpec) -> Space:
        path = self.space or target.space_path()
        loaded = spaces.load(path)
        if loaded.family != target.family:
            raise UsageError(
                f"search space {path}: key family: {loaded.family} does not fit target {target.name}",
                hint=f"the target is of family {target.family}",
            )
        _check_formulations(path, loaded)
        return loaded.with_half_storage() if self.precision == "fp16" else loaded


@dataclass(frozen=True)
class ResolvedRequest:
    """A request for kernels, resolved for a device that was found.

    Attributes:
        tuned: The request of the kernel run.
        step: The step as it was named; None for one operator.
        wanted: The step; None for one operator.
        graph: The step in the form whose kernels are tuned; None for one operator.
    """

    tuned: TuneRequest
    step: StepRequest | None = None
    wanted: TrainingStep | None = None
    graph: StepGraph | None = None


def positive(option: str, value: int) -> int:
    """Returns the count that an option gives.

    Raises:
        UsageError: It is below 1, or does not fit in 31 bits.
    """
    if not 1 <= value < _LARGEST:
        raise UsageError(
            f"{option} is {value}", hint=f"give a whole number from 1 to {_LARGEST - 1}"
        )
    return value


def _check_formulations(path: Path, space: Space) -> None:
    if not space.formulations and not space.search.outlook:
        return
    known = {f"{operator}.{role}": names for (operator, role), names in registered().items()}
    every = sorted({name for names in known.values() for name in names})
    for name in space.search.outlook:
        if name not in every:
            raise UsageError(
                f"search space {path}: key search.outlook: no formulation {name!r}",
                hint=choices(name, every, "known:"),
            )
    for key, names in space.formulations.items():
        if key not in known:
            raise UsageError(
                f"search space {path}: key formulations.{key}: no such operator and role",
                hint=f"known: {', '.join(known)}",
            )
        for name in names:
            if name not in known[key]:
                raise UsageError(
                    f"search space {path}: key formulations.{key}: no formulation {name!r}",
                    hint=f"known: {', '.join(known[key])}",
                )


def _check_products(kernels: Sequence[Task], space: Space) -> None:
    """Refuses kernels if none of them has operands that could be kept in half precision."""
    kinds = {rule.kind for rule in space.rules if isinstance(rule, ImplicitGemm)}
    tried = (
        one
        for kernel in (task.kernel for task in kernels)
        for one in formulations(
            kernel, space.formulations.get(f"{kernel.operator.name}.{kernel.role}")
        )
    )
    if not any(one.rule in kinds for one in tried):
        raise UsageError(
            "--precision fp16 would change nothing: none of these kernels is computed as a product",
            hint="leave it out; dense convolutions and matmuls have such kernels",
        )


def _tasks(op: str, role: str | None) -> tuple[Task, ...]:
    return tuple(Task(kernel, 1, ("--op",)) for kernel in parse_kernels(op, role))


def _own_place(op: str) -> str | None:
    """Returns the absolute place of a kernel of the user's own; None if the text is another operator."""
    named = op.removeprefix(f"{OwnKernel.name}:")
    source, _, function = named.rpartition(":")
    if source.endswith(".py"):
        return f"{Path(source).absolute()}:{function}"
    return named if named != op else None


def load_own(run: Path, request: TuneRequest) -> None:
    """Loads the kernel of a run of the user's own kernel, so that its program is known in this process.

    Raises:
        UsageError: The user has not allowed that code, it cannot be loaded, or it has changed since the run.
    """
    if request.own is None:
        return
    check_allowed(run, outside(own=request.own))
    if own_kernel(request.own) not in [task.kernel for task in request.tasks]:
        raise UsageError(
            f"{request.own} has another program than when {run} was measured",
            hint="tune the new one in a run of its own",
        )


def _own_task(own: str, roles: str | None) -> Task:
    kernel = own_kernel(own)
    if roles is not None:
        parse_roles(roles, kernel.operator)
    return Task(kernel, 1, ("--op",))
