"""Compiles every formulation of a kernel without a schedule, and compares with the float64 reference."""

import zlib
from typing import Any

import numpy as np
import tvm

from autotune.compiler.formulations import formulations, prim_func
from autotune.workloads import Kernel, max_relative_error, random_inputs, reference

_WINOGRAD = 4e-6
"""Largest error of Winograd's formulations, of the largest element: a tile's transforms add and subtract all of its
elements, so that small ones have the rounding of large ones (Lavin and Gray, "Fast Algorithms for Convolutional
Neural Networks", CVPR 2016). A search judges them by each element, as any other, and refuses what is off."""


def check_kernel(kernel: Kernel) -> None:
    inputs = random_inputs(kernel, zlib.crc32(kernel.name.encode()))
    expected = reference(kernel, inputs)
    for formulation in formulations(kernel):
        outputs = _run(prim_func(kernel, formulation), inputs, expected)
        for output, wanted in zip(outputs, expected, strict=True):
            if formulation.name.startswith("winograd"):
                error, most = _of_largest(output, wanted), _WINOGRAD
            else:
                error, most = max_relative_error(output, wanted), 1e-4
            assert error < most, f"{kernel.name} {formulation.name}: {error}"


def _of_largest(output: Any, wanted: Any) -> float:
    return float(np.abs(output.reshape(wanted.shape) - wanted).max() / np.abs(wanted).max())


def _run(function: Any, inputs: list[Any], expected: list[Any]) -> list[Any]:
    module = tvm.compile(tvm.IRModule({"main": function}), {"kind": "llvm", "opt-level": 0})
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
