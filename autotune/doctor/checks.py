"""All checks in display order: required ones first."""

from __future__ import annotations

from autotune.doctor import machine, packages, runtime, toolchain
from autotune.doctor.check import Check


def run_checks() -> list[Check]:
    """Runs every check. This takes a few seconds, because TVM is tried out and OpenCL's drivers are queried."""
    linker = toolchain.linker()
    library = runtime.opencl_library()
    sidecar = runtime.opencl_sidecar()
    return [
        packages.python(),
        *packages.packages(),
        runtime.tvm(),
        toolchain.cxx_compiler(),
        linker,
        toolchain.cmake(),
        library,
        sidecar,
        runtime.opencl_devices(library, sidecar, linker),
        toolchain.arm_compiler(),
        toolchain.qemu(),
        toolchain.adb(),
        toolchain.android_ndk(),
        machine.torch(),
        machine.logs_folder(),
        machine.cache_folder(),
        machine.cores(),
    ]
