"""Meters, the integral of power, and what makes an energy doubtful."""

import csv
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autotune.devices.sensors import meters
from autotune.errors import StableDeviceError, UsageError
from autotune.power import checks, meizu_traces
from autotune.power.battery import calibrate
from autotune.power.channels import Channel, Meter, find, nvml_meter
from autotune.power.printed import samples
from autotune.power.stamps import Arrived, segments
from autotune.power.stream import Columns, Stream, Taken, check
from autotune.power.trace import Baseline, Trace, baseline, net_energy, trace_of

TRACES = Path(
    os.environ.get("AUTOTUNE_MEIZU_TRACES", Path(__file__).parents[4] / "shared/data/meizu_traces")
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


@pytest.mark.parametrize(("memory", "least"), [(0.0, 0.93), (0.5, 0.88), (0.9, 0.75), (0.95, 0.65)])
def test_values_that_are_like_their_neighbours_count_for_less(memory: float, least: float) -> None:
    """An autoregressive gauge of 100 values: two standard uncertainties cover the truth, or come near it."""
    covered = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        noise = np.empty(100)
        noise[0] = rng.normal()
        for n in range(1, 100):
            noise[n] = memory * noise[n - 1] + np.sqrt(1 - memory**2) * rng.normal()
        trace = Trace(np.arange(1, 101) * 0.1, 3.0 + 0.1 * noise)
        found = net_energy(trace, 0.0, 10.0, Baseline(1.0, 0.0))
        covered.append(abs(found.joules - 20.0) < 2 * found.deviation)
    assert np.mean(covered) >= least


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
    assert [c.name for c in meter(files, "hwmon").rails] == ["VDD_SYS_CPU", "VDD_SYS_GPU"]
    del files[f"{HWMON}/in1_label"]
    assert one_value(files, "hwmon") == pytest.approx(5.0 + 1.5 + 1.0)


def test_a_board_without_a_total_rail_has_its_rails_added_and_none_twice() -> None:
    """As a Jetson AGX Orin shows them; the sums and shunts of the chip are no rails."""
    other = "/sys/class/hwmon/hwmon1"
    files = {f"{HWMON}/name": "ina3221", f"{other}/name": "ina3221"}
    for folder, n, label, volts, amperes in (
        (HWMON, 1, "VDD_GPU_SOC", 19.0, 0.7), (HWMON, 2, "VDD_CPU_CV", 19.0, 0.9),
        (HWMON, 3, "VIN_SYS_5V0", 5.0, 1.5), (other, 2, "VDDQ_VDD2_1V8AO", 5.0, 0.4),
    ):  # fmt: skip
        files[f"{folder}/in{n}_label"] = label
        files[f"{folder}/in{n}_input"] = f"{1000 * volts:.0f}"
        files[f"{folder}/curr{n}_input"] = f"{1000 * amperes:.0f}"
        files[f"{folder}/in{n + 3}_input"] = f"{2000 * amperes:.0f}"
    files |= {f"{HWMON}/curr4_input": "1600", f"{HWMON}/in7_input": "3200"}
    files[f"{HWMON}/in7_label"] = "sum of shunt voltages"
    assert one_value(files, "hwmon") == pytest.approx(19 * 0.7 + 19 * 0.9 + 5 * 1.5)
    found = meter(files, "hwmon")
    assert [c.name for c in found.channels] == ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"]
    assert [c.name for c in found.parts] == ["VDDQ_VDD2_1V8AO"]
    assert [c.name for c in found.rails] == [
        "VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO",
    ]  # fmt: skip


@pytest.mark.parametrize("total", ["VDD_IN", "POM_5V_IN", "VIN"])
def test_a_jetson_s_total_rail_is_known_and_xavier_s_5_volts_are_none(total: str) -> None:
    files = {}
    for n, (label, milliamperes) in enumerate([(total, 900), ("GPU", 300), ("SYS5V", 200)], 1):
        files[f"/sys/bus/iio/devices/iio:device0/rail_name_{n}"] = label
        files[f"/sys/bus/iio/devices/iio:device0/in_power{n}_input"] = str(milliamperes)
    assert one_value(files, "iio") == pytest.approx(0.9)
    for name in ("rail_name_1", "in_power1_input"):
        del files[f"/sys/bus/iio/devices/iio:device0/{name}"]
    assert one_value(files, "iio") == pytest.approx(0.5)


def test_a_monitor_of_linux_s_own_driver_under_iio_is_scaled_to_watts() -> None:
    folder = "/sys/bus/iio/devices/iio:device0"
    files = {
        f"{folder}/name": "ina226", f"{folder}/in_power2_raw": "400", f"{folder}/in_power2_scale": "12.5",
        f"{folder}/in_voltage1_raw": "4000",
    }  # fmt: skip
    assert one_value(files, "iio") == pytest.approx(5.0)
    assert find({p: t.encode() for p, t in (files | {f"{folder}/name": "pac1934"}).items()}) == ()


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


def test_a_package_with_two_interfaces_is_counted_once() -> None:
    files = {}
    for folder, name in (
        ("intel-rapl-mmio:0", "package-0"), ("intel-rapl-mmio:0:0", "dram"),
        ("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "dram"),
        ("intel-rapl:1", "package-1"), ("intel-rapl:1:0", "dram"), ("intel-rapl:2", "psys"),
    ):  # fmt: skip
        files[f"/sys/class/powercap/{folder}/name"] = name
        files[f"/sys/class/powercap/{folder}/energy_uj"] = "9000000"
    folders = [c.files[0].split("/")[4] for c in meter(files, "rapl").channels]
    assert folders == ["intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1", "intel-rapl:1:0"]
    del files["/sys/class/powercap/intel-rapl:0/energy_uj"]
    folders = [c.files[0].split("/")[4] for c in meter(files, "rapl").channels]
    assert "intel-rapl-mmio:0" in folders


@pytest.mark.parametrize("chip", ["amdgpu", "nouveau", "nvme", "BAT0"])
def test_a_part_s_power_is_not_taken_for_the_device_s(chip: str) -> None:
    part = "/sys/class/hwmon/hwmon1"
    rapl = "/sys/class/powercap/intel-rapl:0"
    files = {
        f"{part}/name": chip, f"{part}/power1_input": "5000000", f"{part}/power1_label": "PPT",
        f"{rapl}/name": "package-0", f"{rapl}/energy_uj": "1",
    }  # fmt: skip
    encoded = {p: t.encode() for p, t in files.items()}
    assert [m.name for m in find(encoded)] == ["rapl"]
    assert [m.name for m in find(encoded, any_chip=True)] == ["hwmon", "rapl"]
    files |= {f"{HWMON}/name": "ina226", f"{HWMON}/power1_input": "2000000"}
    assert one_value(files, "hwmon") == pytest.approx(2.0)
    files |= {f"{HWMON}/name": "made_up", f"{HWMON}/power1_label": "VDD_IN"}
    assert one_value(files, "hwmon") == pytest.approx(2.0)


@pytest.mark.parametrize("raw", ["12500000", "-12500000"])
def test_a_laptop_s_battery_that_counts_energy_tells_watts(raw: str) -> None:
    files = {
        f"{BATTERY}/type": "Battery", f"{BATTERY}/status": "Discharging",
        f"{BATTERY}/power_now": raw, f"{BATTERY}/voltage_now": "11400000",
    }  # fmt: skip
    assert one_value(files, "battery") == pytest.approx(12.5)
    assert f"{BATTERY}/status" in meter(files, "battery").files
    found = meters({p: t.encode() for p, t in files.items()})
    assert [(m.kind, m.readable) for m in found] == [("battery", True)]


def test_a_sample_that_was_not_read_is_left_out() -> None:
    path = f"{HWMON}/power1_input"
    hwmon = meter({path: "2000000", f"{HWMON}/name": "ina226"}, "hwmon")
    trace = trace_of(hwmon, [0.0, 1.0, 2.0], [{path: "2000000"}, {path: None}, {path: "4000000"}])
    assert trace.times_s.tolist() == [0.0, 2.0]
    assert trace.watts.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("wrap_j", [None, 262e3])
def test_a_counter_that_began_anew_is_a_gap(wrap_j: float | None) -> None:
    counter = Meter("rapl", (Channel("package-0", "rapl", "joules", ("f",), False, 1e-6, wrap_j),))
    times = np.arange(0, 10, 0.1)
    texts: list[dict[str, str | None]] = [
        {"f": str(round(2e6 * (t if t < 5 else t - 5)))} for t in times
    ]
    trace = trace_of(counter, times.tolist(), texts)
    assert trace.resets_s == pytest.approx((5.0,))
    assert len(trace.watts) == len(times) - 2
    found = net_energy(trace, 0.05, 9.9, Baseline(0.0, 0.0))
    assert found.joules == pytest.approx(2 * 9.85, rel=1e-3)
    assert trace.between(5.5, 9.9).resets_s == ()


def test_a_wrap_of_a_usual_power_goes_on() -> None:
    counter = Meter("rapl", (Channel("package-0", "rapl", "joules", ("f",), False, 1e-6, 262.0),))
    times = np.arange(0, 10, 0.1)
    trace = trace_of(counter, times.tolist(), [{"f": str(int(50e6 * t % 262e6))} for t in times])
    assert trace.resets_s == ()
    assert trace.watts == pytest.approx(50.0, rel=1e-3)


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


def test_the_charge_counter_tells_a_unit_that_the_size_does_not() -> None:
    # A small board draws 12 mA when busy.
    found = calibrate([2_000], [12_000], status="Discharging", counter_a=0.0125)
    assert found.amperes == 1e-6
    assert calibrate([20], [70], status="", counter_a=0.06).amperes == 1e-3
    # In milliamperes it were 40 A.
    assert calibrate([10_000], [40_000], status="").amperes == 1e-6


@pytest.mark.parametrize(
    ("idle", "busy", "status"),
    [(2_000, 9_000, "Full"), (-3_000, 12_000, "Not charging"), (20, 70, "Discharging")],
)
def test_a_current_without_a_plausible_unit_is_refused(
    idle: float, busy: float, status: str
) -> None:
    with pytest.raises(StableDeviceError, match="A in milliamperes or"):
        calibrate([idle], [busy], status=status)
    with pytest.raises(StableDeviceError, match=r"0\.5 A by its charge counter"):
        calibrate([idle], [busy], status=status, counter_a=0.5)


@pytest.mark.parametrize(
    ("counter_a", "said"), [(0.02, "0.02 A discharge"), (-1.5, "1.5 A charge")]
)
def test_a_charge_counter_that_contradicts_the_current_is_told(counter_a: float, said: str) -> None:
    for unit in (1, 1000):
        with pytest.raises(StableDeviceError, match=f"says 2 A discharge, and .* {said}"):
            calibrate([500 * unit], [2000 * unit], status="", counter_a=counter_a)


@pytest.mark.parametrize("counter_a", [1.9, 0.8, 16.0, 0.0019])
def test_a_coarse_charge_counter_or_one_in_another_unit_contradicts_nothing(
    counter_a: float,
) -> None:
    assert calibrate([500], [2000], status="", counter_a=counter_a).amperes == 1e-3
    assert calibrate([5e5], [2e6], status="", counter_a=counter_a).amperes == 1e-6


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        (("battery", "maxfg"), ["battery"]),
        (("bms", "maxfg"), ["bms"]),
        (("BAT0", "BAT1"), ["BAT0", "BAT1"]),
    ],
)
def test_two_gauges_of_one_cell_are_counted_once(
    names: tuple[str, ...], counted: list[str]
) -> None:
    files = {}
    for name in names:
        folder = f"/sys/class/power_supply/{name}"
        files |= {f"{folder}/type": "Battery", f"{folder}/status": "Discharging"}
        files |= {f"{folder}/current_now": "-900000", f"{folder}/voltage_now": "3900000"}
    found = meter(files, "battery")
    assert [c.name for c in found.channels] == counted
    assert len(found.status_files) == len(counted)


def test_a_usb_supply_that_is_not_online_is_not_added() -> None:
    files = {
        f"{BATTERY}/type": "Battery", f"{BATTERY}/current_now": "-900000", f"{BATTERY}/voltage_now": "3900000",
        f"{USB}/type": "USB", f"{USB}/online": "0", f"{USB}/current_now": "484000",
        f"{USB}/voltage_now": "5000000",
    }  # fmt: skip
    assert [c.name for c in meter(files, "battery").channels] == ["battery"]
    files[f"{USB}/online"] = "1"
    assert [c.name for c in meter(files, "battery").channels] == ["battery", "usb"]


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


def test_a_meter_that_freezes_for_a_part_of_a_window_is_told() -> None:
    rng = np.random.default_rng(1)
    times = np.arange(1, 301) * 0.1
    # A gauge that renews its value four times a second.
    fine = 3.0 + 0.02 * rng.standard_normal(300)[(times / 0.25).astype(int)]
    assert checks.frozen(Trace(times, fine), 0.0, 30.0) == ""
    for begin, length in ((0.0, 20.0), (5.0, 20.0), (18.0, 12.0)):
        inside = (times > begin) & (times <= begin + length)
        frozen = np.where(inside, 3.001, fine)
        reported = checks.frozen(Trace(times, frozen), 0.0, 30.0)
        assert (
            f"no new value for {length:.0f}." in reported
            or f"for {length - 0.1:.1f} of" in reported
        ), reported
        assert "froze" in reported


@pytest.mark.parametrize("step_w", [0.005, 0.02, 0.05, 0.1, 0.2])
def test_a_coarse_meter_is_not_taken_for_a_frozen_one(step_w: float) -> None:
    times = np.arange(1, 301) * 0.1
    for seed in range(200):
        rng = np.random.default_rng(seed)
        # The load drifts, so that values chatter where two of the meter's steps meet.
        exact = 3.0 + rng.uniform(-0.1, 0.1) * times / 30 + 0.02 * rng.standard_normal(300)
        shown = step_w * np.round(exact / step_w)
        assert checks.frozen(Trace(times, shown), 0.0, 30.0) == "", seed


def test_a_stuck_meter_and_lost_samples_are_told() -> None:
    times = np.arange(0.0, 10.0, 0.1)
    steady = Trace(times, np.full(100, 2.0))
    assert "stuck" in checks.stuck(steady, 0.0, 10.0)
    assert "stuck" in checks.stuck(steady, 0.0, 10.0, [Trace(times, times), steady])
    # Coarse, and steady work: idle it shows something else.
    rest = Trace(times, np.full(100, 0.5))
    assert checks.stuck(steady, 0.0, 10.0, [rest, rest]) == ""
    assert "coarse" in checks.one_value(steady, 0.0, 10.0)
    alive = Trace(times, 2.0 + 0.01 * np.sin(times))
    assert checks.stuck(alive, 0.0, 10.0) == ""
    assert checks.too_few(alive, 0.0, 9.9) == ""
    assert checks.gaps(alive, 0.0, 9.9, 0.1) == ""
    gone = Trace(np.delete(times, slice(30, 60)), np.delete(alive.watts, slice(30, 60)))
    assert "no sample for 3" in checks.gaps(gone, 0.0, 9.9, 0.1)
    assert "new values" in checks.too_few(steady, 0.0, 9.9)


def test_charging_is_told() -> None:
    assert checks.charging(["Discharging", None, "Charging\n"])
    assert checks.charging(["Discharging", "Not charging", "Full"]) == ""


def processed(path: Path) -> Trace:
    """Power over USB by the authors' own table of a network's readings."""
    columns = ("stamp", "usb_current", "usb_voltage")
    with path.open(encoding="utf-8") as file:
        rows = np.asarray(
            [[float(row[c] or "nan") for c in columns] for row in csv.DictReader(file)]
        )
    rows = rows[np.isfinite(rows).all(axis=1)]
    return Trace(rows[:, 0] / 1e3, rows[:, 1] * rows[:, 2] * 1e-12)


@needs_traces
@pytest.mark.parametrize("setting", ["MEIZU_Core_f0", "MEIZU_Freq_1708800"])
def test_the_published_traces_are_read_as_their_authors_read_them(setting: str) -> None:
    runs = meizu_traces.runs(TRACES / setting)
    assert len(runs) >= 17
    for run in runs:
        table = (
            TRACES / setting / "processed_data" / run.network / f"processed_data_{run.network}.csv"
        )
        energy = net_energy(processed(table), run.start_s, run.end_s, meizu_traces.NONE)
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


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["2.5", "3"], [(None, 2.5), (None, 3.0)]),
        (["0.1,2.5", " 0.2 , 3 "], [(0.1, 2.5), (0.2, 3.0)]),
        (["time,watts", "1,2"], [None, (1.0, 2.0)]),
        (["n,Power_W,seconds", "7,4,0.5"], [None, (0.5, 4.0)]),
        (["volts,amperes", "5,0.5"], [None, (None, 2.5)]),
        (["milliseconds,milliwatts", "1500,2500"], [None, (1.5, 2.5)]),
        (["millivolts,milliamps", "5000,500"], [None, (None, 2.5)]),
    ],
)
def test_lines_of_a_stream_are_read_as_their_first_one_says(
    lines: list[str], expected: list[tuple[float | None, float] | None]
) -> None:
    columns = Columns()
    assert [columns.read(line) for line in lines] == expected


def test_what_is_no_reading_of_a_stream_is_never_watts() -> None:
    columns = Columns()
    columns.read("time,watts")
    for line in ("1", "1,x", "1,nan", "", "1,[N/A]"):
        with pytest.raises(ValueError, match=r".+"):
            columns.read(line)
    for first in ("ts,mW", "mW", "x"):
        with pytest.raises(ValueError, match="first line"):
            Columns().read(first)
    with pytest.raises(ValueError, match="3 fields"):
        Columns().read("1,2,3")


def arrived(host_s: float, own_s: float | None) -> Arrived:
    return Arrived(host_s, 1.7e9 + host_s, own_s, 1.0, "")


def times(*lines: Arrived) -> list[float]:
    return [time_s for part in segments(lines) for time_s in part.times_s]


def test_stamps_of_a_stream_are_brought_to_the_host_s_time() -> None:
    assert times(arrived(5.0, None), arrived(6.0, None)) == [5.0, 6.0]
    # The host's own clock: however late some lines come, their stamps are right.
    own = [arrived(5.0, 1.7e9 + 5.0), arrived(6.9, 1.7e9 + 6.0)]
    assert times(*own) == pytest.approx([5.0, 6.0], abs=1e-5)
    # Another clock: the quickest line came at once. It begins anew where it goes back.
    other = [arrived(5.3, 100.0), arrived(6.1, 101.0), arrived(9.0, 0.0), arrived(10.5, 1.0)]
    assert times(*other) == pytest.approx([5.1, 6.1, 9.0, 10.0])


@pytest.mark.parametrize("ahead_s", [-3600.0, -0.9, -0.2, 0.0, 0.2, 0.9, 7777.0])
def test_a_clock_that_is_not_the_host_s_is_off_by_no_more_than_is_told(ahead_s: float) -> None:
    rng = np.random.default_rng(3)
    true = np.arange(0, 10, 0.1)
    lines = [
        arrived(t + d, 1.7e9 + t + ahead_s)
        for t, d in zip(true, rng.uniform(0.001, 0.1, 100), strict=True)
    ]
    (part,) = segments(lines)
    assert np.abs(np.asarray(part.times_s) - true).max() <= part.deviation_s + 0.003
    assert (abs(part.behind_s) > 1) == (abs(ahead_s) > 1)
    assert part.fault == ""


@pytest.mark.parametrize(("unit", "name"), [(1e3, "milliseconds"), (1e6, "microseconds")])
def test_stamps_in_another_unit_are_told_by_name(unit: float, name: str, tmp_path: Path) -> None:
    (part,) = segments([arrived(5 + n / 10, unit * n / 10) for n in range(30)])
    assert f"they are {name}" in part.fault
    # A buffer's lines arrive together, each time twenty seconds' worth.
    (part,) = segments([arrived(5 + 20 * (n // 200), n / 10) for n in range(400)])
    assert part.fault == ""
    path = tmp_path / "watts"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, f"{unit * time.time():.0f},5.0\n".encode())
    with pytest.raises(UsageError, match=f"its stamps are {name}"), Stream(str(path)):
        pass
    os.write(writer, f"{name},milliwatts\n{unit * time.time():.0f},5000\n".encode())
    with Stream(str(path)) as stream:
        taken = stream.take(stream.now() - 1, stream.now())
    os.close(writer)
    assert [watts for _, watts, _ in taken.readings] == ["5.0"]


def test_a_file_s_past_is_no_reading_and_what_is_appended_is(tmp_path: Path) -> None:
    path = tmp_path / "watts.csv"
    path.write_text("time,watts\n1,9\nnonsense\n2,9\n")

    def write() -> None:
        for n in range(30):
            time.sleep(0.01)
            with path.open("a") as file:
                file.write(f"{3 + n / 100},{5 if n != 20 else 'x'}\n")

    writer = threading.Thread(target=write)
    writer.start()
    with Stream(str(path)) as stream:
        start = stream.now() - 1
        writer.join()
        time.sleep(0.1)
        taken = stream.take(start, stream.now())
    assert {watts for _, watts, _ in taken.readings} == {"5.0"}
    assert 20 <= len(taken.readings) <= 29
    assert [text for _, text in taken.errors] == [
        "'3.2,x' is not a reading: could not convert string to float: 'x'"
    ]
    assert taken.readings[0][2].endswith(",5")


def taken_while(write: Callable[[], None], path: Path) -> Taken:
    """What a stream gives while something is written."""
    writer = threading.Thread(target=write)
    writer.start()
    with Stream(str(path)) as stream:
        writer.join()
        return stream.take(stream.now() - 5, stream.now() - 0.05)


def test_a_fifo_goes_on_with_its_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "watts"
    os.mkfifo(path)

    def write() -> None:
        for watts in ("1.5\n", "2.5\n"):
            path.write_text(watts)
            time.sleep(0.1)

    taken = taken_while(write, path)
    assert [watts for _, watts, _ in taken.readings] == ["1.5", "2.5"]


def test_a_line_that_a_writer_of_a_fifo_left_torn_is_not_joined_to_the_next_one_s(
    tmp_path: Path,
) -> None:
    path = tmp_path / "watts"
    os.mkfifo(path)

    def write() -> None:
        for text in ("5.25\n5.2", "6.5\n", "6.5\n6"):
            with path.open("wb", buffering=0) as file:
                for half in (text[:2], text[2:]):
                    file.write(half.encode())
                    time.sleep(0.1)
            time.sleep(0.1)

    taken = taken_while(write, path)
    assert [watts for _, watts, _ in taken.readings] == ["5.25", "6.5", "6.5"]
    assert [text for _, text in taken.errors] == ["'5.2' broke off", "'6' broke off"]


def test_a_source_that_cannot_be_read_or_says_nothing_is_told(tmp_path: Path) -> None:
    for source, text in (
        ("", "needs a source"), ("-", "standard input"), ("/nowhere", "no file /nowhere"),
        (str(tmp_path), "is a folder"), ("tcp://host", "not tcp://HOST:PORT"),
        ("tcp://host:99999", "not tcp://HOST:PORT"), ("http://host:80", "not tcp://HOST:PORT"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=text):
            check(source)
    silent, strange = tmp_path / "silent.csv", tmp_path / "strange.csv"
    silent.write_text("")
    strange.write_text("ts,mW\n")
    for path, text in ((silent, "says nothing"), (strange, "first line is 'ts,mW'")):
        with pytest.raises(UsageError, match=text), Stream(str(path), first_s=0.2):
            pass


def test_gpus_are_added_up_and_one_that_tells_nothing_is_left_out() -> None:
    found = nvml_meter("0, 70.50, 71.00\n1, [N/A], 30.00\n2, [N/A], [N/A]\n", 0.1)
    assert found is not None
    assert [c.name for c in found.channels] == ["gpu0", "gpu1"]
    assert [c.name for c in found.rails] == ["gpu0", "gpu1"]
    assert found.command[-2:] == ("-lms", "100")
    lines = [
        (1.0, "0, 100.0, 71.0"), (1.001, "1, [N/A], 30.0"), (1.002, "2, [N/A], [N/A]"),
        (2.0, "0, 110.0, 71.0"), (2.001, "1, [N/A], [N/A]"), (3.0, "0, 120.0, 1"), (3.1, "1, 5, 5"),
    ]  # fmt: skip
    trace = trace_of(found, *samples(found, lines))
    assert trace.times_s.tolist() == [1.001, 3.1]
    assert trace.watts.tolist() == [130.0, 125.0]
    older = nvml_meter("0, 70.50\n", 0.1)
    assert older is not None
    assert older.command[1] == "--query-gpu=index,power.draw"
    for text in ("", "0, [N/A], [N/A]", "NVIDIA-SMI has failed\n"):
        assert nvml_meter(text, 0.1) is None
