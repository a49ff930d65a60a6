"""The libraries of a step: every distinct kernel, compiled with its large temporaries as operands."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune.compiler.native import check_disks
from autotune.compiler.programs import (
    Unscheduled,
    Winner,
    plain_module,
    program_text,
    untuned_program,
)
from autotune.compiler.rules import streamed
from autotune.compiler.runners import Builder, BuildRequest, linker, target_text
from autotune.compiler.step.scratch_operands import Workspace, with_scratch_operands, workspace
from autotune.compiler.target import Space, TargetSpec, cores, tvm_target
from autotune.errors import AutotuneError
from autotune.scratch import Scratch
from autotune.workloads.operators import Kernel, TensorSpec

_SCHEDULE = "__schedule"
_KERNELS_A_PART = 12
_TIMEOUT_S_A_KERNEL = 30.0
_REPORT_S = 0.5
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class StepLibrary:
    """A step's compiled kernels.

    Attributes:
        parts: Shared libraries.
        symbols: Index in ``parts`` of each kernel, by its symbol. The symbol of a kernel's first schedule is the
            kernel's name; see `symbol`.
        scratch: Scratch operands that a kernel takes after its outputs, by symbol; a missing one takes none.
        workspaces: Memory that each kernel requests from the runtime while it runs, by symbol.
        untuned: Names of the kernels without a tuned schedule.
        schedules: Number of schedules of a kernel, by name; 1 if it is missing.
    """

    parts: tuple[Path, ...]
    symbols: Mapping[str, int]
    scratch: Mapping[str, tuple[TensorSpec, ...]]
    workspaces: Mapping[str, Workspace]
    untuned: tuple[str, ...]
    schedules: Mapping[str, int] = field(default_factory=dict)

    def scratch_bytes(self) -> dict[str, tuple[int, ...]]:
        """Returns the sizes of the scratch operands by kernel name; each is the largest over all its schedules."""
        found: dict[str, list[int]] = {}
        for name, specs in self.scratch.items():
            sizes = found.setdefault(kernel_of(name), [])
            for number, spec in enumerate(specs):
                if number == len(sizes):
                    sizes.append(0)
                sizes[number] = max(sizes[number], spec.bytes)
        return {name: tuple(sizes) for name, sizes in found.items()}


def symbol(kernel: str, schedule: int) -> str:
    """Returns the symbol of a kernel's schedule: the kernel's name, followed by the schedule's number unless 0."""
    return f"{kernel}{_SCHEDULE}{schedule}" if schedule else kernel


def kernel_of(symbol_: str) -> str:
    """Returns the name of a symbol's kernel."""
    return symbol_.partition(_SCHEDULE)[0]


@dataclass(frozen=True)
class StepFunction:
    """A kernel in the form that a step calls.

    Attributes:
        function: The scheduled `tvm.tirx.PrimFunc`.
        scratch: Operands that it takes after its outputs.
        workspace: Memory that it requests from the runtime besides them.
    """

    function: Any
    scratch: tuple[TensorSpec, ...]
    workspace: Workspace


def step_function(
    kernel: Kernel, winner: Winner | None, target: Any, space: Space | None = None
) -> StepFunction:
    """Returns a kernel for a step.

    Args:
        kernel: The kernel.
        winner: The schedule that computes it; None without one.
        target: TVM's target.
        space: A space whose rules may schedule a kernel without a winner; None for the untuned default.
    """
    if winner is not None:
        program = winner.program(kernel, target)
    elif space is not None and _streams(kernel, space):
        program = _streamed_program(kernel, space)
    else:
        program = untuned_program(kernel, target)
    function, scratch_operands = with_scratch_operands(program["main"])
    return StepFunction(function, scratch_operands, workspace(function))


def _streamed_program(kernel: Kernel, space: Space) -> Any:
    own = space.for_size(kernel.flops, kernel.bytes)
    assert own.streaming is not None
    module = plain_module(kernel)
    try:
        return streamed(Unscheduled(module).schedule(), own.streaming, cores()).mod
    except Exception:  # TVM refuses it. A processor runs the plain loops.
        return module


def _streams(kernel: Kernel, space: Space) -> bool:
    """Returns whether a kernel without a winner has a schedule of the space's rules."""
    return space.family == "cpu" and space.streaming is not None and not kernel.is_compute


@contextmanager
def step_library(
    kernels: Sequence[Kernel],
    winners: Mapping[str, Sequence[Winner]],
    target: TargetSpec,
    space: Space,
    cache: Path | None,
    report: Report = lambda done, total: None,
    *,
    untuned: bool = False,
) -> Iterator[StepLibrary]:
    """Compiles kernels, each with the options that it was measured with, unless the cache has them.

    Args:
        kernels: Distinct kernels.
        winners: One or more schedules of each kernel. A missing kernel gets the schedule of the rule `streaming` if
            memory limits it, and the untuned default otherwise.
        target: The target to compile for.
        space: Its space: limits and compiler options.
        cache: Folder that keeps the libraries. If it is None or cannot be written, they are compiled each time.
        report: Receives the number of libraries done, and their total.
        untuned: Whether every missing kernel gets the untuned default.

    Yields:
        The libraries, which exist inside the context.

    Raises:
        AutotuneError: A kernel could not be compiled.
        ToolchainError: There is no linker.
        RecordError: A winner's schedule is damaged.
    """
    groups: dict[bool, list[tuple[str, Kernel, Winner | None]]] = {True: [], False: []}
    for kernel in kernels:
        for number, winner in enumerate(winners.get(kernel.name) or (None,)):
            tuned = winner.tuned if winner else not untuned and _streams(kernel, space)
            groups[tuned].append((symbol(kernel.name, number), kernel, winner))
    functions: dict[str, StepFunction] = {}
    parts: list[_Part] = []
    total = sum(-(-len(group) // _KERNELS_A_PART) for group in groups.values())
    for tuned, group in groups.items():
        options = tvm_target(target, space.limits, space.compile if tuned else None)
        for start in range(0, len(group), _KERNELS_A_PART):
            some = group[start : start + _KERNELS_A_PART]
            report(0, total)
            own = space if tuned else None
            made = {name: step_function(kernel, one, options, own) for name, kernel, one in some}
            functions |= made
            parts.append(_Part.of(made, options, tuned=tuned))
    with Scratch("run") as work:
        folder = _compiled(parts, cache, work, report)
        yield StepLibrary(
            tuple(folder / _name(number) for number in range(len(parts))),
            {name: number for number, part in enumerate(parts) for name in part.names},
            {name: one.scratch for name, one in functions.items() if one.scratch},
            {name: one.workspace for name, one in functions.items()},
            tuple(
                kernel.name
                for kernel in kernels
                if not any(one.tuned for one in winners.get(kernel.name, ()))
            ),
            {name: len(some) for name, some in winners.items() if len(some) > 1},
        )


@dataclass(frozen=True)
class _Part:
    """One library: its kernels' names, their module as TVM JSON, the target as JSON text, and how to compile it."""

    names: tuple[str, ...]
    module: str
    target: str
    tuned: bool

    @classmethod
    def of(cls, functions: Mapping[str, StepFunction], target: Any, *, tuned: bool) -> _Part:
        import tvm

        module = tvm.IRModule(
            {n: one.function.with_attr("global_symbol", n) for n, one in functions.items()}
        )
        return cls(tuple(functions), program_text(module), target_text(target), tuned)


def _name(number: int) -> str:
    return f"part{number}.so"


def _compiled(parts: Sequence[_Part], cache: Path | None, work: Path, report: Report) -> Path:
    """Returns the libraries' folder: in the cache if it has them or can be written, otherwise a temporary one."""
    text = version("apache-tvm") + "".join(
        f"{part.target}{part.module}{part.tuned}" for part in parts
    )
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    if cache is not None and (cache / digest).is_dir():
        return cache / digest
    made = None
    if cache is not None:
        with suppress(OSError):  # Compiled elsewhere if the run is read-only.
            cache.mkdir(exist_ok=True)
            made = Scratch("new", cache)
    fresh = work / digest if made is None else made.path
    fresh.mkdir(exist_ok=True)
    try:
        _compile(parts, fresh, work, report)
        if made is None:
            return fresh
        with suppress(OSError):  # Another process was first.
            fresh.rename(made.path.parent / digest)
        return made.path.parent / digest
    finally:
        if made is not None:
            made.close()


def _compile(parts: Sequence[_Part], folder: Path, work: Path, report: Report) -> None:
    requests = [
        BuildRequest(part.module, part.target, folder / _name(number), untuned=not part.tuned)
        for number, part in enumerate(parts)
    ]
    linker("", fast=True)  # Raises here if there is none.
    limit = _TIMEOUT_S_A_KERNEL * _KERNELS_A_PART
    builder = Builder(workers=cores(), timeout_s=limit, temporary=work)
    try:
        builder.start()
        failures = builder.submit(requests)
        while not wait([failures], timeout=_REPORT_S).done:
            report(sum(request.output.exists() for request in requests), len(requests))
        for failure in filter(None, failures.result()):
            check_disks(failure.message, [folder])
            raise AutotuneError(
                f"the step's kernels cannot be compiled: {failure.message}",
                hint="run it again; if it fails again, report it",
            )
    finally:
        builder.stop()
