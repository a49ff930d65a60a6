"""What the client makes of a bad link, a phone that hangs, and a reboot."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest
from small_phone import POLICY, adb, needs_phone, private_adb, small_phone

from autotune.devices.adb import AdbDevice, attached
from autotune.emulator.phone.phone import EmulatedPhone
from autotune.errors import DeviceError, TransientDeviceError

pytestmark = [needs_phone, pytest.mark.timeout(120)]
TMP = PurePosixPath("/data/local/tmp")


@pytest.fixture(scope="module", autouse=True)
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_adb(tmp_path_factory.mktemp("home")):
        yield


@pytest.fixture(scope="module")
def one_phone(server: None) -> Iterator[EmulatedPhone]:
    with small_phone(rooted="su") as phone:
        yield phone
        phone.disconnect()


@pytest.fixture
def phone(one_phone: EmulatedPhone) -> EmulatedPhone:
    one_phone.faults.clear()
    one_phone.connect()
    return one_phone


def later(seconds: float, work: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()


def state_of(phone: EmulatedPhone) -> str:
    return next((a.state for a in attached() if a.serial == phone.serial), "absent")


def wait_for(wanted: set[str], phone: EmulatedPhone, seconds: float = 15) -> str:
    ends = time.monotonic() + seconds
    while (state := state_of(phone)) not in wanted and time.monotonic() < ends:
        time.sleep(0.1)
    return state


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(os.urandom(3_000_000))
    return path


def test_a_drop_in_the_middle_of_a_command(phone: EmulatedPhone) -> None:
    device = AdbDevice(phone.serial)
    later(0.5, phone.faults.drop_now)
    started = time.monotonic()
    with pytest.raises(TransientDeviceError):
        device.run(["sh", "-c", "echo begun; sleep 8; echo done"], timeout=15)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("passed", [1, 30, 20_000, 150_000])
def test_output_that_ends_early_is_no_success(phone: EmulatedPhone, passed: int) -> None:
    phone.faults.drop_after(passed)
    with pytest.raises(TransientDeviceError):
        AdbDevice(phone.serial).run(["head", "-c", "500000", "/dev/zero"], timeout=10)


def test_a_drop_at_the_second_command(phone: EmulatedPhone) -> None:
    device = AdbDevice(phone.serial)
    phone.faults.drop_at_open("shell", 2)
    assert device.run(["echo", "1"], timeout=10).text == "1"
    with pytest.raises(TransientDeviceError):
        device.run(["echo", "2"], timeout=10)
    phone.connect()
    assert device.run(["echo", "3"], timeout=10).text == "3"


def test_a_drop_in_the_middle_of_a_push(phone: EmulatedPhone, source: Path) -> None:
    device = AdbDevice(phone.serial)
    phone.faults.drop_after(1_000_000)
    with pytest.raises(TransientDeviceError):
        device.push(source, TMP / "cut", timeout=20)
    phone.connect()
    assert device.find([f"{TMP}/cut"], timeout=10) == []
    device.push(source, TMP / "cut", timeout=20)


def test_a_drop_in_the_middle_of_a_pull(phone: EmulatedPhone, source: Path, tmp_path: Path) -> None:
    device = AdbDevice(phone.serial)
    device.push(source, TMP / "whole", timeout=20)
    phone.faults.drop_after(1_000_000)
    with pytest.raises(TransientDeviceError):
        device.pull(TMP / "whole", tmp_path / "back", timeout=20)
    assert not (tmp_path / "back").exists()


def test_a_phone_that_hangs_ends_at_the_timeout(phone: EmulatedPhone, source: Path) -> None:
    device = AdbDevice(phone.serial)
    phone.faults.hang(6)
    for work in (
        lambda: device.run(["true"], timeout=1),
        lambda: device.push(source, TMP / "late", timeout=1),
        lambda: device.forward(9, timeout=1) and device.reverse(9, timeout=1),
    ):
        started = time.monotonic()
        with pytest.raises(TransientDeviceError, match="no answer within 1 s"):
            work()
        assert time.monotonic() - started < 3
    phone.faults.hang(0)
    assert device.run(["echo", "back"], timeout=15).text == "back"


def test_a_slow_link(phone: EmulatedPhone, source: Path) -> None:
    device = AdbDevice(phone.serial)
    phone.faults.bytes_per_second = 200_000
    started = time.monotonic()
    assert len(device.run(["head", "-c", "200000", "/dev/zero"], timeout=20).stdout) == 200_000
    assert time.monotonic() - started > 0.8
    with pytest.raises(TransientDeviceError, match="no answer within 2 s"):
        device.push(source, TMP / "slow", timeout=2)


def test_garbage_on_the_link(phone: EmulatedPhone) -> None:
    phone.faults.garbage_bytes = 100
    with pytest.raises(TransientDeviceError):
        AdbDevice(phone.serial).run(["true"], timeout=5)
    phone.disconnect()
    phone.connect()
    assert AdbDevice(phone.serial).run(["echo", "well"], timeout=5).text == "well"


def test_an_unauthorised_host(phone: EmulatedPhone) -> None:
    phone.faults.unauthorised = True
    phone.disconnect()
    adb("connect", phone.serial)
    assert wait_for({"unauthorized"}, phone) == "unauthorized"
    with pytest.raises(DeviceError):
        AdbDevice(phone.serial).run(["true"], timeout=5)
    phone.faults.clear()
    phone.disconnect()
    phone.connect()


def test_a_phone_that_knows_this_hosts_key(server: None) -> None:
    known = (Path.home() / ".android" / "adbkey.pub").read_text()
    with small_phone(authorise=[known]) as phone:
        phone.connect()
        assert AdbDevice(phone.serial).run(["echo", "hi"], timeout=5).text == "hi"
        phone.disconnect()
    with small_phone(authorise="never") as phone:
        adb("connect", phone.serial)
        assert wait_for({"unauthorized"}, phone) == "unauthorized"
        phone.disconnect()


def test_a_phone_that_refuses(phone: EmulatedPhone) -> None:
    phone.faults.refuse = True
    assert wait_for({"offline", "absent"}, phone) in ("offline", "absent")
    with pytest.raises(DeviceError):
        AdbDevice(phone.serial).run(["true"], timeout=5)
    phone.faults.refuse = False
    phone.disconnect()
    phone.connect()


def test_a_reboot(phone: EmulatedPhone, source: Path) -> None:
    device = AdbDevice(phone.serial)
    most = PurePosixPath(f"{POLICY}/scaling_max_freq")
    device.push(source, TMP / "kept", timeout=10)
    device.write(most, b"300000", timeout=10)
    device.run(["sh", "-c", "echo x > /tmp/lost; sleep 60 >/dev/null 2>&1 &"], timeout=10)
    adb("-s", phone.serial, "reboot")
    assert wait_for({"offline", "absent"}, phone) in ("offline", "absent")
    with pytest.raises(DeviceError):
        device.run(["true"], timeout=1)
    phone.connect()
    assert device.read(most, timeout=10) == b"1800000\n"
    assert device.find(["/tmp/*", f"{TMP}/kept"], timeout=10) == [f"{TMP}/kept"]
    assert b"sleep" not in device.run(["ps", "-A"], timeout=10).stdout


def test_the_client_reboots_it_and_connects_anew(phone: EmulatedPhone) -> None:
    device = AdbDevice(phone.serial)
    boot_id = PurePosixPath("/proc/sys/kernel/random/boot_id")
    before = device.read(boot_id, timeout=10)
    device.reboot(timeout=30)
    assert device.read(boot_id, timeout=10) != before
    phone.faults.drop_now()
    device.reconnect(timeout=20)
    assert device.run(["echo", "here"], timeout=10).text == "here"
