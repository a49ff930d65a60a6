"""The program that runs a command on a device and samples files meanwhile: `rpc/observe/`, built for the device.

It is static and asks the kernel only, so one build for 64-bit ARM should run under any C library; Android's was not
tried.
"""

from __future__ import annotations

import platform
from pathlib import Path

from autotune.compiler import native_build
from autotune.compiler.native_build import Log, NativePart
from autotune.errors import ToolchainError

__all__ = ["ensure"]

_ARM = ("aarch64", "arm64", "arm64-v8a")


def ensure(abi: str, log: Log | None = None) -> Path:
    """Builds the program unless the cache has it.

    Args:
        abi: The device's, as `DeviceInfo.abi` has it.
        log: Is told, in one line each, what takes time.

    Returns:
        The path of the program.

    Raises:
        ToolchainError: A tool for the build is missing, or there is no such program for the device.
    """
    here = platform.machine()
    cross = abi in _ARM and here not in _ARM
    if not cross and abi != here and not (abi in _ARM and here in _ARM):
        raise ToolchainError(
            f"nothing can be observed on {abi}", hint="64-bit ARM and this machine's kind can be"
        )
    part = NativePart(
        name="observe",
        target="autotune_observe",
        artifact="observe/autotune_observe",
        sources=("CMakeLists.txt", "cmake", "common", "observe"),
        definitions=(
            ("AUTOTUNE_OPENCL", "OFF"),
            ("AUTOTUNE_SERVER", "OFF"),
            ("AUTOTUNE_KERNEL_RUNNER", "OFF"),
        ),
        toolchain="cmake/aarch64-linux-gnu.cmake" if cross else "",
        compilers=("aarch64-linux-gnu-g++",) if cross else ("c++", "g++", "clang++"),
        compiler_package="g++-aarch64-linux-gnu" if cross else "g++",
        variant="aarch64-linux-gnu" if cross else "host",
    )
    return native_build.ensure_built(part, log)
