"""A step as numbers: the places of its tensors, and the kernel calls with their tensors, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.compiler.step.step_library import StepLibrary, symbol
from autotune.workloads import MemoryPlan, StepGraph, replaced_in_place
from autotune.workloads.operators import DType

Shape = tuple[int, ...]
Operand = tuple[int, Shape]
"""A tensor, and its shape as the kernel sees it."""
Operands = tuple[tuple[Operand, ...], tuple[Operand, ...], tuple[Operand, ...]]
"""Inputs, outputs and scratch operands."""


@dataclass(frozen=True)
class StepProgram:
    """Everything needed to run a step. Tensors are given by their index.

    Attributes:
        name: The step's name.
        libraries: Shared libraries with its kernels.
        symbols: Index in ``libraries`` of each kernel.
        arena_bytes: Size of the memory that contains all tensors.
        tensors: Offset in bytes, shape and element type of each.
        calls: Kernel, and its operands.
        variants: Other ways to make calls: number of the call, then as in ``calls``.
        copies: Source and target of the copies after the calls.
        values: Persistent tensors, which need a first value.
        feeds: Tensors that are given for each step.
        loss: The loss.
    """

    name: str
    libraries: tuple[Path, ...]
    symbols: Mapping[str, int]
    arena_bytes: int
    tensors: tuple[tuple[int, Shape, DType], ...]
    calls: tuple[tuple[str, Operands], ...]
    variants: tuple[tuple[int, str, Operands], ...]
    copies: tuple[tuple[int, int], ...]
    values: tuple[int, ...]
    feeds: tuple[int, ...]
    loss: int

    def to_json(self) -> dict[str, Any]:
        """Returns the form that the step worker reads."""
        return {
            "libraries": [str(path) for path in self.libraries],
            "symbols": self.symbols,
            "arena_bytes": self.arena_bytes,
            "tensors": self.tensors,
            "calls": [(name, [one for part in of for one in part]) for name, of in self.calls],
            "copies": self.copies,
            "feeds": self.feeds,
            "loss": self.loss,
        }


def step_program(graph: StepGraph, library: StepLibrary, plan: MemoryPlan) -> StepProgram:
    """Numbers a step's tensors: the graph's tensors in order, then each call's scratch."""
    index = {tensor.name: at for at, tensor in enumerate(graph.tensors)}
    tensors = [(plan.offsets[t.name], t.shape, t.dtype) for t in graph.tensors]
    calls, variants = [], []
    for at, node in enumerate(graph.nodes):
        kernel = node.kernel
        read, written = (
            tuple((index[name], spec.shape) for name, spec in zip(names, specs, strict=True))
            for names, specs in ((node.inputs, kernel.inputs), (node.outputs, kernel.outputs))
        )
        for schedule in range(library.schedules.get(kernel.name, 1)):
            called, scratch = symbol(kernel.name, schedule), []
            for number, spec in enumerate(library.scratch.get(called, ())):
                scratch.append((len(tensors), spec.shape))
                tensors.append((plan.scratch[at, number], spec.shape, spec.dtype))
            operands = (read, written, tuple(scratch))
            if schedule:
                variants.append((at, called, operands))
            else:
                calls.append((called, operands))
    in_place = replaced_in_place(graph)
    return StepProgram(
        name=graph.name,
        libraries=library.parts,
        symbols=library.symbols,
        arena_bytes=plan.arena_bytes,
        tensors=tuple(tensors),
        calls=tuple(calls),
        variants=tuple(variants),
        copies=tuple(
            (index[new], index[old]) for old, new in graph.updates.items() if new not in in_place
        ),
        values=tuple(
            index[t.name] for t in graph.tensors if t.kind in ("parameter", "state", "constant")
        ),
        feeds=tuple(index[t.name] for t in graph.tensors if t.kind in ("input", "label")),
        loss=index[graph.loss],
    )
