"""The emulated kernel's files: what they hold, what they refuse, and with which errno."""

import errno
from collections.abc import Callable

import pytest

from autotune.emulator.kernel.kernel import KernelTree
from autotune.emulator.kernel.sensor_files import MeterState
from autotune.emulator.kernel.sysfs import kernel_tree
from autotune.emulator.kernel.tree import Tree
from autotune.emulator.model.profile import load
from autotune.emulator.model.soc import Soc
from autotune.emulator.model.step_model import ALEXNET_B16

CPU = "/sys/devices/system/cpu"
BIG = f"{CPU}/cpufreq/policy4"
LITTLE = f"{CPU}/cpufreq/policy0"


@pytest.fixture
def soc() -> Soc:
    return Soc(load("meizu-16t"))


@pytest.fixture
def tree(soc: Soc) -> KernelTree:
    return kernel_tree(soc)


def text(tree: Tree, path: str) -> str:
    return tree.read(path).decode().strip()


def refusal(call: Callable[[], object]) -> int | None:
    with pytest.raises(OSError) as caught:
        call()
    return caught.value.errno


def test_folders_and_files_are_told_apart(tree: KernelTree) -> None:
    as_interface: Tree = tree
    assert as_interface.kind(CPU) == "folder"
    assert as_interface.kind(f"{CPU}/online") == "file"
    assert as_interface.kind(f"{CPU}/nothing") is None
    assert {"cpu0", "cpu7", "cpufreq", "online"} <= set(tree.names(CPU))
    assert tree.mode(f"{BIG}/scaling_max_freq") == 0o644
    assert tree.mode(f"{BIG}/related_cpus") == 0o444
    assert refusal(lambda: tree.read(CPU)) == errno.EISDIR
    assert refusal(lambda: tree.read(f"{CPU}/nothing")) == errno.ENOENT
    assert refusal(lambda: tree.names(f"{CPU}/nothing")) == errno.ENOENT
    assert refusal(lambda: tree.names(f"{CPU}/online")) == errno.ENOTDIR
    assert refusal(lambda: tree.mode("/sys/nothing")) == errno.ENOENT


def test_limits_hold_and_are_read_back(tree: KernelTree) -> None:
    tree.write(f"{BIG}/scaling_max_freq", b"1612800\n")
    assert text(tree, f"{BIG}/scaling_max_freq") == "1612800"
    tree.write(f"{BIG}/scaling_min_freq", b"1612800")
    assert text(tree, f"{BIG}/scaling_cur_freq") == "1612800"
    assert text(tree, f"{LITTLE}/scaling_max_freq") == "1785600"


def test_a_frequency_between_two_becomes_the_nearest(tree: KernelTree) -> None:
    tree.write(f"{BIG}/scaling_max_freq", b"1600000")
    assert text(tree, f"{BIG}/scaling_max_freq") == "1612800"
    tree.write(f"{BIG}/scaling_max_freq", b"9000000")
    assert text(tree, f"{BIG}/scaling_max_freq") == "2419200"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scaling_max_freq", b"fast"),
        ("scaling_max_freq", b"-1"),
        ("scaling_max_freq", b""),
        ("scaling_max_freq", b"\xff"),
        ("scaling_governor", b"turbo"),
        ("scaling_setspeed", b"1612800"),
    ],
)
def test_nonsense_is_refused_with_einval(tree: KernelTree, name: str, value: bytes) -> None:
    before = tree.read(f"{BIG}/{name}")
    assert refusal(lambda: tree.write(f"{BIG}/{name}", value)) == errno.EINVAL
    assert tree.read(f"{BIG}/{name}") == before


def test_limits_may_not_cross(tree: KernelTree) -> None:
    tree.write(f"{BIG}/scaling_min_freq", b"1612800")
    assert refusal(lambda: tree.write(f"{BIG}/scaling_max_freq", b"710400")) == errno.EINVAL
    tree.write(f"{BIG}/scaling_max_freq", b"1708800")
    assert refusal(lambda: tree.write(f"{BIG}/scaling_min_freq", b"2419200")) == errno.EINVAL
    assert text(tree, f"{BIG}/scaling_min_freq") == "1612800"


def test_only_root_writes(soc: Soc, tree: KernelTree) -> None:
    user = tree.as_user(privileged=False)
    path = f"{BIG}/scaling_max_freq"
    assert refusal(lambda: user.write(path, b"710400")) == errno.EACCES
    assert text(user, path) == "2419200"
    assert refusal(lambda: user.read(f"{BIG}/cpuinfo_cur_freq")) == errno.EACCES
    assert text(tree, f"{BIG}/cpuinfo_cur_freq") == "710400"
    assert refusal(lambda: tree.write(f"{BIG}/related_cpus", b"1")) == errno.EACCES
    assert refusal(lambda: tree.write(f"{CPU}/nothing", b"1")) == errno.ENOENT


def test_a_heated_device_caps_silently(soc: Soc, tree: KernelTree) -> None:
    soc.set_celsius(40)
    tree.write(f"{BIG}/scaling_max_freq", b"2419200")
    assert text(tree, f"{BIG}/scaling_max_freq") == "1804800"
    tree.write(f"{BIG}/scaling_governor", b"performance")
    assert text(tree, f"{BIG}/scaling_cur_freq") == "1804800"
    soc.set_celsius(25)
    assert text(tree, f"{BIG}/scaling_max_freq") == "2419200"


def test_governors_choose_between_the_limits(soc: Soc, tree: KernelTree) -> None:
    current = f"{BIG}/scaling_cur_freq"
    found = {}
    for name in ("powersave", "performance", "schedutil"):
        tree.write(f"{BIG}/scaling_governor", name.encode())
        found[name] = text(tree, current)
    assert found == {"powersave": "710400", "performance": "2419200", "schedutil": "710400"}
    soc.begin(ALEXNET_B16, [4])
    assert text(tree, current) == "2419200"
    tree.write(f"{BIG}/scaling_governor", b"userspace")
    tree.write(f"{BIG}/scaling_setspeed", b"1171200")
    assert text(tree, current) == "1171200"


def test_cores_go_off_and_on(tree: KernelTree) -> None:
    for cpu in (5, 6):
        tree.write(f"{CPU}/cpu{cpu}/online", b"0\n")
    assert text(tree, f"{CPU}/online") == "0-4,7"
    assert text(tree, f"{CPU}/offline") == "5-6"
    assert text(tree, f"{CPU}/present") == "0-7"
    assert text(tree, f"{BIG}/affected_cpus") == "4 7"
    assert text(tree, f"{BIG}/related_cpus") == "4 5 6 7"
    assert "processor\t: 5" not in text(tree, "/proc/cpuinfo")
    tree.write(f"{CPU}/cpu5/online", b"1")
    assert text(tree, f"{CPU}/online") == "0-5,7"
    assert refusal(lambda: tree.write(f"{CPU}/cpu5/online", b"2")) == errno.EINVAL
    assert refusal(lambda: tree.write(f"{CPU}/cpu0/online", b"0")) == errno.EACCES


def test_a_cluster_that_is_off_has_no_clock_to_set(tree: KernelTree) -> None:
    for cpu in (4, 5, 6, 7):
        tree.write(f"{CPU}/cpu{cpu}/online", b"0")
    assert refusal(lambda: tree.write(f"{BIG}/scaling_max_freq", b"710400")) == errno.EBUSY
    assert text(tree, f"{BIG}/affected_cpus") == ""


def test_the_battery_shows_the_mean_of_the_last_period_in_its_unit_and_sign(soc: Soc) -> None:
    tree = kernel_tree(soc)
    supply = "/sys/class/power_supply/battery"
    # Negative: discharging. A reading has noise of half a per cent.
    idle = -soc.profile.model.idle_w / 4.32 * 1e6
    assert int(text(tree, f"{supply}/current_now")) == pytest.approx(idle, rel=2e-2)
    soc.clock.sleep(1.0)
    soc.begin(ALEXNET_B16, [4])
    soc.clock.sleep(0.2)  # The gauge has not been updated yet.
    assert int(text(tree, f"{supply}/current_now")) == pytest.approx(idle, rel=2e-2)
    soc.clock.sleep(0.1)
    with_load = -(soc.profile.model.idle_w + soc.net_w()) / 4.32 * 1e6
    assert int(text(tree, f"{supply}/current_now")) == pytest.approx(with_load, rel=2e-2)
    other = kernel_tree(Soc(load("three-cluster")))
    assert 400 < int(text(other, f"{supply}/current_now")) < 600  # mA, positive: discharging


def test_the_charge_counter_agrees_with_the_energy(soc: Soc, tree: KernelTree) -> None:
    counter = "/sys/class/power_supply/battery/charge_counter"
    before = int(text(tree, counter))
    soc.run(ALEXNET_B16, [4], steps=50)
    used_j = (before - int(text(tree, counter))) * 1e-6 * 3600 * 4.32
    assert used_j == pytest.approx(soc.energy_j(), rel=1e-3)


def test_a_meter_can_stick_and_saturate(soc: Soc) -> None:
    meters = MeterState(limit_w=2.35)
    tree = kernel_tree(soc, meters=meters)
    current = "/sys/class/power_supply/battery/current_now"
    soc.begin(ALEXNET_B16, [4, 5, 6, 7])
    soc.clock.sleep(1)
    assert int(text(tree, current)) == -round(2.35 / 4.32 * 1e6)
    meters.limit_w = None
    high = text(tree, current)
    meters.stuck_since_s = soc.clock.now()
    soc.reset()
    soc.clock.sleep(300)
    assert text(tree, current) == high
    meters.stuck_since_s = None
    assert abs(int(text(tree, current))) < abs(int(high))


def test_the_jetson_s_rails() -> None:
    soc = Soc(load("jetson-tx2"))
    tree = kernel_tree(soc)
    soc.begin(ALEXNET_B16, [1, 2])
    soc.clock.sleep(1)
    watts = {}
    for folder in ("/sys/class/hwmon/hwmon0", "/sys/class/hwmon/hwmon1"):
        assert text(tree, f"{folder}/name") == "ina3221"
        for name in tree.names(folder):
            if name.endswith("_label"):
                n = name[2]
                volts = int(text(tree, f"{folder}/in{n}_input")) / 1e3
                amperes = int(text(tree, f"{folder}/curr{n}_input")) / 1e3
                watts[text(tree, f"{folder}/{name}")] = volts * amperes
    assert set(watts) == {
        "VDD_IN", "VDD_SYS_CPU", "VDD_SYS_GPU", "VDD_SYS_DDR", "VDD_SYS_SOC",
    }  # fmt: skip
    assert watts["VDD_IN"] == pytest.approx(3.06 + soc.net_w(), abs=0.02)
    assert sum(watts.values()) < 2 * watts["VDD_IN"]
    assert watts["VDD_SYS_CPU"] > 1.0


def test_a_board_tells_its_model_and_a_phone_does_not() -> None:
    board = kernel_tree(Soc(load("raspberry-pi-3b-plus")))
    assert board.read("/proc/device-tree/model").startswith(b"Raspberry Pi 3 Model B Plus")
    assert board.kind("/sys/class/power_supply") is None
    phone = kernel_tree(Soc(load("meizu-16t")))
    assert phone.kind("/proc/device-tree") is None
    for tree, name in ((board, "raspberry-pi-3b-plus"), (phone, "meizu-16t")):
        assert text(tree, "/etc/autotune-emulated") == f"emulated: {name} (SoC model)"


def test_proc_stat_counts_the_work_of_each_core(soc: Soc, tree: KernelTree) -> None:
    soc.begin(ALEXNET_B16, [4])
    soc.clock.sleep(10)
    busy = {line.split()[0]: int(line.split()[1]) for line in text(tree, "/proc/stat").splitlines()}
    assert busy["cpu4"] == 1000
    assert busy["cpu0"] == 0
    assert busy["cpu"] == 1000


def test_a_load_takes_memory(soc: Soc, tree: KernelTree) -> None:
    def available() -> int:
        lines = dict(line.split(":") for line in text(tree, "/proc/meminfo").splitlines())
        return int(lines["MemAvailable"].split()[0])

    before = available()
    soc.begin(ALEXNET_B16, [4])
    assert before - available() == 1536 * 1024
