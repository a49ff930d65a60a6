"""A kernel that takes a given time, for benchmarks of what surrounds kernels."""

from __future__ import annotations

from typing import Any


def sleeping_kernel(milliseconds: int) -> Any:
    """Returns a module whose `main` sleeps for the given time and then computes `matmul:m=6,n=10,k=16`."""
    import tvm
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]  # TVM ships no annotations
    def main(
        x: T.Buffer((6, 16), "float32"),  # type: ignore[valid-type]  # TVMScript
        w: T.Buffer((10, 16), "float32"),  # type: ignore[valid-type]  # TVMScript
        y: T.Buffer((6, 10), "float32"),  # type: ignore[valid-type]  # TVMScript
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        T.evaluate(T.call_extern("int32", "usleep", milliseconds * 1000))
        for i, j in T.grid(6, 10):
            y[i, j] = T.float32(0)
            for k in range(16):
                y[i, j] = y[i, j] + x[i, k] * w[j, k]

    return tvm.IRModule({"main": main})
