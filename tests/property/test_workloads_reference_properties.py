"""References against naive loops and against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.workloads import (
    Adam,
    AvgPool2d,
    BatchNorm,
    BatchStats,
    Bias,
    Concat,
    Conv2d,
    Kernel,
    Matmul,
    MaxPool2d,
    Momentum,
    Relu,
    RunningPower,
    RunningStats,
    reference,
)

Array = NDArray[Any]

seeds = st.integers(0, 2**32 - 1)


@st.composite
def convolutions(draw: st.DrawFn) -> Conv2d:
    """Tiny convolutions with every combination of stride, pad, dilation and groups."""
    groups = draw(st.integers(1, 3))
    r, s = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    pad = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    least = [
        max(1, (size - 1) * step + 1 - 2 * margin)
        for size, step, margin in zip((r, s), dilation, pad, strict=True)
    ]
    return Conv2d(
        n=draw(st.integers(1, 2)),
        c=groups * draw(st.integers(1, 2)),
        h=least[0] + draw(st.integers(0, 3)),
        w=least[1] + draw(st.integers(0, 3)),
        k=groups * draw(st.integers(1, 2)),
        r=r,
        s=s,
        stride=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        pad=pad,
        dilation=dilation,
        groups=groups,
    )


@st.composite
def pools(draw: st.DrawFn) -> MaxPool2d:
    """Tiny max pools with every combination of window, stride, pad and rounding."""
    r, s = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    pad = draw(st.tuples(st.integers(0, r // 2), st.integers(0, s // 2)))
    return MaxPool2d(
        n=draw(st.integers(1, 2)),
        c=draw(st.integers(1, 2)),
        h=max(1, r - 2 * pad[0]) + draw(st.integers(0, 4)),
        w=max(1, s - 2 * pad[1]) + draw(st.integers(0, 4)),
        r=r,
        s=s,
        stride=draw(st.tuples(st.integers(1, 4), st.integers(1, 4))),
        pad=pad,
        ceil=draw(st.booleans()),
    )


def naive_conv(operator: Conv2d, x: Array, weight: Array) -> Array:
    """Seven loops, one for each index of the definition."""
    y = np.zeros((operator.n, operator.k, operator.oh, operator.ow))
    inside, outside = operator.c // operator.groups, operator.k // operator.groups
    for n, k, oh, ow in np.ndindex(y.shape):
        for c, r, s in np.ndindex(inside, operator.r, operator.s):
            h = oh * operator.stride[0] + r * operator.dilation[0] - operator.pad[0]
            w = ow * operator.stride[1] + s * operator.dilation[1] - operator.pad[1]
            if 0 <= h < operator.h and 0 <= w < operator.w:
                y[n, k, oh, ow] += x[n, k // outside * inside + c, h, w] * weight[k, c, r, s]
    return y


def naive_pool(operator: MaxPool2d, x: Array) -> tuple[Array, Array]:
    """One window at a time, in row-major order, skipping what is outside the input."""
    y = np.zeros((operator.n, operator.c, operator.oh, operator.ow))
    index = np.zeros(y.shape, np.int32)
    for n, c, oh, ow in np.ndindex(y.shape):
        found: list[tuple[float, int]] = []
        for r, s in np.ndindex(operator.r, operator.s):
            h = oh * operator.stride[0] + r - operator.pad[0]
            w = ow * operator.stride[1] + s - operator.pad[1]
            if 0 <= h < operator.h and 0 <= w < operator.w:
                found.append((x[n, c, h, w], r * operator.s + s))
        y[n, c, oh, ow], index[n, c, oh, ow] = max(found, key=lambda item: (item[0], -item[1]))
    return y, index


def torch_pool_size(size: int, window: int, stride: int, pad: int, ceil: bool) -> int:
    """ATen's pooling_output_shape: the last window starts inside the input or left padding."""
    size_out = (size + 2 * pad - window + (stride - 1 if ceil else 0)) // stride + 1
    return size_out - 1 if ceil and (size_out - 1) * stride >= size + pad else size_out


def draw_like(kernel: Kernel, seed: int) -> list[Array]:
    """Normal float64 inputs."""
    generator = np.random.default_rng(seed)
    return [generator.normal(size=spec.shape) for spec in kernel.inputs]


def assert_adjoint(operator: Conv2d | Matmul, seed: int) -> None:
    """<dy, f(x, w)> = <data_grad(dy, w), x> = <weight_grad(x, dy), w>."""
    x, weight = draw_like(Kernel(operator, "forward"), seed)
    (y,) = reference(Kernel(operator, "forward"), [x, weight])
    dy = np.random.default_rng(seed + 1).normal(size=y.shape)
    (dx,) = reference(Kernel(operator, "data_grad"), [dy, weight])
    (dweight,) = reference(Kernel(operator, "weight_grad"), [x, dy])
    product = np.vdot(dy, y)
    scale = float(np.linalg.norm(dy) * np.linalg.norm(y)) + 1.0
    assert abs(product - np.vdot(dx, x)) <= 1e-12 * scale
    assert abs(product - np.vdot(dweight, weight)) <= 1e-12 * scale


@given(convolutions(), seeds)
@settings(deadline=None)
def test_conv2d_agrees_with_seven_loops(operator: Conv2d, seed: int) -> None:
    kernel = Kernel(operator, "forward")
    x, weight = draw_like(kernel, seed)
    (y,) = reference(kernel, [x, weight])
    np.testing.assert_allclose(y, naive_conv(operator, x, weight), rtol=1e-12, atol=1e-12)


@given(convolutions(), seeds)
@settings(deadline=None)
def test_conv2d_gradients_are_adjoint(operator: Conv2d, seed: int) -> None:
    assert_adjoint(operator, seed)


@given(st.builds(Matmul, *[st.integers(1, 5)] * 3), seeds)
def test_matmul_gradients_are_adjoint(operator: Matmul, seed: int) -> None:
    assert_adjoint(operator, seed)


@given(pools(), seeds, st.booleans())
@settings(deadline=None)
def test_max_pool_agrees_with_loops(operator: MaxPool2d, seed: int, ties: bool) -> None:
    (x,) = draw_like(Kernel(operator, "forward"), seed)
    x = np.round(x) if ties else x
    y, index = reference(Kernel(operator, "forward"), [x])
    expected_y, expected_index = naive_pool(operator, x)
    np.testing.assert_array_equal(y, expected_y)
    np.testing.assert_array_equal(index, expected_index)


@given(pools(), seeds)
@settings(deadline=None)
def test_max_pool_gradient_is_adjoint_to_the_selection(operator: MaxPool2d, seed: int) -> None:
    (x,) = draw_like(Kernel(operator, "forward"), seed)
    y, index = reference(Kernel(operator, "forward"), [np.round(x)])
    dy = np.random.default_rng(seed + 1).normal(size=y.shape)
    (dx,) = reference(Kernel(operator, "data_grad"), [dy, index])
    assert np.isclose(np.vdot(dy, y), np.vdot(dx, np.round(x)), rtol=1e-9, atol=1e-9)
    assert np.isclose(dx.sum(), dy.sum(), rtol=1e-9, atol=1e-9)


@given(pools())
def test_max_pool_size_is_that_of_pytorch(operator: MaxPool2d) -> None:
    sizes = [
        torch_pool_size(size, window, stride, pad, operator.ceil)
        for size, window, stride, pad in zip(
            (operator.h, operator.w),
            (operator.r, operator.s),
            operator.stride,
            operator.pad,
            strict=True,
        )
    ]
    assert [operator.oh, operator.ow] == sizes


@given(pools(), seeds)
@settings(deadline=None)
def test_avg_pool_agrees_with_loops_and_its_gradient_is_adjoint(like: MaxPool2d, seed: int) -> None:
    operator = AvgPool2d(like.n, like.c, like.h, like.w, like.r, like.s, like.stride, like.pad)
    (x,) = draw_like(Kernel(operator, "forward"), seed)
    (y,) = reference(Kernel(operator, "forward"), [x])
    naive = np.zeros(y.shape)
    for n, c, oh, ow in np.ndindex(naive.shape):
        for r, s in np.ndindex(operator.r, operator.s):
            h = oh * operator.stride[0] + r - operator.pad[0]
            w = ow * operator.stride[1] + s - operator.pad[1]
            if 0 <= h < operator.h and 0 <= w < operator.w:
                naive[n, c, oh, ow] += x[n, c, h, w] / (operator.r * operator.s)
    np.testing.assert_allclose(y, naive, rtol=1e-12, atol=1e-12)
    dy = np.random.default_rng(seed + 1).normal(size=y.shape)
    (dx,) = reference(Kernel(operator, "data_grad"), [dy])
    assert np.isclose(np.vdot(dy, y), np.vdot(dx, x), rtol=1e-9, atol=1e-9)


@given(st.builds(Relu, st.integers(1, 30), six=st.booleans()), seeds)
def test_relu_clips_and_passes_gradients_strictly_inside(operator: Relu, seed: int) -> None:
    (x,) = draw_like(Kernel(operator, "forward"), seed)
    x = np.round(4 * x)
    (y,) = reference(Kernel(operator, "forward"), [x])
    top = 6 if operator.six else np.inf
    np.testing.assert_array_equal(y, np.minimum(np.maximum(x, 0), top))
    dy = np.random.default_rng(seed + 1).normal(size=y.shape)
    (dx,) = reference(Kernel(operator, "data_grad"), [y, dy])
    np.testing.assert_array_equal(dx, np.where((x > 0) & (x < top), dy, 0))


@given(st.integers(1, 8), st.integers(1, 12), st.floats(0.0, 0.99), seeds)
def test_momentum_sums_past_gradients_with_falling_weights(
    size: int, steps: int, momentum: float, seed: int
) -> None:
    kernel = Kernel(Momentum(size), "update")
    gradients = np.random.default_rng(seed).normal(size=(steps, size))
    weight, velocity, rate = np.zeros(size), np.zeros(size), np.array([0.1])
    for gradient in gradients:
        operands = [weight, velocity, gradient, rate, np.array([momentum])]
        weight, velocity = reference(kernel, operands)
    weights = momentum ** np.arange(steps)[::-1]
    np.testing.assert_allclose(velocity, weights @ gradients, rtol=1e-9, atol=1e-12)
    moved = [(momentum ** np.arange(steps - at)).sum() for at in range(steps)]
    np.testing.assert_allclose(weight, -0.1 * (moved @ gradients), rtol=1e-9, atol=1e-12)


@given(st.integers(1, 8), st.integers(1, 12), seeds)
def test_adam_of_a_constant_gradient_moves_by_the_learning_rate(
    size: int, steps: int, seed: int
) -> None:
    """With bias correction both moments are then exact from the first step on."""
    gradient = np.random.default_rng(seed).normal(size=size) + 0.1
    assume(np.abs(gradient).min() > 1e-3)
    adam, power = Kernel(Adam(size), "update"), Kernel(RunningPower(1), "update")
    weight, first, second = (np.zeros(size) for _ in range(3))
    beta1, beta2 = np.array([0.9]), np.array([0.999])
    powers = [np.ones(1), np.ones(1)]
    for _ in range(steps):
        powers = [
            reference(power, [old, base])[0]
            for old, base in zip(powers, (beta1, beta2), strict=True)
        ]
        rates = [np.array([0.01]), beta1, beta2, np.array([1e-12]), *powers]
        weight, first, second = reference(adam, [weight, first, second, gradient, *rates])
    np.testing.assert_allclose(powers[1], 0.999**steps)
    np.testing.assert_allclose(weight, -0.01 * steps * np.sign(gradient), rtol=1e-6)


@given(st.builds(Bias, *[st.integers(1, 4)] * 3, relu=st.just(True)), seeds)
def test_bias_with_relu_passes_gradients_where_the_output_is_positive(
    operator: Bias, seed: int
) -> None:
    x, bias = draw_like(Kernel(operator, "forward"), seed)
    (y,) = reference(Kernel(operator, "forward"), [x, bias])
    np.testing.assert_array_equal(y, np.maximum(x + bias[None, :, None], 0))
    dy = np.random.default_rng(seed + 1).normal(size=y.shape)
    (dx,) = reference(Kernel(operator, "data_grad"), [y, dy])
    np.testing.assert_array_equal(dx, dy * (y > 0))
    (dbias,) = reference(Kernel(operator, "weight_grad"), [dx])
    np.testing.assert_allclose(dbias, dx.sum(axis=(0, 2)))


@given(st.builds(Concat, *[st.integers(1, 4)] * 4), seeds)
def test_concat_gradient_takes_apart_what_forward_joined(operator: Concat, seed: int) -> None:
    inputs = draw_like(Kernel(operator, "forward"), seed)
    (y,) = reference(Kernel(operator, "forward"), inputs)
    for part, original in zip(reference(Kernel(operator, "data_grad"), [y]), inputs, strict=True):
        np.testing.assert_array_equal(part, original)


@st.composite
def batch_norms(draw: st.DrawFn) -> BatchNorm:
    """Tiny batch normalisations of every kind, with at least three values a channel."""
    activation = draw(st.sampled_from(["", "relu", "relu6"]))
    return BatchNorm(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(3, 5)),
        draw(st.sampled_from([10, 1000])),
        relu=activation == "relu",
        relu6=activation == "relu6",
    )


def normalized(operator: BatchNorm, x: Array, gamma: Array, beta: Array) -> tuple[Array, ...]:
    """Mean, variance and output of the whole layer."""
    mean, variance = reference(
        Kernel(BatchStats(operator.n, operator.c, operator.s), "forward"), [x]
    )
    (y,) = reference(Kernel(operator, "forward"), [x, mean, variance, gamma, beta])
    return mean, variance, y


@given(batch_norms(), seeds)
@settings(deadline=None)
def test_batch_norm_gradients_are_the_slopes_of_the_whole_layer(
    operator: BatchNorm, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(operator.n, operator.c, operator.s))
    gamma, beta = generator.normal(3.0, 1.0, operator.c), generator.normal(size=operator.c)
    mean, variance, y = normalized(operator, x, gamma, beta)
    assume(variance.min() > 0.05)
    dy = generator.normal(size=y.shape)
    seen = [y, dy] if operator.activated else [dy]
    dgamma, dbeta = reference(Kernel(operator, "weight_grad"), [x, mean, variance, *seen])
    gradients = [x, mean, variance, gamma, dgamma, dbeta, *seen]
    (dx,) = reference(Kernel(operator, "data_grad"), gradients)

    def loss(*operands: Array) -> float:
        return float(np.vdot(dy, normalized(operator, *operands)[2]))

    step = 1e-6
    for which, gradient in enumerate((dx, dgamma, dbeta)):
        direction = generator.normal(size=gradient.shape)
        moved = [[x, gamma, beta], [x, gamma, beta]]
        for side, sign in ((0, 1), (1, -1)):
            moved[side][which] = moved[side][which] + sign * step * direction
        states = [normalized(operator, *operands)[2] for operands in moved]
        edges = (0.0, 6.0) if operator.relu6 else (0.0,)
        for edge in edges if operator.activated else ():
            assume(((states[0] > edge) == (states[1] > edge)).all())
        slope = (loss(*moved[0]) - loss(*moved[1])) / (2 * step)
        wanted = np.vdot(gradient, direction)
        assert abs(slope - wanted) <= 1e-5 * (1 + abs(wanted)) * np.linalg.norm(direction)


@given(st.integers(1, 4), st.integers(2, 50), seeds)
def test_running_statistics_approach_those_of_the_batches(c: int, samples: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    batch = generator.normal(size=(samples, c))
    operands = [np.zeros(c), np.ones(c), batch.mean(axis=0), batch.var(axis=0), np.array([0.1])]
    mean, variance = reference(Kernel(RunningStats(c, samples), "update"), operands)
    np.testing.assert_allclose(mean, 0.1 * batch.mean(axis=0))
    np.testing.assert_allclose(variance, 0.9 + 0.1 * batch.var(axis=0, ddof=1))
