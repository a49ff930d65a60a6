"""Meters, the integral of power, and what makes an energy doubtful."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import StableDeviceError, UsageError
from autotune.power import checks, meizu_traces
from autotune.power.battery import calibrate
from autotune.power.channels import Meter, find, parts
from autotune.power.trace import Baseline, Trace, baseline, net_energy, trace_of

TRACES = Path(
    os.environ.get("AUTOTUNE_MEIZU_TRACES", Path(__file__).parents[3] / "shared/data/meizu_traces")
)
needs_traces = pytest.mark.skipif(
    not TRACES.is_dir(), reason=f"the published raw traces are not at {TRACES}"
)
BATTERY = "/sys/class/power_supply/battery"
USB = "/sys/class/power_supply/usb"
HWMON = "/sys/class/hwmon/hwmon0"


def meter(files: dict[str, str], name: str) -> Meter:
    found = {m.name: m for m in find({p: t.encode() for p, t in files.items()})}
    return found[name]


def one_value(files: dict[str, str], name: str) -> float:
    trace = trace_of(meter(files, name), [1.0], [dict(files)])
    return float(trace.watts[0])


def test_battery_and_usb_are_added_and_the_battery_has_to_be_calibrated_first() -> None:
    files = {
        f"{BATTERY}/type": "Battery", f"{BATTERY}/status": "Discharging",
        f"{BATTERY}/current_now": "-500000", f"{BATTERY}/voltage_now": "4000000",
        f"{USB}/type": "USB_PD", f"{USB}/current_now": "400000", f"{USB}/voltage_now": "5000000",
    }  # fmt: skip
    supply = meter(files, "battery")
    with pytest.raises(ValueError, match="not calibrated"):
        trace_of(supply, [1.0], [dict(files)])
    trace = trace_of(supply.calibrated(-1e-6), [1.0], [dict(files)])
    assert trace.watts == pytest.approx([0.5 * 4 + 0.4 * 5])
    assert f"{BATTERY}/status" in supply.files


def test_a_voltage_in_millivolts_is_taken_as_such() -> None:
    files = {
        f"{BATTERY}/type": "Battery", f"{BATTERY}/current_now": "500", f"{BATTERY}/voltage_now": "4000",
    }  # fmt: skip
    trace = trace_of(meter(files, "battery").calibrated(1e-3), [1.0], [dict(files)])
    assert trace.watts == pytest.approx([2.0])


def test_a_rail_that_feeds_the_others_is_taken_alone() -> None:
    files = {f"{HWMON}/name": "ina3221"}
    for n, (label, milliamperes) in enumerate(
        [("VDD_IN", 1000), ("VDD_SYS_CPU", 300), ("VDD_SYS_GPU", 200)], start=1
    ):
        files[f"{HWMON}/in{n}_label"] = label
        files[f"{HWMON}/in{n}_input"] = "5000"
        files[f"{HWMON}/curr{n}_input"] = str(milliamperes)
    assert one_value(files, "hwmon") == pytest.approx(5.0)
    assert [c.name for c in parts({p: t.encode() for p, t in files.items()})] == [
        "VDD_SYS_CPU", "VDD_SYS_GPU",
    ]  # fmt: skip
    del files[f"{HWMON}/in1_label"]
    assert one_value(files, "hwmon") == pytest.approx(5.0 + 1.5 + 1.0)


def test_counters_of_rails_are_differences_over_real_intervals() -> None:
    path = "/sys/bus/iio/devices/iio:device0/energy_value"
    texts = [
        "t=1\nCH0(T=1)[VSYS_PWR_CPU], 1000000\nCH1(T=1)[VSYS_PWR_DDR], 500000",
        "t=2\nCH0(T=2)[VSYS_PWR_CPU], 3000000\nCH1(T=2)[VSYS_PWR_DDR], 1500000",
    ]
    odpm = meter({path: texts[0]}, "odpm")
    trace = trace_of(odpm, [10.0, 12.0], [{path: t} for t in texts])
    assert trace.times_s.tolist() == [12.0]
    assert trace.watts == pytest.approx([1.5])


def test_rapl_counts_packages_and_memory_and_goes_on_after_a_wrap() -> None:
    files = {}
    for folder, name in (
        ("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:0:1", "dram"),
    ):  # fmt: skip
        files[f"/sys/class/powercap/{folder}/name"] = name
        files[f"/sys/class/powercap/{folder}/energy_uj"] = "9000000"
        files[f"/sys/class/powercap/{folder}/max_energy_range_uj"] = "10000000"
    rapl = meter(files, "rapl")
    assert [c.name for c in rapl.channels] == ["package-0", "dram"]
    later = {p: "1000000" if p.endswith("energy_uj") else t for p, t in files.items()}
    trace = trace_of(rapl, [0.0, 2.0], [dict(files), dict(later)])
    assert trace.watts == pytest.approx([2 * 2.0 / 2.0])


def test_a_sample_that_was_not_read_is_left_out() -> None:
    path = f"{HWMON}/power1_input"
    hwmon = meter({path: "2000000", f"{HWMON}/name": "ina226"}, "hwmon")
    trace = trace_of(hwmon, [0.0, 1.0, 2.0], [{path: "2000000"}, {path: None}, {path: "4000000"}])
    assert trace.times_s.tolist() == [0.0, 2.0]
    assert trace.watts.tolist() == [2.0, 4.0]


def test_no_meter_is_an_answer() -> None:
    assert find({}) == ()


def test_net_energy_sums_real_intervals_above_the_baseline() -> None:
    times = np.array([1.0, 1.5, 3.0, 3.5, 4.0])
    trace = Trace(times, np.array([9.0, 3.0, 5.0, 4.0, 9.0]))
    found = net_energy(trace, 1.0, 3.7, Baseline(1.0, 0.0))
    # 1.0..1.5 at 3 W, 1.5..3.0 at 5 W, 3.0..3.7 at 4 W, each less 1 W.
    assert found.joules == pytest.approx(0.5 * 2 + 1.5 * 4 + 0.7 * 3)
    assert found.seconds == pytest.approx(2.7)
    with pytest.raises(ValueError, match="window"):
        net_energy(trace, 4.5, 5.0, Baseline(1.0, 0.0))


def test_the_stated_uncertainty_covers_the_error() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        times = np.cumsum(rng.uniform(0.05, 0.15, size=300))
        watts = 3.0 + rng.normal(0, 0.5, size=300)
        idle = baseline(Trace(times[:60], watts[:60] - 2.0), Trace(times[-60:], watts[-60:] - 2.0))
        found = net_energy(Trace(times, watts), float(times[70]), float(times[230]), idle)
        hits += abs(found.joules - 2.0 * found.seconds) <= 2 * found.deviation
    assert hits / 400 >= 0.9


def test_a_baseline_that_moved_is_uncertain() -> None:
    times = np.arange(50.0)
    before, after = Trace(times, np.full(50, 1.0)), Trace(times + 100, np.full(50, 2.0))
    found = baseline(before, after)
    assert found.watts == pytest.approx(1.5)
    assert found.deviation > 0.2


@pytest.mark.parametrize(
    ("idle", "busy", "unit", "sign"),
    [
        (300_000, 1_200_000, 1e-6, 1),
        (-300_000, -1_200_000, 1e-6, -1),
        (300, 1_200, 1e-3, 1),
        (-300, -1_200, 1e-3, -1),
        (100_000, -900_000, 1e-6, -1),  # Charging when idle, discharging when busy.
    ],
)
def test_unit_and_sign_follow_from_idle_and_busy_readings(
    idle: float, busy: float, unit: float, sign: int
) -> None:
    found = calibrate([idle] * 5, [busy] * 5, status="")
    assert (found.amperes, found.sign) == (unit, sign)


def test_the_charge_counter_overrules_a_guessed_unit() -> None:
    # A small board draws 12 mA when busy: taken for 12 A in milliamperes otherwise.
    found = calibrate([2_000], [12_000], status="Discharging", counter_a=0.0125)
    assert found.amperes == 1e-6


def test_a_battery_that_does_not_follow_the_work_cannot_be_calibrated() -> None:
    with pytest.raises(StableDeviceError, match="does not follow"):
        calibrate([484_000] * 9, [484_500] * 9, status="Full")


def test_a_current_at_a_port_s_limit_is_saturated_and_a_steady_one_elsewhere_is_not() -> None:
    rng = np.random.default_rng(0)
    assert "500 mA port" in checks.saturated(0.484 + rng.normal(0, 0.0005, 100))
    assert checks.saturated(0.300 + rng.normal(0, 0.0005, 100)) == ""
    assert checks.saturated(0.484 + rng.normal(0, 0.03, 100)) == ""


def test_configurations_that_share_the_highest_power_are_suspicious() -> None:
    assert "saturated" in checks.one_ceiling([1.0, 1.6, 2.35, 2.351, 2.349, 2.35, 0.7])
    assert checks.one_ceiling([1.0, 1.6, 2.35, 2.2, 3.1, 2.8, 0.7]) == ""


def test_a_stuck_meter_and_lost_samples_are_told() -> None:
    times = np.arange(0.0, 10.0, 0.1)
    steady = Trace(times, np.full(100, 2.0))
    assert "stuck" in checks.stuck(steady, 0.0, 10.0)
    alive = Trace(times, 2.0 + 0.01 * np.sin(times))
    assert checks.stuck(alive, 0.0, 10.0) == ""
    assert checks.too_few(alive, 0.0, 9.9, 0.1) == []
    gone = Trace(np.delete(times, slice(30, 60)), np.delete(alive.watts, slice(30, 60)))
    assert "no sample for 3" in checks.too_few(gone, 0.0, 9.9, 0.1)[0]
    assert "new values" in checks.too_few(steady, 0.0, 9.9, 0.1)[0]


def test_charging_is_told() -> None:
    assert checks.charging(["Discharging", None, "Charging\n"])
    assert checks.charging(["Discharging", "Not charging", "Full"]) == ""


@needs_traces
@pytest.mark.parametrize("setting", ["MEIZU_Core_f0", "MEIZU_Freq_1708800"])
def test_the_published_traces_are_read_as_their_authors_read_them(setting: str) -> None:
    runs = meizu_traces.runs(TRACES / setting)
    assert len(runs) >= 17
    for run in runs:
        table = (
            TRACES / setting / "processed_data" / run.network / f"processed_data_{run.network}.csv"
        )
        theirs = meizu_traces.read_processed(table).usb()
        energy = net_energy(theirs, run.start_s, run.end_s, meizu_traces.NONE)
        assert run.usb_j == pytest.approx(energy.joules, rel=0.01)
        assert run.duration_s == pytest.approx(energy.seconds)


@needs_traces
def test_with_four_big_cores_every_published_run_is_saturated() -> None:
    runs = meizu_traces.runs(TRACES / "MEIZU_Core_f0")
    assert all(run.saturated for run in runs)
    # USB alone says 2.3 W whatever the network; with the battery they differ, and none draws less.
    usb = [run.usb_j / run.duration_s for run in runs]
    total = [run.total_j / run.duration_s for run in runs]
    assert max(usb) / min(usb) < 1.01
    assert max(total) / min(total) > 1.5
    assert all(t > u for t, u in zip(total, usb, strict=True))


@needs_traces
def test_the_published_phone_s_battery_counts_discharging_as_negative() -> None:
    readings = meizu_traces.read_monitor(
        TRACES / "MEIZU_Core_f0" / "usage_monitor" / "usage_monitor_GoogLenet.result"
    )
    run = next(
        r for r in meizu_traces.runs(TRACES / "MEIZU_Core_f0")
        if (r.network, r.batch) == ("GoogLenet", 16)
    )  # fmt: skip
    raw = -readings.battery_a * 1e6
    busy = (readings.times_s > run.start_s) & (readings.times_s < run.end_s)
    found = calibrate(raw[:20].tolist(), raw[busy].tolist(), status="")
    assert (found.amperes, found.sign) == (1e-6, -1)


def test_a_folder_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="usage_monitor"):
        meizu_traces.runs(tmp_path)
    path = tmp_path / "x.result"
    path.write_text(json.dumps({}))
    with pytest.raises(UsageError, match="no block"):
        meizu_traces.read_monitor(path)
    with pytest.raises(UsageError, match="when training began"):
        meizu_traces.read_stamp(path)
