"""Runs training steps with a run's tuned kernels: plans, compiles, loads and executes them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.native import check_disks
from autotune.compiler.step.scratch_operands import Workspace, held_bytes
from autotune.compiler.step.step_library import StepLibrary
from autotune.compiler.step.step_program import step_program
from autotune.compiler.target import kernel_threads, runtime_environment
from autotune.compiler.workers import Message, Worker, WorkerLost
from autotune.errors import AutotuneError
from autotune.scratch import Scratch
from autotune.workloads import MemoryPlan, StepGraph, plan_memory

_TIMEOUT_S = 3600.0
# Stacks and small buffers: 2 to 24 kB were observed.
_RUNTIME_BYTES = 32 * 1024
Arrays = Mapping[str, NDArray[Any]]


def predicted_bytes(plan: MemoryPlan, calls: Sequence[Workspace]) -> int:
    """Returns the peak memory of a step on this machine: its arena, and the runtime's memory for its kernels."""
    return plan.arena_bytes + held_bytes(calls, kernel_threads()) + _RUNTIME_BYTES


@dataclass(frozen=True)
class StepTimes:
    """Results of some steps.

    Attributes:
        losses: Loss of each step.
        seconds: Wall time of each step: storing data and masks, all kernels, and reading the loss.
        peak_bytes: Growth of the process by the step's memory.
        high_water_bytes: The same by the Linux kernel's high-water mark; None if that cannot be reset.
    """

    losses: tuple[float, ...]
    seconds: tuple[float, ...]
    peak_bytes: int
    high_water_bytes: int | None = None


class StepSession:
    """A step loaded in a separate process, with its parameters.

    Args:
        graph: The step.
        library: Its compiled kernels.
        plan: Its memory plan.
        values: First value of each persistent tensor: parameters, states, constants.
        worker: The process.
        work: Folder for files that pass values.
    """

    def __init__(
        self,
        graph: StepGraph,
        library: StepLibrary,
        plan: MemoryPlan,
        values: Arrays,
        worker: Worker,
        work: Path,
    ) -> None:
        self._graph, self._worker, self._work = graph, worker, work
        self._index = {tensor.name: at for at, tensor in enumerate(graph.tensors)}
        self._program = step_program(graph, library, plan)
        self.plan = plan
        self.predicted_bytes = predicted_bytes(
            plan, [library.workspaces[node.kernel.name] for node in graph.nodes]
        )
        program = work / "program.json"
        program.write_text(json.dumps(self._program.to_json()), encoding="utf-8")
        self._ask({"op": "load", "program": str(program)})
        self._ask({"op": "start", "values": self._first_values(values)})

    def run(self, feeds: Sequence[Arrays]) -> StepTimes:
        """Runs one step for each of ``feeds``: data, labels and masks by tensor name.

        Raises:
            AutotuneError: A kernel failed.
        """
        folder = self._feed(feeds)
        answer = self._ask({"op": "run", "feeds": str(folder), "steps": len(feeds)})
        return StepTimes(
            tuple(answer["losses"]),
            tuple(answer["seconds"]),
            answer["bytes"],
            answer["high_water"],
        )

    def read(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Returns the present values of tensors, in the model's own shape and order.

        Only persistent tensors, and tensors that replace them, keep their values until the end of a step.
        """
        indices = [self._index[name] for name in names]
        self._ask({"op": "read", "tensors": indices, "folder": str(self._work)})
        return {
            name: self._graph.by_name[name].restored(
                np.load(self._work / f"{index}.npy", allow_pickle=False)
            )
            for name, index in zip(names, indices, strict=True)
        }

    def _ask(self, message: Message) -> Message:
        try:
            answer = self._worker.ask(message, timeout=_TIMEOUT_S)
        except WorkerLost as lost:
            if not lost.timed_out:
                check_disks(str(lost))
            raise AutotuneError(
                f"the step of {self._graph.name} was lost: {lost}",
                hint="a smaller --batch or a --memory-limit may help where memory ran out",
            ) from lost
        if "error" in answer:
            check_disks(str(answer["error"]))
            raise AutotuneError(f"the step of {self._graph.name} failed: {answer['error']}")
        return answer

    def _feed(self, feeds: Sequence[Arrays]) -> Path:
        folder = self._work / "feeds"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for index in self._program.feeds:
            tensor = self._graph.tensors[index]
            with (folder / f"{index}.bin").open("wb") as file:
                for feed in feeds:
                    file.write(feed[tensor.name].astype(tensor.dtype).tobytes())
        return folder

    def _first_values(self, values: Arrays) -> list[Any]:
        """Writes the first values of persistent tensors; returns index and file of each."""
        written = []
        for index in self._program.values:
            tensor = self._graph.tensors[index]
            path = self._work / f"value{index}.bin"
            values[tensor.name].astype(tensor.dtype).tofile(path)
            written.append([index, str(path)])
        return written


@contextmanager
def open_step(graph: StepGraph, library: StepLibrary, values: Arrays) -> Iterator[StepSession]:
    """Loads a step into a separate process.

    Args:
        graph: The step.
        library: Its compiled kernels.
        values: First value of each persistent tensor, in the stored shape and order.

    Raises:
        AutotuneError: The step cannot be loaded.
    """
    made = Scratch("run")
    worker = Worker("autotune.compiler.step.step_worker", [], runtime_environment())
    try:
        plan = plan_memory(graph, library.scratch_bytes())
        yield StepSession(graph, library, plan, values, worker, made.path)
    finally:
        worker.stop()
        made.close()
