"""Operators, kernels and the text of ``--op``."""

from __future__ import annotations

import re

import pytest

from autotune.errors import UsageError
from autotune.workloads import (
    OPERATORS,
    Adam,
    Add,
    Attention,
    AvgPool2d,
    BatchNorm,
    BatchStats,
    Bias,
    Bmm,
    Concat,
    Conv2d,
    CrossEntropy,
    Dropout,
    Expression,
    GlobalAvgPool,
    Kernel,
    Matmul,
    MaxPool2d,
    Momentum,
    Operator,
    OwnKernel,
    Relu,
    RunningPower,
    RunningStats,
    Sgd,
    TensorSpec,
    operator_from_spec,
    parse_kernel,
    parse_operator,
    parse_roles,
)

CONV = Conv2d(8, 64, 56, 56, 64, 3, 3, (1, 1), (1, 1))
CONV_TEXT = "conv2d:n=8,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1"
POOL = MaxPool2d(8, 64, 111, 111, 3, 3, (2, 2), (0, 0), ceil=True)

EXAMPLES: list[tuple[Operator, str]] = [
    (CONV, CONV_TEXT),
    (
        Conv2d(1, 4, 9, 8, 6, 3, 1, (2, 1), (1, 0), (2, 1), 2),
        "conv2d:n=1,c=4,h=9,w=8,k=6,r=3,s=1,stride=2x1,pad=1x0,dilation=2x1,groups=2",
    ),
    (Matmul(8, 120, 400), "matmul:m=8,n=120,k=400"),
    (Bmm(12, 6, 5, 4), "bmm:b=12,m=6,n=5,k=4"),
    (
        Attention(4, 12, 10, 6, 2, 8, causal=True, mask=(4, 1), same_for_all=True),
        "attention:b=4,t=12,s=10,h=6,g=2,d=8,causal=1,mask=4x1,same_for_all=1",
    ),
    (
        Expression("(in f 4 6)(map 4 6 = (exp (at 0 a0 a1)))(out 0)"),
        "expr:(in f 4 6)(map 4 6 = (exp (at 0 a0 a1)))(out 0)",
    ),
    (Bias(8, 6, 784, relu=True), "bias:n=8,c=6,s=784,relu=1"),
    (POOL, "max_pool2d:n=8,c=64,h=111,w=111,r=3,s=3,stride=2,pad=0,ceil=1"),
    (GlobalAvgPool(8, 10, 169), "global_avg_pool:n=8,c=10,s=169"),
    (Concat(8, 64, 32, 3025), "concat:n=8,c1=64,c2=32,s=3025"),
    (Concat(8, 64, 32, 784, 16, 8), "concat:n=8,c1=64,c2=32,s=784,c3=16,c4=8"),
    (Add(100), "add:size=100"),
    (Dropout(100), "dropout:size=100"),
    (CrossEntropy(8, 10), "cross_entropy:n=8,classes=10"),
    (Sgd(100), "sgd:size=100"),
    (Momentum(100), "momentum:size=100"),
    (Adam(100), "adam:size=100"),
    (RunningPower(1), "running_power:size=1"),
    (Relu(100), "relu:size=100"),
    (Relu(100, six=True), "relu:size=100,six=1"),
    (
        AvgPool2d(8, 64, 28, 27, 3, 2, (2, 1), (1, 0)),
        "avg_pool2d:n=8,c=64,h=28,w=27,r=3,s=2,stride=2x1,pad=1x0",
    ),
    (BatchStats(8, 32, 49), "batch_stats:n=8,c=32,s=49"),
    (BatchNorm(8, 32, 49, relu6=True), "batch_norm:n=8,c=32,s=49,relu6=1"),
    (
        BatchNorm(8, 32, 49, epsilon_millionths=1000, relu=True),
        "batch_norm:n=8,c=32,s=49,epsilon_millionths=1000,relu=1",
    ),
    (RunningStats(32, 392), "running_stats:c=32,samples=392"),
    (
        OwnKernel.of(
            "scale",
            "0123456789abcdef",
            128,
            [TensorSpec("a", (4, 16)), TensorSpec("b", (1,), "int32")],
            [TensorSpec("c", (4, 16))],
        ),
        "own:name=scale,digest=0123456789abcdef,flops=128,in=f4x16;i1,out=f4x16",
    ),
]


@pytest.mark.parametrize(("operator", "text"), EXAMPLES)
def test_spec_is_canonical_and_is_read_back(operator: Operator, text: str) -> None:
    assert operator.spec() == text
    assert operator_from_spec(text) == operator
    assert parse_operator(text) == operator


def test_examples_cover_every_operator() -> None:
    assert {operator.name for operator, _ in EXAMPLES} == set(OPERATORS)


@pytest.mark.parametrize("operator", [operator for operator, _ in EXAMPLES])
def test_every_role_has_operands_cost_and_an_identifier(operator: Operator) -> None:
    names = set()
    for role in operator.roles():
        kernel = Kernel(operator, role)
        names.add(kernel.name)
        assert re.fullmatch(r"[a-z][a-z0-9_]*", kernel.name)
        assert kernel.inputs and kernel.outputs
        operands = [spec.name for spec in (*kernel.inputs, *kernel.outputs)]
        assert len(set(operands)) == len(operands)
        assert kernel.bytes == 4 * sum(s.elements for s in (*kernel.inputs, *kernel.outputs))
        assert kernel.flops >= 0
        assert kernel.spec == operator.spec()
        assert kernel.is_compute == (
            operator.name in ("conv2d", "matmul", "bmm", "attention", "own")
        )
        assert hash(kernel) == hash(Kernel(operator_from_spec(kernel.spec), role))
    assert len(names) == len(operator.roles())


def test_conv2d_operands_and_cost() -> None:
    x, weight, y = (8, 64, 56, 56), (64, 64, 3, 3), (8, 64, 56, 56)
    kernel = Kernel(CONV, "weight_grad")
    assert kernel.name == "conv2d_weight_grad_n8c64h56w56k64r3s3_s1p1"
    assert kernel.inputs == (TensorSpec("x", x), TensorSpec("dy", y))
    assert kernel.outputs == (TensorSpec("dweight", weight),)
    assert CONV.inputs("data_grad") == (TensorSpec("dy", y), TensorSpec("weight", weight))
    assert CONV.outputs("data_grad") == (TensorSpec("dx", x),)
    for role in CONV.roles():
        assert CONV.flops(role) == 2 * 8 * 64 * 56 * 56 * 64 * 9


def test_identifiers_tell_stride_pad_dilation_and_groups_apart() -> None:
    pairs = ((1, 1), (2, 1), (1, 2))
    kernels = [
        Kernel(Conv2d(1, 4, 9, 9, 4, 2, 2, stride, pad, dilation, groups), "forward")
        for stride in pairs
        for pad in pairs
        for dilation in pairs
        for groups in (1, 2)
    ]
    assert len({kernel.name for kernel in kernels}) == len(kernels)
    assert kernels[-1].name == "conv2d_forward_n1c4h9w9k4r2s2_s1x2p1x2d1x2g2"


@pytest.mark.parametrize(
    ("size", "window", "stride", "pad", "ceil", "expected"),
    [
        (111, 3, 2, 0, True, 55),
        (55, 3, 2, 0, True, 27),
        (4, 3, 2, 0, False, 1),
        (4, 3, 2, 0, True, 2),
        (3, 2, 2, 0, True, 2),
        # the third window would start in the right padding: PyTorch drops it
        (3, 2, 2, 1, True, 2),
        (2, 1, 3, 0, True, 1),
    ],
)
def test_max_pool_output_size(
    size: int, window: int, stride: int, pad: int, ceil: bool, expected: int
) -> None:
    pool = MaxPool2d(1, 1, size, size, window, window, (stride, stride), (pad, pad), ceil)
    assert (pool.oh, pool.ow) == (expected, expected)


def test_bias_has_a_data_gradient_only_with_relu() -> None:
    assert Bias(1, 2, 3, relu=True).roles() == ("forward", "data_grad", "weight_grad")
    assert Bias(1, 2, 3, relu=False).roles() == ("forward", "weight_grad")


def test_batch_norm_gradients_read_the_output_only_where_there_is_an_activation() -> None:
    plain, active = BatchNorm(2, 3, 4), BatchNorm(2, 3, 4, relu=True)
    for role in ("data_grad", "weight_grad"):
        assert "y" not in [spec.name for spec in plain.inputs(role)]
        assert "y" in [spec.name for spec in active.inputs(role)]


BAD_SPECS = [
    ("concat:n=1,c1=2,c2=3,s=4,c4=5", "c4 without c3"),
    ("batch_stats:n=1,c=3,s=1", "no variance"),
    ("running_stats:c=3,samples=1", "no variance"),
    ("batch_norm:n=2,c=3,s=4,relu=1,relu6=1", "exclude each other"),
    ("", "unknown operator"),
    ("conv3d:n=1", "max_pool2d"),
    ("conv2d", "missing n, c, h, w, k, r, s, stride, pad"),
    ("matmul:m=8,n=10", "missing k"),
    ("matmul:m=8,n=10,k=4,", "not key=value"),
    ("matmul:m=8,n=10,k", "not key=value"),
    ("matmul:m=8,n=10,k=4,z=1", "unknown key 'z' (keys: m, n, k)"),
    ("matmul:m=8,n=10,k=4,k=4", "'k' is given twice"),
    ("matmul:m=8,n=10,k=four", "not a whole number"),
    ("matmul:m=8,n=10,k=1.5", "not a whole number"),
    ("matmul:m=8,n=10,k=٣", "not a whole number"),
    ("matmul:m=8,n=10,k=12345678901", "10 digits"),
    ("matmul:m=8,n=10,k=", "not a whole number"),
    ("matmul:m=8,n=10,k=0", "k=0 is too small"),
    ("matmul:m=8,n=10,k=-4", "at least 1"),
    ("matmul:m=100000,n=100000,k=1", "more than 2147483647"),
    ("matmul:m=8,n=10,k=4\nrm", "not a whole number"),
    (CONV_TEXT.replace("pad=1", "pad=-1"), "pad must be at least 0"),
    (CONV_TEXT.replace("stride=1", "stride=0"), "stride=0 is too small"),
    (CONV_TEXT.replace("stride=1", "stride=1x2x3"), "neither a number nor a pair"),
    (CONV_TEXT.replace("stride=1", "stride=1y2"), "neither a number nor a pair"),
    (CONV_TEXT + ",groups=3", "groups=3 does not divide c=64"),
    (CONV_TEXT.replace("k=64", "k=66") + ",groups=4", "groups=4 does not divide k=66"),
    (CONV_TEXT.replace("r=3", "r=60"), "spans 60 pixels, more than the 58"),
    (CONV_TEXT + ",dilation=1x40", "spans 81 pixels"),
    ("bias:n=1,c=1,s=1,relu=2", "not 0 or 1"),
    ("bias:n=1,c=1,s=1,relu=yes", "not 0 or 1"),
    ("max_pool2d:n=1,c=1,h=8,w=8,r=3,s=3,stride=2,pad=2,ceil=0", "at most 1"),
    ("avg_pool2d:n=1,c=1,h=8,w=8,r=3,s=3,stride=2,pad=2", "avg_pool2d: pad=2 is more than half"),
    ("avg_pool2d:n=1,c=1,h=8,w=2,r=3,s=3,stride=2,pad=0", "larger than the 2 pixels"),
    ("relu:size=0", "size=0 is too small"),
    ("adam:size=8,beta1=1", "unknown key 'beta1'"),
    ("max_pool2d:n=1,c=1,h=8,w=2,r=3,s=3,stride=2,pad=0,ceil=0", "larger than the 2 pixels"),
]


@pytest.mark.parametrize(("text", "part"), BAD_SPECS)
def test_bad_spec_is_one_clear_line(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_operator(text)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_key_hint_names_optional_keys() -> None:
    with pytest.raises(UsageError, match="optional: dilation, groups"):
        parse_operator(CONV_TEXT + ",depth=1")


def test_spec_ignores_blanks_and_order() -> None:
    assert parse_operator(" matmul : k=84, m=8 ,n = 10 ") == Matmul(8, 10, 84)


def test_parse_roles() -> None:
    assert parse_roles("weight_grad, forward", CONV) == ("weight_grad", "forward")
    assert parse_roles("update", Sgd(1)) == ("update",)


@pytest.mark.parametrize(
    ("text", "operator", "part"),
    [
        ("", CONV, "empty role"),
        ("forward,", CONV, "empty role"),
        ("backward", CONV, "forward, data_grad, weight_grad"),
        ("forward,forward", CONV, "given twice"),
        ("update", CONV, "no role 'update'"),
        ("data_grad", Bias(1, 1, 1, relu=False), "no role 'data_grad'"),
    ],
)
def test_bad_roles_are_one_clear_line(text: str, operator: Operator, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_roles(text, operator)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_operators_check_what_python_code_passes() -> None:
    with pytest.raises(UsageError, match="not a pair"):
        Conv2d(1, 1, 4, 4, 1, 3, 3, 1, (0, 0))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not a whole number"):
        Matmul(1.0, 2, 3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not true or false"):
        Bias(1, 1, 1, relu=1)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has no role 'update'"):
        Kernel(CONV, "update")
    with pytest.raises(UsageError, match="has no role 'update'"):
        CONV.inputs("update")


@pytest.mark.parametrize(
    "spec",
    [
        "conv2d:n=2,c=3,h=5,w=7,k=4,r=3,s=3,stride=1,pad=1,channels_last=1"
        "+bias.forward:n=2,c=4,s=35,relu=1",
        "conv2d:n=2,c=3,h=5,w=7,k=4,r=3,s=3,stride=1,pad=1+bias.forward:n=2,c=8,s=35,relu=1",
        "conv2d:n=2,c=3,h=5,w=7,k=4,r=3,s=3,stride=1,pad=1+bias.forward:n=4,c=2,s=35,relu=1",
        "conv2d:n=2,c=3,h=5,w=7,k=4,r=3,s=3,stride=1,pad=1+bias.weight_grad:n=2,c=4,s=35,relu=1",
        "max_pool2d:n=1,c=2,h=8,w=8,r=2,s=2,stride=2,pad=0,ceil=0+relu.forward:size=32",
        "matmul:m=4,n=10,k=84+bias.forward,data_grad:n=4,c=10,s=1,relu=1",
        "add:size=12+bias.forward:n=2,c=3,s=2,relu=0",
        "relu:size=12+bias.forward:n=2,c=3,s=2,relu=0",
    ],
)
def test_an_epilogue_that_does_not_fit_is_refused(spec: str) -> None:
    with pytest.raises(UsageError):
        parse_kernel(spec, "forward")
