"""Operators survive their text; random text gives an operator or one clear line."""

from __future__ import annotations

import math

from hypothesis import given, reject
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.workloads import (
    OPERATORS,
    Expression,
    Kernel,
    Operator,
    OwnKernel,
    TensorSpec,
    operator_from_spec,
    parse_operator,
)
from autotune.workloads.expressions import (
    Axis,
    Described,
    Load,
    Operand,
    Stage,
    Term,
    apply,
    integer,
    number,
)
from autotune.workloads.operators.base import field_types

LOADS = (Load(0, (Axis(0), Axis(1)), "float"), Load(1, (Axis(1),), "float"))


def terms() -> st.SearchStrategy[Term]:
    """Floats of two axes, from two operands and numbers."""
    leaves = st.one_of(
        st.sampled_from(LOADS), st.floats(-4, 4, width=32).map(number), st.just(number(math.inf))
    )
    unary = st.sampled_from(("neg", "exp", "tanh", "sqrt"))
    binary = st.sampled_from(("add", "sub", "mul", "div", "max"))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(apply, unary, inner),
            st.builds(apply, binary, inner, inner),
            st.builds(
                lambda a, b: apply("select", apply("lt", Axis(0), integer(2)), a, b), inner, inner
            ),
        ),
        max_leaves=8,
    )


@st.composite
def described_kernels(draw: st.DrawFn) -> Described:
    """A map of two operands, then perhaps a sum of its rows."""
    operands = (Operand((4, 6)), Operand((6,)))
    stages = [Stage((4, 6), (), "map", draw(terms()))]
    if draw(st.booleans()):
        stages.append(Stage((4,), (6,), "sum", Load(2, (Axis(0), Axis(1)), "float")))
    return Described(operands, tuple(stages), (len(stages) - 1,))


@st.composite
def operators(draw: st.DrawFn) -> Operator:
    """Any operator with small shapes; impossible ones are drawn again."""
    operator = draw(st.sampled_from(sorted(OPERATORS.values(), key=lambda kind: kind.name)))
    small = st.integers(1, 4)
    values: dict[str, object] = {}
    if operator is Expression:
        return Expression.of(draw(described_kernels()))
    if operator is OwnKernel:
        operands = st.builds(
            TensorSpec, st.just("x"), st.lists(small, min_size=1, max_size=3).map(tuple),
            st.sampled_from(("float32", "int32")),
        )  # fmt: skip
        some = st.lists(operands, min_size=1, max_size=3)
        return OwnKernel.of("kernel", "0" * 16, draw(small), draw(some), draw(some))
    for key, kind in field_types(operator).items():
        if key == "pad":
            values[key] = draw(st.tuples(st.integers(0, 1), st.integers(0, 1)))
        elif key in ("r", "s") and "stride" in field_types(operator):
            values[key] = draw(st.integers(2, 3))
        elif key in ("h", "w"):
            values[key] = draw(st.integers(9, 12))
        elif key in ("c", "k") and "groups" in field_types(operator):
            values[key] = draw(st.sampled_from((4, 8, 12)))
        elif key == "groups":
            values[key] = draw(st.sampled_from((1, 2, 4)))
        elif kind is bool:
            values[key] = draw(st.booleans())
        else:
            values[key] = draw(small if kind is int else st.tuples(small, small))
    try:
        return operator(**values)
    except UsageError:
        reject()


@given(operators())
def test_spec_round_trip(operator: Operator) -> None:
    text = operator.spec()
    assert operator_from_spec(text) == operator
    assert operator_from_spec(text).spec() == text


@given(operators(), operators())
def test_kernel_names_are_as_distinct_as_kernels(first: Operator, second: Operator) -> None:
    for one in first.roles():
        for other in second.roles():
            kernels = Kernel(first, one), Kernel(second, other)
            assert (kernels[0].name == kernels[1].name) == (kernels[0] == kernels[1])


@given(
    st.one_of(
        st.text(max_size=40),
        st.from_regex(r"(conv2d|matmul|bias|sgd):([a-z]{1,6}=[-0-9x]{0,4},?){0,10}"),
        st.from_regex(
            r"expr:(\((in|map|sum|out)( (f|i|/|=|a0|[0-9]|\(exp a1\)|\(at 0 a0\))){0,5}\)){0,4}"
        ),
    )
)
def test_any_text_is_an_operator_or_one_clear_line(text: str) -> None:
    try:
        operator = parse_operator(text)
    except UsageError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert operator_from_spec(operator.spec()) == operator
