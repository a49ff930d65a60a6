"""Single convolutions and matmuls in PyTorch, in each of their roles."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.nn.functional as F

from autotune.measurement import median
from autotune.workloads import Conv2d, Matmul


def torch_kernel_ms(operator: Conv2d | Matmul, role: str) -> float:
    """Median milliseconds of PyTorch's kernel, in the layout that is faster; bias and update are not in it."""
    if isinstance(operator, Matmul):
        return _in_layout(operator, role, last=False)
    return min(_in_layout(operator, role, last=last) for last in (False, True))


def _in_layout(operator: Conv2d | Matmul, role: str, *, last: bool) -> float:
    if isinstance(operator, Matmul):
        x, w = torch.rand(operator.m, operator.k), torch.rand(operator.n, operator.k)
        dy = torch.rand(operator.m, operator.n)
        call = {
            "forward": lambda: F.linear(x, w),
            "data_grad": lambda: dy @ w,
            "weight_grad": lambda: dy.t() @ x,
        }[role]
    else:
        order = torch.channels_last if last else torch.contiguous_format
        x = torch.rand(operator.n, operator.c, operator.h, operator.w).to(memory_format=order)
        w = torch.rand(operator.k, operator.c // operator.groups, operator.r, operator.s)
        w = w.to(memory_format=order)
        rest = (list(operator.stride), list(operator.pad), list(operator.dilation))
        dy = F.conv2d(x, w, None, *rest, operator.groups)
        mask = {"data_grad": [True, False, False], "weight_grad": [False, True, False]}.get(role)

        def call() -> Any:
            if mask is None:
                return F.conv2d(x, w, None, *rest, operator.groups)
            return torch.ops.aten.convolution_backward(
                dy, x, w, [0], *rest, False, [0, 0], operator.groups, mask
            )

    with torch.no_grad():
        seconds = []
        for number in range(9):
            start = time.perf_counter()
            call()
            if number > 1:
                seconds.append(time.perf_counter() - start)
    return 1e3 * median(seconds)
