"""A worker that trains in PyTorch, in eager mode, as a PyTorch user would, and times its steps.

Requests:

- `{"op": "load", "step", "threads"}`: fields of a `TrainingStep`, and threads that PyTorch may use. Runs one step.
- `{"op": "run", "steps"}`: returns the seconds of each step, from batch in to loss out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from autotune.compiler.workers import Message, serve
from autotune.workloads import TrainingStep, generated_feeds


class _Loaded:
    """A step in PyTorch, with its data."""

    def __init__(self, wanted: TrainingStep, threads: int) -> None:
        from autotune.workloads.capture import ModuleStep, TorchStep, torch

        torch.set_num_threads(threads)
        graph, _ = wanted.plain()
        self._step: Callable[[Mapping[str, Any]], float]
        if wanted.captured:
            self._step = ModuleStep(wanted.users_own(), wanted.optimizer).step
        else:
            built = TorchStep(graph, wanted.values(graph, wanted.seed))
            self._step = lambda given: built.step(given["input"], given["labels"], given)
        self._given = generated_feeds(graph, wanted.seed)

    def run(self, steps: int) -> list[float]:
        """Runs some steps, and returns the seconds of each."""
        seconds = []
        for _ in range(steps):
            given = next(self._given)
            start = time.perf_counter()
            self._step(given)
            seconds.append(time.perf_counter() - start)
        return seconds


def _handler() -> Any:
    loaded: list[_Loaded] = []

    def handle(request: Message) -> Message:
        if request["op"] == "load":
            wanted = TrainingStep.from_json(request["step"])
            loaded[:] = [_Loaded(wanted, request["threads"])]
            loaded[0].run(1)
            return {}
        return {"seconds": loaded[0].run(request["steps"])}

    return handle


if __name__ == "__main__":
    serve(sys.argv[1:], _handler())
