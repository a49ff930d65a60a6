"""The runner on this host: right results pass, wrong, incomplete, crashing and endless ones do not."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm
from opencl_drivers import driver
from tvm import te
from tvm.s_tir import Schedule

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.native import opencl_sidecar
from autotune.compiler.runners.build_worker import linker
from autotune.compiler.runners.builder import Builder, BuildRequest, target_text
from autotune.compiler.runners.local_devices import host_device, runner_for
from autotune.compiler.runners.reference_data import TOLERANCE, ReferenceData
from autotune.compiler.runners.runner import CompareRequest, LocalRunner, MeasureRequest
from autotune.compiler.target.spaces import Limits
from autotune.compiler.target.targets import find, tvm_target
from autotune.measurement import Outcome, median
from autotune.workloads import Kernel
from autotune.workloads.operators import Matmul

KERNEL = Kernel(Matmul(6, 10, 16), "forward")
Measure = Callable[[Any], Outcome]


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    local = LocalRunner(host_device())
    yield local
    local.stop()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ReferenceData(tmp_path_factory.mktemp("data"), 1).of(KERNEL)


def library(function: Any, path: Path, options: dict[str, Any] | None = None) -> Path:
    target = {"kind": "llvm", **(options or {})}
    module = tvm.compile(tvm.IRModule({"main": function}), tvm.target.Target(target, host=target))
    module.export_library(str(path), fcompile=linker("", fast=True))
    return path


def request(path: Path, data: Path, timeout_s: float = 20.0) -> MeasureRequest:
    return MeasureRequest(path, data, 3, 1.0, 10.0, TOLERANCE, timeout_s)


@pytest.fixture
def measure(runner: LocalRunner, data: Path, tmp_path: Path) -> Measure:
    def measured(function: Any) -> Outcome:
        return runner.measure(request(library(function, tmp_path / "k.so"), data))

    return measured


def flawed(*, columns: int = 10, wear: float = 0.0) -> Any:
    """The kernel, writing so many columns only and wearing out an input by so much at each execution."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def product(
        x: T.Buffer((6, 16), "float32"),
        w: T.Buffer((10, 16), "float32"),
        y: T.Buffer((6, 10), "float32"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i, j in T.grid(6, columns):
            y[i, j] = T.float32(0)
            for k in range(16):
                y[i, j] = y[i, j] + x[i, k] * w[j, k]
        x[0, 0] = x[0, 0] + T.float32(wear)

    return product


def matmul(body: Callable[[Any, Any, Any, Any, Any], Any]) -> Any:
    """A function with the kernel's signature and any body: y[i, j] = sum over k of body."""
    operator = KERNEL.operator
    assert isinstance(operator, Matmul)
    x = te.placeholder((operator.m, operator.k), name="x")
    weight = te.placeholder((operator.n, operator.k), name="weight")
    k = te.reduce_axis((0, operator.k), "k")
    y = te.compute(
        (operator.m, operator.n), lambda i, j: te.sum(body(x, weight, i, j, k), axis=k), name="y"
    )
    return te.create_prim_func([x, weight, y]).with_attr("global_symbol", "main")


def test_a_right_kernel_is_timed(measure: Measure) -> None:
    outcome = measure(matmul(lambda x, w, i, j, k: x[i, k] * w[j, k]))
    assert outcome.status == "ok", outcome.message
    assert len(outcome.samples) == 3
    assert all(0 < sample < 1e-3 for sample in outcome.samples)
    assert outcome.max_rel_error is not None
    assert outcome.max_rel_error < 1e-5


def test_one_wrong_element_in_a_sum_is_noticed(measure: Measure) -> None:
    wrong = matmul(
        lambda x, w, i, j, k: te.if_then_else(
            te.all(i == 5, j == 9, k == 15), x[i, k] * w[j, 0], x[i, k] * w[j, k]
        )
    )
    outcome = measure(wrong)
    assert outcome.status == "wrong_result"
    assert outcome.samples == ()
    assert outcome.seconds == math.inf
    assert outcome.max_rel_error is not None
    assert outcome.max_rel_error > TOLERANCE


def test_an_element_that_is_never_written_is_noticed(
    runner: LocalRunner, data: Path, tmp_path: Path, measure: Measure
) -> None:
    assert measure(matmul(lambda x, w, i, j, k: x[i, k] * w[j, k])).ok
    partial = flawed(columns=9)
    outcome = runner.measure(request(library(partial, tmp_path / "partial.so"), data))
    assert outcome.status == "wrong_result"
    assert "never written" in outcome.message


def test_a_kernel_that_spoils_its_input_does_not_spoil_the_next_candidate(
    runner: LocalRunner, data: Path, tmp_path: Path, measure: Measure
) -> None:
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def vandal(
        x: T.Buffer((6, 16), "float32"),
        w: T.Buffer((10, 16), "float32"),
        y: T.Buffer((6, 10), "float32"),
    ) -> None:
        T.func_attr({"global_symbol": "main"})
        for i, j in T.grid(6, 10):
            y[i, j] = T.float32(0)
            x[i, j] = w[j, i]

    spoilt = runner.measure(request(library(vandal, tmp_path / "vandal.so"), data))
    assert spoilt.status == "wrong_result"
    assert measure(matmul(lambda x, w, i, j, k: x[i, k] * w[j, k])).ok


def test_an_endless_kernel_meets_its_limit_and_the_next_one_runs(
    runner: LocalRunner, data: Path, tmp_path: Path, measure: Measure
) -> None:
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def endless(
        x: T.Buffer((6, 16), "float32"),
        w: T.Buffer((10, 16), "float32"),
        y: T.Buffer((6, 10), "float32"),
    ) -> None:
        T.func_attr({"global_symbol": "main"})
        y[0, 0] = w[0, 0]
        while y[0, 0] < T.float32(1e30):
            y[0, 0] = x[0, 0]

    outcome = runner.measure(request(library(endless, tmp_path / "endless.so"), data, 3.0))
    assert outcome.status == "timeout"
    assert "killed" in outcome.message
    assert measure(matmul(lambda x, w, i, j, k: x[i, k] * w[j, k])).ok


def test_a_crashing_kernel_is_a_run_error_and_the_next_one_runs(
    runner: LocalRunner, data: Path, tmp_path: Path, measure: Measure
) -> None:
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def wild(
        x: T.Buffer((6, 16), "float32"),
        w: T.Buffer((10, 16), "float32"),
        y: T.Buffer((6, 10), "float32"),
    ) -> None:
        T.func_attr({"global_symbol": "main"})
        for i in range(1 << 27):
            y[i, 0] = x[0, 0] + w[0, 0]

    outcome = runner.measure(request(library(wild, tmp_path / "wild.so"), data))
    assert outcome.status == "run_error"
    assert "SIG" in outcome.message
    assert measure(matmul(lambda x, w, i, j, k: x[i, k] * w[j, k])).ok


def test_a_library_that_is_none_is_a_run_error(
    runner: LocalRunner, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "no.so").write_text("not a library")
    assert runner.measure(request(tmp_path / "no.so", data)).status == "run_error"


def test_compare_tells_a_slow_kernel_from_a_fast_one(runner: LocalRunner, tmp_path: Path) -> None:
    kernel = Kernel(Matmul(64, 64, 256), "forward")
    data = ReferenceData(tmp_path / "data", 1).of(kernel)
    (plain,) = formulations(kernel, ["direct"])
    function = prim_func(kernel, plain)
    fast = library(function, tmp_path / "fast.so")
    slow = library(function, tmp_path / "slow.so", {"opt-level": 0})
    timed = runner.compare(CompareRequest((slow, fast), data, (5, 7), 1.0, 1))
    assert [len(row) for row in timed.samples] == [5, 7]
    assert median(timed.samples[0]) > median(timed.samples[1])
    assert all(error is not None and error < TOLERANCE for error in timed.max_rel_errors)


@pytest.mark.parametrize("known", [(), (0.5,), (2.0,)])
def test_a_result_that_goes_wrong_in_time_is_noticed_unless_each_time_takes_long(
    runner: LocalRunner, tmp_path: Path, known: tuple[float, ...]
) -> None:
    own = ReferenceData(tmp_path / "data", 1).of(KERNEL)
    worn = library(flawed(wear=100.0), tmp_path / "wearing.so")
    timed = runner.compare(CompareRequest((worn,), own, (2,), 1.0, 1, known))
    (error,) = timed.max_rel_errors
    assert error is not None
    assert (error <= TOLERANCE) == (known == (2.0,))
    assert len(timed.samples[0]) == 2


def test_the_builder_reports_what_does_not_compile_and_goes_on(tmp_path: Path) -> None:
    target = target_text(tvm_target(find("cpu"), None))
    builder = Builder(workers=2, timeout_s=20.0, temporary=tmp_path)
    good = str(tvm.ir.save_json(tvm.IRModule({"main": matmul(lambda x, w, i, j, k: x[i, k])})))
    requests = [
        BuildRequest(good, target, tmp_path / "a.so"),
        BuildRequest("{}", target, tmp_path / "b.so"),
        BuildRequest(good, target, tmp_path / "c.so"),
    ]
    outcomes = builder.submit(requests).result()
    builder.stop()
    assert outcomes[0] is None
    assert outcomes[2] is None
    assert outcomes[1] is not None
    assert outcomes[1].status == "compile_error"
    assert outcomes[1].message
    assert (tmp_path / "a.so").exists()
    assert not (tmp_path / "b.so").exists()


def test_a_compile_that_outlasts_its_limit_is_a_timeout(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    builder = Builder(workers=1, timeout_s=0.01, temporary=tmp_path / "temporary")
    target = target_text(tvm_target(find("cpu"), None))
    program = str(tvm.ir.save_json(tvm.IRModule({"main": matmul(lambda x, w, i, j, k: x[i, k])})))
    (outcome,) = builder.submit([BuildRequest(program, target, tmp_path / "a.so")]).result()
    builder.stop()
    assert outcome is not None
    assert outcome.status == "timeout"


def test_a_kernel_that_is_shorter_than_its_launch_is_timed_in_full(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One execution takes as long as the host waits for it, which says nothing of the kernel."""
    monkeypatch.setenv("AUTOTUNE_OPENCL_LIBRARY", str(driver(tmp_path)))
    monkeypatch.setenv("WAIT_US", "1200")
    schedule = Schedule(matmul(lambda x, w, i, j, k: x[i, k] * w[j, k]))
    rows, columns, _ = schedule.get_loops(schedule.get_sblock("y"))
    schedule.bind(rows, "blockIdx.x")
    schedule.bind(columns, "threadIdx.x")
    spec = find("opencl")
    path = tmp_path / "k.so"
    tvm.compile(schedule.mod, tvm_target(spec, Limits())).export_library(
        str(path), fcompile=linker("", fast=True)
    )
    runner = runner_for(spec)
    try:
        outcome = runner.measure(replace(request(path, data), give_up_s=6e-4))
    finally:
        runner.stop()
    assert outcome.status == "ok", outcome.message
    assert len(outcome.samples) == 3
    assert all(sample < 6e-4 for sample in outcome.samples)


def test_the_opencl_stand_in_is_named() -> None:
    runner = runner_for(find("mali"))
    assert runner.device.stand_in
    assert runner.device.name == opencl_sidecar.devices()[0].name
    assert runner.device.kind == "opencl"
