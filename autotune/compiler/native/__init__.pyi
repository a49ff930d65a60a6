from . import device_server, kernel_runner, native_build, observe_program, opencl_sidecar
from .device_server import PROGRAM
from .disk_space import check_disks, check_room, no_space
from .native_build import Log, NativePart, package_folder, rpc_sources
from .opencl_sidecar import PROGRAMS_VARIABLE, OpenCLDevice, library_path
from .platforms import Platform, for_platform, named_platform, platform_of

__all__ = [
    "check_disks",
    "check_room",
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
