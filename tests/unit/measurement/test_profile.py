"""Power and use of the cores by call, joined from samples and times."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.devices.info import probe
from autotune.emulator.device.device import EmulatedDevice
from autotune.measurement.observation import Observation, parse
from autotune.measurement.profile import Calls, StepProfile, attribute, calls_of, shares
from autotune.power.channels import stream_meter

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


def record(
    begin_s: float, end_s: float, watts: list[float], *others: dict[str, object]
) -> Observation:
    """A record of a meter that printed a value each 0.1 s."""
    reported: list[dict[str, object]] = [
        {"begin": begin_s, "pid": 1, "interval_s": 0.01, "watch": []}
    ]
    reported += others
    reported += [{"meter": [begin_s + 0.1 * (n + 1), f"{w:.4f}", ""]} for n, w in enumerate(watts)]
    reported.append(
        {"end": end_s, "exit": 0, "max_rss_kb": 0, "user_s": 0, "system_s": 0, "why": ""}
    )
    return parse("\n".join(json.dumps(one) for one in reported))


def test_joules_of_calls_have_the_uncertainty_of_idle_power_and_of_the_meter_s_clock() -> None:
    noise = np.random.default_rng(1).normal(0, 0.01, 300)
    calls = steps([0.5, 0.5], 20)
    info = probe(EmulatedDevice("meizu-16t"))
    meter = stream_meter("x")

    def profile(idle_after_w: float, clock_s: float) -> StepProfile:
        watts = [3.0 + 4.0 * (n % 10 >= 5) + noise[n] for n in range(200)]
        observed = record(0.0, 20.0, watts, {"clock": [0.0, clock_s]})
        idle = [
            record(start, start + 5, [w + noise[n] for n in range(50)])
            for start, w in ((-10.0, 1.0), (30.0, idle_after_w))
        ]
        return StepProfile(calls, observed, info, None, meter, idle, 2.5)

    steady, changed, late = profile(1.0, 0.0), profile(2.0, 0.0), profile(1.0, 0.2)
    assert steady.step.energy_j == pytest.approx(4.0, rel=0.01)
    assert steady.step.deviation_j is not None
    assert steady.step.deviation_j < 0.01
    # Idle power that changed by 1 W may have been anything between, all the time.
    assert changed.step.deviation_j == pytest.approx(1 / np.sqrt(12), rel=0.05)
    assert changed.of([0]).deviation_j == pytest.approx(0.5 / np.sqrt(12), rel=0.05)
    first, moved = steady.of([0]), late.of([0])
    assert moved.energy_j == first.energy_j == pytest.approx(1.0, rel=0.02)
    assert moved.deviation_j is not None
    assert moved.deviation_j > 0.4  # A call of 0.5 s gets 0.2 s of the other's 4 W more, at worst.


def test_steps_of_different_calls_are_refused() -> None:
    lines = ['{"begin":0.0,"pid":1,"interval_s":0.01,"watch":[]}']
    lines += ['{"line":[1.0,"calls 0.5 1.0"]}', '{"line":[2.0,"calls 1.5 1.0 1.0"]}']
    with pytest.raises(ValueError, match="different numbers"):
        calls_of(parse("\n".join(lines)), 0.0, 3.0)
