"""The training step that a command works on, as runs and plans record it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.jobs.requests.defaults import DEFAULT_BATCH
from autotune.jobs.requests.trusted import allow, check_allowed, model_code
from autotune.measurement import MemoryKind
from autotune.records import is_run, place_of
from autotune.workloads import (
    MODELS,
    Optimizer,
    StepForm,
    TrainingStep,
)
from autotune.workloads.capture import named_with
from autotune.workloads.models import DEFAULT_CLASSES

GIVE = "say where its runs are with --run"
PUT_BACK = "put it back there, or in the same folder as the run"
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
                    f"no run at {run}: it has no file run.json",
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
    options: StepRequest, sequence: int | None = None, rank: int | None = None
) -> StepRequest | None:
    """Returns the step that command-line options name; None if they name none.

    If the model is code, it is remembered as allowed, so later files that name it may run it.

    Args:
        options: The options, with an empty model if none was given.
        sequence: Tokens of a sequence, for `hf:NAME`.
        rank: Rank of LoRA adapters, for `hf:NAME`.

    Raises:
        UsageError: Options describe a step, but no model is given.
    """
    if not options.model:
        if options != StepRequest("") or sequence is not None or rank is not None:
            raise UsageError("--batch, --run and the like go with --model", hint="give --model")
        return None
    model = named_with(options.model, sequence, rank)
    allow([model_code(model)])
    # Paths are absolute because they are read later from another folder.
    return replace(
        options, model=model, runs=tuple(str(Path(run).absolute()) for run in options.runs)
    )
