"""The first schedule of kernels that memory limits, on a real OpenCL: right for any shape, with many work-items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from test_streaming import KERNELS

from autotune.compiler.native import opencl_sidecar
from autotune.compiler.programs import Unscheduled, plain_module
from autotune.compiler.rules import streamed_on_gpu
from autotune.compiler.target.spaces import Limits
from autotune.compiler.target.targets import find, tvm_target
from autotune.workloads import max_relative_error, parse_kernel, random_inputs, reference

LIMITS = Limits(compute_units=4)


def schedule(spec: str) -> Any:
    plain = Unscheduled(plain_module(parse_kernel(spec, "forward"))).schedule()
    return streamed_on_gpu(plain, LIMITS)


@pytest.mark.parametrize("name", KERNELS)
def test_results_are_those_of_the_reference(name: str) -> None:
    spec = KERNELS[name]
    kernel = parse_kernel(spec, "forward")
    inputs = random_inputs(kernel, 1)
    library = tvm.compile(schedule(spec).mod, tvm_target(find("opencl"), LIMITS))
    opencl_sidecar.ensure()
    device = tvm.device("opencl", 0)
    results = [
        tvm.runtime.tensor(np.full(one.shape, 77, one.dtype), device=device)
        for one in kernel.outputs
    ]
    library["main"](*(tvm.runtime.tensor(one, device=device) for one in inputs), *results)
    for found, one in zip(results, reference(kernel, inputs), strict=True):
        assert max_relative_error(found.numpy(), one) < 1e-4


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one loop", 'T.thread_binding(128, thread="threadIdx.x")'),
        # Columns: neighbouring results, and parts of the 3000 rows.
        ("a sum of columns", "_rf"),
        # Rows: 128 work-items of a group add up.
        ("a sum of everything", 'T.thread_binding(128, thread="threadIdx.x")'),
    ],
)
def test_work_is_shared_among_work_items(name: str, text: str) -> None:
    assert text in str(schedule(KERNELS[name]).mod)


def test_a_second_result_is_of_the_same_work_item() -> None:
    assert str(schedule(KERNELS["two results"]).mod).count('thread="blockIdx.x"') == 1
