"""Indices as sums: whatever they are, they keep their value, and indices that are alike come to one text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.compiler.index_sums import Names, index_sum

GROUP, ITEM = "(convert_int(get_group_id(0)))", "(convert_int(get_local_id(0)))"
NAMES = Names({"a": 8, "b": 4}, {"b": 4, "c": 5, "get_local_id(0)": 7})


def expressions() -> st.SearchStrategy[str]:
    """Integer expressions of numbers and of three names."""
    leaves = st.one_of(st.integers(0, 40).map(str), st.sampled_from(["a", "b", "c"]))

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        by = st.tuples(
            inner, st.sampled_from("*%/"), st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24])
        )
        return st.one_of(
            st.tuples(inner, inner).map(lambda two: f"({two[0]} + {two[1]})"),
            by.map(lambda one: f"({one[0]} {one[1]} {one[2]})"),
            inner.map(lambda one: f"({one} >> 1)"),
            inner.map(lambda one: f"({one} & 7)"),
        )

    return st.recursive(leaves, larger, max_leaves=8)


@given(expressions(), st.integers(0, 30), st.integers(0, 1), st.integers(0, 5))
def test_an_index_keeps_its_value(index: str, eights: int, fours: int, c: int) -> None:
    values = {"a": 8 * eights, "b": 4 * fours, "c": c}

    def value(text: str) -> int:
        return int(eval(text.replace("/", "//"), {}, values))

    base, offset = index_sum(index, NAMES)
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
