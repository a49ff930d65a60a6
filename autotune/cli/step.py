"""`autotune step`: runs training steps with tuned kernels."""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import completion
from autotune.cli.output import time_text, with_wide
from autotune.cli.runs import run_path
from autotune.cli.search_options import Device, Ssh
from autotune.cli.verbosity import LOGGER
from autotune.cli.workload import (
    Batch,
    Classes,
    InputShape,
    Layout,
    MicroBatch,
    Optimizer,
    Recompute,
    step_feeds,
    step_form,
    training_step,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autotune.cli.tuning import LiveProgress
    from autotune.compiler.step import StepSession
    from autotune.workloads import StepGraph

WARM_UP, STEPS = 3, 20
_AT_ONCE_BYTES = 64 * 2**20
_AT_ONCE_S = 0.5  # what Ctrl-C may lose
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


@with_wide
def step(
    model: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.models,
            help="Model, see `autotune models`; or a PyTorch module's file.py:factory or package.module:factory.",
            show_default=False,
        ),
    ] = None,
    batch: Batch = None,
    classes: Classes = None,
    optimizer: Optimizer = None,
    input_shape: InputShape = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            parser=run_path("kernels"),
            autocompletion=completion.runs,
            metavar="FOLDER",
            help="Folder of a run with tuned kernels; may be given more than once.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help=f"Steps to run; the first 3 are not timed. [default: {STEPS}]"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="MNIST files, CIFAR files (binary version), or .npz with images and labels; as many samples, "
            "spread over the file, as fit into 1 GiB. [default: generated]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of parameters, data and dropout.")] = 1,
    micro_batch: MicroBatch = None,
    recompute: Recompute = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Choose the fastest micro-batch and recomputation whose peak memory fits, such as 1GB.",
        ),
    ] = None,
    layout: Layout = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            parser=run_path("joint"),
            autocompletion=completion.runs,
            metavar="FILE",
            help="Instead of --model: measure this plan of `autotune joint` on its device. --run then says where "
            "the plan's runs are, if they were moved.",
        ),
    ] = None,
    device: Device = None,
    ssh: Ssh = None,
    least_seconds: Annotated[
        float | None, typer.Option(metavar="S", help="Shortest measurement of a --plan.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Trains for some steps on this machine; reports loss, time, samples a second and peak memory.

    Kernels that no --run has tuned use TVM's default schedule, and are counted. With --plan, the step that a joint
    search planned is measured on its device, in turns with the default cores and clocks.

    \b
    Examples:
      autotune step --model lenet --batch 4 --run logs/20260102T030405Z-cpu-lenet
      autotune step --model alexnet --batch 16 --memory-limit 500MB --run logs/20260102T030405Z-cpu-alexnet
      autotune step --plan logs/20260102T030405Z-joint-sm8150/plans/best.json
      autotune step --model net.py:make --input-shape 3x32x32 --data cifar-10-batches-bin --steps 200 --json
    """
    from autotune.cli.output import named, write_json
    from autotune.cli.tuning import LiveProgress
    from autotune.compiler.runners import host_device
    from autotune.compiler.step import fitting_form, open_step, step_runs
    from autotune.errors import INTERRUPTED, UsageError
    from autotune.measurement import median
    from autotune.workloads import LAYOUTS, output_again

    if plan is not None:
        from autotune.cli.planned_step import run_plan

        same = (model, batch, classes, optimizer, input_shape, micro_batch, recompute, layout)
        if any(other is not None for other in (*same, steps, data, memory_limit)):
            raise UsageError(
                "--plan says which step is meant",
                hint="beside it, give --run, --device or --ssh alone",
            )
        return run_plan(plan, run, device, ssh or (), least_seconds, as_json=json)
    if model is None:
        raise UsageError("--model or --plan says which step is meant", hint="such as --model lenet")
    if device is not None or ssh or least_seconds is not None:
        raise UsageError(
            "--device, --ssh and --least-seconds go with --plan",
            hint="`autotune profile` and `autotune cpu-config` measure steps of a model on devices",
        )
    steps = STEPS if steps is None else steps
    if steps <= WARM_UP:
        raise UsageError(
            f"--steps is {steps}",
            hint=f"give {WARM_UP + 1} or more: the first {WARM_UP} are not timed",
        )
    if not 0 <= seed < 2**31:
        raise UsageError(f"--seed is {seed}", hint="give a whole number from 0 to 2147483647")
    limit = None if memory_limit is None else parse_size(memory_limit)
    if limit is not None and (micro_batch is not None or recompute is not None):
        raise UsageError(
            "--memory-limit chooses --micro-batch and --recompute itself", hint="leave them out"
        )
    wanted = training_step(model, batch, classes, optimizer, input_shape, seed)
    runs = step_runs(run or [])
    form = step_form(wanted.batch, micro_batch, recompute, layout, runs.space.layout)
    if layout is None:
        form = replace(form, layout=runs.layout(wanted, form.micro_batches, form.segments))
    if limit is None:
        graph = wanted.graph(form)
    else:
        layouts = [form.layout, *(one for one in LAYOUTS if not layout and one != form.layout)]
        with LiveProgress() as progress:
            most = wanted.forms_at_most * len(layouts)
            form, graph = fitting_form(
                wanted, runs, layouts, limit, lambda done: progress.at("memory plans", done, most)
            )
    feeds = step_feeds(graph, data, seed)
    first = next(feeds)  # Bad data is found before anything is compiled.
    with LiveProgress() as progress:
        with (
            runs.library(
                graph, lambda done, total: progress.at("compiling", done, total)
            ) as library,
            open_step(graph, library, wanted.values(graph, seed)) as session,
        ):
            progress.phase("steps", steps)
            given = _Prepared(chain([first], feeds))
            losses, seconds, peak = _train(session, graph, given, steps, progress)
        step_ms = 1e3 * median(seconds[WARM_UP:]) if len(seconds) > WARM_UP else None
        result = {
            "model": model,
            "batch": graph.batch,
            "micro_batch": graph.batch // form.micro_batches,
            "recomputed_kernels": sum(output_again(node) for node in graph.nodes),
            "layout": "channels_last" if any(t.layout for t in graph.tensors) else "channels_first",
            "optimizer": wanted.optimizer.spec(),
            "device": host_device().to_json(),
            "runs": [str(path) for path in run or []],
            "kernels": len({node.kernel for node in graph.nodes}),
            "never_tuned_kernels": [n for n in library.untuned if n not in runs.winners],
            "kept_default_kernels": [n for n in library.untuned if n in runs.winners],
            "tune_command": _tune_command(
                {
                    "--model": model,
                    "--batch": graph.batch,
                    "--classes": classes,
                    "--optimizer": optimizer,
                    "--input-shape": input_shape,
                    "--micro-batch": graph.batch // form.micro_batches
                    if form.micro_batches > 1
                    else None,
                    "--recompute": form.segments or None,
                    "--layout": form.layout.replace("_", "-")
                    if form.layout != runs.space.layout
                    else None,
                }
            ),
            "losses": [loss if math.isfinite(loss) else None for loss in losses],
            "warm_up_steps": WARM_UP,
            "seconds": seconds,
            "prepare_ms": 1e3 * median(given.seconds),
            "step_ms": step_ms,
            "samples_per_s": 1e3 * graph.batch / step_ms if step_ms else None,
            "peak_bytes": peak,
            "predicted_peak_bytes": session.predicted_bytes,
        }
    if len(losses) > WARM_UP and len(set(losses)) == 1:
        LOGGER.warning("the loss is the same after %d steps: nothing is learnt", len(losses))
    if json:
        write_json(named(result))
    else:
        _show(result)
    return INTERRUPTED if len(losses) < steps else 0


def parse_size(text: str) -> int:
    """Reads a size such as 1GB, 512MiB or 300000; K, M and G are powers of 1000, Ki, Mi and Gi of 1024.

    Raises:
        UsageError: It is not a size.
    """
    from autotune.errors import UsageError

    match = _SIZE.fullmatch(text.strip())
    if match is None or not 0 < float(match[1]) < 1e15:
        raise UsageError(f"{text!r} is not a size", hint="such as 1GB, 512MiB or 300000000")
    power = " KMGT".index(match[2].upper() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


class _Prepared:
    """What steps are given, and the seconds that it takes to make."""

    def __init__(self, feeds: Iterator[dict[str, NDArray[Any]]]) -> None:
        self._feeds = feeds
        self.seconds: list[float] = []

    def __iter__(self) -> _Prepared:
        return self

    def __next__(self) -> dict[str, NDArray[Any]]:
        start = time.perf_counter()
        given = next(self._feeds)
        self.seconds.append(time.perf_counter() - start)
        return given


def _train(
    session: StepSession,
    graph: StepGraph,
    feeds: Iterator[dict[str, NDArray[Any]]],
    steps: int,
    progress: LiveProgress,
) -> tuple[list[float], list[float], int]:
    """Runs the steps, some at a time; Ctrl-C keeps those that are done."""
    given = sum(t.bytes for t in graph.tensors if t.kind in ("input", "label"))
    at_once = 1
    losses: list[float] = []
    seconds: list[float] = []
    peak = 0
    try:
        while len(losses) < steps:
            times = session.run(list(islice(feeds, min(at_once, steps - len(losses)))))
            losses += times.losses
            seconds += times.seconds
            peak = max(peak, times.peak_bytes)
            progress.step(len(losses), f"loss {losses[-1]:.4f}, {1e3 * seconds[-1]:.4g} ms")
            at_once = max(1, min(16, _AT_ONCE_BYTES // given, int(_AT_ONCE_S / seconds[-1])))
    except KeyboardInterrupt:
        progress.notice(f"interrupted after {len(losses)} of {steps} steps")
    return losses, seconds, peak


def _tune_command(options: dict[str, object]) -> str:
    given = [
        part for key, value in options.items() if value is not None for part in (key, str(value))
    ]
    return shlex.join(["autotune", "kernels", *given])


def _show(result: dict[str, Any]) -> None:
    losses, step_ms = result["losses"], result["step_ms"]
    if not losses:
        return
    form = f"batch {result['batch']}"
    if result["micro_batch"] != result["batch"]:
        form += f" in micro-batches of {result['micro_batch']}"
    if result["recomputed_kernels"]:
        form += f", {result['recomputed_kernels']} kernels run again for their activations"
    print(f"{result['model']}, {form}, {result['optimizer']}, on {result['device']['name']}")
    never, kept = len(result["never_tuned_kernels"]), len(result["kept_default_kernels"])
    if never:
        print(f"{never} of {result['kernels']} kernels were never tuned: TVM's default schedule")
        print(f"  tune them with: {result['tune_command']}")
    if kept:
        print(
            f"{kept} of {result['kernels']} kernels keep TVM's default schedule: nothing was faster"
        )
    shown = [
        f"{loss:.6f}" if loss is not None else "not finite" for loss in (losses[0], losses[-1])
    ]
    print(f"loss         {shown[0]} -> {shown[1]} in {len(losses)} steps")
    if step_ms is not None:
        print(f"time a step  {time_text(step_ms / 1e3)} (median of {len(losses) - WARM_UP})")
        print(f"samples/s    {result['samples_per_s']:.4g}")
        prepare = time_text(result["prepare_ms"] / 1e3)
        print(f"data         {prepare} a step to prepare, beside the step")
    peak, predicted = result["peak_bytes"], result["predicted_peak_bytes"]
    print(f"peak memory  {peak / 1e6:.4g} MB (predicted {predicted / 1e6:.4g} MB)")
