"""From a model to the step that runs: layout, fusion, and ways to save memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.waits import waiting
from autotune.workloads.capture import (
    WantedStep,
    capture,
    capture_module,
    load_model,
    wanted_step,
)
from autotune.workloads.channels_last import channels_last
from autotune.workloads.fusion import fused
from autotune.workloads.graph import StepGraph
from autotune.workloads.initial import initial_values
from autotune.workloads.micro_batches import accumulated
from autotune.workloads.models import DEFAULT_CLASSES, MODELS, build_model
from autotune.workloads.optimizer import Optimizer
from autotune.workloads.recompute import recomputed

SGD = Optimizer()
_SEGMENTS = (0, 2, 3, 4, 6, 8)
LayoutName = Literal["channels_first", "channels_last"]
LAYOUTS: tuple[LayoutName, ...] = ("channels_first", "channels_last")


@dataclass(frozen=True)
class StepForm:
    """How a step is carried out. All forms compute the same, except for batch norm's statistics by micro-batch.

    Attributes:
        layout: Order of images and filters in memory.
        micro_batches: Number of parts of the batch, which run one after the other. Gradients are accumulated, and
            each part is normalised by its own statistics, as with gradient accumulation in PyTorch.
        segments: Most segments of the forward pass whose activations are computed again when the backward pass
            reaches them; 0 keeps all activations.
    """

    layout: LayoutName = "channels_first"
    micro_batches: int = 1
    segments: int = 0


def formed(graph: StepGraph, form: StepForm) -> StepGraph:
    """Returns a step in a form.

    Args:
        graph: The plain step for one micro-batch: a whole batch where there is one part. A described step is in
            the form's layout already.
        form: The form.

    Returns:
        A valid step for the whole batch, fused.

    Raises:
        UsageError: The form asks for fewer than one part, or less than no segments.
    """
    if form.micro_batches < 1 or form.segments < 0:
        raise UsageError(
            f"{form.micro_batches} micro-batches and {form.segments} segments make no step",
            hint="a batch has one part at least; 0 segments keep all activations",
        )
    if form.layout == "channels_last" and not graph.described:
        graph = channels_last(graph)
    if form.segments:
        graph = recomputed(graph, form.segments)
    return fused(accumulated(graph, form.micro_batches))


@dataclass(frozen=True)
class TrainingStep:
    """A model's training step, before it has a form.

    Attributes:
        model: A built-in model's name, or ``package.module:factory`` or ``file.py:factory`` for a PyTorch module.
        batch: Number of samples in a step.
        classes: Classes of a built-in model; a PyTorch module has its own.
        optimizer: The optimiser of the parameters.
        input_shape: Shape of a sample of a PyTorch module, if the module does not define it.
        seed: PyTorch's seed, set before a PyTorch module is made.
        module: A PyTorch module that is there already, of which ``model`` is only the name.
        train: Patterns of the parameters of a PyTorch module that train; empty for all that require a gradient.
    """

    model: str
    batch: int
    classes: int = DEFAULT_CLASSES
    optimizer: Optimizer = SGD
    input_shape: tuple[int, ...] | None = None
    seed: int = 1
    module: Any = field(default=None, compare=False, repr=False)
    train: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the step for another process; a module that is an object of this one is left out."""
        shape = self.input_shape
        return {
            "model": self.model,
            "batch": self.batch,
            "classes": self.classes,
            "optimizer": self.optimizer.spec(),
            "input_shape": None if shape is None else list(shape),
            "seed": self.seed,
            "train": list(self.train),
        }

    @classmethod
    def from_json(cls, step: Mapping[str, Any]) -> TrainingStep:
        """Reads what `to_json` returns."""
        shape = step["input_shape"]
        return cls(
            step["model"],
            step["batch"],
            step["classes"],
            Optimizer.parse(step["optimizer"]),
            None if shape is None else tuple(shape),
            step["seed"],
            train=tuple(step["train"]),
        )

    @property
    def captured(self) -> bool:
        """Whether the model is the user's own PyTorch module."""
        return self.module is not None or ":" in self.model

    def graph(self, form: StepForm) -> StepGraph:
        """Builds the step in a form.

        Raises:
            UsageError: The model is unknown, a size is impossible, or the batch cannot be split into these parts.
        """
        return formed(self.plain(form.micro_batches, layout=form.layout)[0], form)

    def plain(
        self,
        parts: int = 1,
        seed: int | None = None,
        layout: LayoutName = "channels_first",
    ) -> tuple[StepGraph, dict[str, NDArray[Any]]]:
        """Builds the step for one of ``parts`` equal parts of the batch, without a form.

        Args:
            parts: Number of equal parts.
            seed: PyTorch's seed; None for the step's own.
            layout: Layout of a described step; any other has its channels first.

        Returns:
            The step, and the values of a PyTorch module's parameters and running statistics by tensor name.
        """
        if self.batch < 1:
            raise UsageError(f"{self.model}: a batch of {self.batch}", hint="batch starts at 1")
        if parts < 1 or self.batch % parts:
            raise UsageError(
                f"{self.model}: a batch of {self.batch} has no {parts} equal parts",
                hint=f"parts may be {', '.join(map(str, self.parts()))}",
            )
        samples = self.batch // parts
        if not self.captured:
            if self.input_shape is not None and self.model in {one.name for one in MODELS}:
                raise UsageError(
                    f"{self.model} defines its own input", hint="leave --input-shape out"
                )
            return build_model(self.model, samples, self.classes, self.optimizer), {}
        last = layout == "channels_last"
        with waiting(f"PyTorch to capture {self.model}"):  # It may have to be imported first.
            if self.module is not None:
                found = capture_module(
                    self.module,
                    samples,
                    input_shape=self.input_shape,
                    optimizer=self.optimizer,
                    name=self.model,
                    train=self.train,
                    channels_last=last,
                )
            else:
                found = capture(
                    self.model,
                    samples,
                    input_shape=self.input_shape,
                    optimizer=self.optimizer,
                    seed=self.seed if seed is None else seed,
                    train=self.train,
                    channels_last=last,
                )
        return found.graph, dict(found.values)

    def users_own(self) -> WantedStep:
        """The step as PyTorch runs it, of a model that is the user's own.

        Raises:
            UsageError: As `plain`.
        """
        given = self.module
        if given is None:
            given = load_model(self.model, self.seed, self.batch)
        return wanted_step(self.model, given, self.batch, self.input_shape, self.train)

    def values(self, graph: StepGraph, seed: int) -> dict[str, NDArray[Any]]:
        """Returns the first values of this step's sources in some form, in their stored order.

        Parameters are drawn with the seed. A PyTorch module's parameters are its own; its seed is set to this seed
        before it is made.
        """
        own = self.plain(seed=seed)[1] if self.captured else {}
        stored = {name: graph.by_name[name].stored(array) for name, array in own.items()}
        return initial_values(graph, seed) | stored

    def parts(self) -> list[int]:
        """Returns the numbers of equal parts that the batch can be split into."""
        return [n for n in range(1, self.batch + 1) if self.batch % n == 0]

    @property
    def forms_at_most(self) -> int:
        """Most forms that `forms` can yield."""
        return len(self.parts()) * len(_SEGMENTS)

    def forms(self, layout: LayoutName) -> Iterator[tuple[StepForm, StepGraph]]:
        """Yields every form, the plain one first, with its step. Equal steps are yielded once.

        Raises:
            UsageError: The model cannot be built at the whole batch.
        """
        for parts in self.parts():
            try:
                yield from self.forms_of(parts, layout)
            except UsageError:
                if parts == 1:
                    raise  # Otherwise: too few samples per part for the model.

    def forms_of(
        self, parts: int, layout: LayoutName, segments: Sequence[int] = _SEGMENTS
    ) -> Iterator[tuple[StepForm, StepGraph]]:
        """Yields the forms with this number of parts, with their steps. Equal steps are yielded once.

        Raises:
            UsageError: The model cannot be built for such parts.
        """
        plain = self.plain(parts, layout=layout)[0]
        seen = set()
        for number in segments:
            form = StepForm(layout, parts, number)
            graph = formed(plain, form)
            key = tuple(node.outputs for node in graph.nodes)
            if key not in seen:
                seen.add(key)
                yield form, graph
