"""Every formulation of every role computes what the float64 reference computes, whatever the shape."""

import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
import tvm
from compiled import check_kernel
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from autotune.compiler.formulations import formulations, prim_func, registered
from autotune.compiler.formulations.implicit_gemm import EXTENT, padded
from autotune.compiler.formulations.winograd_gemm import matrices
from autotune.workloads import Kernel, parse_operator
from autotune.workloads.expressions import written
from autotune.workloads.expressions.optimizer_updates import described_update
from autotune.workloads.operators import (
    OPERATORS,
    Adam,
    Add,
    AvgPool2d,
    BatchNorm,
    BatchStats,
    Bias,
    Concat,
    Conv2d,
    CrossEntropy,
    Dropout,
    GlobalAvgPool,
    Matmul,
    MaxPool2d,
    Momentum,
    Operator,
    OwnKernel,
    Relu,
    RunningStats,
    Sgd,
)
from autotune.workloads.optimizer import Algorithm, Optimizer
from autotune.workloads.spec import parse_kernel


def described_text(algorithm: Algorithm) -> str:
    """The update of 80 weights."""
    settings = Optimizer(algorithm, weight_decay=0.1).settings
    powers = ("beta1_power", "beta2_power") if "beta1" in settings else ()
    return written(described_update(algorithm, 80, (*settings, *powers)))


DESCRIBED = (
    *(f"expr:(in f 3 5)(map 3 5 = ({name} (at 0 a0 a1)))(out 0)" for name in (
        "neg", "abs", "exp", "log", "sqrt", "tanh", "sigmoid", "erf", "sin", "cos", "log1p", "expm1", "floor",
        "ceil", "trunc", "nearest",
    )),
    *(f"expr:(in f 3 5)(in f 5)({combiner} 3 / 5 = ({name} (at 0 a0 a1) (at 1 a1)))(out 0)" for combiner, name in (
        ("sum", "add"), ("sum", "sub"), ("max", "mul"), ("min", "div"), ("sum", "pow"), ("max", "max"),
        ("sum", "min"),
    )),
    "expr:(in f 3 5)(in i 3)(map 3 5 = (select (or (eq (at 1 a0) a1) (and (lt a1 3) (not (le a0 1)))) (at 0 a0 a1) "
    "0.5))(out 0)",
    "expr:(in f 4 5)(in i 3)(map 3 5 = (at 0 (min (max (at 1 a0) 0) 3) a1))(out 0)",
    "expr:(in f 3 6)(map 6 = (at 0 (floordiv a0 2) (mod a0 2)))(map 6 = (float (int (mul 3.0 (at 1 a0)))))"
    "(out 1 0)",
    # Ints that leave 32 bits wrap around, also where an index is made of them.
    "expr:(in i 7)(map 7 = (abs (neg (add (mul (add (at 0 a0) a0) 2000000011) (sub -2147483640 a0)))))(out 0)",
    "expr:(in f 4 5)(in i 3)(map 3 5 = (at 0 (min (max (mul (add (at 1 a0) a0) 2000000011) 0) 3) a1))(out 0)",
    "expr:(in i 7)(sum 1 / 7 = (int (ne (at 0 a1) 3)))(out 0)",
    "expr:(in f 3 5)(max 3 / 5 = (at 0 a0 a1))(map 3 5 = (exp (sub (at 0 a0 a1) (at 1 a0))))"
    "(sum 3 / 5 = (at 2 a0 a1))(map 3 5 = (div (at 2 a0 a1) (at 3 a0)))(out 3)",
)  # fmt: skip
"""Every function, every combiner, gathers, several stages, several results."""
SPECS = (
    "conv2d:n=2,c=3,h=9,w=8,k=4,r=3,s=3,stride=1,pad=1",
    "conv2d:n=2,c=4,h=9,w=8,k=4,r=3,s=2,stride=2x1,pad=1x0",
    "conv2d:n=1,c=4,h=11,w=11,k=6,r=3,s=3,stride=2,pad=1,groups=2",
    "conv2d:n=1,c=4,h=12,w=10,k=4,r=3,s=3,stride=2,pad=2,dilation=2",
    "conv2d:n=2,c=3,h=23,w=23,k=2,r=11,s=11,stride=4,pad=2",
    "conv2d:n=2,c=5,h=6,w=6,k=5,r=3,s=3,stride=1,pad=1,groups=5",
    "conv2d:n=2,c=3,h=5,w=7,k=4,r=1,s=1,stride=1,pad=0",
    "conv2d:n=1,c=2,h=6,w=6,k=2,r=1,s=1,stride=3,pad=0",
    "conv2d:n=1,c=2,h=5,w=5,k=2,r=2,s=2,stride=1,pad=2",
    "conv2d:n=2,c=12,h=7,w=6,k=20,r=3,s=3,stride=1,pad=1",
    "matmul:m=4,n=10,k=84",
    "matmul:m=3,n=5,k=7",
    "bmm:b=3,m=4,n=5,k=7",
    "attention:b=2,t=7,s=9,h=4,g=2,d=8,causal=1",
    "attention:b=2,t=5,s=5,h=2,g=2,d=3,mask=2x1",
    "attention:b=3,t=4,s=6,h=2,g=1,d=8,mask=3x2,same_for_all=1",
    *DESCRIBED,
    "bias:n=2,c=3,s=20,relu=1",
    "bias:n=2,c=3,s=1,relu=0",
    "max_pool2d:n=2,c=3,h=8,w=8,r=2,s=2,stride=2,pad=0,ceil=0",
    "max_pool2d:n=1,c=2,h=9,w=10,r=3,s=3,stride=2,pad=1,ceil=1",
    "max_pool2d:n=1,c=2,h=8,w=7,r=3,s=2,stride=1,pad=0,ceil=0",
    "avg_pool2d:n=2,c=3,h=8,w=8,r=2,s=2,stride=2,pad=0",
    "avg_pool2d:n=1,c=2,h=9,w=10,r=3,s=2,stride=2x1,pad=1",
    "avg_pool2d:n=1,c=2,h=9,w=7,r=2,s=2,stride=3,pad=0",
    "global_avg_pool:n=2,c=3,s=13",
    "batch_stats:n=2,c=3,s=20",
    "batch_stats:n=5,c=1,s=1",
    "batch_norm:n=2,c=3,s=20",
    "batch_norm:n=2,c=3,s=7,relu=1,epsilon_millionths=1000",
    "batch_norm:n=3,c=2,s=5,relu6=1",
    "running_stats:c=5,samples=40",
    "concat:n=2,c1=3,c2=2,s=5",
    "concat:n=2,c1=3,c2=2,s=5,c3=1,c4=4",
    "add:size=37",
    "dropout:size=37",
    "cross_entropy:n=3,classes=10",
    "relu:size=37",
    "relu:size=37,six=1",
    "sgd:size=37",
    "momentum:size=37",
    "adam:size=37",
    "running_power:size=1",
    "conv2d:n=2,c=3,h=9,w=8,k=4,r=3,s=3,stride=1,pad=1,channels_last=1",
    "conv2d:n=2,c=4,h=9,w=8,k=4,r=3,s=2,stride=2x1,pad=1x0,channels_last=1",
    "conv2d:n=1,c=4,h=11,w=11,k=6,r=3,s=3,stride=2,pad=1,groups=2,channels_last=1",
    "conv2d:n=1,c=4,h=12,w=10,k=4,r=3,s=3,stride=2,pad=2,dilation=2,channels_last=1",
    "conv2d:n=2,c=5,h=6,w=6,k=5,r=3,s=3,stride=2,pad=1,groups=5,channels_last=1",
    "conv2d:n=2,c=3,h=5,w=7,k=4,r=1,s=1,stride=1,pad=0,channels_last=1",
    "conv2d:n=2,c=16,h=9,w=8,k=24,r=3,s=3,stride=1,pad=1,channels_last=1",
    "conv2d:n=2,c=12,h=9,w=8,k=20,r=3,s=2,stride=2x1,pad=1x0,channels_last=1",
    "conv2d:n=2,c=12,h=9,w=8,k=20,r=3,s=3,stride=1,pad=1,channels_last=1",
    "conv2d:n=1,c=16,h=6,w=5,k=16,r=3,s=3,stride=1,pad=2x0,channels_last=1",
    "bias:n=2,c=3,s=3,relu=1,channels_last=1",
    "max_pool2d:n=1,c=2,h=9,w=10,r=3,s=3,stride=2,pad=1,ceil=1,channels_last=1",
    "global_avg_pool:n=2,c=3,s=3,channels_last=1",
    "avg_pool2d:n=2,c=3,h=5,w=6,r=3,s=2,stride=2,pad=1,channels_last=1",
    "batch_stats:n=2,c=3,s=20,channels_last=1",
    "batch_norm:n=3,c=5,s=5,relu6=1,channels_last=1",
    "batch_norm:n=3,c=2,s=5,channels_last=1",
    "concat:n=2,c1=3,c2=2,s=5,c3=1,c4=4,channels_last=1",
)

FUSED = (
    (
        "conv2d:n=2,c=3,h=5,w=7,k=4,r=3,s=3,stride=1,pad=1+bias.forward:n=2,c=4,s=35,relu=1",
        "forward",
    ),
    (
        "conv2d:n=2,c=3,h=5,w=7,k=4,r=3,s=3,stride=1,pad=1,channels_last=1"
        "+bias.forward:n=2,c=4,s=35,relu=1,channels_last=1+dropout.forward:size=280",
        "forward",
    ),
    (
        "conv2d:n=2,c=4,h=5,w=7,k=3,r=3,s=3,stride=1,pad=1,channels_last=1"
        "+bias.data_grad:n=2,c=4,s=35,relu=1,channels_last=1",
        "data_grad",
    ),
    (
        "conv2d:n=2,c=4,h=5,w=7,k=3,r=3,s=3,stride=2,pad=1,channels_last=1+sgd.update:size=108",
        "weight_grad",
    ),
    (
        "conv2d:n=1,c=1,h=1,w=1,k=3,r=1,s=1,stride=1,pad=0+bias.forward:n=1,c=3,s=1,relu=1",
        "forward",
    ),
    ("matmul:m=4,n=10,k=84+bias.forward:n=4,c=10,s=1,relu=1", "forward"),
    ("matmul:m=4,n=10,k=84+sgd.update:size=840", "weight_grad"),
    ("matmul:m=1,n=1,k=1+sgd.update:size=1", "weight_grad"),
    (
        "max_pool2d:n=1,c=2,h=8,w=7,r=3,s=2,stride=1,pad=0,ceil=0"
        "+bias.data_grad:n=1,c=2,s=56,relu=1",
        "data_grad",
    ),
    ("add:size=37+add.data_grad:size=37", "data_grad"),
    (  # Channels are the last axis of both; the result's axes in between are one there.
        "conv2d:n=2,c=3,h=5,w=7,k=4,r=3,s=3,stride=1,pad=1,channels_last=1"
        "+expr.forward:(in f 4)(in f 70 4)(map 70 4 = (max (add (at 1 a0 a1) (at 0 a1)) 0.0))(out 0)",
        "forward",
    ),
    (  # The result is one row of pixels, and the follower reads an operand by sample, and one turned round.
        "conv2d:n=1,c=3,h=1,w=12,k=4,r=1,s=1,stride=1,pad=0,channels_last=1"
        "+expr.forward:(in f 3 4)(in f 3 4 4)(in f 3 4 4)(map 3 4 4 = (mul (add (at 2 a0 a1 a2) (at 0 a0 a2)) "
        "(at 1 a0 a2 a1)))(out 0)",
        "forward",
    ),
    (
        "matmul:m=4,n=10,k=8+expr.forward:(in f 40)(in f 40)(map 40 = (mul (at 1 a0) (sigmoid (at 0 a0))))(out 0)"
        "+bias.forward:n=4,c=10,s=1,relu=1",
        "forward",
    ),
    (
        "bmm:b=3,m=4,n=5,k=6+expr.forward:(in f 3 4 5)(map 3 4 5 = (exp (at 0 a0 a1 a2)))(out 0)",
        "forward",
    ),
    (
        "expr:(in f 4 6)(sum 4 / 6 = (at 0 a0 a1))(out 0)+expr.forward:(in f 4)(map 4 = (sqrt (at 0 a0)))(out 0)",
        "forward",
    ),
    ("matmul:m=4,n=10,k=8+momentum.update:size=80", "weight_grad"),
    ("matmul:m=4,n=10,k=8+adam.update:size=80", "weight_grad"),
    *(
        (f"matmul:m=4,n=10,k=8+expr.update:{described_text(name)}", "weight_grad")
        for name in ("nesterov", "adamw")
    ),
    ("add:size=37+relu.forward:size=37,six=1", "forward"),
    ("batch_norm:n=3,c=2,s=5,channels_last=1+add.forward:size=30", "forward"),
)


def check(operator: Operator) -> None:
    """Compiles every formulation of every role without a schedule, and compares."""
    for role in operator.roles():
        check_kernel(Kernel(operator, role))


@pytest.mark.parametrize(("spec", "role"), FUSED)
def test_an_epilogue_computes_what_its_kernels_compute_one_after_the_other(
    spec: str, role: str
) -> None:
    kernel = parse_kernel(spec, role)
    assert parse_kernel(kernel.spec, kernel.role) == kernel
    check_kernel(kernel)


@pytest.mark.parametrize("spec", SPECS)
def test_every_formulation_is_right(spec: str) -> None:
    check(parse_operator(spec))


def test_every_role_of_every_operator_has_a_plain_definition_and_is_tested() -> None:
    tested = {
        (operator.name, role)
        for operator in map(parse_operator, SPECS)
        for role in operator.roles()
    }
    tested.add((OwnKernel.name, "forward"))  # Its program comes from the user.
    assert {name for name, _ in tested} == set(OPERATORS)
    for key in tested:
        assert "direct" in registered()[key]
    assert set(registered()) == tested


@st.composite
def convolutions(draw: st.DrawFn) -> Conv2d:
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    kernel = (draw(st.integers(1, 5)), draw(st.integers(1, 5)))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    pad = (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    size = tuple(
        draw(st.integers(max(1, (k - 1) * d + 1 - 2 * p), 10))
        for k, d, p in zip(kernel, dilation, pad, strict=True)
    )
    return Conv2d(
        n=draw(st.integers(1, 2)),
        c=groups * draw(st.integers(1, 3)),
        h=size[0],
        w=size[1],
        k=groups * draw(st.integers(1, 3)),
        r=kernel[0],
        s=kernel[1],
        stride=(draw(st.integers(1, 4)), draw(st.integers(1, 4))),
        pad=pad,
        dilation=dilation,
        groups=groups,
        channels_last=draw(st.booleans()),
    )


BEYOND_THE_IMAGE = Conv2d(
    n=1, c=1, h=1, w=1, k=1, r=2, s=1, stride=(2, 1), pad=(3, 0), channels_last=True
)
"""TVM flattened an index wrongly here, and a column was read that lies beside the right one."""
PHASES_CARRIED = Conv2d(n=1, c=1, h=1, w=3, k=1, r=1, s=1, stride=(2, 3), pad=(0, 1))
"""TVM went wrong on (phase + pad) // stride."""


@settings(max_examples=12, deadline=None)
@example(BEYOND_THE_IMAGE)
@example(PHASES_CARRIED)
@given(convolutions())
def test_convolutions_of_random_shape(operator: Conv2d) -> None:
    check(operator)


def test_phases_share_no_larger_a_window_than_the_filter_has_taps_of_one() -> None:
    kernel = parse_kernel("conv2d:n=1,c=3,h=24,w=24,k=64,r=11,s=11,stride=4,pad=2", "data_grad")
    (phased,) = formulations(kernel, ["gemm_phases"])
    module = tvm.IRModule({"main": prim_func(kernel, phased)})
    schedule = tvm.s_tir.Schedule(module)
    *_, depth = schedule.get_loops(schedule.get_sblock("product"))
    assert int(schedule.get(depth).extent) == 64 * 3 * 3


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 9), st.integers(1, 33), st.integers(1, 33))
def test_matmuls_of_random_shape(m: int, n: int, k: int) -> None:
    check(Matmul(m, n, k))


@settings(max_examples=6, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 4), st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(0, 2), st.integers(0, 2)), st.booleans(), st.integers(4, 9),
    st.integers(4, 9),
)  # fmt: skip
def test_pooling_of_random_shape(
    r: int, s: int, stride: tuple[int, int], pad: tuple[int, int], ceil: bool, h: int, w: int
) -> None:
    pads = (min(pad[0], r // 2), min(pad[1], s // 2))
    for last in (False, True):
        check(MaxPool2d(2, 2, h, w, r, s, stride, pads, ceil, last))
        check(AvgPool2d(2, 2, h, w, r, s, stride, pads, last))


@settings(max_examples=4, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 7), st.integers(1, 40), st.sampled_from([0, 1, 2]),
    st.booleans(),
)  # fmt: skip
def test_operators_by_channel_of_random_shape(
    n: int, c: int, s: int, activation: int, last: bool
) -> None:
    relu, relu6 = activation == 1, activation == 2
    check(Bias(n, c, s, relu, last))
    check(BatchNorm(n, c, s, 10, relu, relu6, last))
    check(BatchStats(n, c, max(s, 2), last))
    check(GlobalAvgPool(n, c, s, last))
    for c3, c4 in ((0, 0), (c + 1, 0), (1, c)):
        check(Concat(n, c, 2 * c + 1, s, c3, c4, channels_last=last))


@settings(max_examples=4, deadline=None)
@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 4), st.integers(2, 50))
def test_losses_and_running_averages_of_random_shape(
    n: int, classes: int, parts: int, samples: int
) -> None:
    check(CrossEntropy(n, classes))
    check(CrossEntropy(n, classes, of=n * parts))
    check(RunningStats(classes, samples))
    for update in (Sgd, Momentum, Adam):
        check(update(samples))
    for elementwise in (Add, Dropout, Relu):
        check(elementwise(samples))


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(
    st.integers(1, 2), st.integers(16, 20), st.integers(16, 20), st.integers(1, 9),
    st.integers(1, 9), st.integers(0, 2), st.integers(0, 2),
)  # fmt: skip
def test_winograd_of_random_shape(
    n: int, c: int, k: int, h: int, w: int, high: int, wide: int
) -> None:
    h, w = max(h, 3 - 2 * high), max(w, 3 - 2 * wide)
    convolution = Conv2d(n, c, h, w, k, 3, 3, (1, 1), (high, wide), (1, 1), 1, channels_last=True)
    names = {f.name for f in formulations(Kernel(convolution, "forward"))}
    assert "winograd" in names
    check(convolution)


@given(st.integers(1, 4096))
@example(147)  # The weight gradient of a 7x7 layer: 152 columns would be cut by eights alone.
def test_axes_of_products_grow_by_little_until_tiles_divide_them(extent: int) -> None:
    long = padded(extent, EXTENT)
    assert extent <= long <= max(extent + 3, 1.2 * extent)
    assert long % 4 == 0
    if extent % 128 == 0:
        assert long == extent
    if extent >= 60:
        assert long % 8 == 0
    if extent >= 146:
        assert 0 in (long % 16, long % 24)
        assert long <= 1.1 * extent


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(
    st.integers(1, 2), st.integers(8, 10), st.integers(8, 10), st.integers(7, 10),
    st.integers(7, 10), st.sampled_from([3, 5]), st.integers(0, 4), st.integers(0, 4), st.booleans(),
)  # fmt: skip
# An element is off by 1.1e-4 of itself.
@example(n=2, c=9, k=8, h=8, w=7, r=3, high=2, wide=2, last=False)
def test_winograd_products_of_random_shape(
    n: int, c: int, k: int, h: int, w: int, r: int, high: int, wide: int, last: bool
) -> None:
    high, wide = min(high, r - 1), min(wide, r - 1)
    h, w = max(h, 6 + r - 2 * high), max(w, 6 + r - 2 * wide)
    convolution = Conv2d(n, c, h, w, k, r, r, (1, 1), (high, wide), (1, 1), 1, channels_last=last)
    for role in convolution.roles():
        assert "winograd_gemm" in {f.name for f in formulations(Kernel(convolution, role))}
    check(convolution)


@given(st.integers(2, 6), st.integers(2, 6), st.data())
def test_transforms_of_minimal_filtering_are_exact(
    outputs: int, taps: int, data: st.DataObject
) -> None:
    assume(outputs + taps <= 9)
    numbers = st.integers(-1000, 1000)
    size = outputs + taps - 1
    signal = data.draw(st.lists(numbers, min_size=size, max_size=size))
    filters = data.draw(st.lists(numbers, min_size=taps, max_size=taps))
    inputs_of, filters_of, outputs_of = matrices(outputs, taps)
    one, other = applied(inputs_of, signal), applied(filters_of, filters)
    products = [a * b for a, b in zip(one, other, strict=True)]
    assert applied(outputs_of, products) == [
        sum(signal[i + k] * filters[k] for k in range(taps)) for i in range(outputs)
    ]


def applied(matrix: Sequence[Sequence[Fraction]], vector: Sequence[Any]) -> list[Fraction]:
    return [sum(map(operator.mul, row, vector), Fraction()) for row in matrix]


def test_a_formulation_that_does_not_exist_is_refused() -> None:
    from autotune.errors import UsageError

    kernel = Kernel(Matmul(2, 2, 2), "forward")
    with pytest.raises(UsageError, match=r"known: .*direct"):
        formulations(kernel, ["winograd"])
    assert math.isfinite(kernel.flops)
