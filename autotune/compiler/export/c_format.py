"""The C export: a header with one function per kernel, a shared and a static library, and build-system files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from platform import machine
from typing import Any

from autotune.compiler.export import c_source
from autotune.compiler.export.checks import Check
from autotune.compiler.export.cpu_features import cpu_features
from autotune.compiler.export.objects import Report, compile_objects, target_of
from autotune.compiler.export.texts import template, write
from autotune.compiler.export.variants import SAFE, Variant, kernels_of, with_safe_variant
from autotune.compiler.native import NativePart, Platform, for_platform, native_build
from autotune.compiler.target import ARM_TRIPLE, TargetSpec
from autotune.errors import UsageError
from autotune.scratch import Scratch
from autotune.workloads.operators import Kernel

ALIGNMENT = 64
"""Alignment in bytes that TVM's code requires of tensors (`kAlignment` in `rpc/kernel_library`)."""

_TRIPLES: dict[Platform, str] = {
    "host": "",
    "linux-aarch64": ARM_TRIPLE,
    "android-arm64": "aarch64-linux-android",
}
_PART = NativePart(
    name="kernel_library",
    target="kernel_library",
    artifact="",
    sources=("CMakeLists.txt", "cmake", "common", "cpu_runtime", "kernel_library"),
    definitions=(
        ("AUTOTUNE_OPENCL", "OFF"),
        ("AUTOTUNE_SERVER", "OFF"),
        ("AUTOTUNE_KERNEL_RUNNER", "OFF"),
        ("AUTOTUNE_STEP_RUNNER", "OFF"),
        ("AUTOTUNE_OBSERVE", "OFF"),
        ("AUTOTUNE_KERNEL_LIBRARY", "ON"),
        ("AUTOTUNE_WERROR", "ON"),
    ),
)


def platform_of(variants: Sequence[Variant], wanted: Platform | None) -> Platform:
    """Returns the platform that a C library of these variants is built for.

    Raises:
        UsageError: They are not kernels for one kind of processor, or not for the wanted platform.
    """
    foreign = next((one for one in variants if one.target.family != "cpu"), None)
    if foreign is not None:
        raise UsageError(
            f"{foreign.source or foreign.name} is tuned for {foreign.target.name}, and a C library holds kernels "
            "of a processor",
            hint="export it with --format opencl, or with --format tvm",
        )
    triples = {one.target.triple for one in variants}
    if len(triples) > 1:
        raise UsageError(
            "the runs are for different kinds of processors, and a C library is for one",
            hint="export each kind into its own folder",
        )
    arm = bool(triples.pop())
    usual: Platform = "linux-aarch64" if arm else "host"
    if wanted is not None and (wanted == "host") != (usual == "host"):
        raise UsageError(
            f"the run's kernels are for {'aarch64' if arm else 'this machine'}, not for {wanted}",
            hint="tune with --target arm-cpu for aarch64 Linux and Android, with --target cpu for this machine",
        )
    return wanted or usual


def write_c(
    variants: Sequence[Variant],
    checks: Sequence[Check],
    name: str,
    platform: Platform,
    out: Path,
    report: Report,
) -> tuple[tuple[Variant, ...], dict[str, dict[str, Any]], dict[str, Any]]:
    """Writes the libraries, header, package files and example below `out`.

    Returns:
        The variants including the safe one; manifest fields for each variant; other manifest fields.

    Raises:
        ToolchainError: The platform's compiler is missing, or fails.
    """
    part = for_platform(_PART, platform)  # First, since it raises if the compiler is missing.
    every = _for_platform(with_safe_variant(variants, _safe_target(platform)), platform)
    features = {one.name: _features(one) for one in every}
    with Scratch("export") as work:
        sources = work / "sources"
        (sources / "objects").mkdir(parents=True)
        for number, variant in enumerate(every):
            compile_objects(variant, c_source.prefix(number), sources / "objects", report)
        header = c_source.header(name, kernels_of(every), ALIGNMENT)
        write(sources / f"{name}.h", header)
        write(sources / f"{name}.cc", c_source.library(name, every, features))
        shown = c_source.symbols(name, kernels_of(every))
        write(sources / "symbols.txt", "".join(f"{symbol}\n" for symbol in shown))
        listed = " ".join(f"{symbol};" for symbol in shown)
        write(sources / "symbols.map", f"{{ global: {listed} local: *; }};\n")
        report(f"building lib{name}", 0, 1)
        native_build.build_in(
            replace(
                part,
                definitions=(
                    *part.definitions,
                    ("AUTOTUNE_KERNEL_LIBRARY_NAME", name),
                    ("AUTOTUNE_KERNEL_LIBRARY_SOURCES", str(sources)),
                ),
            ),
            work / "build",
        )
        (out / "lib").mkdir(parents=True)
        for library in (f"lib{name}.so", f"lib{name}.a"):
            shutil.copyfile(work / "build" / "kernel_library" / library, out / "lib" / library)
            (out / "lib" / library).chmod(0o755 if library.endswith(".so") else 0o644)
    write(out / "include" / f"{name}.h", header)
    _write_packages(name, platform, kernels_of(every)[0].name, out)
    words = {**c_source.words(name), **c_source.example(name, checks)}
    write(out / "example" / "main.c", template("c/main.c.txt", words))
    write(out / "example" / "CMakeLists.txt", template("c/example_CMakeLists.txt", words))
    of_variant = {one: {"cpu_features": list(found)} for one, found in features.items()}
    return every, of_variant, c_parts(name, kernels_of(every))


def c_parts(name: str, kernels: Sequence[Kernel]) -> dict[str, Any]:
    """Returns the manifest fields that the format adds."""
    return {
        "header": f"include/{name}.h",
        "libraries": {"shared": f"lib/lib{name}.so", "static": f"lib/lib{name}.a"},
        "functions": {kernel.name: f"{name}_{kernel.name}" for kernel in kernels},
        "alignment_bytes": ALIGNMENT,
    }


def _write_packages(name: str, platform: Platform, kernel: str, out: Path) -> None:
    android = platform == "android-arm64"
    runtime = ("c++_static", "c++abi", "m") if android else ("stdc++", "m", "pthread", "dl")
    words = {
        **c_source.words(name),
        "STATIC_LIBRARIES": " ".join(runtime),
        "STATIC_FLAGS": " ".join(f"-l{library}" for library in runtime),
        "PLATFORM": platform,
        "SAFE": SAFE,
        "KERNEL": kernel,
    }
    cmake = out / "lib" / "cmake" / name
    write(cmake / f"{name}Config.cmake", template("c/config.cmake.txt", words))
    write(cmake / f"{name}ConfigVersion.cmake", template("c/version.cmake.txt", words))
    write(out / "lib" / "pkgconfig" / f"{name}.pc", template("c/package.pc.txt", words))
    write(out / "README.md", template("c/README.md.txt", words))


def _safe_target(platform: Platform) -> TargetSpec:
    """Returns a target with the features that all processors of the platform's architecture have."""
    triple = _TRIPLES[platform] or f"{machine()}-linux-gnu"
    return TargetSpec(
        SAFE,
        "cpu",
        "",
        "any processor of the architecture",
        triple=triple,
        tvm=(("kind", "llvm"), ("mtriple", triple)),
    )


def _for_platform(variants: Sequence[Variant], platform: Platform) -> tuple[Variant, ...]:
    """Returns the variants with the platform's own triple: objects for Android differ from those for Linux."""
    triple = _TRIPLES[platform]
    if platform != "android-arm64":
        return tuple(variants)
    return tuple(
        replace(
            one,
            target=replace(
                one.target,
                triple=triple,
                tvm=tuple((k, triple if k == "mtriple" else v) for k, v in one.target.tvm),
            ),
        )
        for one in variants
    )


def _features(variant: Variant) -> tuple[str, ...]:
    """Returns the processor features that a variant's code may use beyond the baseline (none for the safe one)."""
    return () if variant.is_safe else cpu_features(target_of(variant, tuned=True))
