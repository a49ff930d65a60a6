"""The joules of a run from what was recorded of a meter, and what makes them worthless or doubtful."""

from collections.abc import Callable

import numpy as np
import pytest

from autotune.measurement.energy import Energy, EnergyWindows, energy
from autotune.measurement.observation import Line, Observation, Sample
from autotune.power.channels import Channel, Meter, stream_meter

STREAM = stream_meter("watts.csv")
STATUS = "/sys/class/power_supply/battery/status"
BATTERY = Meter(
    "battery", (Channel("battery", "battery", "watts", ("w",)),), status_files=(STATUS,)
)
IDLE_W, BUSY_W = 5.0, 15.0
Power = Callable[[np.random.Generator], float]


def observed(
    begin_s: float, seconds: float, watts: list[float], status: str = "Discharging"
) -> Observation:
    """A record of a stream and of a battery, which both tell these watts at even times."""
    times = begin_s + np.arange(1, len(watts) + 1) * seconds / max(1, len(watts))
    pairs = list(zip(times.tolist(), watts, strict=True))
    return Observation(
        begin_s=begin_s, end_s=begin_s + seconds, exit_code=0, why="", max_rss_bytes=0, user_s=0.0, system_s=0.0,
        interval_s=0.1, samples=tuple(Sample(t, {"w": str(w), STATUS: status}) for t, w in pairs), lines=(),
        errors=(), cpus=(), meter=tuple(Line(t, str(w)) for t, w in pairs),
    )  # fmt: skip


def around(watts: float, count: int = 30, seed: int = 0) -> list[float]:
    return [watts + float(x) for x in np.random.default_rng(seed).normal(0, 0.02, count)]


def measured(
    before: list[float] | Observation = around(IDLE_W),  # noqa: B008
    run: list[float] | Observation = around(BUSY_W, 60, 1),  # noqa: B008
    after: list[float] | Observation = around(IDLE_W, seed=2),  # noqa: B008
    meter: Meter = STREAM,
) -> Energy:
    parts = [
        part if isinstance(part, Observation) else observed(begin, seconds, part)
        for part, begin, seconds in ((before, 0.0, 3.0), (run, 10.0, 6.0), (after, 20.0, 3.0))
    ]
    return energy(meter, EnergyWindows(parts[0], parts[1], parts[2], 0.0, 10.5, 15.5, 0.1))


def test_joules_are_those_above_idle() -> None:
    found = measured()
    assert found.marks == ()
    assert found.joules is not None
    assert found.joules.joules == pytest.approx(5 * (BUSY_W - IDLE_W), rel=0.01)


def test_an_absurd_reading_gives_no_joules() -> None:
    run = around(BUSY_W, 60)
    run[30] = 1e9
    found = measured(run=run)
    assert found.joules is None
    assert (
        "1 of 50 samples are 100 times the median of 15 W or more, up to 1e+09 W" in found.marks[0]
    )
    idle = around(IDLE_W)
    idle[10] = 1e9
    found = measured(after=idle)
    assert found.joules is None
    assert "idle after the run: 1 of 30 samples are 100 times" in found.marks[0]


def test_an_idle_phone_that_wakes_up_is_not_absurd() -> None:
    idle = [0.02] * 30
    idle[10] = 2.5
    found = measured(before=idle, run=around(4.0, 60), after=idle)
    assert found.joules is not None
    assert found.marks == ()


def test_an_odd_reading_is_marked() -> None:
    run = around(BUSY_W, 60)
    run[30] = 400.0
    found = measured(run=run)
    assert found.joules is not None
    assert "1 of 50 samples are 20 times the median" in found.marks[0]


def test_a_meter_whose_sign_is_turned_gives_no_joules() -> None:
    found = measured(around(-IDLE_W), around(-BUSY_W, 60), around(-IDLE_W))
    assert found.joules is None
    assert "reads less while the workload runs (-15 W) than when idle (-5 W)" in found.marks[0]
    assert "check the sign of its readings" in found.marks[0]


def test_joules_within_their_uncertainty_are_none() -> None:
    found = measured(around(IDLE_W), around(IDLE_W + 0.2, 60), around(IDLE_W + 0.5))
    assert found.joules is None
    assert "cannot tell the workload from the idle device" in found.marks[0]


@pytest.mark.parametrize(("meter", "advice"), [(STREAM, "give a header"), (BATTERY, "milliwatts?")])
def test_kilowatts_of_a_small_device_are_marked(meter: Meter, advice: str) -> None:
    found = measured(around(500), around(1004, 60), around(500), meter)
    assert found.joules is not None
    assert found.marks[0].startswith("1004 W: are these milliwatts?")
    assert advice in found.marks[0]


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_baseline_of_one_window_is_marked_and_less_certain(lost: str) -> None:
    whole = measured(around(1.0), around(4.0, 60), around(1.4), BATTERY)
    empty: list[float] = []
    found = (
        measured(empty, around(4.0, 60), around(1.4), BATTERY)
        if lost == "before"
        else measured(around(1.0), around(4.0, 60), empty, BATTERY)
    )
    assert found.marks == (
        f"no sample in the idle window {lost} the run: the baseline rests on one window",
    )
    assert found.joules is not None
    assert whole.joules is not None
    assert found.joules.deviation > whole.joules.deviation


def test_gaps_of_an_idle_window_are_marked() -> None:
    short = observed(20.0, 1.5, around(IDLE_W, 15))
    after = Observation(**{**vars(short), "end_s": 23.0})
    found = measured(after=after)
    assert found.marks == ("idle after the run: no sample for 1.5 of 3.0 s",)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_battery_that_charges_while_idle_gives_no_joules(when: str) -> None:
    charging = observed(0.0 if when == "before" else 20.0, 3.0, around(1.0), "Charging")
    idle = observed(20.0 if when == "before" else 0.0, 3.0, around(1.0))
    before, after = (charging, idle) if when == "before" else (idle, charging)
    found = measured(before, around(4.0, 60), after, BATTERY)
    assert (found.joules, found.marks) == (None, ("the battery was charging",))


def test_lines_that_came_in_bursts_are_told_as_such() -> None:
    run = observed(10.0, 6.0, around(BUSY_W, 60))
    burst = tuple(Line(10.0 + np.ceil(line.time_s - 10.0), line.text) for line in run.meter)
    found = measured(run=Observation(**{**vars(run), "meter": burst}))
    assert found.joules is None
    assert found.marks[0].startswith(
        "50 samples are of 5 moments: lines without times must come one"
    )
