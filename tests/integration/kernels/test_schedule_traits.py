"""What is read of a schedule's program: operations, jobs, and bytes through caches."""

from __future__ import annotations

import tvm

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.programs.schedule_traits import traits
from autotune.workloads import parse_kernel
from autotune.workloads.schedule_traits import CACHE_SIZES, ScheduleTraits

SIZE = 256
MATRIX = 4.0 * SIZE * SIZE
ROW = 4.0 * SIZE


def schedule() -> tvm.s_tir.Schedule:
    kernel = parse_kernel(f"matmul:m={SIZE},n={SIZE},k={SIZE}", "forward")
    (direct,) = formulations(kernel, ["direct"])
    return tvm.s_tir.Schedule(tvm.IRModule({"main": prim_func(kernel, direct)}))


def through(found: ScheduleTraits, cache_bytes: int) -> float:
    return found.nests[0].bytes_through(cache_bytes)


def test_a_plain_matmul_moves_what_its_loops_do() -> None:
    (nest,) = traits(schedule().mod).nests
    assert (nest.flops, nest.jobs, nest.vector_share) == (2.0 * SIZE**3, 1, 0.0)
    # Everything fits, or the weights and a row of the others: each matrix once.
    assert nest.bytes_through(2**24) == nest.bytes_through(2**19) == 3 * MATRIX
    # Two rows fit: the weights come anew for every row of x, which stays.
    assert nest.bytes_through(2**13) == SIZE * MATRIX + 2 * MATRIX
    assert list(nest.traffic) == sorted(nest.traffic, reverse=True)


def test_tiles_keep_what_they_hold() -> None:
    plain, tiled = schedule(), schedule()
    block = tiled.get_sblock("y")
    i, j, k = tiled.get_loops(block)
    outer_i, inner_i = tiled.split(i, [None, 32])
    outer_j, inner_j = tiled.split(j, [None, 32])
    tiled.reorder(outer_i, outer_j, k, inner_i, inner_j)
    # A tile of 32 x 32 results, and 32 rows of both others: 4 + 32 + 32 KiB.
    tile = 4.0 * 32 * 32
    expected = (SIZE / 32) ** 2 * (2 * 32 * ROW + tile)
    found = traits(tiled.mod)
    assert through(found, 2**17) < through(traits(plain.mod), 2**17)
    # Of two tiles side by side the rows of x stay.
    assert through(found, 2**17) == expected - (SIZE / 32) * (SIZE / 32 - 1) * 32 * ROW
    assert CACHE_SIZES[0] <= 2**13


def test_jobs_and_vectors_are_those_of_the_loops() -> None:
    found = schedule()
    i, j, k = found.get_loops(found.get_sblock("y"))
    found.reorder(i, k, j)
    _, inner = found.split(j, [None, 8])
    found.vectorize(inner)
    found.parallel(i)
    (nest,) = traits(found.mod).nests
    assert (nest.jobs, nest.vector_share) == (SIZE, 1.0)
    serial = schedule()
    (untouched,) = traits(serial.mod).nests
    assert (untouched.jobs, untouched.vector_share) == (1, 0.0)


def test_traits_are_plain_data() -> None:
    found = traits(schedule().mod)
    assert ScheduleTraits.from_json(found.to_json()) == found
