"""Exports a finished run: one library with all its kernels, a manifest, and an example that checks one."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from autotune import __version__
from autotune.compiler import kernel_runner
from autotune.compiler.build_worker import linker
from autotune.compiler.reference_data import TOLERANCE
from autotune.compiler.request import TuneRequest
from autotune.compiler.scheduled import winners
from autotune.compiler.targets import ARM_TRIPLE, tvm_target
from autotune.errors import RecordError, UsageError
from autotune.records import Result, TaskResult, read_run
from autotune.records.folder import Run, write_json
from autotune.workloads.operators import Kernel
from autotune.workloads.references import random_inputs, reference

MANIFEST_SCHEMA_VERSION = 1
_LIBRARY, _MANIFEST, _DATA, _EXAMPLE = (
    "kernels.so",
    "manifest.json",
    "example_data.npz",
    "example.py",
)
_RUNNER = "autotune_kernel_runner"
_TEMPLATES = Path(__file__).parent / "export_templates"


def export_run(path: Path, out: Path, *, allow_stand_in: bool) -> dict[str, Any]:
    """Writes a run's kernels as a library that TVM's runtime loads.

    Args:
        path: Folder of a finished kernel run.
        out: Folder to write to; made if it is missing.
        allow_stand_in: Export although the times were taken on a stand-in for the target's device.

    Returns:
        The manifest, as written to `manifest.json`.

    Raises:
        UsageError: There is no such run, it has not ended, it was measured on a stand-in and
            that is not allowed, or `out` cannot be written.
        RecordError: The run's records are damaged.
        ToolchainError: The target's compiler is missing.
    """
    run = read_run(path)
    if run.result is None:
        raise UsageError(
            f"run {path} has not ended", hint=f"go on with: autotune kernels --resume {path}"
        )
    request = TuneRequest.from_json(run.about.get("request", {}))
    try:
        result = Result.from_json(run.result)
    except (KeyError, TypeError) as error:
        raise RecordError(f"{path / 'result.json'} is damaged: {error}") from error
    if result.stand_in and not allow_stand_in:
        raise UsageError(
            f"run {path} was measured on {result.device['name']}, a stand-in for {result.target}: "
            "its choices are not the real device's",
            hint="measure on the device, or export it as it is with --allow-stand-in",
        )
    _make(out)
    target = tvm_target(request.target, request.space.limits, request.space.compile)
    _build(run, request, target, out / _LIBRARY)
    example = _write_example(request, result, out)
    manifest = _manifest(run, request, result, target, out, example)
    write_json(out / _MANIFEST, manifest)
    return manifest


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"cannot write to {out}: {error.strerror}", hint="give a writable folder with --out"
        ) from error


def _build(run: Run, request: TuneRequest, target: Any, library: Path) -> None:
    import tvm

    plain_target = tvm_target(request.target, request.space.limits)
    kernels = {task.kernel.name: task.kernel for task in request.tasks}
    tuned: dict[str, Any] = {}
    untuned: dict[str, Any] = {}
    for name, winner in winners(run).items():
        kernel = kernels.get(name)
        if kernel is None:
            raise RecordError(f"{run.path / 'result.json'}: unknown kernel {name}")
        functions, options = (tuned, target) if winner.tuned else (untuned, plain_target)
        program = winner.program(kernel, options)
        functions[name] = program["main"].with_attr("global_symbol", name)
    # Each kernel is compiled with the options that it was measured with.
    parts = [
        tvm.compile(tvm.IRModule(functions), options)
        for functions, options in ((tuned, target), (untuned, plain_target))
        if functions
    ]
    if not parts:
        raise UsageError(f"run {run.path} has no kernel with a valid time to export")
    for part in parts[1:]:
        parts[0].mod.import_module(part.mod)
    parts[0].export_library(str(library), fcompile=linker(request.target.triple, fast=False))


def _write_example(request: TuneRequest, result: Result, out: Path) -> Kernel:
    """Writes `example.py` and its data for the cheapest compute kernel; returns that kernel."""
    valid = {task.name for task in result.tasks if task.tuned_ms is not None}
    kernels = [task.kernel for task in request.tasks if task.kernel.name in valid]
    compute = [kernel for kernel in kernels if kernel.is_compute]
    kernel = min(compute or kernels, key=lambda k: (k.flops, k.name))
    inputs = random_inputs(kernel, request.seed)
    arrays = {f"input{i}": array for i, array in enumerate(inputs)}
    arrays |= {f"expected{i}": array for i, array in enumerate(reference(kernel, inputs))}
    np.savez(out / _DATA, allow_pickle=False, **arrays)
    cross = _crosses(request)
    if cross:
        shutil.copy2(kernel_runner.ensure("aarch64-linux-gnu"), out / _RUNNER)
    template = _TEMPLATES / ("runner.py.txt" if cross else "tvm.py.txt")
    device = "opencl" if request.target.family == "opencl" else "cpu"
    text = (
        template.read_text(encoding="utf-8")
        .replace("@KERNEL@", kernel.name)
        .replace("@SPEC@", f"{kernel.spec}, {kernel.role}")
        .replace("@DEVICE@", device)
        .replace("@TOLERANCE@", repr(TOLERANCE))
    )
    (out / _EXAMPLE).write_text(text, encoding="utf-8")
    return kernel


def _crosses(request: TuneRequest) -> bool:
    """Whether the library is for aarch64, which a bundled program can run without TVM."""
    return ARM_TRIPLE in request.target.triple


def _manifest(
    run: Run, request: TuneRequest, result: Result, target: Any, out: Path, example: Kernel
) -> dict[str, Any]:
    kernels = {task.kernel.name: task.kernel for task in request.tasks}
    return {
        "schema_version": MANIFEST_SCHEMA_VERSION,
        "target": result.target,
        "tvm_target": str(target),
        "run": run.path.name,
        "device": result.device,
        "stand_in": result.stand_in,
        "versions": {
            "autotune": __version__,
            **{name: version(name) for name in ("apache-tvm", "apache-tvm-ffi")},
        },
        "files": {
            name: hashlib.sha256((out / name).read_bytes()).hexdigest()
            for name in (_LIBRARY, _DATA, _EXAMPLE, *((_RUNNER,) if _crosses(request) else ()))
        },
        "library": _LIBRARY,
        "example": example.name,
        "kernels": [
            _kernel_entry(kernels[task.name], task)
            for task in result.tasks
            if task.tuned_ms is not None
        ],
    }


def _layout(kernel: Kernel) -> str:
    last = getattr(kernel.operator, "channels_last", None)
    if last is None:
        return "no channels: elements in the order in which the step stores them"
    return "channels last (NHWC), filters RSCK" if last else "channels second (NCHW), filters KCRS"


def _kernel_entry(kernel: Kernel, task: TaskResult) -> dict[str, Any]:
    return {
        "symbol": kernel.name,
        "operator": task.operator,
        "role": task.role,
        "spec": task.spec,
        "layout": f"contiguous, {_layout(kernel)}",
        "arguments": [
            {**asdict(spec), "shape": list(spec.shape), "direction": direction}
            for direction, specs in (("in", kernel.inputs), ("out", kernel.outputs))
            for spec in specs
        ],
        "formulation": task.formulation,
        "schedule": task.digest,
        "count": task.count,
        "default_ms": task.default_ms,
        "tuned_ms": task.tuned_ms,
        "speedup_interval": list(task.ci) if task.ci else None,
        "max_rel_error": task.max_rel_error,
    }
