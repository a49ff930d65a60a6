"""Operators survive their text; random text gives an operator or one clear line."""

from __future__ import annotations

from hypothesis import given, reject
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.workloads import OPERATORS, Kernel, Operator, operator_from_spec, parse_operator
from autotune.workloads.operators.base import field_types


@st.composite
def operators(draw: st.DrawFn) -> Operator:
    """Any operator with small shapes; impossible ones are drawn again."""
    operator = draw(st.sampled_from(sorted(OPERATORS.values(), key=lambda kind: kind.name)))
    small = st.integers(1, 4)
    values: dict[str, object] = {}
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
    )
)
def test_any_text_is_an_operator_or_one_clear_line(text: str) -> None:
    try:
        operator = parse_operator(text)
    except UsageError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert operator_from_spec(operator.spec()) == operator
