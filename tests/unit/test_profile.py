"""Power and use of the cores by call, joined from samples and times."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.measurement.observation import parse
from autotune.measurement.profile import Calls, attribute, calls_of, shares

Floats = NDArray[np.float64]


def steps(spans_s: list[float], count: int, gap_s: float = 0.0) -> Calls:
    edges = np.concatenate([[0.0], np.cumsum(spans_s)])
    return Calls(np.asarray([edges + n * (edges[-1] + gap_s) for n in range(count)]))


def test_shares_of_an_interval_are_those_of_its_calls() -> None:
    found = shares(np.asarray([0.0, 1.0, 2.0, 3.0, 4.0]), steps([1.5, 0.5], 2, gap_s=0.5))
    expected = [[1, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [1, 0, 0]]
    assert found == pytest.approx(np.asarray(expected))


def test_shares_add_up_to_what_lies_within_the_steps() -> None:
    rng = np.random.default_rng(1)
    edges = np.sort(rng.uniform(-1, 12, 50))
    calls = steps([0.3, 0.01, 0.7], 10)
    found = shares(edges, calls)
    inside = np.clip(np.diff(np.clip(edges, 0, calls.times_s[-1, -1])), 0, None)
    assert found.sum(axis=1) * np.diff(edges) == pytest.approx(inside)


def sampled(
    watts: list[float], spans_s: list[float], count: int, noise: float
) -> tuple[Floats, Floats]:
    calls = steps(spans_s, count)
    edges = np.arange(0.0, calls.times_s[-1, -1], 0.01)
    part = shares(edges, calls)
    means = part[:, : len(watts)] @ np.asarray(watts)
    return part, means + noise * np.random.default_rng(2).normal(size=len(means))


def test_power_of_calls_is_found_though_samples_span_several() -> None:
    watts = [1.0, 4.0, 2.0, 0.5]
    found = attribute(*sampled(watts, [0.013, 0.021, 0.004, 0.009], 800, 0.2))
    assert found.values[:4] == pytest.approx(watts, abs=0.15)
    deviations = np.sqrt(np.diag(found.covariance))[:4]
    assert (np.abs(found.values[:4] - watts) < 4 * deviations).all()
    weights = np.asarray([0.013, 0.021, 0.004, 0.009, 0.0])
    joules, deviation = found.total(weights)
    assert joules == pytest.approx(weights[:4] @ watts, rel=0.01)
    assert deviation < 0.01 * joules


def test_calls_that_no_sample_tells_apart_keep_the_mean_with_its_doubt() -> None:
    # A step of 10 ms and samples of 10 ms: every sample sees the same shares.
    found = attribute(*sampled([1.0, 3.0], [0.005, 0.005], 1000, 0.01))
    assert found.values[:2] == pytest.approx([2.0, 2.0], abs=0.2)
    assert np.sqrt(np.diag(found.covariance))[0] > 0.5
    joules, deviation = found.total(np.asarray([0.005, 0.005, 0.0]))
    assert joules == pytest.approx(0.02, rel=0.01)
    assert deviation < 0.01 * joules


def test_a_record_gives_the_calls_of_its_window() -> None:
    lines = ['{"begin":0.0,"pid":1,"interval_s":0.01,"watch":[]}', '{"line":[0.1,"names a b"]}']
    for n in range(4):
        lines.append(f'{{"line":[{n + 1.0},"calls {n + 0.25:.6f} 500000.0 250000.0"]}}')
        lines.append(f'{{"line":[{n + 1.0},"step {n + 1}"]}}')
    observed = parse("\n".join(lines))
    found = calls_of(observed, 1.0, 3.0)
    assert found is not None
    assert found.names == ("a", "b")
    assert found.times_s == pytest.approx(np.asarray([[1.25, 1.75, 2.0], [2.25, 2.75, 3.0]]))
    assert calls_of(observed, 5.0, 6.0) is None


def test_steps_of_different_calls_are_refused() -> None:
    lines = ['{"begin":0.0,"pid":1,"interval_s":0.01,"watch":[]}']
    lines += ['{"line":[1.0,"calls 0.5 1.0"]}', '{"line":[2.0,"calls 1.5 1.0 1.0"]}']
    with pytest.raises(ValueError, match="different numbers"):
        calls_of(parse("\n".join(lines)), 0.0, 3.0)
