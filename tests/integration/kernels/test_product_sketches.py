"""Schedules of products: what they need, which tile made them, and what is made of their records."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import tvm
from gpu_products import SPACE, TARGET, sketched
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import TuningRecord, Workload
from tvm.s_tir.schedule import Trace

from autotune.compiler.formulations import formulations
from autotune.compiler.opencl_c.opencl_source import improved_source
from autotune.compiler.programs.candidate import Candidate
from autotune.compiler.programs.plain_data import plain
from autotune.compiler.rules.implicit_gemm import GpuProductsRule
from autotune.compiler.rules.rules import NO_SCHEDULE, tile_rule
from autotune.compiler.rules.tile_rules import recorded_tile, tile_of, tiles_of
from autotune.compiler.search.cost_model import ScheduleRanker
from autotune.compiler.search.formulation_search import FormulationSearch
from autotune.errors import RecordError
from autotune.records.database import Schedule as Recorded
from autotune.workloads import parse_kernel


@pytest.mark.parametrize(
    ("spec", "role", "ways"),
    [
        ("matmul:m=4,n=512,k=64", "forward", "straight"),
        ("matmul:m=8,n=36,k=40", "data_grad", "unstaged"),
    ],
)
def test_a_sliced_product_needs_no_more_than_its_tile_says(spec: str, role: str, ways: str) -> None:
    """Its local memory is within what was promised, so that no trial is spent on a refused kernel."""
    space = SPACE
    if ways == "unstaged":
        rules = [
            rule.model_copy(update={"staged": (True, False)})
            if rule.kind == "implicit_gemm"
            else rule
            for rule in space.rules
        ]
        space = space.model_copy(update={"rules": tuple(rules)})
    rule, module, sketches = sketched(spec, role, space)
    tiles = tiles_of(rule, module, seed=1)
    by_kind: dict[object, list] = {}
    for tile in tiles.drawn(3000):
        if tile.slices > 1:
            by_kind.setdefault(rule.kind(tile), []).append(tile)
    wanted = {"straight": "straight", "unstaged": "staged"}[ways]
    assert {getattr(some[0], wanted) for some in by_kind.values()} == {True, False}
    for some in by_kind.values():
        said = [tile.local_bytes(tiles.product) for tile in some]
        for tile in {some[said.index(max(said))], some[said.index(min(said))]}:
            schedule = sketches.schedule(tile)
            assert tile_of(rule, schedule.trace) == tile
            context = improved_source(schedule.mod, images=False)
            with tvm.transform.PassContext(config={"tirx.disable_assert": True}), context:
                built = tvm.compile(schedule.mod, TARGET)
            source = str(built.mod.imports[0].inspect_source())
            needed = [
                sum(
                    (2 if kind in ("half", "ushort") else 4) * int(searchers or 1) * int(size)
                    for kind, searchers, size in re.findall(
                        r"__local ([a-z]+)(\d*) \w+\[(\d+)\]", part
                    )
                )
                for part in source.split("// Function: ")
            ]
            assert 0 < max(needed) <= tile.local_bytes(tiles.product), tile


@pytest.mark.parametrize(
    ("spec", "role"),
    [
        ("matmul:m=16,n=256,k=128", "forward"),
        ("matmul:m=16,n=256,k=128", "data_grad"),
        ("conv2d:n=2,c=16,h=6,w=6,k=32,r=3,s=3,stride=1,pad=1", "weight_grad"),
    ],
)
def test_a_record_of_any_kind_of_tile_makes_its_program_again(spec: str, role: str) -> None:
    rule, module, sketches = sketched(spec, role, SPACE)
    drawn = tiles_of(rule, module, seed=1).drawn(2000)
    kinds = {rule.kind(tile): tile for tile in drawn}
    assert {tile.pipelined for tile in kinds.values()} == {True, False}
    workload = Workload(module)
    arguments = ArgInfo.from_prim_func(module["main"])
    for tile in kinds.values():
        schedule = sketches.schedule(tile)
        record = TuningRecord(schedule.trace, workload, [1.0], TARGET, arguments)
        trace, *_ = json.loads(json.dumps(plain(record.as_json())))
        again = Schedule(module)
        Trace.apply_json_to_schedule(trace, again)
        tvm.ir.assert_structural_equal(again.mod, schedule.mod)
        assert recorded_tile(rule, trace) == tile_of(rule, again.trace) == tile


def test_a_trace_of_another_rule_is_no_tile() -> None:
    rule, _, _ = sketched("matmul:m=16,n=256,k=128", "forward", SPACE)
    sampled = ["SampleCategorical", [], [[1, 2], [0.5, 0.5]], ["v0"]]
    for trace in ([[sampled], [[0, 1]]], [[sampled], []], [[], []], [], "trace", None):
        with pytest.raises(RecordError, match="another version"):
            recorded_tile(rule, trace)


def test_what_was_measured_before_is_a_lesson_or_is_recalled_and_not_learnt_twice() -> None:
    kernel = parse_kernel("matmul:m=16,n=256,k=128", "forward")
    (product,) = (one for one in formulations(kernel) if one.name == "gemm")
    rule, module, sketches = sketched(kernel.spec, "forward")

    def searcher() -> tuple[FormulationSearch, ScheduleRanker]:
        ranker = ScheduleRanker(seed=1, warmup=64, members=4)
        made = FormulationSearch(
            kernel, product, space=SPACE, target=TARGET, ranker=ranker, seed=1, threads=1
        )
        return made, ranker

    tiles = [*tiles_of(rule, module, seed=1).drawn(8)]
    traces = [
        json.loads(json.dumps(plain(sketches.schedule(one).trace.as_json()))) for one in tiles
    ]
    digests = [searcher()[0].replay(trace).digest for trace in traces]
    known = [
        Recorded.of(kernel.name, "gemm", digest, trace, {"run": 1e-3 * number})
        for number, (digest, trace) in enumerate(zip(digests, traces, strict=True), start=1)
    ]
    broken = Recorded.of(kernel.name, "gemm", "0", [], {"run": 1.0})
    taught, ranker = searcher()
    lesson = taught.lesson([*known, broken])
    assert lesson.seconds == [one.best_s for one in known]
    assert [one.digest for one in taught.recall(known, learn=False)] == digests
    assert ranker.measurements == 0
    recalled, ranker = searcher()
    assert [one.digest for one in recalled.recall(known)] == digests
    assert ranker.measurements == len(known)


def test_what_two_sources_know_is_proposed_once_and_what_is_recalled_when_it_is_to_be_repeated() -> (
    None
):
    kernel = parse_kernel("matmul:m=16,n=256,k=128", "forward")
    (product,) = (one for one in formulations(kernel) if one.name == "gemm")
    _, module, sketches = sketched(kernel.spec, "forward")
    tile = next(tiles_of(tile_rule(SPACE, product.rule), module, 1).drawn(8))
    trace = json.loads(json.dumps(plain(sketches.schedule(tile).trace.as_json())))

    def searcher() -> FormulationSearch:
        ranker = ScheduleRanker(seed=1, warmup=64, members=4)
        return FormulationSearch(
            kernel, product, space=SPACE, target=TARGET, ranker=ranker, seed=1, threads=1
        )

    same, both = searcher().replay(trace), searcher()
    both.give([(same.digest, trace)])
    assert both.adapt([same], variants=1, count=1) == 1  # Its own kernel is most like it.
    assert [one.digest for one in both.propose(2)].count(same.digest) == 1

    known = Recorded.of(kernel.name, "gemm", same.digest, trace, {"run": 1e-3})
    both.repeat(both.recall([known]))
    assert [one.digest for one in both.propose(1)] == [same.digest]


def test_tiles_that_cannot_be_scheduled_are_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sketch = GpuProductsRule.sketch
    kernel = parse_kernel("matmul:m=64,n=64,k=64", "forward")
    (product,) = formulations(kernel, ["gemm"])

    def proposed(*pipelined: bool) -> tuple[FormulationSearch, list[Candidate]]:
        def some(self: GpuProductsRule, sch: Any, block: Any, tiles: Any, tile: Any) -> Any:
            if tile.pipelined in pipelined:
                raise ValueError("no way to schedule it")
            return sketch(self, sch, block, tiles, tile)

        monkeypatch.setattr(GpuProductsRule, "sketch", some)
        ranker = ScheduleRanker(seed=1, warmup=24)
        searcher = FormulationSearch(
            kernel, product, space=SPACE, target=TARGET, ranker=ranker, seed=1, threads=1
        )
        found: list[Candidate] = []
        while not (found or searcher.state.exhausted):
            found = searcher.propose(8)
        return searcher, found

    searcher, found = proposed(True)
    assert found
    assert searcher.state.failure == ""
    assert "no way to schedule it" in caplog.text
    searcher, found = proposed(True, False)
    assert (found, searcher.state.exhausted) == ([], True)
    assert searcher.state.failure == NO_SCHEDULE
