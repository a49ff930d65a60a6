"""A tuned step as what a device is measured with."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.cli.bench import EMULATED_KIND, Chosen
from autotune.cli.workload import step_feeds, step_form, training_step
from autotune.measurement.observer import Observer
from autotune.measurement.step_bench import Workload
from autotune.workloads.graph import tasks
from autotune.workloads.memory import plan_memory

if TYPE_CHECKING:
    from autotune.cli.tuning import LiveProgress
    from autotune.workloads import StepGraph

STEP_LINE = r"^step \d+"
"""What the end of a step prints."""
PROGRAM = "autotune_step_runner"
_FOLDER, _WORK = "step", "step.work"
_FEEDS, _FEEDS_BYTES = 8, 64 * 2**20
_SEED = 1


@dataclass(frozen=True)
class StepOptions:
    """The step that options of the command line mean; None where one is not given."""

    model: str
    batch: int | None = None
    classes: int | None = None
    optimizer: str | None = None
    input_shape: str | None = None
    runs: tuple[str, ...] = ()
    micro_batch: int | None = None
    recompute: int | None = None
    layout: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As a run's folder keeps it."""
        return asdict(self) | {"runs": list(self.runs)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> StepOptions:
        """What `to_json` gave."""
        return cls(**found | {"runs": tuple(found["runs"])})


@dataclass(frozen=True)
class DeviceStep:
    """A step, made ready for a device.

    Attributes:
        graph: The step.
        untuned: How many of its distinct kernels no run has tuned.
        program: What runs it there.
        files: What that needs.
    """

    graph: StepGraph
    untuned: int
    program: Path
    files: tuple[Path, ...]

    def bring(self, observer: Observer, *extra: str) -> Workload:
        """Copies it to the device.

        Args:
            observer: Entered; what it copies it takes away at the end.
            extra: Further arguments of the program.

        Raises:
            DeviceError: It cannot be copied.
        """
        program = observer.bring(self.program, PROGRAM)
        for file in self.files:
            observer.bring(file, f"{_FOLDER}/{file.name}")
        folder = program.parent / _FOLDER
        return Workload(
            (str(program), str(folder), "--threads", "{threads}", *extra), re.compile(STEP_LINE)
        )


@contextmanager
def device_step(
    options: StepOptions, chosen: Chosen, progress: LiveProgress
) -> Iterator[DeviceStep]:
    """Compiles a step for a device; its files are there inside the context.

    Raises:
        UsageError: An option makes no sense, or the runs are for another processor.
        ToolchainError: The device's programs cannot be built here.
    """
    from autotune.compiler import step_bundle
    from autotune.compiler.platforms import platform_of
    from autotune.compiler.step_runs import step_runs
    from autotune.compiler.targets import ARM_TRIPLE

    emulated = chosen.device.kind == EMULATED_KIND
    # An emulated phone has Debian's C library.
    android = chosen.info.sdk is not None and not chosen.info.emulated
    here = not emulated and platform_of(chosen.info.abi, android=android) == "host"
    wanted = training_step(
        options.model, options.batch, options.classes, options.optimizer, options.input_shape
    )
    runs = step_runs([Path(run) for run in options.runs], triple="" if here else ARM_TRIPLE)
    form = step_form(
        wanted.batch, options.micro_batch, options.recompute, options.layout, runs.space.layout
    )
    if options.layout is None:
        form = replace(form, layout=runs.layout(wanted, form.micro_batches, form.segments))
    graph = wanted.graph(form)
    never = sum(task.kernel.name not in runs.winners for task in tasks(graph))
    with tempfile.TemporaryDirectory(prefix="autotune-step-") as made:
        folder = Path(made)
        if emulated:
            # A model needs no code: only how much work each call is.
            program = folder / PROGRAM
            program.touch(mode=0o755)
            (folder / _WORK).write_text(_work(graph), encoding="utf-8")
            yield DeviceStep(graph, never, program, (folder / _WORK,))
            return
        program = step_bundle.runner(chosen.info.abi, android=android, log=progress.notice)
        given = sum(t.bytes for t in graph.tensors if t.kind in ("input", "label"))
        count = max(1, min(_FEEDS, _FEEDS_BYTES // given))
        with runs.library(
            graph, lambda done, total: progress.at("compiling", done, total)
        ) as library:
            files = step_bundle.write_bundle(
                folder,
                graph,
                library,
                wanted.values(graph, _SEED),
                list(islice(step_feeds(graph, None, _SEED), count)),
            )
        yield DeviceStep(graph, never, program, tuple(files))


def _work(graph: StepGraph) -> str:
    lines = [f"memory {plan_memory(graph).arena_bytes}"]
    lines += [f"call {node.kernel.flops} {node.kernel.bytes}" for node in graph.nodes]
    return "\n".join(lines) + "\n"
