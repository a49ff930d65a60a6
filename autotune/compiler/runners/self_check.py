"""Program that tries TVM or OpenCL on a tiny kernel. `autotune doctor` runs it.

It is a separate program because TVM crashes if its packages do not match, and OpenCL drivers may crash.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

_SIZE = 16


def main(what: str) -> None:
    """Prints the findings as one line of JSON. Raises or crashes if something does not work.

    Args:
        what: `tvm` for `{version, cpu}`; `opencl` for a list of `{name, type, platform, driver}`
            after a kernel ran on the first device, or `{error, hint}`.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(_try_tvm() if what == "tvm" else _try_opencl()))


def _try_tvm() -> dict[str, str]:
    """Compiles, saves, loads, schedules and runs a kernel, which fails if the TVM packages do not match."""
    import tvm
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms

    from autotune.compiler.target import find, tvm_target

    module = _module()
    loaded = tvm.ir.load_json(tvm.ir.save_json(module))
    tvm.ir.assert_structural_equal(module, loaded)
    target = tvm_target(find("cpu"), None)
    schedule = Schedule(loaded)
    schedule.vectorize(schedule.get_loops(schedule.get_sblock("y"))[0])
    arguments = ms.arg_info.ArgInfo.from_prim_func(module["main"])
    workload = ms.database.Workload(module)
    record = ms.database.TuningRecord(schedule.trace, workload, [1.0], target, arguments)
    if not record.as_json() or not schedule.trace.as_json():
        raise RuntimeError("a tuning record is written as nothing")
    _run(schedule.mod, target, tvm.cpu())
    return {"version": tvm.__version__, "cpu": str(target.attrs.get("mcpu", ""))}


def _try_opencl() -> list[dict[str, str]] | dict[str, str]:
    """Lists the devices. Compiles and runs a kernel on the first one, which is used for tuning."""
    import tvm
    from tvm.s_tir import Schedule

    from autotune.compiler.native import opencl_sidecar
    from autotune.compiler.target import find, spaces, tvm_target
    from autotune.errors import AutotuneError

    try:
        devices = opencl_sidecar.devices()
    except AutotuneError as error:
        return {"error": error.message, "hint": error.hint}
    spec = find("opencl")
    schedule = Schedule(_module())
    schedule.bind(schedule.get_loops(schedule.get_sblock("y"))[0], "threadIdx.x")
    target = tvm_target(spec, spaces.load(spec.space_path()).limits)
    _run(schedule.mod, target, tvm.device("opencl", 0))
    return [
        {
            "name": device.name,
            "type": device.type,
            "platform": device.platform,
            "driver": device.driver_version,
        }
        for device in devices
    ]


def _module() -> Any:
    """Returns a module with `main`: y = 2 x + 1."""
    import tvm
    from tvm import te

    x = te.placeholder((_SIZE,), name="x")
    y = te.compute((_SIZE,), lambda i: x[i] * 2 + 1, name="y")
    return tvm.IRModule({"main": te.create_prim_func([x, y]).with_attr("global_symbol", "main")})


def _run(module: Any, target: Any, device: Any) -> None:
    import numpy as np
    import tvm

    given = np.arange(_SIZE, dtype="float32")
    result = tvm.runtime.empty((_SIZE,), "float32", device)
    tvm.compile(module, target)["main"](tvm.runtime.tensor(given, device), result)
    if not np.array_equal(result.numpy(), given * 2 + 1):
        raise RuntimeError("a compiled kernel computes wrong numbers")


if __name__ == "__main__":
    main(sys.argv[1])
