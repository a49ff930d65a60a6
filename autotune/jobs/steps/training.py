"""Training steps on this machine, with tuned kernels."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.console import LOGGER, LiveProgress
from autotune.errors import UsageError
from autotune.jobs.device import parse_size
from autotune.jobs.provenance import Work, named
from autotune.jobs.requests import StepRequest
from autotune.jobs.steps.cached_features import CachedFeatures, split_of
from autotune.jobs.steps.step_data import StepData, is_text
from autotune.measurement import median
from autotune.workloads import LAYOUTS, StepForm, StepGraph, TrainingStep, output_again

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autotune.compiler.step import StepRuns, StepSession

WARM_UP, STEPS = 3, 20
_AT_ONCE_BYTES = 64 * 2**20
_LARGEST_LOSS = 700.0
_AT_ONCE_S = 0.5
"""Seconds of steps that Ctrl-C may discard."""


@dataclass(frozen=True)
class TrainingRequest:
    """A request to train for some steps.

    Attributes:
        step: The step, with the runs that have tuned its kernels.
        steps: Number of steps; 20 by default. The first `WARM_UP` are not timed.
        data: Files with samples, or a text; None generates samples.
        seed: Seed of parameters, data and dropout.
        memory_limit: Most memory of a step, with its unit. The fastest form within the limit is chosen.
        cache_features: File that keeps the results of the frozen layers; None computes them in each step.
        tokenizer: The `tokenizer.json` of a text; None for that in the model's folder.
        save_adapter: Folder for the trained adapter of `peft`; None keeps none.
    """

    step: StepRequest
    steps: int | None = None
    data: Path | None = None
    seed: int = 1
    memory_limit: str | None = None
    cache_features: Path | None = None
    tokenizer: Path | None = None
    save_adapter: Path | None = None

    @property
    def count(self) -> int:
        """Number of steps."""
        return STEPS if self.steps is None else self.steps

    def limit_bytes(self) -> int | None:
        """Returns the most bytes that a step may use; None without a limit.

        Raises:
            UsageError: An option of this request is invalid.
        """
        if self.count <= WARM_UP:
            raise UsageError(
                f"--steps is {self.count}",
                hint=f"give {WARM_UP + 1} or more: the first {WARM_UP} are not timed",
            )
        if not 0 <= self.seed < 2**31:
            raise UsageError(
                f"--seed is {self.seed}", hint="give a whole number from 0 to 2147483647"
            )
        limit = None if self.memory_limit is None else parse_size(self.memory_limit)
        if limit is not None and (
            self.step.micro_batch is not None or self.step.recompute is not None
        ):
            raise UsageError(
                "--memory-limit chooses --micro-batch and --recompute itself", hint="leave them out"
            )
        return limit


@dataclass(frozen=True)
class TrainingResult:
    """Training steps that were run.

    Attributes:
        content: The content of `--json`.
        interrupted: Whether Ctrl-C ended them early.
    """

    content: dict[str, Any]
    interrupted: bool


def train(request: TrainingRequest) -> TrainingResult:
    """Runs the steps. Ctrl-C keeps the finished ones.

    Raises:
        UsageError: An option is invalid, or no form is within the limit.
        ToolchainError: A kernel cannot be compiled.
    """
    from autotune.compiler.step import open_step, step_runs
    from autotune.workloads.capture import check_adapter, save_adapter, tokenizer_of

    limit = request.limit_bytes()
    tokenizer = request.tokenizer
    if tokenizer is None and is_text(request.data):
        tokenizer = tokenizer_of(request.step.model)
    data = StepData(request.data, tokenizer)
    wanted = request.step.training_step(request.seed)
    adapted = None
    if request.save_adapter is not None:
        adapted = wanted.users_own().module if wanted.captured else None
        check_adapter(request.step.model, adapted, request.save_adapter)
    runs = step_runs([Path(run) for run in request.step.runs])
    form, graph = _form(request.step, wanted, runs, limit)
    if request.cache_features is not None and graph.parts > 1:
        raise UsageError(
            "--cache-features does not go with micro-batches",
            hint="leave --micro-batch out, or raise --memory-limit",
        )
    split = None if request.cache_features is None else split_of(graph)
    feeds = data.feeds(graph, request.seed)
    first = next(feeds)  # Bad data is reported before anything is compiled.
    with ExitStack() as opened:
        progress = opened.enter_context(LiveProgress())
        library = opened.enter_context(
            runs.library(graph, lambda done, total: progress.at("compiling", done, total))
        )
        values = wanted.values(graph, request.seed)
        given: Iterator[dict[str, NDArray[Any]]] = chain([first], feeds)
        cached = None
        if split is not None and request.cache_features is not None:
            frozen = opened.enter_context(open_step(split.features, library, values))
            cached = CachedFeatures(split, given, values, request.cache_features, frozen)
            opened.enter_context(closing(cached))
            given = cached
        stepped = split.training if split is not None else graph
        session = opened.enter_context(open_step(stepped, library, values))
        progress.phase("steps", request.count)
        prepared = _Prepared(given)
        done = _train(session, stepped, prepared, request.count, progress)
        content = {
            **_step(request, wanted, graph, form, runs, list(library.untuned)),
            **_figures(graph, done, prepared),
            "predicted_peak_bytes": session.predicted_bytes,
            "features": None if cached is None else cached.to_json(),
            **(_text_figures(graph, done) if is_text(request.data) else {}),
            "adapter": None if adapted is None else str(request.save_adapter),
        }
        if adapted is not None and request.save_adapter is not None:
            trained = [n for n, one in adapted.named_parameters() if one.requires_grad]
            save_adapter(adapted, session.read(trained), request.save_adapter)
    if len(done.losses) > WARM_UP and len(set(done.losses)) == 1:
        LOGGER.warning("the loss is the same after %d steps: nothing is learnt", len(done.losses))
    return TrainingResult(named(content, Work()), interrupted=len(done.losses) < request.count)


@dataclass
class _Done:
    """Steps that were run: the loss and the seconds of each, and the peak memory."""

    losses: list[float]
    seconds: list[float]
    peak_bytes: int = 0


def _form(
    step: StepRequest, wanted: TrainingStep, runs: StepRuns, limit: int | None
) -> tuple[StepForm, StepGraph]:
    """Returns the form of the step.

    It is the requested form in the faster layout, or the fastest form within a memory limit.
    """
    from autotune.compiler.step import fitting_form

    form = step.form(wanted.batch, runs.space.layout)
    if step.layout is None:
        form = replace(form, layout=runs.layout(wanted, form.micro_batches, form.segments))
    if limit is None:
        return form, wanted.graph(form)
    others = [one for one in LAYOUTS if not step.layout and one != form.layout]
    layouts = [form.layout, *others]
    most = wanted.forms_at_most * len(layouts)
    with LiveProgress() as progress:
        return fitting_form(
            wanted, runs, layouts, limit, lambda done: progress.at("memory plans", done, most)
        )


def _step(
    request: TrainingRequest,
    wanted: TrainingStep,
    graph: StepGraph,
    form: StepForm,
    runs: StepRuns,
    untuned: list[str],
) -> dict[str, Any]:
    """Returns a description of the step and its kernels."""
    from autotune.compiler.runners import host_device

    kept = [name for name in untuned if name in runs.winners]
    return {
        "model": request.step.model,
        "batch": graph.batch,
        "micro_batch": graph.batch // form.micro_batches,
        "recomputed_kernels": sum(output_again(node) for node in graph.nodes),
        "layout": "channels_last" if any(t.layout for t in graph.tensors) else "channels_first",
        "optimizer": wanted.optimizer.spec(),
        "device": host_device().to_json(),
        "runs": list(request.step.runs),
        "kernels": len({node.kernel for node in graph.nodes}),
        "never_tuned_kernels": [n for n in untuned if n not in runs.winners],
        "kept_default_kernels": kept,
        "untried_kernels": [n for n in kept if not runs.winners[n].task.trials],
        "tune_command": _tune_command(request.step, graph, form, runs),
    }


def _figures(graph: StepGraph, done: _Done, given: _Prepared) -> dict[str, Any]:
    timed = done.seconds[WARM_UP:]
    step_ms = 1e3 * median(timed) if timed else None
    return {
        "losses": [loss if math.isfinite(loss) else None for loss in done.losses],
        "warm_up_steps": WARM_UP,
        "seconds": done.seconds,
        "prepare_ms": 1e3 * median(given.seconds),
        "step_ms": step_ms,
        "samples_per_s": 1e3 * graph.batch / step_ms if step_ms else None,
        "peak_bytes": done.peak_bytes,
    }


def _text_figures(graph: StepGraph, done: _Done) -> dict[str, Any]:
    """Returns tokens a second, and the perplexity over the last tenth of the steps."""
    timed, last = done.seconds[WARM_UP:], done.losses[-max(1, len(done.losses) // 10) :]
    tokens = max(tensor.elements for tensor in graph.data)
    loss = sum(last) / len(last) if last else math.inf
    return {
        "tokens_per_s": tokens / median(timed) if timed else None,
        "perplexity": math.exp(loss) if loss < _LARGEST_LOSS else None,
    }


class _Prepared:
    """The inputs of steps, and the seconds needed to make them."""

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
) -> _Done:
    """Runs the steps in groups. Ctrl-C keeps the finished ones."""
    given = sum(t.bytes for t in graph.tensors if t.kind in ("input", "label"))
    at_once = 1
    done = _Done([], [])
    try:
        while len(done.losses) < steps:
            times = session.run(list(islice(feeds, min(at_once, steps - len(done.losses)))))
            done.losses += times.losses
            done.seconds += times.seconds
            done.peak_bytes = max(done.peak_bytes, times.peak_bytes)
            progress.step(
                len(done.losses), f"loss {done.losses[-1]:.4f}, {1e3 * done.seconds[-1]:.4g} ms"
            )
            at_once = max(1, min(16, _AT_ONCE_BYTES // given, int(_AT_ONCE_S / done.seconds[-1])))
    except KeyboardInterrupt:
        progress.notice(f"interrupted after {len(done.losses)} of {steps} steps")
    return done


def _tune_command(step: StepRequest, graph: StepGraph, form: StepForm, runs: StepRuns) -> str:
    """Returns the command that tunes the step's kernels."""
    parts = form.micro_batches
    options: dict[str, object] = {
        "--model": step.model,
        "--batch": graph.batch,
        "--classes": step.classes,
        "--optimizer": step.optimizer,
        "--input-shape": step.input_shape,
        "--micro-batch": graph.batch // parts if parts > 1 else None,
        "--recompute": form.segments or None,
        "--layout": None if form.layout == runs.space.layout else form.layout.replace("_", "-"),
    }
    given = [
        part for key, value in options.items() if value is not None for part in (key, str(value))
    ]
    given += [part for pattern in step.train for part in ("--train", pattern)]
    return shlex.join(["autotune", "kernels", *given])


__all__ = ["STEPS", "WARM_UP", "TrainingRequest", "TrainingResult", "train"]
