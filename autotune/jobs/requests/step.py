"""The training step that a command works on, as runs and plans record it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import UsageError
from autotune.jobs.requests.defaults import DEFAULT_BATCH
from autotune.jobs.requests.trusted import allow, check_allowed, model_code
from autotune.measurement import MemoryKind
from autotune.records import is_run, place_of
from autotune.workloads import (
    MODELS,
    TEXTS,
    DataSpec,
    Optimizer,
    StepForm,
    Tensor,
    TrainingStep,
    batch_orders,
    batches,
    generated_feeds,
    given_values,
    load_arrays,
    load_samples,
    load_tokens,
    random_values,
)
from autotune.workloads.capture import named_with
from autotune.workloads.models import DEFAULT_CLASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autotune.workloads import StepGraph

GIVE = "say where its runs are with --run"
PUT_BACK = "put it back there, or in the same folder as the run"
_SAMPLES_BYTES = 2**30
_MASK_VALUES = 2
_SHAPE = re.compile(r"[0-9]{1,6}(x[0-9]{1,6}){0,2}")

_LISTS = ("runs", "gpu_runs", "train")


@dataclass(frozen=True)
class StepRequest:
    """The training step that a command works on. None stands for an option that was not given.

    Attributes:
        model: A built-in model, `file.py:factory`, `package.module:factory` or `hf:NAME`.
        batch: Samples of a step; 4 by default.
        classes: Classes of a built-in model.
        optimizer: As `--optimizer` takes it.
        input_shape: As `--input-shape` takes it.
        train: Patterns of the parameters that train, as `--train` takes them.
        runs: Folders of kernel runs, absolute.
        micro_batch: Samples of a micro-batch.
        recompute: Segments whose activations are recomputed.
        layout: `channels-first` or `channels-last`.
        gpu_runs: Folders of OpenCL kernel runs, for calls on the GPU.
        gpu_memory: How tensors are brought to the GPU.
        module: A `torch.nn.Module`; `model` is only its name. It is not stored in any file.
    """

    model: str
    batch: int | None = None
    classes: int | None = None
    optimizer: str | None = None
    input_shape: str | None = None
    runs: tuple[str, ...] = ()
    micro_batch: int | None = None
    recompute: int | None = None
    layout: str | None = None
    gpu_runs: tuple[str, ...] = ()
    gpu_memory: MemoryKind | None = None
    module: Any = field(default=None, compare=False, repr=False)
    train: tuple[str, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Whether the model was a module of a Python process that has ended."""
        built_in = self.model in {model.name for model in MODELS}
        return self.module is None and ":" not in self.model and not built_in

    def to_json(self) -> dict[str, Any]:
        """Returns the request as a run's folder stores it."""
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "module"}
        return plain | {name: list(getattr(self, name)) for name in _LISTS}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> StepRequest:
        """Returns the request from the output of `to_json`."""
        lists = {name: tuple(found.get(name, ())) for name in _LISTS}
        known = {
            name: found[name]
            for name in found
            if name in {one.name for one in fields(cls)} - {"module"}
        }
        return cls(**known | lists)

    def with_model(self, holder: Path) -> StepRequest:
        """Returns the request with the present place of its model's file; see `placed`."""
        file, colon, factory = self.model.rpartition(":")
        found = place_of(file, holder, Path.is_file) if file.endswith(".py") else None
        return self if found is None else replace(self, model=f"{found}{colon}{factory}")

    def placed(self, holder: Path, fix: str, given: Sequence[Path] = ()) -> StepRequest:
        """Returns the request with the present places of its runs and of its model's file.

        Args:
            holder: The run's folder, or the plan, that contains these options.
            fix: Advice for a run that is not found.
            given: Folders of runs. Each replaces the run of the same name. Runs with other names are added.

        Raises:
            UsageError: A run is not found, or the model is code that this user has not allowed.
        """
        placed = self.with_model(holder)
        check_allowed(holder, [model_code(placed.model)])
        named = {Path(run).name for run in (*self.runs, *self.gpu_runs)}
        by_name = {run.resolve().name: run for run in given}
        more = [str(run) for name, run in by_name.items() if name not in named]

        def place(run: str, *, needed: bool) -> list[str]:
            found = by_name.get(Path(run).name) or place_of(run, holder)
            if found is None and needed:
                raise UsageError(
                    f"{holder} takes its kernels from {run}, which is not there", hint=fix
                )
            return [] if found is None else [str(found)]

        # A renamed run may replace one that is not found.
        runs = [one for run in self.runs for one in place(run, needed=not more)]
        return replace(
            placed,
            runs=(*more, *runs),
            gpu_runs=tuple(one for run in self.gpu_runs for one in place(run, needed=True)),
        )

    def training_step(self, seed: int = 1) -> TrainingStep:
        """Returns the step. A PyTorch module is made with the seed.

        Raises:
            UsageError: An option is invalid.
        """
        shape = None
        if self.input_shape is not None:
            if _SHAPE.fullmatch(self.input_shape) is None:
                raise UsageError(
                    f"--input-shape {self.input_shape!r} is not one to three sizes with x between them",
                    hint="such as 3x32x32: channels, height and width",
                )
            shape = tuple(map(int, self.input_shape.split("x")))
        if ":" in self.model and self.classes is not None:
            raise UsageError(
                "--classes goes with a built-in model", hint="a PyTorch module has its own classes"
            )
        if self.train and ":" not in self.model and self.module is None:
            raise UsageError(
                f"--train goes with a PyTorch module, and {self.model} is built in",
                hint="give --model file.py:factory",
            )
        return TrainingStep(
            self.model,
            DEFAULT_BATCH if self.batch is None else self.batch,
            DEFAULT_CLASSES if self.classes is None else self.classes,
            Optimizer() if self.optimizer is None else Optimizer.parse(self.optimizer),
            shape,
            seed,
            self.module,
            self.train,
        )

    def check(self) -> None:
        """Refuses invalid options of a new step, as far as they are known without running code of the user.

        Raises:
            UsageError: An option is invalid.
        """
        step = self.training_step()
        form = self.form(step.batch, "channels_first")
        if not step.captured:
            step.graph(form)
        for run in (*self.runs, *self.gpu_runs):
            if not is_run(Path(run)):
                raise UsageError(
                    f"no run at {run}: run.json is missing",
                    hint="give a folder that `autotune kernels` has made in logs/",
                )

    def form(self, batch: int, usual: str) -> StepForm:
        """Returns the form of the step: micro-batches, recomputation, layout.

        Args:
            batch: Samples of a step.
            usual: The target's layout, `channels_first` or `channels_last`, used if the step names none.

        Raises:
            UsageError: The micro-batches do not divide the batch, or there are no segments.
        """
        part = batch if self.micro_batch is None else self.micro_batch
        if self.micro_batch is not None and (part < 1 or batch % part):
            fitting = ", ".join(str(n) for n in range(1, batch + 1) if batch % n == 0)
            raise UsageError(
                f"--micro-batch {part} does not divide --batch {batch}", hint=f"it may be {fitting}"
            )
        if self.recompute is not None and self.recompute < 1:
            raise UsageError(
                f"--recompute is {self.recompute}", hint="give 1 or more segments, such as 4"
            )
        last = (self.layout or usual).replace("-", "_") == "channels_last"
        parts = 1 if self.micro_batch is None else batch // part
        return StepForm("channels_last" if last else "channels_first", parts, self.recompute or 0)


def requested_step(
    model: str | None,
    batch: int | None,
    classes: int | None,
    optimizer: str | None,
    input_shape: str | None,
    runs: Sequence[Path] | None,
    micro_batch: int | None,
    recompute: int | None,
    layout: str | None,
    train: Sequence[str] | None = None,
    sequence: int | None = None,
    rank: int | None = None,
) -> StepRequest | None:
    """Returns the step that command-line options name; None if they name none.

    If the model is code, it is remembered as allowed, so later files that name it may run it.

    Raises:
        UsageError: Options describe a step, but no model is given.
    """
    others = (
        batch, classes, optimizer, input_shape, runs, micro_batch, recompute, layout, train, sequence, rank,
    )  # fmt: skip
    if model is None:
        if any(other is not None for other in others):
            raise UsageError("--batch, --run and the like go with --model", hint="give --model")
        return None
    model = named_with(model, sequence, rank)
    allow([model_code(model)])
    return StepRequest(
        model,
        batch,
        classes,
        optimizer,
        input_shape,
        # Paths are absolute because they are read later from another folder.
        tuple(str(run.absolute()) for run in runs or ()),
        micro_batch,
        recompute,
        layout,
        train=tuple(train or ()),
    )


def step_feeds(
    graph: StepGraph, data: Path | None, seed: int, tokenizer: Path | None = None
) -> Iterator[dict[str, NDArray[Any]]]:
    """Yields the inputs of each step, without end.

    Args:
        graph: The step.
        data: A file or folder with samples, or a text; None generates samples.
        seed: Seed of generated samples, of their order and of dropout.
        tokenizer: The `tokenizer.json` of a text.

    Raises:
        UsageError: The data cannot be read, or do not fit the step.
    """
    if tokenizer is not None and not is_text(data):
        raise UsageError(
            "--tokenizer goes with a text", hint=f"give --data FILE{' or FILE'.join(TEXTS)}"
        )
    if data is None:
        yield from generated_feeds(graph, seed)
        return
    if is_text(data):
        yield from _text_feeds(graph, data, tokenizer, seed)
        return
    if not graph.classifies:
        yield from _array_feeds(graph, data, seed)
        return
    shape = graph.sample_shape
    limit = max(graph.batch, _SAMPLES_BYTES // (4 * math.prod(shape)))
    samples = load_samples(data, shape, graph.classes, limit=limit)
    for number, (images, labels) in enumerate(batches(samples, graph.batch, seed)):
        yield given_values(graph, images, labels, seed, number)


def is_text(data: Path | None) -> bool:
    """Tells whether training data are a text."""
    return data is not None and data.suffix.lower() in TEXTS


def _text_feeds(
    graph: StepGraph, data: Path, tokenizer: Path | None, seed: int
) -> Iterator[dict[str, NDArray[Any]]]:
    """Feeds of a causal language model: all that it takes are the same sequences of tokens."""
    specs = [_data_spec(graph, tensor) for tensor in graph.data]
    shape = specs[0].shape
    # Of labels only the largest of the examples is known; a mask has two values.
    counts = [spec.classes or 0 for spec in specs]
    vocabulary = max(counts)
    if any(spec.shape != shape for spec in specs) or len(shape) != 1 or min(counts) <= _MASK_VALUES:
        raise UsageError(
            f"--data {data} is a text, and {graph.name} does not take sequences of tokens alone",
            hint="a text goes with a causal language model, such as hf:gpt2; give .npz to others",
        )
    if tokenizer is None:
        raise UsageError(
            f"--data {data} is a text, which needs a tokenizer",
            hint="give --tokenizer FILE, the tokenizer.json of the model",
        )
    limit = max(graph.batch, _SAMPLES_BYTES // (4 * shape[0]))
    sequences = load_tokens(data, tokenizer, shape[0], vocabulary, limit=limit)
    for number, chosen in enumerate(batch_orders(len(sequences), graph.batch, seed)):
        yield random_values(graph, seed, number) | {
            tensor.name: tensor.stored(sequences[chosen]) for tensor in graph.data
        }


def _array_feeds(graph: StepGraph, data: Path, seed: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Feeds of a step that is no classifier, from an .npz with an array for each of its inputs and labels."""
    wanted = {tensor.name: _data_spec(graph, tensor) for tensor in graph.data}
    sample_bytes = sum(4 * math.prod(spec.shape) for spec in wanted.values())
    arrays = load_arrays(data, wanted, limit=max(graph.batch, _SAMPLES_BYTES // sample_bytes))
    count = len(next(iter(arrays.values())))
    for number, chosen in enumerate(batch_orders(count, graph.batch, seed)):
        yield random_values(graph, seed, number) | {
            tensor.name: tensor.stored(arrays[tensor.name][chosen]).astype(tensor.dtype)
            for tensor in graph.data
        }


def _data_spec(graph: StepGraph, tensor: Tensor) -> DataSpec:
    shape = tensor.layout.shape if tensor.layout else tensor.shape
    if not shape or shape[0] != graph.batch:
        raise UsageError(
            f"--data: {tensor.name} of {graph.name} has no value for each sample",
            hint="leave --data out; random numbers are taken then",
        )
    return DataSpec(shape[1:], tensor.counts, tensor.kind == "label")
