"""A step as files that `autotune_step_runner` runs on a device without TVM (format: `rpc/step_runner/plan.h`)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.compiler import native_build
from autotune.compiler.native_build import Log, NativePart
from autotune.compiler.platforms import for_platform, platform_of
from autotune.compiler.step_library import StepLibrary
from autotune.compiler.step_program import Shape, StepProgram, step_program
from autotune.workloads.graph import StepGraph
from autotune.workloads.memory import plan_memory

PROGRAM = "autotune_step_runner"
PLAN, VALUES, FEEDS = "step.plan", "values.bin", "feeds.bin"
_TYPES = {"float32": "f32", "int32": "i32"}
_PART = NativePart(
    name="step_runner",
    target=PROGRAM,
    artifact=f"step_runner/{PROGRAM}",
    sources=("CMakeLists.txt", "cmake", "common", "cpu_runtime", "step_runner"),
    definitions=(
        ("AUTOTUNE_OPENCL", "OFF"),
        ("AUTOTUNE_SERVER", "OFF"),
        ("AUTOTUNE_KERNEL_RUNNER", "OFF"),
    ),
)


def runner(abi: str, *, android: bool, log: Log | None = None) -> Path:
    """Builds the program for a device unless the cache has it.

    Raises:
        ToolchainError: A tool for the build is missing, or there is no such program for the device.
    """
    return native_build.ensure_built(for_platform(_PART, platform_of(abi, android=android)), log)


def write_bundle(
    folder: Path,
    graph: StepGraph,
    library: StepLibrary,
    values: Mapping[str, NDArray[Any]],
    feeds: Sequence[Mapping[str, NDArray[Any]]],
) -> list[Path]:
    """Writes a step's files.

    Args:
        folder: Where to; it must exist.
        graph: The step.
        library: Its kernels, compiled for the device.
        values: First value of each lasting tensor, in the stored shape and order.
        feeds: Data, labels and masks of some steps by tensor name; after the last the first comes again.

    Returns:
        The files.
    """
    program = step_program(graph, library, plan_memory(graph, library.scratch_bytes()))
    for number, path in enumerate(program.libraries):
        shutil.copy(path, folder / _part(number))
    with (folder / VALUES).open("wb") as file:
        for index in program.values:
            tensor = graph.tensors[index]
            file.write(values[tensor.name].astype(tensor.dtype).tobytes())
    with (folder / FEEDS).open("wb") as file:
        for feed in feeds:
            for index in program.feeds:
                tensor = graph.tensors[index]
                file.write(feed[tensor.name].astype(tensor.dtype).tobytes())
    (folder / PLAN).write_text(plan_text(program), encoding="utf-8")
    return sorted(folder.iterdir())


def plan_text(program: StepProgram) -> str:
    """The plan of a step, a line a thing."""
    kernels = {symbol: number for number, symbol in enumerate(program.symbols)}
    lines = [f"step {program.name.replace(' ', '_')}", f"arena {program.arena_bytes}"]
    lines += [f"library {_part(number)}" for number in range(len(program.libraries))]
    lines += [
        f"tensor {offset} {_TYPES[dtype]} {_shape(shape)}"
        for offset, shape, dtype in program.tensors
    ]
    lines += [f"kernel {symbol} {part}" for symbol, part in program.symbols.items()]
    lines += [f"value {index}" for index in program.values]
    lines += [f"feed {index}" for index in program.feeds]
    lines += [f"call {kernels[symbol]} {_operands(of)}" for symbol, of in program.calls]
    lines += [
        f"variant {at} {kernels[symbol]} {_operands(of)}" for at, symbol, of in program.variants
    ]
    lines += [f"copy {source} {target}" for source, target in program.copies]
    lines.append(f"loss {program.loss}")
    return "\n".join(lines) + "\n"


def _operands(operands: Sequence[tuple[int, Shape]]) -> str:
    return " ".join(f"{index}:{_shape(shape)}" for index, shape in operands)


def _part(number: int) -> str:
    return f"part{number}.so"


def _shape(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "-"
