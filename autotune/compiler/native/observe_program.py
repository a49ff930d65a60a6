"""The program that runs a command on a device and samples files meanwhile: `rpc/observe/`, built for the device.

It is static and needs only the Linux kernel, so one build for 64-bit ARM should run with any C library. Android was
not tested.
"""

from __future__ import annotations

from pathlib import Path

from autotune.compiler.native import native_build
from autotune.compiler.native.native_build import Log, NativePart
from autotune.compiler.native.platforms import for_platform, platform_of

__all__ = ["ensure"]

_PART = NativePart(
    name="observe",
    target="autotune_observe",
    artifact="observe/autotune_observe",
    sources=("CMakeLists.txt", "cmake", "common", "observe"),
    definitions=(
        ("AUTOTUNE_OPENCL", "OFF"),
        ("AUTOTUNE_SERVER", "OFF"),
        ("AUTOTUNE_KERNEL_RUNNER", "OFF"),
        ("AUTOTUNE_STEP_RUNNER", "OFF"),
    ),
)


def ensure(abi: str, log: Log | None = None) -> Path:
    """Builds the program unless the cache has it.

    Args:
        abi: The device's ABI, as in `DeviceInfo.abi`.
        log: Receives one line before each slow step.

    Returns:
        The path of the program.

    Raises:
        ToolchainError: A build tool is missing, or the program cannot be built for the device.
    """
    return native_build.ensure_built(for_platform(_PART, platform_of(abi, android=False)), log)
