"""Program: compiles, saves, loads, schedules and runs a tiny kernel with TVM.

It touches what a wrong pair of versions breaks. That shows as a crash, hence a program of its own.
"""

from __future__ import annotations

import json
import resource

_SIZE = 64


def main() -> None:
    """Raises or crashes where TVM does not work; else prints its version and target as JSON."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import numpy as np
    import tvm
    from tvm import te
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms

    from autotune.compiler.targets import find, tvm_target

    x = te.placeholder((_SIZE,), name="x")
    y = te.compute((_SIZE,), lambda i: x[i] * 2 + 1, name="y")
    kernel = te.create_prim_func([x, y]).with_attr("global_symbol", "main")
    module = tvm.IRModule({"main": kernel})
    loaded = tvm.ir.load_json(tvm.ir.save_json(module))
    tvm.ir.assert_structural_equal(module, loaded)

    target = tvm_target(find("cpu"), None)
    schedule = Schedule(loaded)
    schedule.vectorize(schedule.get_loops(schedule.get_sblock("y"))[0])
    record = ms.database.TuningRecord(
        schedule.trace,
        ms.database.Workload(module),
        [1.0],
        target,
        ms.arg_info.ArgInfo.from_prim_func(kernel),
    )
    if not record.as_json() or not schedule.trace.as_json():
        raise RuntimeError("a tuning record is written as nothing")

    library = tvm.compile(schedule.mod, target=target)
    given = np.arange(_SIZE, dtype="float32")
    result = tvm.runtime.empty((_SIZE,), "float32")
    library["main"](tvm.runtime.tensor(given), result)
    if not np.array_equal(result.numpy(), given * 2 + 1):
        raise RuntimeError("a compiled kernel computes wrong numbers")
    print(json.dumps({"version": tvm.__version__, "cpu": str(target.attrs.get("mcpu", ""))}))


if __name__ == "__main__":
    main()
