"""On an OpenCL device, one condition for all elements of a vector selects as it does on a processor."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from gpu_products import TARGET
from tvm import te, tirx
from tvm.s_tir import Schedule

from autotune.compiler.opencl_c.opencl_source import improved_source


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_vectors_are_selected_by_conditions_of_one_or_of_each_element(
    by_row: bool, lanes: int
) -> None:
    rows = te.placeholder((8,), "float32", "rows")
    wide = te.placeholder((8, 64), "float32", "wide")
    half = te.const(0.5, "float32")

    def chosen(i: object, j: object) -> object:
        condition = (rows[i] if by_row else wide[i, j]) > half
        return tirx.Select(condition, wide[i, j], -wide[i, j])

    result = te.compute((8, 64), chosen, name="result")
    sch = Schedule(tvm.IRModule({"main": te.create_prim_func([rows, wide, result])}))
    row, column = sch.get_loops(sch.get_sblock("result"))
    column, lane = sch.split(column, [None, lanes])
    sch.vectorize(lane)
    sch.bind(row, "blockIdx.x")
    sch.bind(column, "threadIdx.x")
    with improved_source(sch.mod):
        run = tvm.compile(sch.mod, TARGET)["main"]
    draw = np.random.default_rng(1)
    given = [draw.random(8, np.float32), draw.random((8, 64), np.float32)]
    device = tvm.device("opencl", 0)
    operands = [tvm.runtime.tensor(a, device) for a in [*given, np.zeros((8, 64), np.float32)]]
    run(*operands)
    seen = given[0][:, None] if by_row else given[1]
    np.testing.assert_array_equal(operands[2].numpy(), np.where(seen > 0.5, given[1], -given[1]))
