"""``conv1d``, transposed convolutions and padding by side are kernels of a convolution, with PyTorch's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.errors import UsageError
from autotune.workloads import parse_kernels, random_inputs, reference

torch = pytest.importorskip("torch")
F = torch.nn.functional


def result(text: str, role: str = "forward") -> tuple[list[Any], Any]:
    """Random inputs of the kernel that a text stands for, and the reference's result."""
    (kernel,) = parse_kernels(text, role)
    inputs = random_inputs(kernel, 1)
    (found,) = reference(kernel, inputs)
    return [torch.as_tensor(one, dtype=torch.float64) for one in inputs], found


def test_a_convolution_of_one_axis() -> None:
    (x, w), found = result("conv1d:n=2,c=6,l=17,k=8,r=5,stride=2,pad=3,dilation=2,groups=2")
    wanted = F.conv1d(x[:, :, 0], w[:, :, 0], stride=2, padding=3, dilation=2, groups=2)
    np.testing.assert_allclose(found[:, :, 0], wanted.numpy(), rtol=1e-12)


@pytest.mark.parametrize("output_pad", [0, 1])
def test_a_transposed_convolution(output_pad: int) -> None:
    text = f"conv2d_transpose:n=2,c=6,h=5,w=4,k=8,r=3,s=4,stride=2x3,pad=1,output_pad={output_pad}"
    (x, w), found = result(text)
    wanted = F.conv_transpose2d(x, w, stride=(2, 3), padding=1, output_padding=output_pad)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-12)


def test_the_gradients_of_a_transposed_convolution() -> None:
    """The data gradient is a plain convolution of the gradient."""
    text = "conv1d_transpose:n=2,c=6,l=7,k=4,r=4,stride=2,pad=1"
    (dy, w), found = result(text, "data_grad")
    x = torch.zeros(2, 6, 7, dtype=torch.float64, requires_grad=True)
    y = F.conv_transpose1d(x, w[:, :, 0], stride=2, padding=1)
    (wanted,) = torch.autograd.grad(y, x, dy[:, :, 0])
    np.testing.assert_allclose(found[:, :, 0], wanted.numpy(), rtol=1e-12)
    assert [kernel.role for kernel in parse_kernels(text)] == [
        "data_grad",
        "forward",
        "weight_grad",
    ]


def test_padding_by_side_belongs_to_the_image() -> None:
    text = "conv2d:n=1,c=3,h=8,w=9,k=4,r=3,s=3,stride=2,pad=0x1x1x3"
    (x, w), found = result(text)
    assert tuple(x.shape) == (1, 3, 9, 11)
    wanted = F.conv2d(F.pad(x, (1, 1, 0, 0)), w, stride=2)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-12)


def test_an_epilogue_follows() -> None:
    (kernel,) = parse_kernels(
        "conv1d:n=2,c=4,l=8,k=8,r=3,stride=1,pad=1+bias.forward:n=2,c=8,s=8,relu=1", "forward"
    )
    assert len(kernel.epilogue) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("conv1d:n=2,c=6,l=17,k=8,r=5,stride=2", "missing pad"),
        ("conv1d:n=2,c=6,l=17,k=8,r=5,stride=2,pad=1x1", "not a whole number"),
        ("conv2d_transpose:n=2,c=6,h=5,w=4,k=8,r=3,s=4,stride=2,pad=1,output_pad=2", "output_pad"),
        ("conv2d_transpose:n=2,c=6,h=1,w=1,k=8,r=1,s=1,stride=2,pad=3", "h"),
        ("conv3d:n=2", "unknown operator"),
    ],
)
def test_bad_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_kernels(text, "forward")
