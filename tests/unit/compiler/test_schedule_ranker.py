"""The cost model that ranks schedules: a single booster, and a committee of them."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.compiler.search.cost_model import Lesson, ScheduleRanker


def _ranker(members: int, times: list[tuple[float, float]]) -> ScheduleRanker:
    """One that has learnt seconds of schedules with a single feature."""
    ranker = ScheduleRanker(seed=1, warmup=8, members=members)
    ranker.learn("kernel", [_feature(one) for one, _ in times], [seconds for _, seconds in times])
    return ranker


def _feature(value: float) -> np.ndarray:
    return np.array([value], dtype=np.float32)


@pytest.mark.parametrize("members", [1, 4])
def test_what_is_faster_is_ranked_higher(members: int) -> None:
    ranker = _ranker(members, [(n % 4, 1.0 + n % 4) for n in range(64)])
    scores = ranker.score([_feature(n) for n in range(4)])
    assert list(scores) == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1.0, abs=0.2)


def test_a_committee_explores_where_its_members_differ() -> None:
    # Alike on average: one is certain, of the other one few and very different ones were measured.
    known = [(0.0, 2.0)] * 40 + [(1.0, 1.0), (1.0, 1e3)] * 2
    certain, doubtful = _ranker(4, known).score([_feature(0), _feature(1)])
    of_one = _ranker(1, known).score([_feature(0), _feature(1)])
    assert doubtful - certain > of_one[1] - of_one[0] + 0.05


def test_a_larger_exploration_weight_counts_for_more_where_its_members_differ() -> None:
    known = [(0.0, 2.0)] * 40 + [(1.0, 1.0), (1.0, 1e3)] * 2
    none, some, much = _ranker(4, known).upper_bounds([_feature(0), _feature(1)], (0.0, 1.5, 6.0))
    assert none[1] - none[0] < some[1] - some[0] < much[1] - much[0]
    assert list(some) == list(_ranker(4, known).score([_feature(0), _feature(1)]))


def test_a_committee_learns_from_every_round() -> None:
    for members, learns in ((1, False), (4, True)):
        ranker = _ranker(members, [(n, 1.0 + n) for n in range(100)])
        before = ranker.version
        ranker.learn("kernel", [_feature(n) for n in range(8)], [1.0] * 8)
        assert (ranker.version > before) is learns, members


@pytest.mark.parametrize("members", [1, 4])
def test_it_is_random_until_it_has_learnt_and_failures_are_slow(members: int) -> None:
    ranker = ScheduleRanker(seed=1, warmup=64, members=members)
    assert len({float(one) for one in ranker.score([_feature(0)] * 8)}) == 8
    ranker.learn("kernel", [_feature(n % 2) for n in range(64)], [1.0, float("inf")] * 32)
    works, fails = ranker.score([_feature(0), _feature(1)])
    assert works > 0.5 > fails > 0


def _sized(size: float, value: float) -> np.ndarray:
    return np.array([size, value], dtype=np.float32)


def _lessons(best_at: float, kernels: int = 4) -> list[Lesson]:
    """Of kernels of several sizes, whose schedules take the longer, the further a feature is from the best."""
    values = [n / 4 for n in range(64)]
    return [
        Lesson(
            [_sized(size, n) for n in values], [size * (1 + abs(n - best_at) / 4) for n in values]
        )
        for size in range(1, 1 + kernels)
    ]


@pytest.mark.parametrize("members", [1, 4])
def test_what_was_measured_of_other_kernels_counts_before_anything_was_measured(
    members: int,
) -> None:
    ranker = ScheduleRanker(seed=1, warmup=64, members=members)
    ranker.teach([Lesson([], [])])
    assert ranker.version == 0
    ranker.teach(_lessons(10.0))
    assert ranker.version > 0
    scores = ranker.score([_sized(3, n) for n in (2, 6, 10)])
    assert list(scores) == sorted(scores)


@pytest.mark.parametrize("members", [1, 4])
def test_what_is_measured_counts_where_lessons_say_otherwise(members: int) -> None:
    ranker = ScheduleRanker(seed=1, warmup=64, members=members)
    ranker.teach(_lessons(10.0))
    pair = [_sized(16, 6), _sized(16, 10)]
    assert np.argmax(ranker.score(pair)) == 1
    ranker.learn("kernel", pair * 32, [1e-3, 4e-3] * 32)
    assert np.argmax(ranker.score(pair)) == 0


def test_many_lessons_count_for_no_more_than_some_measurements() -> None:
    """However many kernels say otherwise of a schedule, what this one's measurements say of it is believed."""
    ranker = ScheduleRanker(seed=1, warmup=64, members=4)
    ranker.teach(_lessons(10.0, kernels=64))
    pair = [_sized(32, 6), _sized(32, 10)]
    ranker.learn("kernel", pair * 8, [1e-3, 2e-3] * 8)
    assert np.argmax(ranker.score(pair)) == 0
