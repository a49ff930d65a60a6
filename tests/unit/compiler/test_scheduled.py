"""Programs that are made again from recorded schedules."""

import json
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import tirx

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.opencl_c.launch_limits import buffer_bytes
from autotune.compiler.programs.candidate import digest_of
from autotune.compiler.programs.scheduled import replayed, untuned_program
from autotune.compiler.programs.trace_replay import replay_trace
from autotune.compiler.search import FormulationSearch, ScheduleRanker
from autotune.compiler.target import spaces, targets
from autotune.errors import RecordError
from autotune.workloads import Kernel, parse_kernel

DATA = Path(__file__).parents[2] / "data"


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


def test_a_schedule_does_not_change_the_program_of_the_next_one() -> None:
    """The first of these traces vectorises a loop in place, in the program that both are applied to."""
    spec = "avg_pool2d:n=2,c=6,h=28,w=28,r=2,s=2,stride=2,pad=0"
    kernel, target = parse_kernel(spec, "data_grad"), targets.find("cpu")
    (direct,) = formulations(kernel, ["direct"])
    search = FormulationSearch(
        kernel, direct, space=spaces.load(target.space_path()), target=targets.tvm_target(target, None),
        ranker=ScheduleRanker(seed=1, warmup=64, members=4), seed=1, threads=1,
    )  # fmt: skip
    traces = json.loads((DATA / "two_traces.json").read_text(encoding="utf-8"))
    for _ in range(2):
        for trace in traces:
            program = digest_of(kernel, "direct", alone(kernel, trace))
            assert search.replay(trace).digest == program


def alone(kernel: Kernel, trace: Any) -> tvm.IRModule:
    """What a trace makes of a program that no other schedule shares."""
    schedule = unchanged(kernel)
    replay_trace(schedule, trace)
    return schedule.mod


def test_a_reduction_that_tvms_own_rules_fail_on_has_a_default_for_gpus() -> None:
    at = "(min (max (select (ne (at 0 a1) -100) (at 0 a1) 0) 0) 5)"
    spec = f"expr:(in i 4)(in f 4 6)(sum 1 / 4 = (select (ne (at 0 a1) -100) (neg (at 1 a1 {at})) 0.0))(out 0)"
    target = targets.tvm_target(targets.find("opencl"), None)
    program = untuned_program(parse_kernel(spec, "forward"), target)
    assert "threadIdx.x" in program.script()


def test_a_buffer_of_vectors_has_the_bytes_of_all_their_elements() -> None:
    for dtype, size in (("float32", 4), ("float32x4", 16), ("float16x8", 16), ("bool", 1)):
        assert buffer_bytes(tirx.decl_buffer((3, 5), dtype)) == 15 * size
