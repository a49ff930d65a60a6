"""Program: finds the OpenCL library, or lists its devices and tries the first one out.

Drivers crash, so it is a program of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys

LIBRARY_VARIABLE = "AUTOTUNE_OPENCL_LIBRARY"
_SIZE = 16
_LIBRARIES = ("libOpenCL.so.1", "libOpenCL.so")


def main(what: str) -> None:
    """Prints JSON.

    Args:
        what: `library`, for the name of the library that can be loaded, or null; `devices`, for a
            list of `{name, type, platform, driver}` after a kernel ran on the first one, or
            `{error, hint}`.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(_library() if what == "library" else _devices()))


def _library() -> str | None:
    chosen = os.environ.get(LIBRARY_VARIABLE)
    for name in _LIBRARIES if chosen is None else (chosen,):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


def _devices() -> object:
    from autotune.compiler import opencl_sidecar
    from autotune.errors import AutotuneError

    try:
        devices = opencl_sidecar.devices()
    except AutotuneError as error:
        return {"error": error.message, "hint": error.hint}
    _try_out()
    return [
        {
            "name": device.name,
            "type": device.type,
            "platform": device.platform,
            "driver": device.driver_version,
        }
        for device in devices
    ]


def _try_out() -> None:
    """Compiles and runs a tiny kernel on the device that is tuned on."""
    import numpy as np
    import tvm
    from tvm import te
    from tvm.s_tir import Schedule

    from autotune.compiler import spaces
    from autotune.compiler.targets import find, tvm_target

    spec = find("opencl")
    x = te.placeholder((_SIZE,), name="x")
    y = te.compute((_SIZE,), lambda i: x[i] * 2 + 1, name="y")
    kernel = te.create_prim_func([x, y]).with_attr("global_symbol", "main")
    schedule = Schedule(tvm.IRModule({"main": kernel}))
    schedule.bind(schedule.get_loops(schedule.get_sblock("y"))[0], "threadIdx.x")
    library = tvm.compile(schedule.mod, tvm_target(spec, spaces.load(spec.space_path()).limits))
    device = tvm.device("opencl", 0)
    given = np.arange(_SIZE, dtype="float32")
    result = tvm.runtime.empty((_SIZE,), "float32", device)
    library["main"](tvm.runtime.tensor(given, device), result)
    if not np.array_equal(result.numpy(), given * 2 + 1):
        raise RuntimeError("the first device computes wrong numbers")


if __name__ == "__main__":
    main(sys.argv[1])
