"""The emulated device through the `Device` protocol: identity, commands, files, settings, and what goes wrong."""

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pytest

from autotune.devices.cpufreq import fixed_frequency, governor
from autotune.devices.device import Completed, Device
from autotune.devices.info import probe
from autotune.devices.journal import Journal
from autotune.devices.probes import capabilities
from autotune.emulator.device.device import EmulatedDevice
from autotune.emulator.device.faults import FAULT_KINDS, CallKind, Fault, FaultKind, FaultPlan
from autotune.emulator.device.imposed import SATURATED_W
from autotune.emulator.model.profile import names
from autotune.emulator.model.step_model import ALEXNET_B16
from autotune.errors import DeviceError, StableDeviceError, TransientDeviceError, UsageError

HOME = PurePosixPath("/data/local/tmp")
BIG = PurePosixPath("/sys/devices/system/cpu/cpufreq/policy4")
CURRENT = "/sys/class/power_supply/battery/current_now"
SERVER = str(HOME / "server")


def train(device: EmulatedDevice, argv: Sequence[str], root: bool) -> Completed:
    """A pushed program: one step on the cores that its argument names."""
    cpus = [int(cpu) for cpu in argv[1].split(",")]
    load = device.soc.run(ALEXNET_B16, cpus, limit_s=device.time_left_s())
    return Completed(tuple(argv), 0, f"{load.busy_s:.6f}\n".encode(), b"")


def phone(*faults: Fault) -> EmulatedDevice:
    device = EmulatedDevice(
        "meizu-16t", faults=FaultPlan(faults), programs={"server": train}
    )  # fmt: skip
    device.files.store(SERVER, b"ELF", 0o755)
    return device


def at(kind: FaultKind, call: CallKind, number: int = 1, duration_s: float = 0.0) -> Fault:
    return Fault(kind, call, number, duration_s=duration_s)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "server"
    path.write_bytes(b"x" * 1000)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("name", "clusters", "meters", "rooted", "system"),
    [
        (
            "meizu-16t",
            {"little": (0, 1, 2, 3), "big": (4, 5, 6, 7)},
            ["battery"],
            True,
            "Android 9",
        ),
        (
            "three-cluster",
            {"little": (0, 1, 2, 3), "big": (4, 5, 6), "prime": (7,)},
            ["battery"],
            False,
            "Android 11",
        ),
        ("raspberry-pi-3b-plus", {"all": (0, 1, 2, 3)}, [], True, "Debian GNU/Linux 12 (bookworm)"),
        (
            "jetson-tx2",
            {"little": (0, 3, 4, 5), "big": (1, 2)},
            ["hwmon", "hwmon"],
            True,
            "Ubuntu 20.04.6 LTS",
        ),
    ],
)
def test_a_probe_finds_what_the_profile_has(
    name: str,
    clusters: dict[str, tuple[int, ...]],
    meters: list[str],
    rooted: bool,
    system: str,
) -> None:
    device: Device = EmulatedDevice(name)
    info = probe(device)
    assert {cluster.name: cluster.cpus for cluster in info.clusters} == clusters
    assert [meter.kind for meter in info.meters] == meters
    assert all(meter.readable for meter in info.meters)
    assert all(zone.celsius is not None for zone in info.thermal_zones)
    assert info.thermal_zones
    assert (info.rooted, info.system, info.kind) == (rooted, system, "emulated")
    assert info.emulated == f"emulated: {name} (SoC model)"
    assert (info.sdk is None) == (not info.system.startswith("Android"))
    assert bool(info.opencl) == info.system.startswith("Android")
    assert all(cluster.frequencies_khz and cluster.governors for cluster in info.clusters)


def test_a_probed_phone_is_named_by_its_properties() -> None:
    info = probe(EmulatedDevice("meizu-16t"))
    assert (info.model, info.soc, info.abi, info.sdk) == ("Meizu 16T", "SM8150", "arm64-v8a", 28)
    assert info.memory_bytes == 6 * 2**30
    assert info.gpu is not None
    assert info.gpu.name == "Adreno640v2"
    assert probe(EmulatedDevice("jetson-tx2")).soc == "tegra186"


@pytest.mark.parametrize("name", names())
def test_frequencies_can_be_tuned_exactly_where_there_is_root(name: str) -> None:
    device = EmulatedDevice(name)
    found = {c.status for c in capabilities(probe(device)) if c.name.startswith("frequency of")}
    assert found == ({"tuned"} if device.rooted() else {"observed"})


def test_commands() -> None:
    device = phone()
    assert device.run(["uname", "-m"], timeout=5).text == "aarch64"
    assert device.run(["id", "-u"], timeout=5).text == "2000"
    assert device.run(["id", "-u"], timeout=5, root=True).text == "0"
    assert device.run(["getprop", "ro.soc.model"], timeout=5).text == "SM8150"
    missing = device.run(["perf", "stat"], timeout=5)
    assert missing.exit_code == 127
    assert "perf" in missing.complaint
    board = EmulatedDevice("raspberry-pi-3b-plus")
    assert board.run(["getprop"], timeout=5).exit_code == 127
    assert board.run(["id", "-u"], timeout=5).text == "1000"


def test_root_is_refused_where_there_is_none() -> None:
    device = EmulatedDevice("three-cluster")
    with pytest.raises(StableDeviceError, match="no root"):
        device.run(["id", "-u"], timeout=5, root=True)
    with pytest.raises(StableDeviceError, match="Permission denied"):
        device.write(BIG / "scaling_max_freq", b"710400", timeout=5)
    assert device.read(BIG / "scaling_max_freq", timeout=5) == b"2419200\n"


def test_files_come_and_go(tmp_path: Path, source: Path) -> None:
    device = EmulatedDevice("three-cluster")
    target = HOME / "autotune" / "server"
    device.push(source, target, timeout=5)
    assert device.find([f"{HOME}/*/server"], timeout=5) == [str(target)]
    device.pull(target, tmp_path / "back", timeout=5)
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert device.run(["cat", str(target)], timeout=5).stdout == source.read_bytes()
    assert device.run(["mkdir", "-p", f"{HOME}/a/b"], timeout=5).exit_code == 0
    assert device.run(["chmod", "644", str(target)], timeout=5).exit_code == 0
    assert device.run([str(target)], timeout=5).exit_code == 126
    assert device.run(["rm", "-rf", f"{HOME}/autotune"], timeout=5).exit_code == 0
    assert device.find([f"{HOME}/*"], timeout=5) == [f"{HOME}/a"]
    with pytest.raises(StableDeviceError, match="No such file"):
        device.read(target, timeout=5)


def test_files_of_others_cannot_be_changed(source: Path) -> None:
    device = EmulatedDevice("three-cluster")
    for where in ("/vendor/lib64/libOpenCL.so", "/sys/kernel/new", "/tmp/server"):
        with pytest.raises(StableDeviceError, match="Permission denied"):
            device.push(source, PurePosixPath(where), timeout=5)
        assert device.run(["rm", "-f", "/vendor/lib64/libOpenCL.so"], timeout=5).exit_code == 1
    assert device.find(["/vendor/lib64/*"], timeout=5) == ["/vendor/lib64/libOpenCL.so"]


def test_the_disk_has_an_end(source: Path) -> None:
    device = phone()
    device.files.disk_bytes = 1500
    device.push(source, HOME / "first", timeout=5)
    device.push(source, HOME / "first", timeout=5)  # The same file again takes no more.
    with pytest.raises(StableDeviceError, match="No space left"):
        device.push(source, HOME / "second", timeout=5)
    assert device.find([f"{HOME}/*"], timeout=5) == [f"{HOME}/first", SERVER]


def test_collect_reads_what_is_there_and_says_what_cannot_be_read() -> None:
    device = EmulatedDevice("three-cluster")
    found = device.collect(
        [f"{BIG}/scaling_m??_freq", f"{BIG}/cpuinfo_cur_freq", f"{BIG}", "/nothing/*"], timeout=5
    )
    assert found == {
        f"{BIG}/scaling_max_freq": b"2419200\n",
        f"{BIG}/scaling_min_freq": b"710400\n",
        f"{BIG}/cpuinfo_cur_freq": None,
    }


def test_writes_are_refused_in_the_kernel_s_words() -> None:
    device = phone()
    with pytest.raises(StableDeviceError, match="Invalid argument"):
        device.write(BIG / "scaling_governor", b"turbo", timeout=5)
    with pytest.raises(StableDeviceError, match="no such file"):
        device.write(BIG / "scaling_speed", b"1", timeout=5)


def test_settings_are_held_and_put_back(tmp_path: Path) -> None:
    device = phone()
    before = probe(device).settings
    big = probe(device).clusters[1]
    with (
        Journal(device, tmp_path) as journal,
        governor(device, journal, big, "performance"),
        fixed_frequency(device, journal, big, 1612800),
    ):
        info = probe(device)
        assert dict(info.settings)[f"{BIG}/scaling_cur_freq"] == "1612800"
    assert probe(device).settings == before
    assert list(tmp_path.iterdir()) == []


def test_a_capped_write_is_noticed(tmp_path: Path) -> None:
    device = phone(at("write_capped", "write", 1, duration_s=10))
    big = probe(device).clusters[1]
    with (
        Journal(device, tmp_path) as journal,
        pytest.raises(StableDeviceError, match="reads 1171200 after 1612800"),
        fixed_frequency(device, journal, big, 1612800),
    ):
        pytest.fail("the cap was not noticed")


def test_ports_have_one_number_on_both_sides() -> None:
    device = phone()
    assert device.forward(9090, timeout=5) == 9090
    assert device.reverse(9190, timeout=5) == 9190
    assert (device.forwarded, device.reversed) == ({9090: 9090}, {9190: 9190})
    for _ in range(2):
        device.unforward(9090, timeout=5)
        device.unreverse(9190, timeout=5)
    assert (device.forwarded, device.reversed) == ({}, {})


def test_a_pushed_program_does_what_it_is_told() -> None:
    device = phone()
    done = device.run([SERVER, "4,5,6,7"], timeout=60)
    assert float(done.text) == pytest.approx(2.08, abs=0.05)
    assert device.run([f"{HOME}/elsewhere/server", "4"], timeout=60).exit_code == 127


def test_a_program_that_takes_too_long_ends_with_its_time() -> None:
    device = phone()
    with pytest.raises(TransientDeviceError, match="within 1 s"):
        device.run([SERVER, "0"], timeout=1)
    assert device.clock.now() == pytest.approx(1)


@pytest.mark.parametrize("timeout", [0.001, 0.5, 30])
def test_a_hang_ends_after_exactly_the_timeout(timeout: float) -> None:
    device = phone(at("hang", "read", 2))
    device.read(BIG / "scaling_max_freq", timeout=5)
    start = device.clock.now()
    with pytest.raises(TransientDeviceError):
        device.read(BIG / "scaling_max_freq", timeout=timeout)
    assert device.clock.now() - start == pytest.approx(timeout)
    assert device.read(BIG / "scaling_max_freq", timeout=5) == b"2419200\n"


def test_a_dropped_push_leaves_half_a_file_beside_the_target(source: Path) -> None:
    device = phone(at("drop", "push"))
    with pytest.raises(TransientDeviceError):
        device.push(source, HOME / "new", timeout=5)
    assert device.find([f"{HOME}/new*"], timeout=5) == [f"{HOME}/new.part"]
    assert len(device.read(HOME / "new.part", timeout=5)) == 500
    device.push(source, HOME / "new", timeout=5)
    assert device.find([f"{HOME}/new*"], timeout=5) == [f"{HOME}/new"]


def test_a_dropped_write_may_have_been_done() -> None:
    device = phone(at("drop", "write"))
    with pytest.raises(TransientDeviceError):
        device.write(BIG / "scaling_max_freq", b"710400", timeout=5)
    assert device.read(BIG / "scaling_max_freq", timeout=5) == b"710400\n"


def test_a_dropped_session_takes_its_time_all_the_same() -> None:
    device = phone(at("drop", "session"))
    with pytest.raises(TransientDeviceError):
        device.run([SERVER, "4"], timeout=60)
    assert device.clock.now() > 4


def test_garbage_is_not_taken_for_an_answer() -> None:
    device = phone(at("garbage", "collect"))
    with pytest.raises(TransientDeviceError, match="garbled"):
        device.collect([f"{BIG}/*"], timeout=5)


@pytest.mark.parametrize(
    ("kind", "error"), [("unauthorised", StableDeviceError), ("offline", TransientDeviceError)]
)
def test_adb_states_last_for_their_time(kind: FaultKind, error: type[DeviceError]) -> None:
    device = phone(Fault(kind, time_s=1.0, duration_s=2.0))
    device.read(BIG / "scaling_max_freq", timeout=5)
    device.clock.sleep(1.5)
    with pytest.raises(error):
        device.read(BIG / "scaling_max_freq", timeout=5)
    device.clock.sleep(2)
    device.read(BIG / "scaling_max_freq", timeout=5)


def test_a_slow_link_is_slow(source: Path) -> None:
    fast, slow = phone(), phone(at("slow_link", "push"))
    for device in (fast, slow):
        device.push(source, HOME / "new", timeout=60)
    assert slow.clock.now() == pytest.approx(20 * fast.clock.now())


def test_a_push_that_is_too_large_for_its_time_leaves_a_part(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(4_000_000))
    device = phone()
    with pytest.raises(TransientDeviceError, match=r"within 0\.1 s"):
        device.push(large, HOME / "large", timeout=0.1)
    assert device.clock.now() == pytest.approx(0.1)
    part = device.read(HOME / "large.part", timeout=5)
    assert 0 < len(part) < 4_000_000


def test_a_reboot_loses_settings_and_ports_but_no_files() -> None:
    device = phone(at("reboot", "read", 1, duration_s=30))
    device.write(BIG / "scaling_max_freq", b"710400", timeout=5)
    device.forward(9090, timeout=5)
    with pytest.raises(TransientDeviceError):
        device.read(BIG / "scaling_max_freq", timeout=5)
    device.clock.sleep(29)
    with pytest.raises(TransientDeviceError):
        device.read(BIG / "scaling_max_freq", timeout=5)
    device.clock.sleep(1)
    assert device.read(BIG / "scaling_max_freq", timeout=5) == b"2419200\n"
    assert device.forwarded == {}
    assert device.find([SERVER], timeout=5) == [SERVER]


@pytest.mark.parametrize(("kind", "code"), [("server_crash", 134), ("out_of_memory", 137)])
def test_a_server_dies(kind: FaultKind, code: int) -> None:
    device = phone(at(kind, "session", 2))
    assert device.run([SERVER, "4"], timeout=60).exit_code == 0
    assert device.run(["id"], timeout=60).exit_code == 0
    assert device.run([SERVER, "4"], timeout=60).exit_code == code
    assert device.run([SERVER, "4"], timeout=60).exit_code == 0


def test_a_driver_hangs() -> None:
    device = phone(at("driver_hang", "session"))
    with pytest.raises(TransientDeviceError, match="within 7 s"):
        device.run([SERVER, "4"], timeout=7)
    assert device.clock.now() == pytest.approx(7)


def test_a_full_disk_and_a_denied_write(source: Path) -> None:
    device = phone(at("disk_full", "push"), at("write_denied", "write"))
    with pytest.raises(StableDeviceError, match="No space left"):
        device.push(source, HOME / "new", timeout=5)
    with pytest.raises(StableDeviceError, match="Permission denied"):
        device.write(BIG / "scaling_max_freq", b"710400", timeout=5)
    device.write(BIG / "scaling_max_freq", b"710400", timeout=5)


def test_a_throttled_session_is_slower_and_the_caps_go_again() -> None:
    device = phone(at("throttle", "session"))
    slow = float(device.run([SERVER, "4,5,6,7"], timeout=60).text)
    fast = float(device.run([SERVER, "4,5,6,7"], timeout=60).text)
    assert slow > 1.3 * fast


def test_meters_stick_and_saturate() -> None:
    device = phone(
        Fault("meter_saturated", time_s=0.0, duration_s=10.0),
        Fault("meter_stuck", time_s=20.0, duration_s=400.0),
    )
    load = device.soc.begin(ALEXNET_B16, [4, 5, 6, 7])

    def microamperes() -> int:
        return -int(device.read(PurePosixPath(CURRENT), timeout=5))  # Negative: discharging.

    device.clock.sleep(1)
    assert microamperes() == round(1e6 * SATURATED_W / 4.32)
    device.clock.sleep(20)
    high = microamperes()
    assert high > 1.5e6
    device.soc.end(load)
    device.clock.sleep(200)
    assert microamperes() == high
    device.clock.sleep(200)
    assert microamperes() < high / 2


def test_a_random_plan_is_the_seed_s_and_can_be_stored() -> None:
    plan = FaultPlan.random(7, 40)
    assert plan == FaultPlan.random(7, 40)
    assert plan != FaultPlan.random(8, 40)
    assert FaultPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert {f.kind for f in FaultPlan.random(1, 400).faults} == set(FAULT_KINDS)
    assert {f.kind for f in FaultPlan.random(1, 50, kinds=["hang"]).faults} == {"hang"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "fire", "time_s": 0.0},
        {"kind": "hang"},
        {"kind": "hang", "call": "run", "time_s": 1.0},
        {"kind": "hang", "call": "dance"},
        {"kind": "hang", "call": "run", "number": 0},
        {"kind": "hang", "time_s": 0.0, "duration_s": -1.0},
        {"kind": "hang", "colour": "red"},
    ],
)
def test_an_impossible_fault_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        FaultPlan.from_json([wrong])
