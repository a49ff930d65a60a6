"""A recorded schedule may hold what our searches make; everything else is refused by name, before TVM sees it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from autotune.errors import RecordError
from autotune.records.trace_grammar import check_kinds, check_trace

GOOD: list[Any] = [
    [
        ["GetSBlock", [], ["y", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
        ["SamplePerfectTile", ["l1"], [2, 64], ["v4", "v5"]],
        ["Split", ["l1", "v4", "v5"], [True, False], ["l6", "l7"]],
        ["SampleCategorical", [], [[1, 2, 4], [0.25, 0.25, 0.5]], ["v8"]],
        ["Split", ["l2", "None", "v8", 2], [True, False], ["l9", "l10", "l11"]],
        ["Reorder", ["l6", "l9", "l7", "l10"], [], []],
        ["Fuse", ["l6", "l9"], [1], ["l12"]],
        ["Annotate", ["b0", '"SSRSRS"'], ["meta_schedule.tiling_structure"], []],
        ["Annotate", ["b0", "v8"], ["meta_schedule.unroll_explicit"], []],
        ["Annotate", ["l3", [0, 0, 1]], ["software_pipeline_stage"], []],
        ["Parallel", ["l12"], [], []],
        ["CacheWrite", ["b0", []], [0, "global"], ["b13"]],
        ["EnterPostproc", [], [], []],
    ],
    [[2, [8, 4]], [4, 1]],
]


def changed(*path: int, to: Any) -> Any:
    trace = copy.deepcopy(GOOD)
    *front, last = path
    part = trace
    for index in front:
        part = part[index]
    part[last] = to
    return trace


def added(*instruction: Any) -> Any:
    trace = copy.deepcopy(GOOD)
    trace[0].append(list(instruction))
    return trace


def test_what_a_search_makes_is_accepted() -> None:
    check_trace(GOOD)
    check_kinds(GOOD)


@pytest.mark.parametrize(
    ("instruction", "named"),
    [
        (("Annotate", ["l3", '"define void @f() {}"'], ["pragma_import_llvm"], []), "pragma_import_llvm"),
        (("Annotate", ["l3", '"int x;"'], ["pragma_import_c"], []), "pragma_import_c"),
        (("Annotate", ["b0", '"wmma"'], ["meta_schedule.auto_tensorize"], []), "auto_tensorize"),
        (("Annotate", ["b0", 1], ["meta_schedule.layout_rewrite_preproc"], []), "layout_rewrite"),
        (("Annotate", ["b0", 1], ["autotune.product"], []), "autotune.product"),
        (("Annotate", ["b0", 1], [["pragma_import_c"]], []), "annotation|not a list"),
        (("Annotate", ["b0", 1], [], []), "annotation"),
        (("Tensorize", ["l3"], ["intrinsic", True], []), "Tensorize"),
        (("Blockize", ["l3"], [True], ["b20"]), "Blockize"),
        (("TransformLayout", ["b0"], [0, 1, "map", None, True], []), "TransformLayout"),
        (("TransformBlockLayout", ["b0"], ["map"], []), "TransformBlockLayout"),
        (("SetAxisSeparator", ["b0"], [0, 0, [1]], []), "SetAxisSeparator"),
        (("UnsafeHideBufferAccess", ["b0"], ["read", [0]], []), "UnsafeHideBufferAccess"),
        (("AnnotateBufferAccess", ["b0"], [0, "read", "map"], []), "AnnotateBufferAccess"),
        (("no such", [], [], []), "autotune never makes such"),
        (({"a": 1}, [], [], []), "list of instructions|never makes"),
    ],
)  # fmt: skip
def test_what_no_search_makes_is_refused_by_name(instruction: tuple[Any, ...], named: str) -> None:
    for check in (check_kinds, check_trace):
        with pytest.raises(RecordError, match=named) as raised:
            check(added(*instruction))
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "trace",
    [
        None, [], {}, [[], [], []], "[[], []]", [{}, []], [[[]], []],
        changed(0, 0, 2, to=["y", "other"]),
        changed(0, 0, 2, to=["y\n\x1b[31m", "main"]),
        changed(0, 1, 1, to=["b9"]),
        changed(0, 1, 1, to=["l1"]),
        changed(0, 1, 3, to=["l1", "l1", "l2"]),
        changed(0, 1, 3, to=["v1"]),
        changed(0, 1, 3, to=[["l1"]]),
        changed(0, 3, 1, to=["l1", 0]),
        changed(0, 3, 1, to=["l1", -4]),
        changed(0, 3, 1, to=["l1", 1 << 40]),
        changed(0, 3, 1, to=["l1", 2.0]),
        changed(0, 3, 1, to=["l1"]),
        changed(0, 3, 2, to=[True, True]),
        changed(0, 3, 2, to=[1, 0]),
        changed(0, 4, 2, to=[[1, 2, 4], [0.25, 0.25]]),
        changed(0, 4, 2, to=[[1, "2", 4], [0.25, 0.25, 0.5]]),
        changed(0, 7, 1, to=[]),
        changed(0, 8, 1, to=["b0", '"SSRSRS" + code']),
        changed(0, 8, 1, to=["b0", "SSRSRS"]),
        changed(0, 9, 1, to=["b0", "l1"]),
        changed(0, 9, 1, to=["b0", 1 << 20]),
        changed(0, 10, 1, to=["l3", [0, -1, 1]]),
        changed(0, 12, 2, to=[0, "warp"]),
        changed(0, 12, 1, to=["b0", ["b9"]]),
        changed(1, to=[]),
        changed(1, to=[[2, [8, 4]], [4, 1], [5, 1]]),
        changed(1, to=[[2, [8, 4]], [4, 3]]),
        changed(1, to=[[2, [8, 4]], [4, -1]]),
        changed(1, to=[[2, [8, 0]], [4, 1]]),
        changed(1, to=[[2, [8, 4, 1]], [4, 1]]),
        changed(1, to=[[2, [8, 4]], [4, 1], [4, 1]]),
        changed(1, to=[[2, [8, 4]], ["4", 1]]),
        [[["EnterPostproc", [], [], []]] * 5000, []],
        added("Reorder", ["l12"] * 1000, [], []),
        # A sampled location may be no loop at all, and TVM crashes on one that is annotated.
        [
            [
                ["GetSBlock", [], ["y", "main"], ["b0"]],
                ["SampleComputeLocation", ["b0"], [], ["l1"]],
                ["Annotate", ["l1", 16], ["pragma_auto_unroll_max_step"], []],
            ],
            [[1, -1]],
        ],
    ],
)  # fmt: skip
def test_what_is_malformed_is_refused_in_one_line(trace: Any) -> None:
    with pytest.raises(RecordError) as raised:
        check_trace(trace)
    assert "\n" not in str(raised.value)
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("check", [check_kinds, check_trace])
@pytest.mark.parametrize("trace", [[GOOD[0] * 300, []], [GOOD[0], [[2, [8, 4]]] * 300]])
def test_a_schedule_that_is_longer_than_any_is_refused(
    check: Callable[[Any], None], trace: Any
) -> None:
    with pytest.raises(RecordError, match="is refused: it has more than 2400"):
        check(trace)


@pytest.mark.parametrize("check", [check_kinds, check_trace])
@pytest.mark.parametrize("parts", [200, 4])
def test_a_schedule_with_more_loops_than_any_is_refused(
    check: Callable[[Any], None], parts: int
) -> None:
    """Thousands of nested loops, of which TVM's stack overflowed: the process ended without a word."""
    splits = [
        ["Split", [loop, "None", *[1] * (parts - 1)], [True, False], [f"l{1000 * at + n}" for n in range(parts)]]
        for at, loop in enumerate(["l1", *(f"l{1000 * at}" for at in range(1, 200))], start=1)
    ]  # fmt: skip
    with pytest.raises(RecordError, match="has more than 700 loops"):
        check([[*GOOD[0][:2], *splits], []])
    check([[*GOOD[0][:2], *splits[:3]], []])
