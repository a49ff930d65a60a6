"""The workload measured on a device, as the command line names it: a tuned step, or any program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.devices import EMULATED_KIND
from autotune.errors import UsageError
from autotune.jobs.device import ChosenDevice, Program, on_device
from autotune.jobs.requests import StepRequest
from autotune.jobs.steps.joint_pools import JointPools, joint_pools
from autotune.measurement import PROGRAM, MemoryKind, Observer, StepRunner, Workload
from autotune.scratch import Scratch
from autotune.workloads import LAYOUTS, generated_feeds, plan_memory, tasks

if TYPE_CHECKING:
    from autotune.compiler.programs import Winner
    from autotune.compiler.step import GpuRuns, GpuSide, StepRuns
    from autotune.console import LiveProgress
    from autotune.workloads import StepForm, StepGraph, TrainingStep

_EMULATED_COMMAND = "emulated_train --threads {threads} --noise 0.02"
_EMULATED_STEP = r"^step \d+"
_FOLDER, _WORK = "step", "step.work"
_FEEDS, _FEEDS_BYTES = 8, 64 * 2**20
_SEED = 1


def given_command(
    step: StepRequest | None, command: str | None, steps_from: str | None, *, emulated: bool
) -> Program | None:
    """Returns the program that is measured; None if it is a tuned step.

    Raises:
        UsageError: Neither a step nor a program is given, or both are.
    """
    if step is not None:
        if command is not None or steps_from is not None:
            raise UsageError(
                "--model and --command exclude each other",
                hint="give one of them; --steps-from goes with --command",
            )
        return None
    for option, given in (("--command", command), ("--steps-from", steps_from)):
        if given is not None and not given.strip():
            raise UsageError(f"{option} is empty", hint="give one, or leave it out")
    if emulated:
        command = _EMULATED_COMMAND if command is None else command
        steps_from = _EMULATED_STEP if steps_from is None else steps_from
    if command is None or steps_from is None:
        raise UsageError(
            "--model, or --command and --steps-from, select what is measured",
            hint="such as --model mobilenet_v2 --batch 8, or --command './train --threads {threads}' "
            "--steps-from '^step'",
        )
    return on_device(command, steps_from)


class DeviceWorkload:
    """A workload on a device: a tuned step, or another program.

    Args:
        command: The other program; None for a step.
        step: The step.
        trace: Whether the step reports its calls.

    Attributes:
        graph: The step, in its first form; None for another program.
        pools: Schedules that the step's calls can use, if the choice is open.
        sides: The GPU's part of the step, for each of its forms; empty if no GPU takes part.
        runners: The step on the device, in each of its forms, once it is copied there.
        gpu_memory: How tensors are brought to a GPU; None for the cheaper way.
    """

    def __init__(self, command: Program | None, step: DeviceStep | None, *, trace: bool) -> None:
        self._command, self._step, self._trace = command, step, trace
        self.graph = step.forms[0].graph if step else None
        self.pools = step.pools if step else None
        self.sides = [form.gpu for form in step.forms] if step else []
        self.gpu_memory = step.gpu_memory if step else None
        self.runners: tuple[StepRunner, ...] = ()

    def bring(self, observer: Observer) -> Workload:
        """Copies the workload to the device.

        Raises:
            DeviceError: It cannot be copied.
        """
        if self._step is None:
            assert self._command is not None
            return self._command(observer)
        self.runners = self._step.bring(observer)
        return self.runner.traced() if self._trace else self.runner.plain()

    @property
    def runner(self) -> StepRunner:
        """The step on the device, in its first form."""
        return self.runners[0]


@contextmanager
def brought(
    step: StepRequest | None,
    command: Program | None,
    chosen: ChosenDevice,
    progress: LiveProgress,
    *,
    trace: bool = False,
    choice: OpenChoice | PlannedChoice | None = None,
) -> Iterator[DeviceWorkload]:
    """Yields a workload that is ready for a device.

    With `trace`, a tuned step reports its calls. `choice` says which of the runs' schedules the calls use.

    Raises:
        UsageError: See `device_step`.
        ToolchainError: See `device_step`.
    """
    if step is None:
        yield DeviceWorkload(command, None, trace=trace)
        return
    with device_step(step, chosen, progress, choice) as made:
        if made.untuned:
            progress.notice(f"{made.untuned} kernels of the step were never tuned: see --run")
        yield DeviceWorkload(None, made, trace=trace)


@dataclass(frozen=True)
class OpenChoice:
    """Includes all schedules of the runs' pools, and all forms of the step that the runs know.

    Attributes:
        memory_bytes: Most memory that a step may use; None without a limit.
    """

    memory_bytes: int | None


@dataclass(frozen=True)
class PlannedChoice:
    """Kernels use the schedules of a plan.

    Attributes:
        schedules: Schedules that a kernel's calls use, by the kernel's name.
    """

    schedules: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class StepFiles:
    """A form of a step, as files.

    Attributes:
        graph: The step.
        root: Folder with all that is needed to run it on the device.
        files: The files in the folder.
        gpu: The GPU's part of the step; None if no GPU takes part.
    """

    graph: StepGraph
    root: Path
    files: tuple[Path, ...]
    gpu: GpuSide | None = None


@dataclass(frozen=True)
class DeviceStep:
    """A step that is ready for a device.

    Attributes:
        forms: Its forms; one, unless the choice of form is open.
        untuned: Number of its distinct kernels that no run has tuned.
        program: The program that runs it on the device.
        pools: Schedules that its calls can use; None if each call has one.
        gpu_memory: How tensors are brought to a GPU; None for the cheaper way.
    """

    forms: tuple[StepFiles, ...]
    untuned: int
    program: Path
    pools: JointPools | None = None
    gpu_memory: MemoryKind | None = None

    def bring(self, observer: Observer) -> tuple[StepRunner, ...]:
        """Copies the step to the device.

        Args:
            observer: An entered observer. It removes what it has copied when it ends.

        Raises:
            DeviceError: The step cannot be copied.
        """
        program = observer.bring(self.program, PROGRAM)
        runners = []
        for number, form in enumerate(self.forms):
            folder = f"{_FOLDER}{number or ''}"
            for file in form.files:
                observer.bring(file, f"{folder}/{file.relative_to(form.root)}")
            runners.append(StepRunner(program, program.parent / folder))
        return tuple(runners)


@contextmanager
def device_step(
    options: StepRequest,
    chosen: ChosenDevice,
    progress: LiveProgress,
    choice: OpenChoice | PlannedChoice | None = None,
) -> Iterator[DeviceStep]:
    """Compiles a step for a device. Its files exist inside the context.

    Args:
        options: The step.
        chosen: The device.
        progress: Receives progress.
        choice: Which schedules are included; None for the fastest that the runs know.

    Raises:
        UsageError: An option is invalid, the runs are for another processor, or they lack a plan's schedules.
        ToolchainError: The device's programs cannot be built here.
    """
    from autotune.compiler.native import platform_of
    from autotune.compiler.programs import winners_of
    from autotune.compiler.step import gpu_runs, step_bundle, step_runs
    from autotune.compiler.target import ARM_TRIPLE

    emulated = chosen.device.kind == EMULATED_KIND
    # An emulated phone uses Debian's C library.
    android = chosen.info.sdk is not None and not chosen.info.emulated
    here = not emulated and platform_of(chosen.info.abi, android=android) == "host"
    wanted = options.training_step()
    paths = [Path(run) for run in options.runs]
    runs = step_runs(paths, triple="" if here else ARM_TRIPLE)
    form = options.form(wanted.batch, runs.space.layout)
    if options.layout is None:
        form = replace(form, layout=runs.layout(wanted, form.micro_batches, form.segments))
    on_gpu = gpu_runs([Path(run) for run in options.gpu_runs]) if options.gpu_runs else None
    pools: JointPools | None = None
    schedules: Mapping[str, Sequence[Winner]] | None = None
    if isinstance(choice, OpenChoice):
        fixed = options.micro_batch is not None or options.recompute is not None
        pools = joint_pools(
            paths, wanted, form.layout, form if fixed else None, choice.memory_bytes, chosen
        )
        for warning in pools.warnings:
            progress.notice(f"warning: {warning}")
        schedules = pools.schedules
        graphs = [(one.form, one.graph) for one in pools.forms]
    else:
        graphs = [(form, wanted.graph(form))]
        if choice is not None:
            schedules = winners_of(paths, choice.schedules)
    never = sum(task.kernel.name not in runs.winners for task in tasks(graphs[0][1]))
    with Scratch("step") as folder:
        forms = []
        if emulated:
            # A model needs no code, only the amount of work in each call.
            program = folder / PROGRAM
            program.touch(mode=0o755)
            for number, (_, graph) in enumerate(graphs):
                work = folder / str(number) / _WORK
                work.parent.mkdir()
                work.write_text(_work(graph, schedules or {}), encoding="utf-8")
                forms.append(StepFiles(graph, work.parent, (work,)))
        else:
            program = step_bundle.runner(
                chosen.info.abi, android=android, gpu=on_gpu is not None, log=progress.notice
            )
            for number, (own_form, graph) in enumerate(graphs):
                own = folder / str(number)
                own.mkdir()
                side = None if on_gpu is None else side_of(on_gpu, wanted, own_form, graph)
                files = _compiled(own, wanted, graph, runs, schedules, side, progress)
                forms.append(StepFiles(graph, own, files, side))
        yield DeviceStep(tuple(forms), never, program, pools, options.gpu_memory)


def side_of(on_gpu: GpuRuns, wanted: TrainingStep, form: StepForm, graph: StepGraph) -> GpuSide:
    """Returns the GPU's part of a step in a form, in the layout that the GPU's kernels are for.

    `graph` is the step in this form.

    Raises:
        UsageError: The runs know no kernel of the step.
    """
    others = [one for one in LAYOUTS if one != form.layout]
    relaid = [wanted.graph(replace(form, layout=one)) for one in others]
    return on_gpu.side(graph, [graph, *relaid])


def _compiled(
    folder: Path,
    wanted: TrainingStep,
    graph: StepGraph,
    runs: StepRuns,
    schedules: Mapping[str, Sequence[Winner]] | None,
    gpu: GpuSide | None,
    progress: LiveProgress,
) -> tuple[Path, ...]:
    from autotune.compiler.step import step_bundle

    given = sum(t.bytes for t in graph.tensors if t.kind in ("input", "label"))
    count = max(1, min(_FEEDS, _FEEDS_BYTES // given))
    with runs.library(
        graph, lambda done, total: progress.at("compiling", done, total), schedules
    ) as library:
        files = step_bundle.write_bundle(
            folder,
            graph,
            library,
            wanted.values(graph, _SEED),
            list(islice(generated_feeds(graph, _SEED), count)),
            gpu,
            lambda phase, done, total: progress.at(phase, done, total),
        )
    return tuple(files)


def _work(graph: StepGraph, schedules: Mapping[str, Sequence[Winner]]) -> str:
    lines = [f"memory {plan_memory(graph).arena_bytes}"]
    lines += [f"call {node.kernel.flops} {node.kernel.bytes}" for node in graph.nodes]
    lines += [
        f"schedule {call} {json.dumps(one.traits)}"
        for call, node in enumerate(graph.nodes)
        for one in schedules.get(node.kernel.name, ())
        if one.traits is not None
    ]
    return "\n".join(lines) + "\n"
