"""Features of schedules, as the cost model sees them."""

from typing import Any

import numpy as np
import pytest
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.rules.rules import no_tensor_intrinsics
from autotune.compiler.search.cost_model import FeatureExtractor
from autotune.compiler.target.targets import find, tvm_target
from autotune.workloads import Kernel
from autotune.workloads.operators import Matmul


@pytest.fixture(scope="module")
def context() -> Any:
    kernel = Kernel(Matmul(16, 16, 64), "forward")
    program = prim_func(kernel, formulations(kernel, ["direct"])[0])
    with no_tensor_intrinsics():
        return ms.TuneContext(program, target=tvm_target(find("cpu"), None), num_threads=1)


def tiled(context: Any, factor: int) -> Any:
    schedule = Schedule(context.mod)
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    *_, row, column, _ = schedule.get_loops(block)
    _, inner = schedule.split(column, [None, factor])
    schedule.vectorize(inner)
    schedule.parallel(row)
    return ms.MeasureCandidate(schedule, [])


def test_schedules_differ_in_their_features(context: Any) -> None:
    two, four = FeatureExtractor()(context, [tiled(context, 2), tiled(context, 4)])
    assert two.shape == four.shape
    assert not np.array_equal(two, four)


def test_what_is_known_is_what_would_be_extracted_anew_in_any_order(context: Any) -> None:
    known = FeatureExtractor()
    known(context, [tiled(context, 2), tiled(context, 4)])
    asked = [tiled(context, 8), tiled(context, 4), tiled(context, 8), tiled(context, 2)]
    for kept, anew in zip(known(context, asked), FeatureExtractor()(context, asked), strict=True):
        np.testing.assert_array_equal(kept, anew)
