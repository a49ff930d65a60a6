"""C++ programs of `rpc/`, built on the user's machine: the OpenCL runtime, the device server, runners and observers.

Builds are cached by TVM's version and by the source. No other room calls a C++ compiler for them."""

from autotune.compiler.native import (
    device_server,
    kernel_runner,
    native_build,
    observe_program,
    opencl_sidecar,
)
from autotune.compiler.native.device_server import PROGRAM
from autotune.compiler.native.disk_space import check_disks, no_space
from autotune.compiler.native.native_build import Log, NativePart, package_folder, rpc_sources
from autotune.compiler.native.opencl_sidecar import PROGRAMS_VARIABLE, OpenCLDevice, library_path
from autotune.compiler.native.platforms import Platform, for_platform, named_platform, platform_of

__all__ = [
    "check_disks",
    "device_server",
    "for_platform",
    "kernel_runner",
    "library_path",
    "Log",
    "named_platform",
    "native_build",
    "NativePart",
    "no_space",
    "observe_program",
    "opencl_sidecar",
    "OpenCLDevice",
    "package_folder",
    "Platform",
    "platform_of",
    "PROGRAM",
    "PROGRAMS_VARIABLE",
    "rpc_sources",
]
