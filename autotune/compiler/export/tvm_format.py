"""The TVM export: one library per target and cluster, which TVM's runtime loads from Python, C++ or over RPC."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune.compiler.export import c_source
from autotune.compiler.export.checks import Check
from autotune.compiler.export.objects import Report, code_of, groups, module_of, target_of
from autotune.compiler.export.texts import template, write
from autotune.compiler.export.variants import Variant
from autotune.compiler.native import kernel_runner
from autotune.compiler.opencl_c import checked, improved_source
from autotune.compiler.runners import linker
from autotune.compiler.target import ARM_TRIPLE
from autotune.workloads.operators import TensorSpec

_RUNNER = "bin/autotune_kernel_runner"
_CPP = """
    cmake -S example -B ../check -DTVM_ROOT=... -DTVM_FFI_ROOT=... && cmake --build ../check && ../check/check
"""


def write_tvm(
    variants: Sequence[Variant], checks: Sequence[Check], name: str, out: Path, report: Report
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Writes one library per variant, and the examples, into `out`.

    Returns:
        Manifest fields for each variant; other manifest fields.

    Raises:
        ToolchainError: A linker or compiler is missing, or fails.
    """
    of_variant = {}
    (out / "lib").mkdir()
    for variant in variants:
        library = f"lib/{variant.name}.so"
        report(f"compiling {variant.name}", 0, len(variant.kernels))
        _write_library(variant, out / library)
        of_variant[variant.name] = {
            "library": library,
            "family": _family(variant),
            "tvm_target": str(target_of(variant, tuned=True)),
        }
    more: dict[str, Any] = {}
    if any(_family(variant) == "aarch64" for variant in variants):
        write(out / _RUNNER, "")
        shutil.copy2(kernel_runner.ensure("aarch64-linux-gnu"), out / _RUNNER)
        more["runner"] = _RUNNER
    native = [variant for variant in variants if _family(variant) == "cpu"]
    words = {
        **c_source.words(name),
        "TVM": version("apache-tvm"),
        "LIBRARIES": ", ".join(f"`lib/{variant.name}.so`" for variant in variants),
        "CPP": _CPP if native else "",
        "CHECKS": _cpp_checks(native, checks),
        "TOLERANCE": repr(checks[0].tolerance),
    }
    write(out / "README.md", template("tvm/README.md.txt", words))
    write(out / "example" / "example.py", template("tvm/example.py.txt", words))
    if native:
        write(out / "example" / "main.cc", template("tvm/main.cc.txt", words))
        write(out / "example" / "CMakeLists.txt", template("tvm/example_CMakeLists.txt", words))
    return of_variant, more


def _write_library(variant: Variant, library: Path) -> None:
    import tvm

    # Each kernel is compiled with the options that it was measured with.
    parts = []
    for target, kernels in groups(variant, len(variant.kernels)):
        module = module_of(kernels, target, str)
        with improved_source(module), checked(variant.space.limits), code_of(kernels):
            parts.append(tvm.compile(module, target))
    for part in parts[1:]:
        parts[0].mod.import_module(part.mod)
    parts[0].export_library(str(library), fcompile=linker(variant.target.triple, fast=False))


def _family(variant: Variant) -> str:
    """Returns where its library runs: on an OpenCL device, on this machine's processor, or on an aarch64 one."""
    if variant.target.family == "opencl":
        return "opencl"
    return "aarch64" if ARM_TRIPLE in variant.target.triple else "cpu"


def _cpp_checks(variants: Sequence[Variant], checks: Sequence[Check]) -> str:
    lines = []
    for variant in variants:
        has = {one.kernel.name for one in variant.kernels}
        for check in checks:
            if check.kernel.name not in has:
                continue
            kernel = check.kernel
            operands = [
                _cpp_operand(file, spec, is_output=False)
                for file, spec in zip(check.inputs, kernel.inputs, strict=True)
            ] + [
                _cpp_operand(file, spec, is_output=True)
                for file, spec in zip(check.expected, kernel.outputs, strict=True)
            ]
            lines.append(
                f'    {{"lib/{variant.name}.so", "{kernel.name}", {{{", ".join(operands)}}}}},'
            )
    return "\n".join(lines)


def _cpp_operand(file: str, spec: TensorSpec, *, is_output: bool) -> str:
    shape = ", ".join(map(str, spec.shape))
    integer = "true" if spec.dtype == "int32" else "false"
    return f'{{"{file}", {{{shape}}}, {integer}, {"true" if is_output else "false"}}}'
