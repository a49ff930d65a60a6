"""Float64 references, random inputs and the error measure."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.errors import UsageError
from autotune.workloads import (
    Adam,
    Add,
    AvgPool2d,
    Bias,
    Concat,
    Conv2d,
    CrossEntropy,
    Dropout,
    GlobalAvgPool,
    Kernel,
    Matmul,
    MaxPool2d,
    Momentum,
    Operator,
    Relu,
    RunningPower,
    Sgd,
    max_relative_error,
    random_inputs,
    reference,
)

OPERATORS: list[Operator] = [
    Conv2d(2, 4, 7, 6, 6, 3, 2, (2, 1), (1, 0), (1, 2), 2),
    Matmul(3, 4, 5),
    Bias(2, 3, 4, relu=True),
    Bias(2, 3, 4, relu=False),
    MaxPool2d(2, 3, 7, 8, 3, 2, (2, 2), (1, 1), True),
    GlobalAvgPool(2, 3, 4),
    Concat(2, 3, 4, 5),
    Add(12),
    Dropout(50),
    CrossEntropy(4, 5),
    Sgd(12),
    Momentum(12),
    Adam(12),
    RunningPower(1),
    Relu(12),
    Relu(12, six=True),
    AvgPool2d(2, 3, 7, 8, 3, 2, (2, 2), (1, 1)),
]
KERNELS = [Kernel(operator, role) for operator in OPERATORS for role in operator.roles()]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_reference_of_random_inputs_has_the_kernels_shapes(kernel: Kernel) -> None:
    inputs = random_inputs(kernel, seed=3)
    again = random_inputs(kernel, seed=3)
    for array, repeat, spec in zip(inputs, again, kernel.inputs, strict=True):
        assert array.shape == spec.shape
        assert array.dtype == spec.dtype
        np.testing.assert_array_equal(array, repeat)
    outputs = reference(kernel, inputs)
    for array, spec in zip(outputs, kernel.outputs, strict=True):
        assert array.shape == spec.shape
        assert array.dtype == (np.int32 if spec.dtype == "int32" else np.float64)
        assert np.isfinite(array).all()
    flat = reference(kernel, [array.ravel() for array in inputs])
    for array, same in zip(outputs, flat, strict=True):
        np.testing.assert_array_equal(array, same)


def test_random_inputs_differ_between_seeds() -> None:
    kernel = Kernel(Matmul(3, 4, 5), "forward")
    first, second = random_inputs(kernel, 0), random_inputs(kernel, 1)
    assert not np.array_equal(first[0], second[0])


def test_random_inputs_use_the_whole_mantissa_and_both_signs() -> None:
    x = random_inputs(Kernel(Add(4096), "data_grad"), 0)[0]
    assert x.min() >= -0.25 and x.max() <= 1.25
    assert (x < 0).any()
    # bfloat16, TF32 and half precision would round nearly all of them
    assert np.mean(x == x.astype(np.float16)) < 0.01
    last_bits = x.view(np.uint32) & 1
    assert 0.4 < last_bits.mean() < 0.6


def test_random_inputs_of_special_operands() -> None:
    labels = random_inputs(Kernel(CrossEntropy(1000, 7), "forward"), 0)[1]
    assert set(labels.tolist()) == set(range(7))
    mask = random_inputs(Kernel(Dropout(1000), "data_grad"), 0)[1]
    assert set(mask.tolist()) == {0.0, 2.0}
    assert random_inputs(Kernel(Sgd(3), "update"), 0)[2] == np.float32(-0.01)


def test_random_inputs_of_adam_have_second_moments_and_powers() -> None:
    _, _, second, _, *rates = random_inputs(Kernel(Adam(100), "update"), 0)
    assert (second >= 0).all()
    assert [rate.shape for rate in rates] == [(1,)] * 6
    assert rates[4] == np.float32(0.9**3) and rates[5] == np.float32(0.999**3)


def test_max_pool_takes_the_first_maximum_in_row_major_order() -> None:
    pool = MaxPool2d(1, 1, 3, 3, 2, 2, (1, 1), (0, 0), False)
    x = np.array([[0.0, 1, 1], [1, 1, 1], [0, 0, 0]])
    y, index = reference(Kernel(pool, "forward"), [x])
    np.testing.assert_array_equal(y[0, 0], [[1, 1], [1, 1]])
    np.testing.assert_array_equal(index[0, 0], [[1, 0], [0, 0]])
    (dx,) = reference(Kernel(pool, "data_grad"), [np.array([1.0, 2, 3, 4]), index])
    np.testing.assert_array_equal(dx[0, 0], [[0, 3, 0], [3, 4, 0], [0, 0, 0]])


def test_max_pool_padding_never_wins() -> None:
    pool = MaxPool2d(1, 1, 3, 3, 2, 2, (2, 2), (1, 1), True)
    y, index = reference(Kernel(pool, "forward"), [np.full((3, 3), -5.0)])
    np.testing.assert_array_equal(y[0, 0], np.full((2, 2), -5.0))
    np.testing.assert_array_equal(index[0, 0], [[3, 2], [1, 0]])


def test_cross_entropy_is_stable_and_checks_labels() -> None:
    kernel = Kernel(CrossEntropy(2, 2), "forward")
    (loss,) = reference(kernel, [np.array([[1000.0, 0], [0, 1000]]), np.array([0, 0])])
    assert loss == pytest.approx(500.0)
    for label in (-1, 2):
        with pytest.raises(UsageError, match=r"labels must be in 0 \.\. 1"):
            reference(kernel, [np.zeros((2, 2)), np.array([0, label])])


def test_cross_entropy_gradient_is_that_of_the_loss() -> None:
    operator = CrossEntropy(3, 4)
    logits, labels = random_inputs(Kernel(operator, "forward"), 5)
    logits = logits.astype(np.float64)
    (gradient,) = reference(Kernel(operator, "data_grad"), [logits, labels])
    for at in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[at] = 1e-6
        up, down = (
            reference(Kernel(operator, "forward"), [logits + sign * step, labels])[0][0]
            for sign in (1, -1)
        )
        assert (up - down) / 2e-6 == pytest.approx(gradient[at], abs=1e-8)


def test_bad_inputs_are_one_clear_line() -> None:
    kernel = Kernel(Matmul(2, 3, 4), "forward")
    with pytest.raises(UsageError, match="it takes x, weight"):
        reference(kernel, [np.zeros(8)])
    with pytest.raises(UsageError, match="input weight has 11 elements"):
        reference(kernel, [np.zeros(8), np.zeros(11)])
    with pytest.raises(UsageError, match="cannot compare 2 elements with 3"):
        max_relative_error(np.zeros(2), np.zeros(3))


@pytest.mark.parametrize("place", [0, 65535, 65536, 199_999])
def test_max_relative_error_of_a_large_tensor_is_that_of_its_worst_element(place: int) -> None:
    ref = np.linspace(1.0, 2.0, 200_000)
    out = ref.astype(np.float32)
    out[place] *= 1.5
    assert max_relative_error(out, ref) == pytest.approx(0.5, rel=1e-5)
    out[place] = np.nan
    assert max_relative_error(out, ref) == math.inf
    ref[place] = np.inf
    assert max_relative_error(ref, ref) == math.inf
    small = np.full(200_000, 1e-9)
    small[place] = 1.0
    assert max_relative_error(small + 1e-5, small) == pytest.approx(0.01, rel=1e-3)


def test_max_relative_error() -> None:
    ref = np.array([1.0, -2.0, 0.0])
    assert max_relative_error(ref.astype(np.float32), ref) == 0.0
    assert max_relative_error(np.array([1.1, -2.0, 0.0]), ref) == pytest.approx(0.1)
    # near zero the error is measured against a thousandth of the largest value
    assert max_relative_error(np.array([1.0, -2.0, 2e-4]), ref) == pytest.approx(0.1)
    for bad in (math.nan, math.inf, -math.inf):
        assert max_relative_error(np.array([1.0, -2.0, bad]), ref) == math.inf
        assert max_relative_error(ref, np.array([1.0, bad, 0.0])) == math.inf


def test_max_relative_error_of_zeros_and_integers() -> None:
    assert max_relative_error(np.zeros(3, np.float32), np.zeros(3)) == 0.0
    assert max_relative_error(np.full(3, 1e-9), np.zeros(3)) == math.inf
    index = np.array([1, 2], np.int32)
    assert max_relative_error(index.reshape(2, 1), index) == 0.0
    assert max_relative_error(index + 1, index) == math.inf
