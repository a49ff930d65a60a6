"""The OpenCL runtime that TVM's wheel lacks. It is built at first use, and loaded with every `import tvm`.

TVM's wheel generates OpenCL kernels, but cannot run them. `libautotune_opencl.so`, built from `rpc/opencl/`, adds
the missing parts. After `load()`, `tvm.device("opencl")`, `time_evaluator`, exported libraries and RPC work as with
a TVM that was built with OpenCL.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.compiler.native import native_build
from autotune.compiler.native.native_build import Log, NativePart, rpc_sources
from autotune.errors import ToolchainError

__all__ = [
    "PROGRAMS_VARIABLE",
    "OpenCLDevice",
    "autoload",
    "compile_programs",
    "devices",
    "ensure",
    "library_path",
    "load",
    "rpc_sources",
    "set_profiling",
]

_PART = NativePart(
    name="sidecar",
    target="autotune_opencl",
    artifact="libautotune_opencl.so",
    sources=("CMakeLists.txt", "common", "opencl", "opencl_loader"),
    definitions=(("AUTOTUNE_KERNEL_RUNNER", "OFF"), ("AUTOTUNE_SERVER", "OFF")),
)
_CREATE_MODULE = "ffi.Module.create.opencl"
_LIST_DEVICES = "autotune.opencl.devices"
_SET_PROFILING = "autotune.opencl.set_profiling"
_COMPILE = "autotune.opencl.compile"
PROGRAMS_VARIABLE = "AUTOTUNE_OPENCL_PROGRAMS"
"""Environment variable: folder of compiled programs, kept by source, device and driver. If empty, none is kept."""
_RUNTIME_PACKAGES = "sudo apt install ocl-icd-libopencl1 pocl-opencl-icd"

# Kept for the lifetime of the process, because TVM holds pointers into the library.
_library: ctypes.CDLL | None = None


@dataclass(frozen=True)
class OpenCLDevice:
    """An OpenCL device as its driver describes it.

    Attributes:
        index: The number in `tvm.device("opencl", index)`. GPUs come first, CPUs last.
        type: "gpu", "accelerator", "cpu" or "custom".
        local_mem_type: "local" for dedicated memory. "global" if local memory is ordinary memory, as on Mali and on
            CPUs; then staging data in it gains nothing.
        image2d_max: Largest width and height of an image; zeros without image support.
        image_buffer_max: Most texels of an image over a buffer; 0 without image support.
        fp16: Whether kernels may compute in half precision.
        sub_group_size: Work-items that run in lockstep; 0 if the driver does not say.
        unified_memory: Whether the device shares its memory with the host.
    """

    index: int
    platform: str
    name: str
    vendor: str
    device_version: str
    driver_version: str
    type: str
    compute_units: int
    max_clock_mhz: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    local_mem_bytes: int
    local_mem_type: str
    global_mem_bytes: int
    max_alloc_bytes: int
    max_constant_bytes: int
    preferred_float_vector_width: int
    native_float_vector_width: int
    image_support: bool
    image2d_max: tuple[int, int]
    image_buffer_max: int
    fp16: bool
    sub_group_size: int
    unified_memory: bool
    mem_base_addr_align_bits: int
    extensions: tuple[str, ...]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> OpenCLDevice:
        """Builds the device from one entry of the sidecar's list."""
        width, height = fields["image2d_max"]
        return cls(
            **{
                **fields,
                "max_work_item_sizes": tuple(fields["max_work_item_sizes"]),
                "image2d_max": (width, height),
                "extensions": tuple(fields["extensions"].split()),
            }
        )


def library_path() -> Path:
    """Returns the path of the library for the installed TVM and present sources, even if it is not built yet."""
    return native_build.artifact_path(_PART)


def autoload() -> None:
    """Loads the library at the end of `import tvm`, if it has been built.

    TVM calls this through the entry-point group `tvm.backends`. It must not disturb processes that do not use
    OpenCL, so it never compiles, never opens a device and never raises.
    """
    with suppress(Exception):
        if not _is_registered(_CREATE_MODULE):
            load()


def ensure(log: Log | None = None) -> Path:
    """Builds the library if needed, and loads it if TVM is already imported.

    Args:
        log: Receives one line before each slow step.

    Returns:
        The path of the library.

    Raises:
        ToolchainError: A tool or a header for the build is missing; the hint names its package.
    """
    path = native_build.ensure_built(_PART, log)
    load()
    return path


def load() -> bool:
    """Loads the built library into this process, once. TVM must already be imported.

    Returns:
        Whether the library's functions are available. False if TVM is not imported, or the library is not built;
        see `ensure`.
    """
    global _library
    if "tvm" not in sys.modules:
        return False
    if _is_registered(_LIST_DEVICES):
        return True
    path = library_path()
    if not path.is_file():
        return False
    # In a TVM that was built with OpenCL, the library only adds its own functions.
    _library = ctypes.CDLL(str(path))
    return True


def devices() -> list[OpenCLDevice]:
    """Lists the OpenCL devices of this machine. Imports TVM, and builds the library if needed.

    Raises:
        ToolchainError: The library cannot be built, or this machine has no OpenCL or no device. The hint names the
            packages to install.
    """
    import tvm  # noqa: F401  (loads the libraries that the sidecar needs)

    ensure()
    found = json.loads(_function(_LIST_DEVICES)())
    if not found["devices"]:
        raise ToolchainError(found["reason"], hint=_RUNTIME_PACKAGES)
    return [OpenCLDevice.from_json(fields) for fields in found["devices"]]


def set_profiling(enabled: bool) -> None:
    """Chooses what `time_evaluator` reports for OpenCL devices in this process.

    Args:
        enabled: False (the initial state): host time from launch to completion. True: the sum of the kernels' own
            times on the device, without the gaps between them.

    Raises:
        ToolchainError: The library is not loaded.
    """
    _function(_SET_PROFILING)(enabled)


def compile_programs(source: str) -> None:
    """Compiles the kernels of an OpenCL source written by TVM for this machine's first device.

    They are kept in the folder named by `AUTOTUNE_OPENCL_PROGRAMS`, or in the user's own cache. Processes that
    launch them find them there.

    Raises:
        ToolchainError: The library is not loaded.
        RuntimeError: The driver cannot compile them; the text has its build log.
    """
    _function(_COMPILE)(source)


def _is_registered(name: str) -> bool:
    import tvm_ffi

    return tvm_ffi.get_global_func(name, allow_missing=True) is not None


def _function(name: str) -> Any:
    import tvm_ffi

    function = tvm_ffi.get_global_func(name, allow_missing=True)
    if function is None:
        raise ToolchainError(
            "the OpenCL runtime is not loaded",
            hint="import tvm, then call autotune.compiler.native.opencl_sidecar.ensure()",
        )
    return function
