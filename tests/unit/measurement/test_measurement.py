"""Outcomes and paired statistics."""

import math

import numpy as np
import pytest

from autotune.measurement import Outcome, paired_speedup
from autotune.measurement.statistics import Interval, bootstrap_median
from autotune.measurement.verdicts import judge


def test_an_outcome_has_samples_exactly_when_it_is_ok() -> None:
    with pytest.raises(ValueError, match="exactly when"):
        Outcome("ok")
    with pytest.raises(ValueError, match="exactly when"):
        Outcome("timeout", (1.0,))


def test_seconds_is_the_median_and_a_failure_sorts_last() -> None:
    assert Outcome("ok", (3.0, 1.0, 2.0)).seconds == 2.0
    assert Outcome("ok", (4.0, 1.0, 2.0, 3.0)).seconds == 2.5
    assert Outcome("run_error", message="x").seconds == math.inf


def test_drift_that_both_sides_share_cancels() -> None:
    drift = np.linspace(1.0, 3.0, 15)
    interval = paired_speedup(list(2.0 * drift), list(drift), seed=1)
    assert interval.estimate == pytest.approx(2.0)
    assert interval.low == pytest.approx(2.0)
    assert interval.high == pytest.approx(2.0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    covered = 0
    for seed in range(200):
        baseline = 2.0 * random.lognormal(0.0, 0.1, 15)
        challenger = random.lognormal(0.0, 0.1, 15)
        interval = paired_speedup(list(baseline), list(challenger), seed=seed)
        covered += interval.low <= 2.0 <= interval.high
    assert 170 <= covered <= 200


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 7])
def test_few_blocks_name_a_winner_among_equals_no_more_often_than_said(blocks: int) -> None:
    random = np.random.default_rng(blocks)
    wrong = covered = 0
    for seed in range(400):
        a, b = random.lognormal(0.0, 0.05, (2, blocks)).tolist()
        wrong += judge(a, b, seed=seed, confidence=0.95).winner != "tie"
        for positive in (True, False):
            interval = bootstrap_median(a, positive=positive, seed=seed)
            covered += interval.low <= 1.0 <= interval.high
    assert wrong <= 0.08 * 400
    assert covered >= 0.92 * 800


def test_one_value_has_no_interval() -> None:
    assert bootstrap_median([2.0], positive=True, seed=1) == Interval(2.0, 0.0, math.inf)
    assert bootstrap_median([2.0], positive=False, seed=1).ends is None
    assert paired_speedup([2.0], [1.0], seed=1).ends is None
    assert bootstrap_median([2.0, 2.1, 1.9], positive=True, seed=1).ends is not None


def test_the_interval_of_what_is_above_zero_lies_above_zero_and_joules_may_lie_below() -> None:
    seconds = [0.001704, 0.0042, 0.0009]
    found = bootstrap_median(seconds, positive=True, seed=1)
    assert found.estimate == 0.001704
    assert 0 < found.low < 0.0009
    assert found.high > 0.0042
    # What holds of the values holds of their multiples: no unit counts.
    in_ms = bootstrap_median([1e3 * s for s in seconds], positive=True, seed=1)
    assert in_ms.low == pytest.approx(1e3 * found.low)
    assert bootstrap_median([0.4, -0.1, 0.2], positive=False, seed=1).low < 0
    apart = bootstrap_median([1e-300, 1e300], positive=True, seed=1)
    assert apart.ends is None
    with pytest.raises(ValueError, match="not above zero"):
        bootstrap_median([0.4, -0.1], positive=True, seed=1)


def test_few_blocks_tell_the_same_of_either_side_over_the_other() -> None:
    one, other = [1.0, 4.0, 2.0, 3.0], [2.0, 2.0, 2.5, 2.0]
    found, back = paired_speedup(one, other, seed=1), paired_speedup(other, one, seed=1)
    assert found.estimate == pytest.approx(1 / back.estimate)
    assert (found.low, found.high) == pytest.approx((1 / back.high, 1 / back.low))


def test_equal_sides_do_not_win() -> None:
    random = np.random.default_rng(3)
    wins = 0
    for seed in range(100):
        sides = random.lognormal(0.0, 0.05, (2, 11))
        wins += paired_speedup(list(sides[0]), list(sides[1]), seed=seed).low > 1.0
    assert wins <= 12


@pytest.mark.parametrize(("left", "right"), [([], []), ([1.0], [1.0, 2.0])])
def test_unpaired_samples_are_refused(left: list[float], right: list[float]) -> None:
    with pytest.raises(ValueError, match="same number"):
        paired_speedup(left, right, seed=1)
