"""What TVM compiles on a GPU when nobody has tuned anything, and what exports fall back to, on a real OpenCL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.native import opencl_sidecar
from autotune.compiler.programs.untuned import default_schedule, plain_gpu_schedule
from autotune.compiler.target.spaces import Limits
from autotune.compiler.target.targets import find, tvm_target
from autotune.workloads import (
    Conv2d,
    Kernel,
    Role,
    max_relative_error,
    parse_operator,
    random_inputs,
    reference,
)

THREADS = 64
TARGET = tvm_target(find("opencl"), Limits())


def _plain(module: Any) -> Any:
    return plain_gpu_schedule(module, THREADS)


def _default(module: Any) -> Any:
    return default_schedule(module, TARGET)


@pytest.mark.parametrize("schedule", [_plain, _default])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "spec",
    [
        "conv2d:n=2,c=3,h=16,w=16,k=8,r=3,s=3,stride=2,pad=1",
        "conv2d:n=2,c=4,h=8,w=8,k=4,r=3,s=3,stride=2,pad=1,groups=4",
        "conv2d:n=2,c=3,h=16,w=16,k=8,r=7,s=7,stride=2,pad=3",
        "conv2d:n=2,c=4,h=18,w=18,k=8,r=3,s=3,stride=3,pad=1",
        "conv2d:n=2,c=3,h=16,w=16,k=8,r=5,s=5,stride=4,pad=1",
        "conv2d:n=2,c=3,h=35,w=35,k=8,r=11,s=11,stride=4,pad=2",
    ],
)
def test_strided_data_gradients_are_right_untuned(
    spec: str, *, channels_last: bool, schedule: Callable[[Any], Any]
) -> None:
    """Where work-items are numbered along power-of-two images, sums of remainders were simplified wrongly."""
    operator = parse_operator(spec)
    assert isinstance(operator, Conv2d)
    kernel = Kernel(replace(operator, channels_last=channels_last), "data_grad")
    (direct,) = (one for one in formulations(kernel) if one.name == "direct")
    built = tvm.compile(schedule(tvm.IRModule({"main": prim_func(kernel, direct)})), TARGET)
    opencl_sidecar.ensure()
    device = tvm.device("opencl", 0)
    inputs = random_inputs(kernel, 1)
    (expected,) = reference(kernel, inputs)
    result = tvm.runtime.tensor(np.full(expected.shape, np.nan, "float32"), device=device)
    built["main"](*(tvm.runtime.tensor(one, device=device) for one in inputs), result)
    assert max_relative_error(result.numpy(), expected) < 1e-5


@pytest.mark.parametrize("schedule", [_plain, _default])
@pytest.mark.parametrize("role", ["forward", "data_grad", "weight_grad"])
@pytest.mark.parametrize(
    "spec",
    [
        "attention:b=2,t=32,s=32,h=4,g=2,d=8,causal=1",
        "attention:b=1,t=7,s=9,h=2,g=2,d=3,mask=1x2",
    ],
)
def test_attention_is_right_untuned(spec: str, role: Role, schedule: Callable[[Any], Any]) -> None:
    kernel = Kernel(parse_operator(spec), role)
    (direct,) = (one for one in formulations(kernel) if one.name == "direct")
    built = tvm.compile(schedule(tvm.IRModule({"main": prim_func(kernel, direct)})), TARGET)
    opencl_sidecar.ensure()
    device = tvm.device("opencl", 0)
    inputs = random_inputs(kernel, 1)
    wanted = reference(kernel, inputs)
    found = [
        tvm.runtime.tensor(np.full(one.shape, np.nan, "float32"), device=device) for one in wanted
    ]
    built["main"](*(tvm.runtime.tensor(one, device=device) for one in inputs), *found)
    for result, expected in zip(found, wanted, strict=True):
        assert max_relative_error(result.numpy(), expected) < 1e-5
