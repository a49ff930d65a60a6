"""Kernels of every family run under Oclgrind: no access out of bounds, no race, no value that nobody wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import oclgrind
import pytest
import tvm
from gpu_products import launched_groups
from tvm.script import tirx as T

from autotune.compiler.formulations import Formulation, formulations, prim_func, registered
from autotune.compiler.opencl_c.image_reads import image_operands
from autotune.compiler.opencl_c.opencl_source import improved_source
from autotune.compiler.opencl_c.vector_stores import group_sizes
from autotune.compiler.programs.candidate import digest_of
from autotune.compiler.programs.plain_data import plain
from autotune.compiler.programs.scheduled import plain_gpu_program, replayed
from autotune.compiler.programs.untuned import default_schedule
from autotune.compiler.rules.rules import tile_rule
from autotune.compiler.rules.tile_rules import Sketches, tiles_of
from autotune.compiler.runners.build_worker import linker
from autotune.compiler.runners.device_limits import with_device_limits
from autotune.compiler.runners.reference_data import TOLERANCE, ReferenceData
from autotune.compiler.runners.runner import DeviceFingerprint, MeasureRequest, measurement_message
from autotune.compiler.search.cost_model import ScheduleRanker
from autotune.compiler.search.formulation_search import FormulationSearch
from autotune.compiler.target import spaces
from autotune.compiler.target.request import TuneRequest
from autotune.compiler.target.targets import TargetSpec, find, tvm_target
from autotune.workloads import ROLES, Kernel, OwnKernel, parse_kernel, parse_operator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not oclgrind.ICD.is_file(), reason="needs Oclgrind: apt-get install oclgrind"
    ),
]

_SAMPLES = 3
"""Schedules that are drawn of a formulation that TVM's rules cut; the first that it compiles is tried."""

_KINDS, _EVERY_KIND = 2, 6
"""Most kinds of schedules tried of a formulation whose tiles are searched by themselves, and exhaustively."""

_TILES, _EVERY_TILE = 1, 3
"""Most schedules of one that has a single kind, and exhaustively."""

SPECS = (
    # Target, perhaps with half precision or wide sub-groups; kernels; the formulation where only one is new here.
    ("opencl", "conv2d:n=1,c=8,h=7,w=8,k=9,r=5,s=5,stride=1,pad=2", "winograd_gemm"),
    ("opencl", "conv2d:n=1,c=4,h=6,w=6,k=4,r=3,s=3,stride=1,pad=1,groups=4", ""),
    ("opencl", "conv2d:n=2,c=4,h=7,w=9,k=4,r=3,s=3,stride=2,pad=1,groups=4", "windows"),
    ("opencl", "conv2d:n=1,c=4,h=5,w=5,k=4,r=3,s=3,stride=1,pad=1,channels_last=1", ""),
    (
        "opencl",
        "conv2d:n=1,c=8,h=7,w=7,k=8,r=3,s=3,stride=1,pad=1,channels_last=1",
        "winograd_gemm",
    ),
    ("opencl", "conv2d:n=1,c=4,h=5,w=5,k=4,r=3,s=3,stride=2,pad=1,channels_last=1", "gemm_phases"),
    ("opencl", "conv2d:n=1,c=4,h=5,w=5,k=4,r=3,s=3,stride=2,pad=1,channels_last=1", "col2im"),
    ("opencl", "conv2d:n=1,c=16,h=3,w=4,k=16,r=3,s=3,stride=1,pad=1,channels_last=1", "winograd"),
    ("opencl", "conv2d:n=2,c=3,h=15,w=30,k=12,r=7,s=7,stride=2,pad=3", "few_channels"),
    ("opencl", "conv2d:n=1,c=2,h=9,w=14,k=6,r=3,s=2,stride=1,pad=1x0", "few_channels"),
    (
        "opencl",
        "data_grad conv2d:n=1,c=3,h=30,w=21,k=4,r=11,s=11,stride=4,pad=2+relu.data_grad:size=1890",
        "few_channels",
    ),
    ("opencl", "matmul:m=5,n=36,k=20", ""),
    ("opencl", "forward matmul:m=4,n=256,k=8", "gemm"),
    (
        "opencl",
        "forward conv2d:n=1,c=4,h=6,w=6,k=8,r=3,s=3,stride=1,pad=1+bias.forward:n=1,c=8,s=36,relu=1",
        "",
    ),
    (
        "opencl",
        "weight_grad conv2d:n=1,c=4,h=6,w=6,k=8,r=3,s=3,stride=1,pad=1+sgd.update:size=288",
        "",
    ),
    ("opencl", "weight_grad matmul:m=8,n=12,k=20+momentum.update:size=240", ""),
    ("opencl wave64", "matmul:m=16,n=32,k=16", "gemm"),
    ("adreno fp16", "matmul:m=8,n=36,k=20", "gemm"),
    ("mali fp16", "conv2d:n=1,c=8,h=7,w=7,k=8,r=3,s=3,stride=1,pad=1", "winograd_gemm"),
    ("mali fp16", "matmul:m=8,n=36,k=20", "gemm"),
    ("adreno", "conv2d:n=1,c=3,h=5,w=5,k=8,r=3,s=3,stride=1,pad=1", ""),
    ("adreno", "conv2d:n=1,c=8,h=7,w=7,k=8,r=3,s=3,stride=1,pad=1", "winograd_gemm"),
    ("adreno", "conv2d:n=1,c=4,h=6,w=6,k=4,r=3,s=3,stride=1,pad=1,groups=4", "windows"),
    ("adreno", "conv2d:n=1,c=4,h=5,w=5,k=4,r=3,s=3,stride=2,pad=1", "gemm_phases"),
    ("adreno", "conv2d:n=1,c=3,h=17,w=16,k=8,r=5,s=5,stride=2,pad=1", "few_channels"),
    ("adreno", "matmul:m=8,n=36,k=20", ""),
    ("mali", "conv2d:n=1,c=3,h=17,w=16,k=8,r=5,s=5,stride=2,pad=1", "few_channels"),
    ("mali", "matmul:m=4,n=36,k=20", ""),
    ("opencl", "bmm:b=3,m=4,n=20,k=12", ""),
    ("opencl", "attention:b=1,t=9,s=10,h=2,g=1,d=8,causal=1", ""),
    ("mali", "attention:b=2,t=8,s=5,h=2,g=2,d=8,mask=2x1", "group_strips"),
    ("adreno", "attention:b=1,t=12,s=16,h=2,g=2,d=16,mask=1x2,same_for_all=1", "group_strips"),
    ("opencl", "forward expr:(in f 6 40)(sum 6 / 40 = (exp (at 0 a0 a1)))(out 0)", ""),
    ("opencl", "update expr:(in f 37)(in f 37)(map 37 = (sub (at 0 a0) (at 1 a0)))(out 0)", ""),
    (  # A gather whose index comes from data, and a view that is turned round.
        "opencl",
        "forward expr:(in f 5 7)(in i 9)(in f 7 9)"
        "(map 9 7 = (add (at 0 (min (max (at 1 a0) 0) 4) a1) (at 2 a1 a0)))(out 0)",
        "",
    ),
    ("opencl", "bias:n=2,c=3,s=20,relu=1", ""),
    ("opencl", "max_pool2d:n=1,c=2,h=9,w=10,r=3,s=3,stride=2,pad=1,ceil=1", ""),
    ("opencl", "avg_pool2d:n=2,c=3,h=8,w=8,r=2,s=2,stride=2,pad=0", ""),
    ("opencl", "global_avg_pool:n=2,c=3,s=13", ""),
    ("opencl", "batch_stats:n=2,c=3,s=20", ""),
    ("opencl", "batch_norm:n=2,c=3,s=20", ""),
    ("opencl", "batch_stats:n=2,c=3,s=20,channels_last=1", "rows"),
    ("opencl", "batch_norm:n=2,c=3,s=20,channels_last=1", "rows"),
    ("opencl", "concat:n=2,c1=3,c2=2,s=5", ""),
    ("opencl", "cross_entropy:n=3,classes=10", ""),
    ("opencl", "running_stats:c=5,samples=40", ""),
    ("opencl", "running_power:size=1", ""),
    ("opencl", "relu:size=37", ""),
    ("opencl", "add:size=37", ""),
    ("opencl", "dropout:size=37", ""),
    ("opencl", "sgd:size=37", ""),
    ("opencl", "momentum:size=37", ""),
    ("opencl", "adam:size=37", ""),
)
MORE_SPECS = (
    ("mali", "conv2d:n=1,c=4,h=5,w=5,k=4,r=3,s=3,stride=2,pad=1", "gemm_phases"),
    ("mali", "conv2d:n=1,c=4,h=6,w=6,k=4,r=3,s=3,stride=1,pad=1,groups=4", "windows"),
    ("mali fp16", "conv2d:n=1,c=3,h=5,w=5,k=4,r=3,s=3,stride=1,pad=1", "gemm"),
    ("opencl", "conv2d:n=2,c=3,h=5,w=5,k=4,r=3,s=3,stride=1,pad=1", ""),
    ("mali", "conv2d:n=1,c=3,h=5,w=5,k=4,r=3,s=3,stride=1,pad=1", ""),
    ("opencl", "conv2d:n=1,c=8,h=7,w=8,k=9,r=3,s=3,stride=1,pad=1", "winograd_gemm"),
    ("opencl", "conv2d:n=1,c=8,h=7,w=7,k=8,r=5,s=5,stride=1,pad=2", "winograd_gemm"),
    ("mali", "conv2d:n=1,c=8,h=7,w=7,k=8,r=3,s=3,stride=1,pad=1", "winograd_gemm"),
    ("opencl", "conv2d:n=2,c=3,h=5,w=5,k=4,r=3,s=3,stride=2,pad=1", ""),
    ("opencl", "conv2d:n=1,c=3,h=9,w=9,k=4,r=5,s=5,stride=3,pad=1", "gemm_phases"),
    (
        "opencl",
        "weight_grad conv2d:n=1,c=4,h=6,w=6,k=4,r=3,s=3,stride=1,pad=1,groups=4+momentum.update:size=36",
        "",
    ),
    ("opencl", "weight_grad matmul:m=8,n=12,k=20+adam.update:size=240", ""),
    ("opencl fp16", "conv2d:n=1,c=8,h=7,w=7,k=8,r=3,s=3,stride=1,pad=1", "winograd_gemm"),
    ("opencl fp16", "matmul:m=8,n=36,k=20", "gemm"),
)
"""The same formulations once more, of other shapes or with other updates."""


def _run(
    library: Path, data: Path, folder: Path, *, images: bool = False
) -> tuple[float | None, str]:
    """The error of a library's results on Oclgrind's device, and what Oclgrind has to say of its kernels."""
    # What is wrong is not timed: with no error allowed the kernel runs once, which takes long enough.
    request = MeasureRequest(library, data, 1, 0.0, 0.0, -1.0, oclgrind.TIMEOUT_S)
    answer = oclgrind.measured(measurement_message(request), folder, images=images)
    return answer.get("max_rel_error"), oclgrind.said(folder)


def _kernels(spec: str) -> list[Kernel]:
    """The kernels of an operator, or the one that a role before it names, perhaps with more fused to it."""
    role, _, fused = spec.partition(" ")
    if role in ROLES:
        return [parse_kernel(fused, role)]
    operator = parse_operator(spec)
    return [Kernel(operator, role) for role in operator.roles()]


@cache
def _space(name: str) -> tuple[TargetSpec, spaces.Space]:
    """A target and its space, for devices as they usually are."""
    target, *ways = name.split()
    spec = find(target)
    asking = TuneRequest(spec, spaces.load(spec.space_path()), "", None, (), 1, 1)
    space = with_device_limits(asking, DeviceFingerprint("", "opencl", "", (), stand_in=True)).space
    if "fp16" in ways:
        space = space.with_half_storage()
    if "wave64" in ways:
        assert space.limits is not None
        wide = space.limits.model_copy(update={"sub_group_size": 64})
        space = space.model_copy(update={"limits": wide})
    return spec, space


def _of_record(kernel: Kernel, formulation: Formulation, trace: Any, digest: str) -> Any:
    """The program made again from its record, as exports and resumed searches do."""
    return replayed(kernel, formulation.name, json.loads(json.dumps(trace)), digest)


def _programs(
    kernel: Kernel, formulation: Formulation, name: str, target: Any, *, exhaustive: bool
) -> Iterator[Any]:
    """Schedules that a search would try: one, or one of each kind where tiles are searched by themselves."""
    _, space = _space(name)
    if not formulation.rule:
        ranker = ScheduleRanker(seed=1, warmup=24)
        few = space.model_copy(
            update={"search": space.search.model_copy(update={"min_unmeasured": _SAMPLES})}
        )
        searcher = FormulationSearch(
            kernel, formulation, space=few, target=target, ranker=ranker, seed=1, threads=1
        )
        programs = [
            _of_record(kernel, formulation, candidate.trace, candidate.digest)
            for candidate in searcher.propose(_SAMPLES)
        ]
        if programs:  # The first of them; where none compiles this ends the test.
            yield next(program for program in programs if _compiles(program, target))
        return
    tiles = _tiles(kernel, formulation, name, exhaustive=exhaustive)
    if not tiles:
        return
    rule = tile_rule(space, formulation.rule)
    module = tvm.IRModule({"main": prim_func(kernel, formulation)})
    sketches = Sketches(rule, module)
    for tile in tiles:
        schedule = sketches.schedule(tile)
        digest = digest_of(kernel, formulation.name, schedule.mod)
        yield _of_record(kernel, formulation, plain(schedule.trace.as_json()), digest)


def _compiles(program: Any, target: Any) -> bool:
    """Whether TVM compiles it: of what its own rules propose, it does not always."""
    try:
        tvm.compile(program, target)
    except Exception:  # TVM raises whatever it meets first.
        return False
    return True


@cache
def _tiles(kernel: Kernel, formulation: Formulation, name: str, *, exhaustive: bool) -> list[Any]:
    """The tiles that are tried of a formulation that is cut into tiles: as unlike as there are."""
    _, space = _space(name)
    rule = tile_rule(space, formulation.rule)
    module = tvm.IRModule({"main": prim_func(kernel, formulation)})
    drawn = list(tiles_of(rule, module, seed=1).drawn(2000))
    kinds = {rule.kind(tile): tile for tile in drawn}
    if len(kinds) > 1:
        unlike, most = [kinds[kind] for kind in sorted(kinds)], (_KINDS, _EVERY_KIND)[exhaustive]
    else:  # They differ in numbers alone.
        unlike, most = drawn, (_TILES, _EVERY_TILE)[exhaustive]
    # Each kernel has others: together they have every kind.
    return Random(f"{name} {kernel.name} {formulation.name}").sample(unlike, min(most, len(unlike)))


def _built(program: Any, target: Any, path: Path, *, images: bool) -> Path:
    context = improved_source(program, images=images)
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}), context:
        built = tvm.compile(program, target)
    built.export_library(str(path), fcompile=linker("", fast=True))
    return path


@pytest.mark.parametrize(
    ("name", "spec", "only"),
    [*SPECS, *(pytest.param(*one, marks=pytest.mark.exhaustive) for one in MORE_SPECS)],
)
def test_no_kernel_of_a_family_reads_or_writes_what_it_must_not(
    name: str, spec: str, only: str, tmp_path: Path, *, exhaustive: bool
) -> None:
    of_target, space = _space(name)
    target = tvm_target(of_target, space.limits)
    data = ReferenceData(tmp_path / "data", seed=1)
    rules = {rule.kind for rule in space.rules}
    tried = 0
    for kernel in _kernels(spec):
        for formulation in formulations(kernel, None, rules):
            if only not in ("", formulation.name):
                continue
            programs = _programs(kernel, formulation, name, target, exhaustive=exhaustive)
            for number, program in enumerate(programs):
                # Vector stores rest on the sizes of groups being those that are launched.
                assert group_sizes(program) == launched_groups(program, target)
                # What reads images comes once more as it is for a device without them.
                ways = (True, False) if exhaustive or number == 0 else (True,)
                for images in ways if image_operands(program) else (False,):
                    tried += 1
                    path = _built(program, target, tmp_path / f"{tried}.so", images=images)
                    error, found = _run(path, data.of(kernel), tmp_path, images=images)
                    what = f"{kernel.name}/{formulation.name} {tried}"
                    assert not found, f"{what}: {found[:800]}"
                    assert error is not None and error <= space.tolerance, what
    assert tried > 0


def test_every_formulation_of_opencl_spaces_is_among_them() -> None:
    tried, there = set(), set()
    for name, spec, only in SPECS:
        _, space = _space(name)
        rules = {rule.kind for rule in space.rules}
        for kernel in _kernels(spec):
            tried |= {
                (kernel.operator.name, kernel.role, one.name)
                for one in formulations(kernel, None, rules)
                if only in ("", one.name)
                and (not one.rule or _tiles(kernel, one, name, exhaustive=False))
            }
        there |= {
            (*of, one.name)
            for of, named in registered().items()
            for one in named.values()
            if one.rule in ("", *rules) and of[0] != OwnKernel.name
        }
    assert there - tried == set()


def test_every_way_to_share_a_reduction_is_among_them() -> None:
    """Sliced reductions with whatever else a product may have; operands in half precision with split ones alone."""
    beside = dict.fromkeys(("alone", "split", "pipelined", "straight", "image", "split half"), 0)
    for name, spec, only in SPECS:
        _, space = _space(name)
        for kernel in _kernels(spec):
            for formulation in formulations(kernel, None, {rule.kind for rule in space.rules}):
                if formulation.rule != "implicit_gemm" or only not in ("", formulation.name):
                    continue
                for tile in _tiles(kernel, formulation, name, exhaustive=False):
                    sliced = tile.slices > 1
                    beside["alone"] += sliced and tile.parts == 1
                    beside["split"] += sliced and tile.parts > 1
                    beside["image"] += sliced and (tile.row_image or tile.column_image)
                    beside["split half"] += tile.parts > 1 and tile.half
                    for flag in ("pipelined", "straight"):
                        beside[flag] += sliced and getattr(tile, flag)
    assert all(beside.values()), beside


@pytest.mark.parametrize(
    "spec",
    [
        "conv2d:n=1,c=4,h=6,w=6,k=8,r=3,s=3,stride=2,pad=1",
        "matmul:m=5,n=12,k=20",
        "max_pool2d:n=1,c=2,h=9,w=10,r=3,s=3,stride=2,pad=1,ceil=1",
        "cross_entropy:n=3,classes=10",
        "adam:size=37",
    ],
)
def test_no_untuned_kernel_does_either(spec: str, tmp_path: Path) -> None:
    """What stands beside tuned kernels: TVM's default, and the plain schedule of an export's safe variant."""
    of_target, space = _space("opencl")
    target = tvm_target(of_target, space.limits)
    data = ReferenceData(tmp_path / "data", seed=1)
    for kernel in _kernels(spec):
        (plain, *_) = formulations(kernel, None, set())
        module = tvm.IRModule({"main": prim_func(kernel, plain)})
        programs = (default_schedule(module, target), plain_gpu_program(kernel, 64))
        for number, program in enumerate(programs):
            path = _built(program, target, tmp_path / f"{kernel.name}.{number}.so", images=False)
            error, found = _run(path, data.of(kernel), tmp_path)
            assert not found, f"{kernel.name} {number}: {found[:800]}"
            assert error is not None and error <= TOLERANCE, f"{kernel.name} {number}"


@T.prim_func(s_tir=True)
def _too_far(x: T.Buffer((37,), "float32"), y: T.Buffer((37,), "float32")) -> None:
    for group in T.thread_binding(2, thread="blockIdx.x"):
        for item in T.thread_binding(19, thread="threadIdx.x"):
            y[group * 19 + item] = x[item]


@T.prim_func(s_tir=True)
def _race(x: T.Buffer((37,), "float32"), y: T.Buffer((37,), "float32")) -> None:
    for item in T.thread_binding(37, thread="threadIdx.x"):
        y[item // 2] = x[item]


@T.prim_func(s_tir=True)
def _nobody_wrote(x: T.Buffer((37,), "float32"), y: T.Buffer((37,), "float32")) -> None:
    for item in T.thread_binding(37, thread="threadIdx.x"):
        own = T.alloc_buffer((2,), scope="local")
        own[0] = x[item]
        y[item] = own[0] + own[1]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (_too_far, "Invalid write"),
        (_race, "data race"),
        (_nobody_wrote, "Uninitialized"),
    ],
)
def test_oclgrind_would_see_a_kernel_that_does(program: Any, message: str, tmp_path: Path) -> None:
    """The check of the check."""
    kernel = Kernel(parse_operator("relu:size=37"), "forward")
    target = tvm_target(find("opencl"), None)
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        built = tvm.compile(tvm.IRModule({"main": program}), target)
    path = tmp_path / "kernel.so"
    built.export_library(str(path), fcompile=linker("", fast=True))
    _, found = _run(path, ReferenceData(tmp_path / "data", seed=1).of(kernel), tmp_path)
    assert message in found
