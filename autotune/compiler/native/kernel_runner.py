"""The program that runs one tuned CPU kernel without TVM, on this machine or for 64-bit ARM.

A kernel library that TVM exported for an LLVM target calls a few functions of TVM's runtime. This program, built
from `rpc/kernel_runner/`, has its own versions of them. It takes raw files and prints JSON. So it can be sent to a
board with a kernel, or run under emulation.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Literal, get_args

from autotune.compiler.native import native_build
from autotune.compiler.native.native_build import Log, NativePart
from autotune.errors import UsageError

__all__ = ["Triple", "command", "ensure", "program_path"]

Triple = Literal["host", "aarch64-linux-gnu"]

_AARCH64_MACHINES = ("aarch64", "arm64")
# Debian's folder of the ARM loader and C library, which the emulated program is linked against.
_AARCH64_ROOT = "/usr/aarch64-linux-gnu"


def program_path(triple: Triple) -> Path:
    """Returns the path of the program for this triple, even if it is not built yet."""
    return native_build.artifact_path(_part(triple))


def ensure(triple: Triple, log: Log | None = None) -> Path:
    """Builds the program unless the cache has it.

    Args:
        triple: "host" for this machine, "aarch64-linux-gnu" for 64-bit ARM with glibc.
        log: Receives one line before each slow step.

    Returns:
        The path of the program.

    Raises:
        ToolchainError: A tool for the build is missing; the hint names its package.
        UsageError: The triple is unknown.
    """
    return native_build.ensure_built(_part(triple), log)


def command(triple: Triple) -> list[str]:
    """Builds the program if needed, and returns the words that start its command line.

    On a machine with another architecture, the ARM program runs in an emulator. Its results are correct, but its
    times mean nothing.

    Raises:
        ToolchainError: The program cannot be built, or the emulator is missing.
        UsageError: The triple is unknown.
    """
    program = str(ensure(triple))
    if triple == "host" or platform.machine() in _AARCH64_MACHINES:
        return [program]
    emulator = native_build.require_tool(
        ("qemu-aarch64-static", "qemu-aarch64"),
        "qemu-user-static",
        "kernels for aarch64 run here only under emulation",
    )
    return [emulator, "-L", _AARCH64_ROOT, program]


def _part(triple: Triple) -> NativePart:
    if triple not in get_args(Triple):
        raise UsageError(
            f"there is no kernel runner for '{triple}'",
            hint=f"one of {', '.join(get_args(Triple))}",
        )
    # On an ARM machine, the native compiler builds the program for ARM.
    cross = triple == "aarch64-linux-gnu" and platform.machine() not in _AARCH64_MACHINES
    return NativePart(
        name="kernel_runner",
        target="autotune_kernel_runner",
        artifact="kernel_runner/autotune_kernel_runner",
        sources=("CMakeLists.txt", "cmake", "common", "cpu_runtime", "kernel_runner"),
        definitions=(
            ("AUTOTUNE_OPENCL", "OFF"),
            ("AUTOTUNE_SERVER", "OFF"),
            ("AUTOTUNE_STEP_RUNNER", "OFF"),
        ),
        toolchain="cmake/aarch64-linux-gnu.cmake" if cross else "",
        compilers=("aarch64-linux-gnu-g++",) if cross else ("c++", "g++", "clang++"),
        compiler_package="g++-aarch64-linux-gnu" if cross else "g++",
        variant=triple,
    )
