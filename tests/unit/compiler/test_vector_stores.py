"""Neighbouring results of OpenCL kernels: one store where they are surely aligned, left alone elsewhere."""

from __future__ import annotations

import pytest

from autotune.compiler.opencl_c.vector_stores import with_vector_stores

HEAD = "__kernel void main_kernel(__global float* restrict x_ptr, __global float* restrict y_ptr) {"
ITEM = "(convert_int(get_local_id(0)))"


def kernel(*lines: str) -> str:
    return "\n".join([HEAD, "  float own_ptr[8];", *(f"  {line}" for line in lines), "}", ""])


def stored(offset: int, *, base: str = f"({ITEM} * 8)", value: str = "") -> str:
    index = f"({base} + {offset})" if offset else base
    return f"y_ptr[{index}] = {value or f'own_ptr[{offset}]'};"


def test_neighbours_are_stored_as_vectors_in_whatever_order_they_come() -> None:
    source = kernel(*(stored(offset) for offset in (0, 4, 1, 5, 2, 6, 3, 7)))
    first, second = (
        f"  *((__global float4*)(y_ptr + {index})) = (float4)({', '.join(f'own_ptr[{n}]' for n in lanes)});"
        for index, lanes in ((f"({ITEM} * 8)", range(4)), (f"(({ITEM} * 8) + 4)", range(4, 8)))
    )
    assert with_vector_stores(source, {}) == kernel(first.strip(), second.strip())


def test_what_has_no_neighbours_stays_beside_them() -> None:
    rewritten = with_vector_stores(kernel(*(stored(offset) for offset in (0, 1, 2, 6))), {})
    assert "(float2)(own_ptr[0], own_ptr[1]);" in rewritten
    assert stored(2) in rewritten and stored(6) in rewritten


def test_vectors_begin_where_their_address_is_aligned() -> None:
    rewritten = with_vector_stores(kernel(*(stored(offset) for offset in range(1, 6))), {})
    assert stored(1) in rewritten
    assert rewritten.count("(float2)(own_ptr[2], own_ptr[3]);") == 1
    assert rewritten.count("(float2)(own_ptr[4], own_ptr[5]);") == 1
    assert "float4" not in rewritten


def test_branches_of_one_condition_are_joined() -> None:
    branches = [
        line
        for offset in range(4)
        for line in (
            f"int cse_v{offset} = ({ITEM} + {offset});",
            "if ((convert_int(get_group_id(0))) < 9) {",
            f"  {stored(offset)}",
            "}",
        )
    ]
    rewritten = with_vector_stores(kernel(*branches), {})
    assert rewritten.count("if (") == rewritten.count("float4*") == 1
    assert all(f"int cse_v{offset}" in rewritten for offset in range(4))


def test_neighbours_that_are_written_differently_are_seen_where_groups_are_small_enough() -> None:
    """TVM simplifies the first index of these further, since it knows how large `get_local_id(0)` is."""
    group = "(convert_int(get_group_id(0)))"
    first = f"y_ptr[((({group} % 392) * 32) + ({ITEM} * 4))] = own_ptr[0];"
    others = [
        f"y_ptr[(((({group} * 32) + ({ITEM} * 4)) + {n}) % 12544)] = own_ptr[{n}];"
        for n in (1, 2, 3)
    ]
    source = kernel(first, *others)
    assert with_vector_stores(source, {"main_kernel": [8, 1, 1]}).count("float4*") == 1
    for sizes in (
        {},
        {"main_kernel": [9, 1, 1]},
        {"main_kernel_1": [8, 1, 1]},
        {"main": [8, 1, 1]},
    ):
        assert "float4" not in with_vector_stores(source, sizes)
    second = source.replace("main_kernel", "main_kernel_1")
    two = with_vector_stores(
        source + second, {"main_kernel": [9, 1, 1], "main_kernel_1": [8, 1, 1]}
    )
    assert "float4" not in two[: two.index("main_kernel_1")] and "float4" in two


def test_names_stay_before_what_is_not_joined() -> None:
    lines = [f"int a = ({ITEM} * 9);", "y_ptr[a] = own_ptr[0];", f"  {stored(1)}", stored(2)]
    assert with_vector_stores(kernel(*lines), {}) == kernel(*lines)


LANES = range(4)


@pytest.mark.parametrize(
    "lines",
    [
        [stored(offset, base=f"({ITEM} * 9)") for offset in LANES],
        [stored(offset + 1) for offset in LANES][::3],
        [f"y_ptr[((({ITEM} * 8) + {offset}) % 6)] = own_ptr[{offset}];" for offset in (1, 2)],
        [stored(offset, value=f"(own_ptr[{offset}] + y_ptr[0])") for offset in LANES],
        [*(stored(offset) for offset in LANES), stored(0, value="0.0f")],
        [line for n in LANES for line in ("if (y_ptr[0] < 1) {", f"  {stored(n)}", "}")],
        [line for n in LANES for line in (stored(n), "barrier(CLK_GLOBAL_MEM_FENCE);")],
        [line for n in LANES for line in (f"int a = own_ptr[{n}];", stored(n, value="a"))],
        [line for n in LANES for line in (f"int a = *(x_ptr + {n});", stored(n, value="a"))],
        [line for n in LANES for line in (f"int a = atomic_inc(x_ptr + {n});", stored(n, value="a"))],
        [*(stored(offset) for offset in LANES), "y_ptr[convert_int(y_ptr[0])] = 1.0f;"],
        [line for n in LANES for line in (f"if ({ITEM} < {n}) {{", f"  {stored(n)}", "}")],
        [line for n in LANES for line in (f"if ({ITEM} < 9) {{", f"  {stored(n)}", "} else {", "}")],
        [f"own_ptr[{offset}] = x_ptr[{offset}];" for offset in LANES],
        [stored(offset, base=f"({ITEM} ? 8 : 4)") for offset in LANES],
    ],
)  # fmt: skip
def test_what_is_not_surely_alike_stays_as_it_is(lines: list[str]) -> None:
    assert with_vector_stores(kernel(*lines), {}) == kernel(*lines)
