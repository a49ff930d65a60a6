"""Writes a step as files that `autotune_step_runner` runs without TVM (format: `rpc/step_runner/plan.h`)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.compiler.export import Report
from autotune.compiler.native import Log, NativePart, for_platform, native_build, platform_of
from autotune.compiler.step.gpu_side import VARIANT, GpuSide
from autotune.compiler.step.step_library import StepLibrary
from autotune.compiler.step.step_program import Operands, Shape, StepProgram, step_program
from autotune.workloads import ALIGNMENT, GPU_ALIGNMENT, StepGraph, plan_memory

PROGRAM = "autotune_step_runner"
PLAN, VALUES, FEEDS, GPU_FOLDER = "step.plan", "values.bin", "feeds.bin", "gpu"
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
_GPU_PART = replace(
    _PART,
    name="step_runner_opencl",
    sources=(*_PART.sources, "opencl_loader"),
    definitions=(*_PART.definitions, ("AUTOTUNE_STEP_RUNNER_OPENCL", "ON")),
)


def runner(abi: str, *, android: bool, gpu: bool = False, log: Log | None = None) -> Path:
    """Builds the program for a device unless the cache has it.

    Args:
        abi: The device's ABI.
        android: Whether it is an Android device.
        gpu: Whether a GPU is to run parts of steps.
        log: Receives one line before each slow step.

    Raises:
        ToolchainError: A build tool is missing, or the program cannot be built for the device.
    """
    part = _GPU_PART if gpu else _PART
    return native_build.ensure_built(for_platform(part, platform_of(abi, android=android)), log)


def write_bundle(
    folder: Path,
    graph: StepGraph,
    library: StepLibrary,
    values: Mapping[str, NDArray[Any]],
    feeds: Sequence[Mapping[str, NDArray[Any]]],
    gpu: GpuSide | None = None,
    report: Report = lambda phase, done, total: None,
) -> list[Path]:
    """Writes a step's files.

    Args:
        folder: Folder to write to; it must exist.
        graph: The step.
        library: Its kernels, compiled for the device.
        values: First value of each persistent tensor, in the stored shape and order.
        feeds: Data, labels and masks of some steps, by tensor name. After the last, the first is used again.
        gpu: The part of the step that a GPU can run; None leaves everything to the CPU.
        report: Receives the progress of compiling the GPU's kernels.

    Returns:
        The files.
    """
    alignment = GPU_ALIGNMENT if gpu else ALIGNMENT
    memory = plan_memory(graph, library.scratch_bytes(), alignment)
    program = step_program(graph, library, memory)
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
    text = plan_text(program)
    if gpu is not None:
        (folder / GPU_FOLDER).mkdir()
        gpu.write(folder / GPU_FOLDER, report)
        text += _gpu_text(graph, gpu)
    (folder / PLAN).write_text(text, encoding="utf-8")
    return sorted(path for path in folder.rglob("*") if path.is_file())


def plan_text(program: StepProgram) -> str:
    """Returns the plan of a step on the CPU, with one item per line."""
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
    lines += [f"call {kernels[symbol]} {_parts(of)}" for symbol, of in program.calls]
    lines += [f"variant {at} {kernels[symbol]} {_parts(of)}" for at, symbol, of in program.variants]
    lines += [f"copy {source} {target}" for source, target in program.copies]
    lines.append(f"loss {program.loss}")
    return "\n".join(lines) + "\n"


def _gpu_text(graph: StepGraph, gpu: GpuSide) -> str:
    index = {tensor.name: at for at, tensor in enumerate(graph.tensors)}
    lines = [f"gpu {GPU_FOLDER} {VARIANT}"]
    lines += [
        f"order {index[name]} {_shape(order.shape)} {','.join(map(str, order.axes))}"
        for name, order in gpu.orders.items()
    ]
    lines += [f"offload {call} {one.kernel.name}" for call, one in gpu.kernels.items()]
    return "\n".join(lines) + "\n"


def _parts(operands: Operands) -> str:
    return " > ".join(
        " ".join(f"{index}:{_shape(shape)}" for index, shape in part) for part in operands
    ).strip()


def _part(number: int) -> str:
    return f"part{number}.so"


def _shape(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "-"
