"""The OpenCL export: sources, a launch table, and a single-header loader for other engines."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autotune.compiler.export import c_source
from autotune.compiler.export.checks import Check
from autotune.compiler.export.launches import Argument, Launch, opencl_program
from autotune.compiler.export.objects import Report, module_of, target_of
from autotune.compiler.export.texts import template, write
from autotune.compiler.export.variants import (
    SAFE,
    ExportedKernel,
    Variant,
    kernels_of,
    with_safe_variant,
)
from autotune.compiler.native import rpc_sources
from autotune.compiler.opencl_c import HINT, BeyondLimitsError
from autotune.compiler.target import Limits, TargetSpec
from autotune.errors import UsageError
from autotune.records import write_json
from autotune.workloads.operators import Kernel

LAUNCH_TABLE_SCHEMA_VERSION = 1
TABLE = "launch_table.json"
LOADER = "autotune_opencl.hpp"
_LONGEST = 160  # Longest file name; names of fused kernels can exceed file systems' limits.


def check_variants(variants: Sequence[Variant]) -> None:
    """Refuses variants that are not for OpenCL.

    Raises:
        UsageError: A variant is not.
    """
    foreign = next((one for one in variants if one.target.family != "opencl"), None)
    if foreign is not None:
        raise UsageError(
            f"{foreign.source or foreign.name} is tuned for {foreign.target.name}, which is not an OpenCL target",
            hint="export it with --format c, or with --format tvm",
        )


def write_opencl(
    variants: Sequence[Variant], checks: Sequence[Check], name: str, out: Path, report: Report
) -> tuple[tuple[Variant, ...], dict[str, dict[str, Any]], dict[str, Any]]:
    """Writes sources, launch table, loader and example below `out`.

    Returns:
        The variants including the safe one; manifest fields for each variant; other manifest fields.

    Raises:
        AutotuneError: A launch table cannot express a kernel.
    """
    safe = TargetSpec(
        SAFE, "opencl", "", "any OpenCL device", variants[0].target.triple, (("kind", "opencl"),)
    )
    every = with_safe_variant(variants, safe)
    of_variant = write_launch_table(every, name, out, report)
    (out / "include").mkdir()
    shutil.copyfile(rpc_sources() / "opencl_loader" / LOADER, out / "include" / LOADER)
    _write_texts(name, checks, kernels_of(every)[0], out)
    return every, of_variant, opencl_parts()


def opencl_parts() -> dict[str, Any]:
    """Returns the manifest fields that the format adds."""
    return {"launch_table": TABLE, "header": f"include/{LOADER}"}


def write_launch_table(
    variants: Sequence[Variant], name: str, out: Path, report: Report
) -> dict[str, dict[str, Any]]:
    """Writes the variants' sources, and the launch table, into `out`.

    Returns:
        Manifest fields for each variant.

    Raises:
        AutotuneError: A launch table cannot express a kernel.
    """
    (out / "kernels").mkdir()
    entries, of_variant = [], {}
    for variant in variants:
        recipes: dict[str, Any] = {}
        for number, one in enumerate(variant.kernels):
            recipes[one.kernel.name] = _recipe(variant, one, out)
            report(f"compiling {variant.name}", number + 1, len(variant.kernels))
        entries.append(
            {
                "name": variant.name,
                "match": {
                    "gpu": variant.gpu,
                    "driver": variant.driver,
                    "soc": variant.soc,
                    "cluster": variant.cluster,
                },
                "kernels": recipes,
            }
        )
        of_variant[variant.name] = {
            "tvm_target": str(target_of(variant, tuned=True)),
            "limits": _most(recipes),
        }
    write_json(
        out / TABLE,
        {
            "schema_version": LAUNCH_TABLE_SCHEMA_VERSION,
            "name": name,
            "safe_variant": SAFE,
            "kernels": [_kernel(kernel) for kernel in kernels_of(variants)],
            "variants": entries,
        },
    )
    return of_variant


def _write_texts(name: str, checks: Sequence[Check], kernel: Kernel, out: Path) -> None:
    words = {
        **c_source.words(name),
        "SAFE": SAFE,
        "KERNEL": kernel.name,
        "OPERANDS": ", ".join(s.name for s in (*kernel.inputs, *kernel.outputs)),
        **example(checks),
    }
    cmake = out / "lib" / "cmake" / name
    write(cmake / f"{name}Config.cmake", template("opencl/config.cmake.txt", words))
    write(cmake / f"{name}ConfigVersion.cmake", template("c/version.cmake.txt", words))
    write(out / "example" / "main.cc", template("opencl/main.cc.txt", words))
    write(out / "example" / "CMakeLists.txt", template("opencl/example_CMakeLists.txt", words))
    write(out / "README.md", template("opencl/README.md.txt", words))
    write(
        out / "android" / "AndroidManifest.xml", template("android/AndroidManifest.xml.txt", words)
    )


def example(checks: Sequence[Check]) -> dict[str, str]:
    """Returns words for the example's template: the checked kernels, and their files."""
    return {
        "TOLERANCE": repr(checks[0].tolerance),
        "CHECKS": "\n".join(
            f'    {{"{check.kernel.name}", {{{", ".join(_quoted(check.inputs + check.expected))}}}}},'
            for check in checks
        ),
    }


def _quoted(files: Sequence[str]) -> list[str]:
    return [f'"{file}"' for file in files]


def _recipe(variant: Variant, one: ExportedKernel, out: Path) -> dict[str, Any]:
    target = target_of(variant, tuned=one.tuned)
    program = opencl_program(one.kernel.name, module_of([one], target, str), target)
    operand_bytes = max(spec.bytes for spec in (*one.kernel.inputs, *one.kernel.outputs))
    beyond = program.beyond(variant.space.limits or Limits(), operand_bytes)
    if beyond:
        raise BeyondLimitsError(
            f"{one.kernel.name} of {variant.source or variant.name} needs {beyond}", hint=HINT
        )
    digest = hashlib.sha256(program.source.encode()).hexdigest()
    # Named by its content, so that equal sources of several variants are stored once.
    source = f"kernels/{one.kernel.name[:_LONGEST]}.{digest[:12]}.cl"
    write(out / source, program.source)
    return {
        "source": source,
        "sha256": digest,
        # As measured: the runtime used for tuning gives no options either.
        "build_options": "",
        "limits": {
            "work_group_size": program.work_group_size,
            "work_item_sizes": list(program.work_item_sizes),
            "local_memory_bytes": program.local_memory_bytes,
            "buffer_bytes": max((operand_bytes, *program.temporaries)),
            "extensions": list(program.extensions),
        },
        "temporaries": [{"bytes": count} for count in program.temporaries],
        "launches": [_launch(launch) for launch in program.launches],
    }


def _launch(launch: Launch) -> dict[str, Any]:
    return {
        "function": launch.function,
        "global": list(launch.work),
        "local": list(launch.group),
        "dynamic_local_bytes": launch.dynamic_local_bytes,
        "arguments": [_argument(one) for one in launch.arguments],
    }


def _argument(one: Argument) -> dict[str, Any]:
    if one.kind not in ("operand", "temporary"):
        return {"scalar": one.kind, "value": one.value}
    if one.image is None:
        return {one.kind: one.value}
    return {one.kind: one.value, "image": asdict(one.image)}


def _most(recipes: dict[str, Any]) -> dict[str, int]:
    """Returns the limits that a device needs for all kernels of a variant."""
    return {
        key: max(recipe["limits"][key] for recipe in recipes.values())
        for key in ("work_group_size", "local_memory_bytes", "buffer_bytes")
    }


def _kernel(kernel: Kernel) -> dict[str, Any]:
    operands = [(s, False) for s in kernel.inputs] + [(s, True) for s in kernel.outputs]
    return {
        "name": kernel.name,
        "role": kernel.role,
        "spec": kernel.spec,
        "operands": [
            {
                "name": s.name,
                "dtype": s.dtype,
                "shape": list(s.shape),
                "bytes": s.bytes,
                "output": output,
            }
            for s, output in operands
        ],
    }
