"""`autotune step`: runs training steps with tuned kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.workload import (
    DEFAULT_BATCH,
    DEFAULT_CLASSES,
    Batch,
    Classes,
    Layout,
    MicroBatch,
    Recompute,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autotune.workloads import StepGraph

WARM_UP = 3


def step(
    model: Annotated[str, typer.Option(help="Model; see `autotune models`.", show_default=False)],
    batch: Batch = None,
    classes: Classes = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of a finished run with tuned kernels; may be given more than once."
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps to run; the first 3 are not timed.")] = 20,
    data: Annotated[
        Path | None,
        typer.Option(
            help="MNIST or CIFAR files (binary version), or .npz with images and labels. [default: generated]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of parameters, data and dropout.")] = 1,
    micro_batch: MicroBatch = None,
    recompute: Recompute = None,
    layout: Layout = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Trains for some steps on this machine, and reports loss, time, samples a second and peak memory.

    Kernels that no --run has tuned use TVM's default schedule, and are named.

    \b
    Examples:
      autotune step --model lenet --batch 4 --run logs/20260102T030405Z-cpu-lenet
      autotune step --model mobilenet_v2 --batch 16 --run logs/20260102T030405Z-cpu-mobilenet_v2 --recompute 4
      autotune step --model lenet --data mnist/ --steps 200 --json
    """
    from autotune.cli.output import write_json
    from autotune.cli.tuning import LiveProgress
    from autotune.compiler.runner import host_device
    from autotune.compiler.step import open_step
    from autotune.compiler.step_runs import step_runs
    from autotune.errors import INTERRUPTED, UsageError
    from autotune.workloads import initial_values

    if steps <= WARM_UP:
        raise UsageError(
            f"--steps is {steps}",
            hint=f"give {WARM_UP + 1} or more: the first {WARM_UP} are not timed",
        )
    if seed < 0:
        raise UsageError(f"--seed is {seed}", hint="give 0 or more")
    size = DEFAULT_BATCH if batch is None else batch
    runs = step_runs(run or [])
    graph = _graph(model, size, classes, micro_batch, recompute, layout, runs.space.layout)
    feeds = _feeds(graph, data, DEFAULT_CLASSES if classes is None else classes, seed)
    with LiveProgress() as progress:
        progress.phase("compile", 1)
        with (
            runs.library(graph, progress) as library,
            open_step(graph, library, initial_values(graph, seed)) as session,
        ):
            progress.phase("steps", steps)
            losses, seconds, peak = _train(session, graph, feeds, steps, progress)
    result = {
        "model": graph.name,
        "batch": graph.batch,
        "device": host_device().to_json(),
        "losses": losses,
        "warm_up_steps": WARM_UP,
        "seconds": seconds,
        "step_ms": _median_ms(seconds),
        "samples_per_s": _rate(seconds, graph.batch),
        "peak_bytes": peak,
        "planned_bytes": session.plan.arena_bytes,
        "untuned_kernels": list(library.untuned),
    }
    if json:
        write_json(result)
    else:
        _show(result, len({node.kernel for node in graph.nodes}))
    return INTERRUPTED if len(losses) < steps else 0


def _graph(
    model: str,
    batch: int,
    classes: int | None,
    micro_batch: int | None,
    recompute: int | None,
    layout: str | None,
    usual: str,
) -> StepGraph:
    from autotune.cli.workload import model_step, step_form

    form = step_form(batch, micro_batch, recompute, layout, usual)
    return model_step(model, batch, DEFAULT_CLASSES if classes is None else classes, form)


def _feeds(graph: StepGraph, data: Path | None, classes: int, seed: int) -> Iterator[Any]:
    """Yields what each step is given."""
    from autotune.workloads import batches, generated_samples, given_values, load_samples

    image = next(t for t in graph.tensors if t.kind == "input" and t.name.startswith("input"))
    n, c, h, w = image.layout.shape if image.layout else image.shape
    del n
    if data is None:
        samples = generated_samples(max(64, 2 * graph.batch), (c, h, w), classes, seed)
    else:
        samples = load_samples(data, (c, h, w), classes, limit=_SAMPLES)
    for number, (images, labels) in enumerate(batches(samples, graph.batch, seed)):
        yield given_values(graph, images, labels, seed + number)
