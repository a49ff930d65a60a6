"""What records tell of kernels: equal ones, similar ones, and loops cut as similar ones were."""

import math

import pytest
from test_budget import searcher, task

from autotune.compiler.run.budget import next_allocation
from autotune.compiler.run.experience import experiences
from autotune.compiler.search.transfer import nearest_tiles
from autotune.records.database import About, Database, Identity, Schedule, SearchedTask, Source
from autotune.workloads.operators import Kernel
from autotune.workloads.spec import parse_kernel

PHONE = Identity("sm8150", "rpc-cpu", "", "0.27.0", "cpu aarch64-linux-gnu", stand_in=False)


def conv(k: int, h: int, role: str = "forward", c: int = 16, **fields: int) -> Kernel:
    extra = "".join(f",{name}={value}" for name, value in fields.items())
    return parse_kernel(f"conv2d:n=1,c={c},h={h},w={h},k={k},r=3,s=3,stride=1,pad=1{extra}", role)


def known(*kernels: tuple[Kernel, dict[str, list[float]]]) -> Database:
    tasks = {k.name: SearchedTask(k.spec, k.role, 1, 9.0, 8, ((1, 1.0),)) for k, _ in kernels}
    schedules = [
        Schedule.of(kernel.name, formulation, f"{formulation}{number}", [], {"run": seconds})
        for kernel, times in kernels
        for formulation, row in times.items()
        for number, seconds in enumerate(row)
    ]
    return Database.of(
        [Source("run", PHONE, "all", About("run", 0.0, "lenet", 1), 8, tasks)], schedules
    )


def test_a_known_kernel_is_equal_and_its_formulations_are_told() -> None:
    own = conv(32, 14)
    reported = experiences(
        [own], known((own, {"direct": [3.0, 2.0], "guarded": [1.0, 4.0, 5.0]}), (conv(64, 14), {"packed": [0.1]}))
    ).of[own.name]  # fmt: skip
    assert reported.equal
    assert reported.formulations() == ["guarded", "direct"]
    assert (
        reported.expected("direct"),
        reported.expected("guarded"),
        reported.expected("packed"),
    ) == (
        2,
        1,
        None,
    )
    assert (reported.trials("direct"), reported.trials("guarded"), reported.trials("packed")) == (
        2,
        3,
        0,
    )


def test_similar_kernels_differ_in_sizes_only_and_the_nearest_comes_first() -> None:
    far, near, nearer = conv(64, 224), conv(64, 28), conv(32, 15)
    others = (
        conv(32, 14, "weight_grad"),
        conv(32, 14, channels_last=1),
        conv(16, 14, groups=16),
        parse_kernel("matmul:m=8,n=8,k=8", "forward"),
        parse_kernel(conv(32, 14).spec + "+bias.forward:n=1,c=32,s=196,relu=1", "forward"),
    )
    database = known(*((one, {"direct": [1.0]}) for one in (far, *others, near, nearer)))
    reported = experiences([conv(32, 14)], database).of[conv(32, 14).name]
    assert not reported.equal
    assert [one.kernel for one in reported.known] == [nearer, near, far]
    assert not experiences([conv(32, 14, "data_grad")], database).of


def test_what_is_known_of_similar_kernels_is_worth_less() -> None:
    database = known((conv(64, 14), {"direct": [1.0] * 6}))
    (reported,) = experiences([conv(32, 14)], database).of.values()
    assert reported.trials("direct") == 3


@pytest.mark.parametrize(
    ("extent", "factors", "limit", "best"),
    [
        (12100, (11, 11, 10, 10), 64, (11, 11, 10, 10)),
        (24200, (11, 11, 10, 10), 64, (22, 11, 10, 10)),  # Longer: more tiles of the same size.
        (1, (4, 2, 2, 1), 64, (1, 1, 1, 1)),
        (13, (4, 1, 4, 16), 64, (1, 1, 1, 13)),
        (7, (1, 96), 4, (7, 1)),  # No innermost factor over the limit.
        (10, (6,), 64, (10,)),
    ],
)
def test_loops_are_cut_as_the_known_one_was(
    extent: int, factors: tuple[int, ...], limit: int, best: tuple[int, ...]
) -> None:
    ways = nearest_tiles(extent, factors, limit, 5)
    assert ways[0] == best
    assert len(set(ways)) == len(ways)
    assert all(
        (math.prod(way) == extent and way[-1] <= max(limit, 1)) or len(way) == 1 for way in ways
    )


def test_a_known_formulation_needs_no_warmup_and_a_slow_one_waits() -> None:
    fast = searcher(1, 0.1, credit=8, expected=1.0)
    slow = searcher(0, math.inf, credit=8, expected=3.0)
    both = task(1, 1.0, fast, slow, warmup=4)
    turn = next_allocation([both], 50, 8)
    assert turn is not None
    assert turn.searcher is fast
    fast.state.trials = 300  # It has had its trials: the other may be better after all.
    turn = next_allocation([both], 50, 8)
    assert turn is not None
    assert turn.searcher is slow


def test_the_fastest_known_formulation_goes_on_while_its_first_trials_are_on_their_way() -> None:
    waiting = searcher(2, math.inf, credit=8, expected=1.0)
    slow = searcher(0, math.inf, credit=8, expected=3.0)
    turn = next_allocation([task(1, 1.0, slow, waiting, warmup=4)], 50, 8)
    assert turn is not None
    assert turn.searcher is waiting


def test_a_formulation_that_nobody_has_tried_is_tried_before_one_that_is_known() -> None:
    reported, new = searcher(1, 0.1, credit=8, expected=1.0), searcher(0)
    turn = next_allocation([task(1, 1.0, reported, new, warmup=4)], 50, 8)
    assert turn is not None
    assert (turn.searcher, turn.trials) == (new, 4)


def test_a_kernel_that_is_known_leaves_the_budget_to_those_that_are_not() -> None:
    known, new = task(1, 1.0, searcher(4, 0.5), warmup=4), task(1, 1.0, searcher(4, 0.5), warmup=4)
    known.known_trials = 40
    turn = next_allocation([known, new], 50, 8)
    assert turn is not None
    assert turn.task == 1


def test_a_kernel_that_is_slower_than_records_let_expect_comes_first_and_little_by_little() -> None:
    settled, short = (
        task(1, 9.0, searcher(8, 2.0), warmup=4),
        task(1, 9.0, searcher(8, 1.5), warmup=4),
    )
    settled.expected_s, short.expected_s = 1.9, 0.2
    turn = next_allocation([settled, short], 50, 16)
    assert turn is not None
    assert (turn.task, turn.trials) == (1, 4)
    assert settled.shortfall() == 0
