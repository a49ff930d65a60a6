"""Programs that are made again from recorded schedules."""

import pytest
import tvm
from tvm import tirx

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.opencl_c.launch_limits import buffer_bytes
from autotune.compiler.programs.candidate import digest_of
from autotune.compiler.programs.scheduled import replayed
from autotune.errors import RecordError
from autotune.workloads import Kernel, parse_kernel


def unchanged(kernel: Kernel) -> tvm.s_tir.Schedule:
    (direct,) = formulations(kernel, ["direct"])
    return tvm.s_tir.Schedule(tvm.IRModule({"main": prim_func(kernel, direct)}))


def test_a_trace_that_makes_another_program_than_was_measured_is_refused() -> None:
    kernel, other = (parse_kernel(f"matmul:m=4,n={n},k=8", "forward") for n in (4, 8))
    trace = unchanged(kernel).trace.as_json()
    digest = digest_of(kernel, "direct", unchanged(kernel).mod)
    assert digest_of(kernel, "direct", replayed(kernel, "direct", trace, digest)) == digest
    with pytest.raises(RecordError, match="another program than was measured") as refused:
        replayed(kernel, "direct", trace, digest_of(kernel, "direct", unchanged(other).mod))
    assert "tune again" in (refused.value.hint or "")


def test_a_buffer_of_vectors_has_the_bytes_of_all_their_elements() -> None:
    for dtype, size in (("float32", 4), ("float32x4", 16), ("float16x8", 16), ("bool", 1)):
        assert buffer_bytes(tirx.decl_buffer((3, 5), dtype)) == 15 * size
