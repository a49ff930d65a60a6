"""Single convolutions and matmuls in PyTorch, in each of their roles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytorch import torch

from autotune.workloads import Conv2d, Kernel, Matmul


def torch_call(
    kernel: Kernel, operands: Sequence[torch.Tensor], *, last: bool = False
) -> Callable[[], torch.Tensor]:
    """Computes a kernel without its epilogue.

    Args:
        kernel: A convolution, in the order NCHW, or a matmul.
        operands: Its two operands, on any device and of any type.
        last: Convolutions: keep images and filters with their channels last.
    """
    (a, b), op, role = operands, kernel.operator, kernel.role
    if isinstance(op, Matmul):
        return {
            "forward": lambda: a @ b.t(),
            "data_grad": lambda: a @ b,
            "weight_grad": lambda: b.t() @ a,
        }[role]
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
