"""A worker that trains in PyTorch, in eager mode, as a PyTorch user would, and times its steps.

Requests:

- `{"op": "load", "step", "threads"}`: fields of a `TrainingStep`, and threads that PyTorch may use. Runs one step.
- `{"op": "run", "steps"}`: returns the seconds of each step, from batch in to loss out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from autotune.compiler.workers import Message, serve
from autotune.workloads import (
    Optimizer,
    TrainingStep,
    batches,
    generated_samples,
    given_values,
)

if TYPE_CHECKING:
    from autotune.workloads.capture import EagerStep

_Given = tuple[Any, Any, dict[str, Any]]


class _Loaded:
    """A step in PyTorch, with its data."""

    def __init__(self, wanted: TrainingStep, threads: int) -> None:
        from autotune.workloads.capture import ModuleStep, TorchStep, load_module, torch

        torch.set_num_threads(threads)
        graph, _ = wanted.plain()
        self._step: EagerStep
        if wanted.captured:
            self._step = ModuleStep(load_module(wanted.model, wanted.seed), wanted.optimizer)
        else:
            self._step = TorchStep(graph, wanted.values(graph, wanted.seed))
        count = max(64, 2 * graph.batch)
        samples = generated_samples(count, graph.sample_shape, graph.classes, wanted.seed)

        def given() -> Iterator[_Given]:
            for number, (images, labels) in enumerate(batches(samples, graph.batch, wanted.seed)):
                yield images, labels, given_values(graph, images, labels, wanted.seed, number)

        self._given = given()

    def run(self, steps: int) -> list[float]:
        """Runs some steps, and returns the seconds of each."""
        seconds = []
        for _ in range(steps):
            images, labels, masks = next(self._given)
            start = time.perf_counter()
            self._step.step(images, labels, masks)
            seconds.append(time.perf_counter() - start)
        return seconds


def _handler() -> Any:
    loaded: list[_Loaded] = []

    def handle(request: Message) -> Message:
        if request["op"] == "load":
            step = dict(request["step"])
            shape = step.pop("input_shape")
            step["optimizer"] = Optimizer.parse(step["optimizer"])
            wanted = TrainingStep(**step, input_shape=tuple(shape) if shape else None)
            loaded[:] = [_Loaded(wanted, request["threads"])]
            loaded[0].run(1)
            return {}
        return {"seconds": loaded[0].run(request["steps"])}

    return handle


if __name__ == "__main__":
    serve(sys.argv[1:], _handler())
