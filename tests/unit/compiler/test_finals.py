"""The final benchmark: who wins, and what happens when contestants crash, are wrong, or are not there."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.compiler.programs.annotations import HALF
from autotune.compiler.programs.candidate import Candidate
from autotune.compiler.run.final_benchmark import Finalist, Verdict, benchmark_finalists, finalists
from autotune.compiler.runners.runner import (
    CompareRequest,
    Comparison,
    DeviceFingerprint,
    MeasureRequest,
)
from autotune.compiler.target.spaces import Measure
from autotune.compiler.workers.workers import WorkerLost
from autotune.measurement import Outcome


class RecordedRunner:
    """Answers `compare` from a table of seconds; libraries named `crash` end the process."""

    def __init__(self, seconds: dict[str, float], errors: dict[str, float | None]) -> None:
        self.device = DeviceFingerprint("recorded", "cpu", "", (), stand_in=False)
        self.seconds, self.errors = seconds, errors

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def measure(self, request: MeasureRequest) -> Outcome:
        return Outcome("run_error", message="not asked for here")

    def compare(self, request: CompareRequest) -> Comparison:
        names = [path.name for path in request.libraries]
        if "crash" in names:
            raise WorkerLost("worker died by SIGSEGV", timed_out=False)
        return Comparison(
            tuple(
                tuple(self.seconds[name] * (1 + 0.001 * (block % 3)) for block in range(blocks))
                for name, blocks in zip(names, request.blocks, strict=True)
            ),
            tuple(self.errors.get(name, 1e-6) for name in names),
        )


def entrant(name: str, seconds: float = 1e-3) -> Finalist:
    return Finalist(name, Path(name), seconds)


def verdict(
    seconds: dict[str, float],
    *names: str,
    default: str | None = "default",
    errors: dict[str, float | None] | None = None,
) -> Verdict:
    runner = RecordedRunner(seconds, errors or {})
    first = entrant(default) if default else None
    return benchmark_finalists(runner, Path(), first, [entrant(n) for n in names], Measure(), 1)


def test_the_faster_candidate_wins_with_its_interval() -> None:
    won = verdict({"default": 4e-3, "a": 2e-3, "b": 1e-3}, "a", "b")
    assert (won.winner, won.winner_s) == ("b", 1.001e-3)
    assert won.speedup is not None
    assert won.speedup.low > 3.9
    assert set(won.samples) == {"default", "a", "b"}


def test_what_is_slow_is_in_few_blocks_and_does_not_keep_the_others_from_theirs() -> None:
    def blocks(**seconds: float) -> list[int]:
        first, *others = (entrant(name, one) for name, one in seconds.items())
        runner = RecordedRunner(seconds, {})
        found = benchmark_finalists(runner, Path(), first, others, Measure(final_blocks=11), 1)
        assert found.winner == min(seconds, key=lambda name: seconds[name])
        assert found.speedup is not None
        return [len(found.samples[name]) for name in seconds]

    assert blocks(default=0.2, a=0.01, b=0.02) == [11, 11, 11]
    assert blocks(default=0.5, a=0.06, b=0.07) == [5, 5, 5]
    assert blocks(default=5.0, a=0.06, b=0.07, c=0.3) == [3, 5, 5, 5]
    assert blocks(default=5.0, a=0.02, b=0.04, c=0.3) == [3, 11, 11, 3]
    assert blocks(default=5.0, a=1.0, b=0.4) == [3, 5, 5]
    assert blocks(default=0.4, a=5.0) == [5, 3]
    assert blocks(default=0.249, a=0.24, b=0.251) == [5, 5, 5]


def test_the_default_is_kept_when_nothing_is_better() -> None:
    kept = verdict({"default": 1e-3, "a": 1.2e-3}, "a")
    assert kept.winner == "default"
    assert kept.speedup is not None
    assert (kept.speedup.low, kept.speedup.estimate, kept.speedup.high) == (1, 1, 1)


def test_a_gain_under_one_per_cent_is_none() -> None:
    assert verdict({"default": 1.005e-3, "a": 1e-3}, "a").winner == "default"


def test_what_cannot_be_told_apart_is_a_tie() -> None:
    assert verdict({"default": 1.005e-3, "a": 1e-3}, "a").ties == ("a",)
    assert verdict({"default": 1e-3, "a": 1.2e-3}, "a").ties == ()
    seconds = {"default": 4e-3, "a": 2.01e-3, "b": 2e-3, "c": 3e-3}
    won = verdict(seconds, "a", "b", "c")
    assert (won.winner, won.ties) == ("b", ("a",))
    assert verdict({**seconds, "a": 2.5e-3}, "a", "b", "c").ties == ()


def test_a_wrong_result_cannot_win() -> None:
    seconds = {"default": 4e-3, "a": 1e-3, "b": 2e-3}
    assert verdict(seconds, "a", "b", errors={"a": 0.1}).winner == "b"
    assert verdict(seconds, "a", "b", errors={"a": None}).winner == "b"


def test_only_a_kernel_in_half_precision_may_be_off_by_more() -> None:
    runner = RecordedRunner({"half": 1e-3, "a": 2e-3}, {"half": 1e-2, "a": 1e-2})
    half = replace(entrant("half"), half=True)
    won = benchmark_finalists(runner, Path(), None, [half, entrant("a")], Measure(), 1)
    assert (won.winner, won.right) == ("half", ("half",))


@pytest.mark.parametrize("half", [True, False])
def test_a_trace_says_whether_operands_are_kept_in_half_precision(*, half: bool) -> None:
    note = ["Annotate", ["b0", 1], [HALF if half else "autotune.image"], []]
    trace = [[["GetSBlock", [], ["product", "main"], ["b0"]], note], []]
    assert Candidate("d", None, "", trace).half is half
    assert not Candidate("d", None, "", None).half


def test_a_default_that_is_wrong_gives_no_speedup() -> None:
    won = verdict({"default": 4e-3, "a": 1e-3}, "a", errors={"default": 0.5})
    assert (won.winner, won.default_s, won.speedup) == ("a", None, None)


def test_one_that_crashes_does_not_take_the_others_along() -> None:
    won = verdict({"default": 4e-3, "b": 2e-3}, "crash", "b")
    assert won.winner == "b"
    assert verdict({"default": 4e-3}, "crash").winner == "default"
    assert verdict({"a": 1e-3}, "a", default="crash").winner == "a"


def test_nothing_to_time_is_a_verdict_too() -> None:
    nothing = verdict({}, default=None)
    assert (nothing.winner, nothing.winner_s) == ("", None)
    assert "no" in nothing.message or "neither" in nothing.message
    crashed = verdict({}, "crash", default=None)
    assert crashed.winner_s is None
    assert "SIGSEGV" in crashed.message


def test_finalists_are_the_best_valid_ones() -> None:
    outcomes = [("a", 3.0), ("b", 1.0), ("c", math.inf), ("d", 2.0)]
    assert finalists(outcomes, 2) == [("b", 1.0), ("d", 2.0)]
