"""Variants to export: each has the kernels of one target and cluster that were fastest on one device.

Every format works from a list of variants. Runs are one source of them; others need only make the same list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.compiler.programs import (
    Winner,
    plain_gpu_program,
    untuned_program,
    winners,
    winners_of,
)
from autotune.compiler.target import Limits, Space, TargetSpec, TuneRequest, same_code
from autotune.errors import RecordError, UsageError
from autotune.records import Result, Run, TaskResult, read_run, work_of
from autotune.workloads.operators import Kernel

SAFE = "default"
"""Name of the variant that is used if no other is known to be right."""


_ALL_CORES = "hybrid"  # A run that is for no particular cluster has this as its cluster.
_SAFE_LIMITS = Limits(max_threads_per_block=64, max_local_memory_bytes=16384, sub_group_size=1)


@dataclass(frozen=True)
class Figures:
    """What is known about a kernel in a variant.

    Attributes:
        default_ms: Time of the untuned default on the variant's device in milliseconds; None if unknown.
        tuned_ms: Time of this kernel in milliseconds.
        energy_mj: Energy of this kernel in millijoules; None if it was not measured.
        speedup_interval: 95 % interval of the default's time over this kernel's.
        max_rel_error: Largest relative error against the float64 reference.
        formulation: Name of the formulation.
        schedule: Identity of the schedule.
    """

    default_ms: float | None = None
    tuned_ms: float | None = None
    energy_mj: float | None = None
    speedup_interval: tuple[float, float] | None = None
    max_rel_error: float | None = None
    formulation: str = "direct"
    schedule: str = "default"


@dataclass(frozen=True)
class ExportedKernel:
    """A kernel of a variant.

    Attributes:
        kernel: The kernel to compute.
        program: Returns the scheduled `tvm.IRModule`, whose function is `main`, for a TVM target.
        tuned: Whether it differs from the untuned default, and so is compiled with the space's options.
        count: Number of calls in a training step.
        figures: What is known about it.
    """

    kernel: Kernel
    program: Callable[[Any], Any]
    tuned: bool
    count: int
    figures: Figures


@dataclass(frozen=True)
class Variant:
    """The kernels of one target and cluster.

    Attributes:
        name: Identifier, unique in an export.
        target: The target to compile for.
        space: Limits, and how tuned kernels are compiled.
        kernels: Its kernels.
        cluster: Cores that it was tuned for; empty for all.
        soc: Chip that it was tuned on; empty if unknown, or for a stand-in.
        driver: Its OpenCL driver; empty without one.
        gpu: Its OpenCL device's name; empty without one.
        threads: Threads that it was measured with; 0 if unknown.
        khz: Clocks that it was measured with, by cluster; empty if they are unknown, or were not held.
        device: Fingerprint of the device that it was measured on; empty for the safe variant.
        stand_in: Whether that device is a stand-in for the target's.
        source: Its origin, such as a run's folder name.
        model: The model, without its folder; None for one operator.
        batch: Samples in a step of it.
    """

    name: str
    target: TargetSpec
    space: Space
    kernels: tuple[ExportedKernel, ...]
    cluster: str = ""
    soc: str = ""
    driver: str = ""
    gpu: str = ""
    threads: int = 0
    khz: tuple[tuple[str, int], ...] = ()
    device: tuple[tuple[str, Any], ...] = ()
    stand_in: bool = False
    source: str = ""
    model: str | None = None
    batch: int | None = None

    @property
    def is_safe(self) -> bool:
        """Whether it is the variant that is used if no other is known to be right."""
        return self.name == SAFE

    @property
    def untimed(self) -> tuple[str, ...]:
        """Names of its kernels that are untuned because none of their schedules had a valid time."""
        never = (one for one in self.kernels if one.figures == Figures() and not self.is_safe)
        return tuple(one.kernel.name for one in never)


def variants_of_runs(
    paths: Sequence[Path], *, allow_stand_in: bool, socs: Sequence[str] = ()
) -> tuple[Variant, ...]:
    """Returns the variants of finished runs.

    Args:
        paths: Folders of the runs.
        allow_stand_in: Accept runs that were measured on a stand-in for the target's device.
        socs: Chip of each run's device, in the order of the runs, for runs that do not record it; may be shorter.

    Raises:
        UsageError: A run does not exist, has not ended or has no kernel; or it was measured on a stand-in, and that
            is not allowed.
        RecordError: A run's records are damaged.
    """
    if len(socs) > len(paths):
        raise UsageError(
            f"{len(socs)} chips are named for {len(paths)} runs", hint="give one --soc a run"
        )
    named = [*socs, *[""] * (len(paths) - len(socs))]
    return unique(
        [_variant(path, allow_stand_in, soc) for path, soc in zip(paths, named, strict=True)]
    )


def variant_of_choice(
    paths: Sequence[Path],
    digests: Mapping[str, str],
    *,
    cluster: str,
    threads: int,
    khz: Sequence[tuple[str, int]],
    figures: Mapping[tuple[str, str], tuple[float | None, float | None]],
    allow_stand_in: bool,
    emulated: bool,
    soc: str,
    source: str,
) -> Variant:
    """Returns the variant of schedules that were chosen from the pools of finished runs.

    Args:
        paths: Folders of the runs, all of one target.
        digests: The schedule of each kernel, by the kernel's name.
        cluster: Cores that they were chosen for; empty for all.
        threads: Threads that they were chosen for.
        khz: Clocks that they were chosen for, by cluster.
        figures: Milliseconds and millijoules of each kernel and schedule under these conditions.
        allow_stand_in: See `variants_of_runs`.
        emulated: Whether they were chosen by times from a model.
        soc: Chip of the device; empty if unknown.
        source: Origin of the choice.

    Raises:
        UsageError: See `variants_of_runs`; or no run has one of the schedules.
        RecordError: A run's records are damaged.
    """
    parts = [_variant(path, allow_stand_in, soc) for path in paths]
    base = parts[0]
    if other := next((one for one in parts if not same_code(one.target, base.target)), None):
        raise UsageError(
            f"the plan's runs are for {base.target.name} and for {other.target.name}",
            hint="a library is for one target",
        )
    if emulated and not allow_stand_in:
        raise UsageError(
            f"{source} was chosen by the times of a model, which stands in for a device",
            hint="search on the device, or export it as it is with --allow-stand-in",
        )
    known = {one.kernel.name: one for part in reversed(parts) for one in part.kernels}
    found = winners_of(paths, {name: [digest] for name, digest in digests.items()})
    chosen = {name: winner for name, (winner,) in found.items()}
    if unknown := sorted(chosen.keys() - known.keys()):
        raise RecordError(f"the plan's runs have no valid time of {unknown[0]}")
    kernels = tuple(
        ExportedKernel(
            known[name].kernel,
            _tuned(known[name].kernel, winner),
            winner.tuned,
            known[name].count,
            # The default's time is for the run's cores and clocks, not for the chosen ones.
            _in_step(
                replace(_figures(winner.task), default_ms=None),
                figures.get((name, winner.task.digest)),
            ),
        )
        for name, winner in chosen.items()
    )
    stand_in = emulated or any(one.stand_in for one in parts)
    return replace(
        base,
        name=re.sub(r"\W", "_", "_".join(word for word in (base.target.name, cluster) if word)),
        kernels=kernels,
        cluster=cluster,
        threads=threads,
        khz=tuple(khz),
        soc="" if stand_in else base.soc,
        stand_in=stand_in,
        source=source,
    )


def with_schedules(
    variants: Sequence[Variant],
    digests: Mapping[str, str],
    figures: Mapping[tuple[str, str], tuple[float | None, float | None]],
    source: str,
) -> list[Variant]:
    """Returns variants with only those kernels whose schedules were chosen.

    Args:
        variants: Variants of runs.
        digests: The schedule of each kernel, by the kernel's name.
        figures: Milliseconds and millijoules of each kernel and schedule in the chosen step.
        source: Origin of the choice.

    Raises:
        RecordError: No variant has one of the schedules.
    """
    found = []
    for variant in variants:
        kernels = []
        for one in variant.kernels:
            digest = one.figures.schedule
            if digests.get(one.kernel.name) == digest:
                ms, millijoules = figures.get((one.kernel.name, digest), (None, None))
                here = replace(
                    one.figures, tuned_ms=ms, energy_mj=millijoules, speedup_interval=None
                )
                kernels.append(replace(one, figures=here))
        found.append(replace(variant, kernels=tuple(kernels), source=source))
    known = {one.kernel.name for one in _all(found)}
    if missing := sorted(digests.keys() - known):
        raise RecordError(
            f"the plan's runs do not have its schedule of {missing[0]}",
            hint="the plan was changed, or made from other runs: name those with --run",
        )
    return [variant for variant in found if variant.kernels]


def unique(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Returns the variants with unique names."""
    found: list[Variant] = []
    for variant in variants:
        taken = {one.name for one in found}
        names = (variant.name, *(f"{variant.name}_{number}" for number in range(2, 100)))
        found.append(replace(variant, name=next(name for name in names if name not in taken)))
    return tuple(found)


def with_safe_variant(variants: Sequence[Variant], target: TargetSpec) -> tuple[Variant, ...]:
    """Returns the variants after the safe one, which has every kernel untuned, for any device of its kind.

    Args:
        variants: The other variants.
        target: The target of the safe variant.
    """
    found: dict[str, ExportedKernel] = {}
    for one in _all(variants):
        found.setdefault(one.kernel.name, one)
    space = variants[0].space
    if target.family == "opencl":
        space = space.model_copy(update={"limits": _SAFE_LIMITS})
    safe = tuple(_untuned(one.kernel, one.count, target) for one in found.values())
    return (Variant(SAFE, target, space, safe), *variants)


def kernels_of(variants: Sequence[Variant]) -> tuple[Kernel, ...]:
    """Returns every distinct kernel, in the order of the variants."""
    return tuple({one.kernel.name: one.kernel for one in _all(variants)}.values())


def _all(variants: Sequence[Variant]) -> Iterable[ExportedKernel]:
    return (kernel for variant in variants for kernel in variant.kernels)


def _untuned(kernel: Kernel, count: int, target: TargetSpec) -> ExportedKernel:
    def program(made: Any) -> Any:
        if target.family == "opencl":
            return plain_gpu_program(kernel, _SAFE_LIMITS.max_threads_per_block)
        return untuned_program(kernel, made)

    return ExportedKernel(kernel, program, tuned=False, count=count, figures=Figures())


def _tuned(kernel: Kernel, winner: Winner) -> Callable[[Any], Any]:
    return lambda target: winner.program(kernel, target)


def _variant(path: Path, allow_stand_in: bool, soc: str) -> Variant:
    run = read_run(path)
    run.ended()
    request = TuneRequest.of_run(run)
    result = run.kernel_result()
    if result.stand_in and not allow_stand_in:
        raise UsageError(
            f"run {path} was measured on {result.device['name']}, a stand-in for {result.target}: "
            "its choices are not the real device's",
            hint="measure on the device, or export it as it is with --allow-stand-in",
        )
    kernels = _kernels(run, request)
    if not kernels:
        raise UsageError(f"run {path} has no kernel with a valid time to export")
    cluster = request.cores.cluster if request.cores else ""
    gpu, driver = opencl_device(result.device)
    details = result.device.get("details", {})
    name = "_".join(word for word in (request.target.name, cluster) if word)
    model, batch = work_of(run.about)
    return Variant(
        name=re.sub(r"\W", "_", name),
        target=request.target,
        space=request.space,
        kernels=kernels,
        cluster="" if cluster == _ALL_CORES else cluster,
        # A stand-in does not have the target's chip. Such a variant is selected only by name.
        soc="" if result.stand_in and not soc else soc or details.get("soc") or _chip(result),
        driver="" if result.stand_in else driver,
        gpu="" if result.stand_in else gpu,
        threads=len(request.cores.cpus) if request.cores else int(details.get("threads") or 0),
        device=tuple(result.device.items()),
        stand_in=result.stand_in,
        source=path.resolve().name,
        model=None if model is None else Path(model).name,
        batch=batch,
    )


def _chip(result: Result) -> str:
    """Returns the chip of this host's processor, if it was measured; a tracker's key does not name a chip."""
    return str(result.device["name"]) if result.device.get("kind") == "cpu" else ""


def opencl_device(device: dict[str, Any]) -> tuple[str, str]:
    """Returns name and driver version of the OpenCL device of a run; empty if the run does not record them."""
    driver = str(device.get("driver", ""))
    if device.get("kind") == "opencl":
        return str(device["name"]), driver.rpartition(", ")[2]
    found = re.search(r"(?:^|; )(.+) \(.*, ([^,)]*)\)$", driver)
    return (found[1], found[2]) if found and device.get("kind") == "rpc-opencl" else ("", "")


def _kernels(run: Run, request: TuneRequest) -> tuple[ExportedKernel, ...]:
    """Returns a run's kernels, untuned if they have no valid time; empty if no kernel has one."""
    tasks = {task.kernel.name: task for task in request.tasks}
    won = winners(run)
    if not won:
        return ()
    found = []
    for name, winner in won.items():
        task = tasks.get(name)
        if task is None:
            raise RecordError(f"{run.path / 'result.json'}: unknown kernel {name}")
        found.append(
            ExportedKernel(
                task.kernel,
                _tuned(task.kernel, winner),
                winner.tuned,
                task.count,
                _figures(winner.task),
            )
        )
    untimed = [task for name, task in tasks.items() if name not in won]
    return (*found, *(_untuned(one.kernel, one.count, request.target) for one in untimed))


def _in_step(figures: Figures, found: tuple[float | None, float | None] | None) -> Figures:
    """Returns figures with a schedule's time (ms) and energy (mJ) in the chosen step, not its run's times."""
    ms, millijoules = found or (None, None)
    return replace(figures, tuned_ms=ms, energy_mj=millijoules, speedup_interval=None)


def _figures(task: TaskResult) -> Figures:
    return Figures(
        default_ms=task.default_ms,
        tuned_ms=task.tuned_ms,
        speedup_interval=task.ci,
        max_rel_error=task.max_rel_error,
        formulation=task.formulation,
        schedule=task.digest,
    )
