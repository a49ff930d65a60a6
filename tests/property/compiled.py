"""Compiles every formulation of a kernel without a schedule, and compares with the float64 reference."""

import zlib
from typing import Any

import numpy as np
import tvm

from autotune.compiler.formulations import formulations, prim_func
from autotune.workloads import Kernel, max_relative_error, random_inputs, reference


def check_kernel(kernel: Kernel) -> None:
    inputs = random_inputs(kernel, zlib.crc32(kernel.name.encode()))
    expected = reference(kernel, inputs)
    for formulation in formulations(kernel):
        outputs = _run(prim_func(kernel, formulation), inputs, expected)
        for output, wanted in zip(outputs, expected, strict=True):
            error = max_relative_error(output, wanted)
            assert error < 1e-4, f"{kernel.name} {formulation.name}: {error}"


def _run(function: Any, inputs: list[Any], expected: list[Any]) -> list[Any]:
    module = tvm.compile(tvm.IRModule({"main": function}), {"kind": "llvm", "opt-level": 1})
    arguments = [tvm.runtime.tensor(array) for array in inputs]
    results = [
        tvm.runtime.tensor(
            np.full(array.shape, np.nan, np.float32)
            if array.dtype.kind == "f"
            else np.full(array.shape, -7, np.int32)
        )
        for array in expected
    ]
    module["main"](*arguments, *results)
    return [result.numpy() for result in results]
