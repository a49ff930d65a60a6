"""Indices as sums: whatever they are, they keep their value, and indices that are alike come to one text."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.compiler.opencl_c.index_sums import Names, index_sum

GROUP, ITEM = "(convert_int(get_group_id(0)))", "(convert_int(get_local_id(0)))"
NAMES = Names({"a": 8, "b": 4}, {"b": 4, "get_local_id(0)": 7})


def expressions() -> st.SearchStrategy[str]:
    """Integer expressions of numbers and of some names."""
    leaves = st.one_of(st.integers(0, 40).map(str), st.sampled_from(["a", "b", "c", "d", ITEM]))

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        by = st.tuples(inner, st.sampled_from("*%/&"), st.integers(1, 24))
        return st.one_of(
            st.tuples(inner, inner).map(lambda two: f"({two[0]} + {two[1]})"),
            by.map(lambda one: f"({one[0]} {one[1]} {one[2]})"),
            st.tuples(inner, st.integers(0, 3)).map(lambda one: f"({one[0]} >> {one[1]})"),
        )

    return st.recursive(leaves, larger, max_leaves=8)


@settings(max_examples=500)
@given(expressions(), st.data())
def test_an_index_keeps_its_value(index: str, data: st.DataObject) -> None:
    """At the least and the largest values that are known to be possible, and at others."""
    divisors, most, values = {}, {}, {}
    for name in ("a", "b", "c", "d", "get_local_id(0)"):
        divisors[name] = data.draw(st.sampled_from([1, 1, 2, 3, 4, 8, 16]))
        times = data.draw(st.integers(0, 9))
        bound = divisors[name] * times + data.draw(st.integers(0, divisors[name] - 1))
        if data.draw(st.booleans()):
            most[name] = bound
        values[name] = divisors[name] * data.draw(st.sampled_from([0, times // 2, times]))
    divisors.pop("get_local_id(0)")
    values["get_local_id(0)"] = min(values["get_local_id(0)"], bound)

    def value(text: str) -> int:
        plain = text.replace(ITEM, "item").replace("convert_int(get_local_id(0))", "item")
        own = {**values, "item": values["get_local_id(0)"]}
        return int(eval(plain.replace("/", "//"), {}, own))

    base, offset = index_sum(index, Names(divisors, most))
    assert value(base) + offset == value(index)


@pytest.mark.parametrize(
    ("index", "alike", "offset"),
    [
        (f"(({GROUP} * 8) + 3)", f"({GROUP} * 8)", 3),
        (
            f"((({GROUP} * 32) + ({ITEM} * 4)) + 2) % 12544",
            f"(({GROUP} % 392) * 32) + ({ITEM} * 4)",
            2,
        ),
        (f"((({GROUP} * 32) + ({ITEM} * 4)) + 2) / 12544", f"({GROUP} / 392)", 0),
        (f"(({GROUP} * 8) + 7) % 196", f"(({GROUP} * 8) + 4) % 196", 3),
        (f"(({ITEM} * 4) + 1) % 64", f"({ITEM} * 4)", 1),
        (f"({ITEM} >> 3) + (({GROUP} * 16) & 15)", "0", 0),
        ("((b + 1) + a) % 16", "(a % 16) + b", 1),
        ("(a + 1) & 7", "a % 8", 1),
    ],
)
def test_indices_that_differ_by_a_number_have_one_base(index: str, alike: str, offset: int) -> None:
    base, number = index_sum(index, NAMES)
    other, beyond = index_sum(alike, NAMES)
    assert (base, number - beyond) == (other, offset)


@pytest.mark.parametrize("index", ["a ? 8 : 4", "a - 3", "f(4)", "a[1]", "(("])
def test_what_is_not_understood_is_left_as_it_is(index: str) -> None:
    base, offset = index_sum(index, NAMES)
    assert (base.replace(" ", ""), offset) == (index.replace(" ", ""), 0)


@pytest.mark.parametrize("factor", [1, 4, 8])
@pytest.mark.parametrize(
    "operation", ["% 8", "% 12", "% 16", "/ 8", "/ 12", "/ 16", "& 6", "& 7", ">> 3"]
)
def test_a_part_of_a_sum_is_taken_out_up_to_where_it_would_carry(
    factor: int, operation: str
) -> None:
    for most, number in product(range(18), range(10)):
        small, known = (f"(c % {most + 1})", {}) if number % 2 else ("c", {"c": most})
        index = f"((((d * {factor}) + {small}) + {number}) {operation})"
        base, offset = index_sum(index, Names({}, known | {"d": 3}))
        for d in range(4):
            values = {"c": most, "d": d}
            found, wanted = (eval(text.replace("/", "//"), {}, values) for text in (base, index))
            assert found + offset == wanted, (index, base, offset, values)
