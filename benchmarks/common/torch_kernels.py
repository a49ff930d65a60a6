"""Single convolutions and matmuls in PyTorch, in each of their roles."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from autotune.workloads import Conv2d, Kernel, Matmul
from autotune.workloads.operators import Bmm
from common.pytorch import torch

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # <malloc.h>
_DEFAULT_TRIM, _DEFAULT_MMAPS = 128 * 1024, 65536


@contextmanager
def kept_memory() -> Iterator[None]:
    """Lets the process keep the memory of results on the processor, as a framework that reuses it does.

    PyTorch's convolutions allocate a new tensor in each call. By default the C library returns large ones to the
    system each time. Their page faults would be timed as PyTorch's own, while our side writes into memory that it
    already has.
    """
    c_library = ctypes.CDLL(None)
    c_library.mallopt(_M_MMAP_MAX, 0)
    c_library.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        c_library.mallopt(_M_MMAP_MAX, _DEFAULT_MMAPS)
        c_library.mallopt(_M_TRIM_THRESHOLD, _DEFAULT_TRIM)


def torch_call(
    kernel: Kernel, operands: Sequence[torch.Tensor], *, last: bool = False
) -> Callable[[], torch.Tensor]:
    """Returns a function that computes a kernel without its epilogue; products are written to existing memory.

    Args:
        kernel: A convolution in the order NCHW, a matmul or a batched one.
        operands: Its two operands, on any device and of any type.
        last: For convolutions, whether images and filters have their channels last.
    """
    (a, b), op, role = operands, kernel.operator, kernel.role
    if isinstance(op, Matmul | Bmm):
        first, second = {"forward": (a, b.mT), "data_grad": (a, b), "weight_grad": (b.mT, a)}[role]
        out = first @ second
        return lambda: torch.matmul(first, second, out=out)
    assert isinstance(op, Conv2d)
    order = torch.channels_last if last else torch.contiguous_format
    a, b = a.contiguous(memory_format=order), b.contiguous(memory_format=order)
    rest = (list(op.stride), list(op.pad), list(op.dilation))
    if role == "forward":
        return lambda: torch.conv2d(a, b, None, *rest, op.groups)
    images, filters = (op.n, op.c, op.h, op.w), (op.k, op.c // op.groups, op.r, op.s)
    missing = torch.zeros(
        images if role == "data_grad" else filters, dtype=a.dtype, device=a.device
    ).contiguous(memory_format=order)
    dy, x, weight = (a, missing, b) if role == "data_grad" else (b, a, missing)
    index = 0 if role == "data_grad" else 1

    def gradient() -> torch.Tensor:
        found: Sequence[torch.Tensor] = torch.ops.aten.convolution_backward(
            dy, x, weight, [0], *rest, False, [0, 0], op.groups, [index == 0, index == 1, False]
        )
        return found[index]

    return gradient
