"""An emulated phone as the real adb server and adbutils see it."""

import hashlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import adbutils
import pytest
from small_phone import CPU, POLICY, adb, needs_phone, private_adb, small_phone

from autotune.devices import contract
from autotune.devices.adb import AdbDevice, attached
from autotune.devices.info import probe
from autotune.emulator.phone.phone import EmulatedPhone
from autotune.errors import StableDeviceError

pytestmark = [needs_phone, pytest.mark.timeout(120)]
TMP = PurePosixPath("/data/local/tmp")


@pytest.fixture(scope="module", autouse=True)
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_adb(tmp_path_factory.mktemp("home")):
        yield


@pytest.fixture(scope="module", params=["no", "su", "adb"])
def phone(request: pytest.FixtureRequest, server: None) -> Iterator[EmulatedPhone]:
    with small_phone(rooted=request.param) as phone:
        phone.connect()
        yield phone
        phone.disconnect()


@pytest.fixture
def device(phone: EmulatedPhone) -> AdbDevice:
    return AdbDevice(phone.serial)


def test_the_adb_server_lists_it(phone: EmulatedPhone) -> None:
    assert [(a.serial, a.state) for a in attached()] == [(phone.serial, "ready")]


@pytest.mark.parametrize("check", contract.CHECKS, ids=contract.name)
def test_it_keeps_what_devices_promise(check: contract.Check, device: AdbDevice) -> None:
    folder = TMP / check.__name__
    assert device.run(["mkdir", "-p", str(folder)], timeout=10).exit_code == 0
    check(device, folder)
    device.run(["rm", "-rf", str(folder)], timeout=10)


def test_exit_codes_and_errors(device: AdbDevice) -> None:
    done = device.run(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout=10)
    assert (done.exit_code, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    killed = device.run(["sh", "-c", "kill -9 $$"], timeout=10)
    assert killed.exit_code == 137
    assert device.run(["absent"], timeout=10).exit_code == 127
    assert device.run(["uname", "-m"], timeout=10).text == "aarch64"


def test_its_shell_is_a_users_or_roots(phone: EmulatedPhone, device: AdbDevice) -> None:
    user = device.run(["id", "-u"], timeout=10).text
    assert (user, device.rooted()) == {
        "no": ("2000", False),
        "su": ("2000", True),
        "adb": ("0", True),
    }[phone._rooted]
    if device.rooted():
        assert device.run(["id", "-u"], timeout=10, root=True).text == "0"
    has_su = device.run(["su", "0", "id", "-u"], timeout=10)
    assert (has_su.text == "0") == (phone._rooted == "su")


def test_files_go_there_and_back(device: AdbDevice, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(3_000_001))
    source.chmod(0o755)
    there = TMP / "new folder" / "file"
    device.push(source, there, timeout=20)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert device.run(["sha256sum", str(there)], timeout=20).text.split()[0] == digest
    assert device.run(["stat", "-c", "%a", str(there)], timeout=10).text == "755"
    device.pull(there, back, timeout=20)
    assert back.read_bytes() == source.read_bytes()
    with pytest.raises(StableDeviceError, match="No such file"):
        device.pull(TMP / "absent", back, timeout=10)


def test_adbs_own_commands(phone: EmulatedPhone, tmp_path: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    for number in range(3):
        (source / f"{number}").write_bytes(bytes([number]) * 70_000)
    assert adb("-s", phone.serial, "push", str(source), f"{TMP}/many").returncode == 0
    assert adb("-s", phone.serial, "pull", f"{TMP}/many", f"{tmp_path}/again").returncode == 0
    assert (tmp_path / "again" / "2").read_bytes() == b"\2" * 70_000
    done = adb("-s", phone.serial, "exec-out", "printf 'a\\r\\nb'; exit 3")
    assert done.stdout == b"a\r\nb"
    fed = subprocess.run(
        ["adb", "-s", phone.serial, "shell", "wc -c"],
        input=b"x" * 100_000,
        capture_output=True,
        timeout=20,
    )
    assert fed.stdout.split() == [b"100000"]


def test_a_terminal(phone: EmulatedPhone) -> None:
    reported = adb("-s", phone.serial, "shell", "-tt", "tty; test -t 1 && echo yes; exit 4")
    assert (reported.returncode, reported.stdout.split()) == (4, [b"/dev/pts/0", b"yes"])


def test_sysfs_is_live_and_says_no_as_a_kernel_does(
    phone: EmulatedPhone, device: AdbDevice
) -> None:
    most = PurePosixPath(f"{POLICY}/scaling_max_freq")
    temperature = PurePosixPath("/sys/class/thermal/thermal_zone0/temp")
    for value in ("42000", "43000"):
        phone.tree.files[str(temperature)] = value  # type: ignore[union-attr]
        assert device.read(temperature, timeout=10) == f"{value}\n".encode()
    if not device.rooted():
        with pytest.raises(StableDeviceError, match="Permission denied"):
            device.write(most, b"300000", timeout=10)
        return
    device.write(most, b"300000", timeout=10)
    assert device.read(most, timeout=10) == b"300000\n"
    with pytest.raises(StableDeviceError, match="Invalid argument"):
        device.write(most, b"300001", timeout=10)
    with pytest.raises(StableDeviceError, match="Permission denied"):
        device.write(PurePosixPath(f"{CPU}/online"), b"0", timeout=10)
    with pytest.raises(StableDeviceError, match="no such file"):
        device.write(PurePosixPath(f"{CPU}/absent"), b"0", timeout=10)
    device.write(most, b"1800000", timeout=10)


def test_processes_have_the_emulated_cores(phone: EmulatedPhone, device: AdbDevice) -> None:
    def output_of(script: str) -> str:
        return device.run(["sh", "-c", script], timeout=10).text

    assert output_of("nproc; taskset f0 nproc").split() == ["8", "4"]
    assert output_of("taskset 81 sh -c 'taskset -p $$; nproc'").split()[-2:] == ["81", "2"]
    assert device.run(["taskset", "100", "true"], timeout=10).exit_code != 0
    assert device.run(["taskset", "-p", "f", "99999"], timeout=10).exit_code != 0
    phone.tree.files[f"{CPU}/online"] = "0-5"  # type: ignore[union-attr]
    assert output_of("nproc; taskset f0 nproc; taskset c0 true || echo none").split() == [
        *("6", "2", "none")
    ]
    phone.tree.files[f"{CPU}/online"] = "0-7"  # type: ignore[union-attr]


def test_two_phones_at_once(phone: EmulatedPhone) -> None:
    with small_phone() as other:
        other.connect()
        assert {a.serial for a in attached()} == {phone.serial, other.serial}
        one, two = AdbDevice(phone.serial), AdbDevice(other.serial)
        one.push(Path(__file__), TMP / "mine", timeout=10)
        assert two.find([f"{TMP}/mine"], timeout=10) == []
        assert one.find([f"{TMP}/mine"], timeout=10) == [f"{TMP}/mine"]
        other.disconnect()
    assert one.run(["echo", "still"], timeout=10).text == "still"


def test_many_commands_at_once(phone: EmulatedPhone) -> None:
    def work(number: int) -> str:
        device = AdbDevice(phone.serial)
        return device.run(["sh", "-c", f"sleep 0.2; echo {number}"], timeout=20).text

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(work, range(48))) == [str(number) for number in range(48)]


def test_collect_find_and_probe(device: AdbDevice) -> None:
    found = device.collect([f"{POLICY}/*", "/proc/cpuinfo"], timeout=10)
    assert found[f"{POLICY}/related_cpus"] == b"0-7\n"
    assert found["/proc/cpuinfo"] == b"Hardware\t: Small\n"
    assert found[f"{POLICY}/secret"] is None
    assert device.find([f"{CPU}/o*", "/absent/*"], timeout=10) == [f"{CPU}/online"]
    info = probe(device)
    assert (info.model, info.soc, info.abi) == ("Nobody Small", "S1", "arm64-v8a")
    assert (info.system, info.sdk, info.emulated) == ("Android 14", 34, "a phone")
    assert info.memory_bytes == 4_000_000 * 1024
    assert [cluster.cpus for cluster in info.clusters] == [tuple(range(8))]
    assert info.thermal_zones


def test_forward_and_reverse_carry_data_both_ways(device: AdbDevice) -> None:
    data = os.urandom(300_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        inside = device.reverse(listener.getsockname()[1], timeout=10)
        # Out of the phone's own loopback, to the host's.
        outside = device.forward(inside, timeout=10)
        echo = threading.Thread(target=_echo, args=(listener,), daemon=True)
        echo.start()
        with socket.create_connection(("127.0.0.1", outside), timeout=20) as link:
            sender = threading.Thread(target=link.sendall, args=(data,))
            sender.start()
            back = b""
            while len(back) < len(data) and (part := link.recv(65536)):
                back += part
            sender.join(20)
        assert back == data
        echo.join(20)
        assert not echo.is_alive()
        device.unforward(outside, timeout=10)
        device.unreverse(inside, timeout=10)
        device.unreverse(inside, timeout=10)


def _echo(listener: socket.socket) -> None:
    link, _ = listener.accept()
    with link:
        while part := link.recv(65536):
            link.sendall(part)


def test_the_phone_has_a_network_of_its_own(phone: EmulatedPhone, device: AdbDevice) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = device.forward(listener.getsockname()[1], timeout=10)
        with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
            assert link.recv(1) == b""  # Nobody listens there inside.
        device.unforward(port, timeout=10)
    shell = adbutils.AdbClient().device(phone.serial)
    assert shell.shell2("true").returncode == 0


def test_a_full_disk(device: AdbDevice, tmp_path: Path) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(60 << 20)
    with pytest.raises(StableDeviceError, match=r"refuses to take .*no room"):
        device.push(big, TMP / "big", timeout=60)
    assert device.find([f"{TMP}/big*"], timeout=10) == []
    device.push(Path(__file__), TMP / "small", timeout=10)


def test_commands_for_the_daemon_itself(server: None) -> None:
    with small_phone(rooted="adb") as phone:
        phone.connect()
        device = AdbDevice(phone.serial)
        assert b"restarting" in adb("-s", phone.serial, "unroot").stdout
        phone.connect()
        assert device.run(["id", "-u"], timeout=10).text == "2000"
        assert b"restarting" in adb("-s", phone.serial, "root").stdout
        phone.connect()
        assert device.run(["id", "-u"], timeout=10).text == "0"
        phone.disconnect()
