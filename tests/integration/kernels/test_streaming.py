"""The first schedule of kernels that memory limits: right for any shape, and in vectors and on threads."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import guarded_memory
import numpy as np
import pytest
import tvm
from cpu_tiles import SPACE, SPEC

from autotune.compiler.llvm import vector_math
from autotune.compiler.programs import Unscheduled, plain_module, traits
from autotune.compiler.programs.candidate import program_hash
from autotune.compiler.rules import streamed
from autotune.compiler.target.targets import tvm_target
from autotune.workloads import max_relative_error, parse_kernel, random_inputs, reference

THREADS = 2
KERNELS = {
    "one loop": "expr:(in f 32768)(map 32768 = (max (at 0 a0) 0.0))(out 0)",
    "a prime number of elements": "expr:(in f 10007)(map 10007 = (mul (at 0 a0) 2.0))(out 0)",
    "few elements": "expr:(in f 3)(map 3 = (neg (at 0 a0)))(out 0)",
    "one element": "expr:(in f 1)(map 1 = (exp (at 0 0)))(out 0)",
    "rows and columns": "expr:(in f 72)(in f 300 72)(map 300 72 = (add (at 1 a0 a1) (at 0 a1)))(out 0)",
    "a transpose": "expr:(in f 96 256)(map 256 96 = (at 0 a1 a0))(out 0)",
    "a transpose of odd sizes": "expr:(in f 91 301)(map 301 91 = (at 0 a1 a0))(out 0)",
    "every second element": "expr:(in f 64 512)(map 64 256 = (at 0 a0 (mul a1 2)))(out 0)",
    "backwards": "expr:(in f 8192)(map 8192 = (at 0 (sub 8191 a0)))(out 0)",
    "joined": "expr:(in f 500 16)(in f 500 16)(map 500 32 = (select (lt a1 16) (at 0 a0 (min a1 15)) "
    "(at 1 a0 (max (add a1 -16) 0))))(out 0)",
    "a sum of rows": "expr:(in f 200 128)(sum 200 / 128 = (at 0 a0 a1))(out 0)",
    "a sum of short rows": "expr:(in f 20000 3)(sum 20000 / 3 = (exp (at 0 a0 a1)))(out 0)",
    "a sum of columns": "expr:(in f 3000 24)(sum 24 / 3000 = (at 0 a1 a0))(out 0)",
    "a sum of few columns": "expr:(in f 30000 2)(sum 2 / 30000 = (at 0 a1 a0))(out 0)",
    "a sum of everything": "expr:(in f 65536)(sum 1 / 65536 = (at 0 a1))(out 0)",
    "a sum of a prime number": "expr:(in f 10007)(sum 1 / 10007 = (at 0 a1))(out 0)",
    "a maximum over two axes": "expr:(in f 16 50 64)(max 50 / 16 64 = (at 0 a1 a0 a2))(out 0)",
    "softmax": "expr:(in f 128 64)(max 128 / 64 = (at 0 a0 a1))(map 128 64 = (exp (sub (at 0 a0 a1) (at 1 a0))))"
    "(sum 128 / 64 = (at 2 a0 a1))(map 128 64 = (div (at 2 a0 a1) (at 3 a0)))(out 3)",
    "mean and variance": "expr:(in f 100 96)(sum 100 / 96 = (mul (at 0 a0 a1) 0.0104166))(map 100 96 = "
    "(sub (at 0 a0 a1) (at 1 a0)))(sum 100 / 96 = (mul (at 2 a0 a1) (at 2 a0 a1)))(out 0 2)",
    "two results": "expr:(in f 16384)(in f 16384)(map 16384 = (add (mul 0.9 (at 0 a0)) (at 1 a0)))"
    "(map 16384 = (sub (at 1 a0) (at 2 a0)))(out 0 1)",
    "four columns": "expr:(in f 9000)(in f 9000 4)(map 9000 4 = (log (add 1.5 "
    "(mul (at 1 a0 a1) (at 0 a0)))))(out 0)",
    "a window": "max_pool2d:n=2,c=24,h=17,w=19,r=3,s=3,stride=2,pad=1,ceil=1,channels_last=1",
    "a window of planes": "avg_pool2d:n=2,c=5,h=16,w=16,r=2,s=2,stride=2,pad=0",
    "statistics": "batch_stats:n=3,c=12,s=49",
    "classes": "cross_entropy:n=32,classes=10",
}  # fmt: skip


def schedule(spec: str, *, threads: bool = True) -> Any:
    space = SPACE if threads else SPACE.without_threads()
    assert space.streaming is not None
    plain = Unscheduled(plain_module(parse_kernel(spec, "forward"))).schedule()
    return streamed(plain, space.streaming, THREADS)


def check(spec: str, role: str, made: Any) -> None:
    kernel = parse_kernel(spec, role)
    inputs = random_inputs(kernel, 1)
    with vector_math():
        library = tvm.compile(made.mod, tvm_target(SPEC, None, SPACE.compile))
    wanted = reference(kernel, inputs)
    results = [tvm.runtime.tensor(np.full(one.shape, 77, one.dtype)) for one in kernel.outputs]
    library["main"](*map(tvm.runtime.tensor, inputs), *results)
    for found, one in zip(results, wanted, strict=True):
        assert max_relative_error(found.numpy(), one) < 1e-4


@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize("name", KERNELS)
def test_results_are_those_of_the_reference(name: str, *, threads: bool) -> None:
    check(KERNELS[name], "forward", schedule(KERNELS[name], threads=threads))


@pytest.mark.parametrize(
    "name",
    [
        "one loop", "rows and columns", "a transpose", "a sum of rows", "a sum of columns", "a sum of everything",
        "softmax", "two results", "four columns",
    ],
)  # fmt: skip
def test_work_is_in_vectors_and_on_threads(name: str) -> None:
    with_threads, alone = (schedule(KERNELS[name], threads=one) for one in (True, False))
    text = str(with_threads.mod)
    assert "T.vectorized" in text
    assert "T.parallel" in text
    assert "T.parallel" not in str(alone.mod)
    jobs = [nest.jobs for nest in traits(with_threads.mod).nests]
    assert max(jobs) >= THREADS


def test_stages_of_one_shape_share_their_loops() -> None:
    """A second stage reads what the first has just written, and not from memory."""
    text = str(schedule(KERNELS["two results"]).mod)
    assert text.count("T.parallel") == 1


def test_a_schedule_is_made_again_from_its_trace() -> None:
    made = schedule(KERNELS["softmax"])
    again = Unscheduled(plain_module(parse_kernel(KERNELS["softmax"], "forward"))).schedule()
    made.trace.apply_to_schedule(again, remove_postproc=False)
    assert program_hash(again.mod) == program_hash(made.mod)


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_axes_is_right(seed: int) -> None:
    """Random permutations, broadcasts and reductions."""
    draw = random.Random(seed)
    sizes = [draw.choice([1, 2, 3, 7, 8, 16, 33, 64]) for _ in range(draw.randint(2, 4))]
    order = draw.sample(range(len(sizes)), len(sizes))
    reduced = sorted(draw.sample(range(len(sizes)), draw.randint(0, len(sizes) - 1)))
    kept = [at for at in range(len(sizes)) if at not in reduced]
    axis = {at: number for number, at in enumerate([*kept, *reduced])}
    operand = " ".join(str(sizes[at]) for at in order)
    index = " ".join(f"a{axis[at]}" for at in order)
    shape = " ".join(str(sizes[at]) for at in kept)
    over = " / " + " ".join(str(sizes[at]) for at in reduced) if reduced else ""
    combined = draw.choice(["sum", "max"]) if reduced else "map"
    spec = f"expr:(in f {operand})({combined} {shape}{over} = (tanh (at 0 {index})))(out 0)"
    check(spec, "forward", schedule(spec))


AT_THE_EDGE = (
    KERNELS["joined"],
    "expr:(in f 64 128)(in f 64 128)(map 64 256 = (select (lt a1 128) (at 0 a0 (min a1 127)) "
    "(at 1 a0 (max (add a1 -128) 0))))(out 0)",
    # A vector of 32 channels has those of both parts.
    "expr:(in f 512 24)(in f 512 8)(map 512 32 = (select (lt a1 24) (at 0 a0 (min a1 23)) "
    "(at 1 a0 (max (add a1 -24) 0))))(out 0)",
    # Padded along rows, and along vectors.
    "expr:(in f 32 16)(map 34 16 = (select (and (le 1 a0) (lt a0 33)) (at 0 (min (max (add a0 -1) 0) 31) a1) 0.0))"
    "(out 0)",
    "expr:(in f 16 32)(map 16 48 = (select (and (le 8 a1) (lt a1 40)) (at 0 a0 (min (max (add a1 -8) 0) 31)) 0.0))"
    "(out 0)",
    "expr:(in f 16 32)(sum 32 / 16 3 = (select (and (le 1 (add a0 a2)) (lt (add a0 a2) 33)) "
    "(at 0 a1 (min (max (add (add a0 a2) -1) 0) 31)) 0.0))(out 0)",
)  # fmt: skip


def test_nothing_outside_an_operand_is_read() -> None:
    """Vectors once read before the first element: TVM had dropped what keeps an index in its range."""
    done = subprocess.run(
        [sys.executable, "-m", "guarded_memory", *AT_THE_EDGE],
        cwd=Path(guarded_memory.__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-800:]}"
