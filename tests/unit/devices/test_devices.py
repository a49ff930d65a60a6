"""What devices are and can do, on emulated ones: clusters, meters, capabilities, clocks, and the
restore journal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from autotune.devices import adb, cpufreq, discovery, journal
from autotune.devices.info import probe
from autotune.devices.journal import Change, Journal
from autotune.devices.probes import capabilities
from autotune.devices.sensors import meters, thermal_zones
from autotune.devices.topology import clusters
from autotune.emulator.device.device import EmulatedDevice
from autotune.emulator.device.faults import Fault, FaultPlan
from autotune.errors import DeviceError, RecordError, StableDeviceError, TransientDeviceError

CPU = "/sys/devices/system/cpu"


def setting(device: EmulatedDevice, path: str) -> str:
    return device.read(PurePosixPath(path), timeout=5).decode().strip()


@pytest.mark.parametrize(
    ("profile", "names", "cpus"),
    [
        ("meizu-16t", ("little", "big"), ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("three-cluster", ("little", "big", "prime"), ((0, 1, 2, 3), (4, 5, 6), (7,))),
        ("four-cluster", ("little", "mid", "big", "prime"), ((0, 1), (5, 6), (2, 3, 4), (7,))),
        ("raspberry-pi-3b-plus", ("all",), ((0, 1, 2, 3),)),
        ("jetson-tx2", ("little", "big"), ((0, 3, 4, 5), (1, 2))),
    ],
)
def test_clusters_go_from_slow_to_fast(
    profile: str, names: tuple[str, ...], cpus: tuple[tuple[int, ...], ...]
) -> None:
    info = probe(EmulatedDevice(profile))
    assert tuple(c.name for c in info.clusters) == names
    assert tuple(c.cpus for c in info.clusters) == cpus
    assert f"emulated: {profile}" in info.emulated


def test_cores_with_a_policy_each_are_one_cluster_where_they_are_equal() -> None:
    files: dict[str, bytes | None] = {}
    for cpu, most in ((0, 1400), (1, 1400), (2, 2000), (3, 2000)):
        policy = f"{CPU}/cpufreq/policy{cpu}"
        files[f"{policy}/related_cpus"] = f"{cpu}\n".encode()
        files[f"{policy}/cpuinfo_min_freq"] = b"600\n"
        files[f"{policy}/cpuinfo_max_freq"] = f"{most}\n".encode()
    little, big = clusters(files)
    assert (little.cpus, little.max_khz) == ((0, 1), 1400)
    assert (big.cpus, len(big.policies)) == ((2, 3), 2)


def test_without_cpufreq_cores_are_told_apart_by_capacity() -> None:
    files = {
        f"{CPU}/present": b"0-3\n",
        **{f"{CPU}/cpu{n}/cpu_capacity": b"1024" if n > 1 else b"400" for n in range(4)},
    }
    assert [(c.name, c.cpus) for c in clusters(files)] == [("little", (0, 1)), ("big", (2, 3))]


def test_meters_and_zones_are_found_where_they_are() -> None:
    files: dict[str, bytes | None] = {
        "/sys/class/power_supply/battery/type": b"Battery\n",
        "/sys/class/power_supply/battery/current_now": b"-301000\n",
        "/sys/class/power_supply/usb/type": b"USB_PD\n",
        "/sys/class/power_supply/usb/current_now": b"500000\n",
        "/sys/class/power_supply/wireless/type": b"Wireless\n",
        "/sys/bus/iio/devices/iio:device1/energy_value": b"t=1\nCH0[rail]: 5\n",
        "/sys/class/hwmon/hwmon2/name": b"ina3221\n",
        "/sys/class/hwmon/hwmon2/curr1_input": b"120\n",
        "/sys/class/powercap/intel-rapl:0/name": b"package-0\n",
        "/sys/class/powercap/intel-rapl:0/energy_uj": None,
        "/sys/class/thermal/thermal_zone0/type": b"cpu-0\n",
        "/sys/class/thermal/thermal_zone0/temp": b"41000\n",
        "/sys/class/thermal/thermal_zone10/type": b"old\n",
        "/sys/class/thermal/thermal_zone10/temp": b"39\n",
    }
    assert [(m.kind, m.readable) for m in meters(files)] == [
        ("battery", True), ("usb", True), ("odpm", False), ("hwmon", True), ("rapl", False),
    ]  # fmt: skip
    assert [(z.name, z.celsius) for z in thermal_zones(files)] == [("cpu-0", 41.0), ("old", 39.0)]


def test_capabilities_say_what_is_tuned_and_why_not() -> None:
    rooted = {c.name: c for c in capabilities(probe(EmulatedDevice("meizu-16t")))}
    assert rooted["frequency of big"].status == "tuned"
    assert rooted["energy"].status == "observed"
    unrooted = {c.name: c for c in capabilities(probe(EmulatedDevice("three-cluster")))}
    assert unrooted["frequency of prime"].status == "observed"
    assert "root" in unrooted["frequency of prime"].reason
    board = {c.name: c for c in capabilities(probe(EmulatedDevice("raspberry-pi-3b-plus")))}
    assert board["energy"].status == "absent"
    assert board["GPU kernels (OpenCL)"].status == "absent"
    assert "fixed-performance mode" not in board


def test_a_frequency_is_held_and_put_back_in_an_order_that_the_kernel_takes(
    tmp_path: Path,
) -> None:
    device = EmulatedDevice("meizu-16t")
    big = probe(device).clusters[-1]
    low, high = f"{big.policies[0]}/scaling_min_freq", f"{big.policies[0]}/scaling_max_freq"
    before = setting(device, low), setting(device, high)
    with Journal(device, tmp_path) as notes:
        for khz in (big.frequencies_khz[3], big.frequencies_khz[-1], big.frequencies_khz[0]):
            with cpufreq.fixed_frequency(device, notes, big, khz):
                assert (setting(device, low), setting(device, high)) == (str(khz), str(khz))
            assert (setting(device, low), setting(device, high)) == before
    assert list(tmp_path.iterdir()) == []


def test_governors_are_set_for_a_block(tmp_path: Path) -> None:
    device = EmulatedDevice("meizu-16t")
    little = probe(device).clusters[0]
    path = f"{little.policies[0]}/scaling_governor"
    before = setting(device, path)
    with Journal(device, tmp_path) as notes:
        with cpufreq.governor(device, notes, little, "performance"):
            assert setting(device, path) == "performance"
        with (
            pytest.raises(StableDeviceError, match="Invalid"),
            cpufreq.governor(device, notes, little, "warp"),
        ):
            pass
    assert setting(device, path) == before


def test_a_capped_clock_is_not_held_since_nobody_knows_what_to_put_back(tmp_path: Path) -> None:
    device = EmulatedDevice("meizu-16t")
    big = probe(device).clusters[-1]
    device.soc.force_throttle(1)
    with (
        Journal(device, tmp_path) as notes,
        pytest.raises(StableDeviceError, match="below its"),
        cpufreq.fixed_frequency(device, notes, big, big.frequencies_khz[0]),
    ):
        pass
    device.soc.force_throttle(0)
    assert setting(device, f"{big.policies[0]}/scaling_max_freq") == str(big.max_khz)


def test_a_service_that_holds_the_clock_is_noticed(tmp_path: Path) -> None:
    plan = FaultPlan((Fault("write_capped", "write", 1, duration_s=60),))
    device = EmulatedDevice("meizu-16t", faults=plan)
    big = probe(device).clusters[-1]
    with (
        Journal(device, tmp_path) as notes,
        pytest.raises(StableDeviceError, match="reads"),
        cpufreq.fixed_frequency(device, notes, big, big.frequencies_khz[-1]),
    ):
        pass


def test_what_a_dead_process_left_is_undone_newest_first(tmp_path: Path) -> None:
    script = f"""
import os
from pathlib import Path
from autotune.devices import cpufreq
from autotune.devices.info import probe
from autotune.devices.journal import Change, Journal
from autotune.emulator.device import EmulatedDevice
device = EmulatedDevice("meizu-16t")
notes = Journal(device, Path({str(tmp_path)!r}))
big = probe(device).clusters[-1]
with cpufreq.fixed_frequency(device, notes, big, big.frequencies_khz[0]):
    notes.note(Change("a folder", "remove", path="/data/local/tmp/x"))
    notes.note(Change("a port", "forward", port=9300))
    os._exit(9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    (left,) = journal.left_behind(tmp_path)
    assert (left.serial, left.kind, len(left.changes)) == ("emulated-meizu-16t", "emulated", 4)
    device = EmulatedDevice("meizu-16t")
    big = probe(device).clusters[-1]
    for name in ("scaling_min_freq", "scaling_max_freq"):
        path = PurePosixPath(f"{big.policies[0]}/{name}")
        device.write(path, str(big.frequencies_khz[0]).encode(), timeout=5)
    ((_, failures),) = journal.restore([left], lambda serial, kind: device, tmp_path)
    assert failures == []
    assert setting(device, f"{big.policies[0]}/scaling_max_freq") == str(big.max_khz)
    assert journal.left_behind(tmp_path) == []


def test_a_living_journal_is_left_alone_and_a_damaged_line_is_skipped(tmp_path: Path) -> None:
    device = EmulatedDevice("meizu-16t")
    notes = Journal(device, tmp_path)
    notes.note(Change("a port", "forward", port=9300))
    script = (
        "from pathlib import Path; from autotune.devices.journal import left_behind; "
        f"print(len(left_behind(Path({str(tmp_path)!r}))))"
    )
    counted = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert counted.stdout.strip() == "0"
    (path,) = tmp_path.iterdir()
    notes._file.close()
    with path.open("a") as file:
        file.write('{"id": 1, "what": "cut o')
    (left,) = journal.left_behind(tmp_path)
    assert [change.port for _, change in left.changes] == [9300]


def test_of_two_processes_on_one_device_the_second_is_refused(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from autotune.devices.journal import held\n"
        f"with held('local', 'local', Path({str(tmp_path)!r})): print('in', flush=True); time.sleep(60)"
    )
    first = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "in\n"
        with (
            pytest.raises(DeviceError, match=rf"local is held .*\(pid {first.pid}\)") as refused,
            journal.held("local", "local", tmp_path),
        ):
            pass
        assert refused.value.exit_code == 3
        with journal.held("a-phone", "adb", tmp_path):
            pass
        with journal.held("local", "emulated", tmp_path):
            pass
    finally:
        first.kill()
        first.communicate()
    with journal.held("local", "local", tmp_path):
        assert (tmp_path / "local.lock").read_text() == str(os.getpid())


def test_clocks_are_not_put_back_while_another_run_holds_them(tmp_path: Path) -> None:
    device = EmulatedDevice("meizu-16t")
    for change in (Change("a clock", "write", "/x", "1"), Change("a file", "remove", "/tmp/x")):
        notes = Journal(device, tmp_path)
        notes.note(change)
        notes.close()
    phones = [replace(left, kind="adb") for left in journal.left_behind(tmp_path)]
    with journal.held(device.serial, "adb", tmp_path):
        done = {
            left.changes[0][1].kind: failures
            for left, failures in journal.restore(phones[:], lambda *_: device, tmp_path)
        }
    # Files are each run's own: they are nobody else's.
    assert done["remove"] == []
    assert "is held by another run" in done["write"][0]
    assert len(journal.left_behind(tmp_path)) == 1


def test_what_cannot_be_undone_now_stays_in_the_journal(tmp_path: Path) -> None:
    plan = FaultPlan((Fault("offline", "unforward", 1, duration_s=30),))
    device = EmulatedDevice("meizu-16t", faults=plan)
    with Journal(device, tmp_path) as notes:
        notes.note(Change("a port", "forward", port=9300))
    (left,) = journal.left_behind(tmp_path)
    ((_, failures),) = journal.restore([left], lambda *_: device, tmp_path)
    assert "offline" in failures[0]
    device.clock.sleep(60)
    ((_, failures),) = journal.restore(journal.left_behind(tmp_path), lambda *_: device, tmp_path)
    assert failures == []
    assert journal.left_behind(tmp_path) == []


def test_a_model_s_journal_goes_with_its_process(tmp_path: Path) -> None:
    device = EmulatedDevice("meizu-16t")
    notes = Journal(device, tmp_path)
    notes.note(Change("a clock", "write", "/x", "1"))
    notes.close()
    left = journal.left_behind(tmp_path)
    phone = replace(left[0], kind="adb")
    assert journal.without_models([phone]) == [phone]
    assert left[0].path.exists()
    assert journal.without_models(left) == []
    assert not left[0].path.exists()


def test_nothing_is_changed_when_the_journal_cannot_be_written(tmp_path: Path) -> None:
    device = EmulatedDevice("meizu-16t")
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="no device is changed"):
        Journal(device, tmp_path / "file")


def test_an_interrupt_in_a_block_undoes_it(tmp_path: Path) -> None:
    device = EmulatedDevice("meizu-16t")
    little = probe(device).clusters[0]
    before = setting(device, f"{little.policies[0]}/scaling_max_freq")
    with (
        pytest.raises(KeyboardInterrupt),
        Journal(device, tmp_path) as notes,
        cpufreq.fixed_frequency(device, notes, little, little.frequencies_khz[0]),
    ):
        raise KeyboardInterrupt
    assert setting(device, f"{little.policies[0]}/scaling_max_freq") == before
    assert list(tmp_path.iterdir()) == []


def test_probing_a_device_that_goes_away_is_transient() -> None:
    device = EmulatedDevice("meizu-16t", faults=FaultPlan((Fault("drop", "collect", 1),)))
    with pytest.raises(TransientDeviceError, match="broke"):
        probe(device)


def test_the_information_is_plain_json() -> None:
    info = probe(EmulatedDevice("jetson-tx2"))
    assert json.loads(json.dumps(info.to_json()))["clusters"][1]["cpus"] == [1, 2]
    assert os.fspath(PurePosixPath(info.settings[0][0])).startswith(CPU)


def test_no_adb_server_is_started_for_this_host_or_a_board(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def started() -> None:
        raise AssertionError("nobody asked for a phone")

    monkeypatch.setattr(adb, "start_server", started)
    monkeypatch.delenv("ANDROID_SERIAL", raising=False)
    board = "pi@bench"
    assert discovery.choose(["local"]) == [("local", "local")]
    assert discovery.choose(["local", board], [board]) == [("local", "local"), (board, "ssh")]
    for wanted in ([], ["phone"], ["local", "phone"]):
        with pytest.raises(AssertionError, match="nobody asked"):
            discovery.choose(wanted)
