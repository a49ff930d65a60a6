"""The device server inside an emulated phone, and what is left when a phone ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil
import pytest
import small_phone as support
from small_phone import needs_phone, private_adb, small_phone

from autotune.compiler.native import device_server
from autotune.devices.adb import AdbDevice
from autotune.emulator.phone.phone import EmulatedPhone

pytestmark = [needs_phone, pytest.mark.timeout(300)]
TMP = PurePosixPath("/data/local/tmp")
PORT = 9190


@pytest.fixture(scope="module", autouse=True)
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_adb(tmp_path_factory.mktemp("home")):
        yield


@pytest.fixture(scope="module")
def phone(server: None) -> Iterator[EmulatedPhone]:
    with small_phone() as phone:
        phone.connect()
        yield phone
        phone.disconnect()


FIRST = "emulator.inside.first_process"


def processes(word: str) -> set[int]:
    """This machine's processes with the word in their command lines."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line and path.parent.name != str(os.getpid()):
            found.add(int(path.parent.name))
    return found


def first_processes(word: str) -> set[int]:
    """The first processes of the phones in which the command with the word runs. Other tests have phones too."""
    above = {one.pid for pid in processes(word) for one in psutil.Process(pid).parents()}
    return processes(FIRST) & above


def gone(word: str, among: set[int] | None = None, seconds: float = 10) -> bool:
    ends = time.monotonic() + seconds
    while (found := processes(word)) and time.monotonic() < ends:
        if among is not None and not found & among:
            return True
        time.sleep(0.1)
    return not (found if among is None else found & among)


def test_the_device_server_runs_in_it(phone: EmulatedPhone) -> None:
    device = AdbDevice(phone.serial)
    bundle = device_server.bundle("linux-aarch64")
    for file in bundle.iterdir():
        device.push(file, TMP / "server" / file.name, timeout=60)
    program, folder = str(TMP / "server" / device_server.PROGRAM), str(TMP / "work")
    started = device.run(
        [program, "--dir", folder, "--key", "k", "--port", str(PORT), "--daemon"], timeout=60
    )
    assert (started.exit_code, started.text) == (0, f"ok {PORT}"), started
    status = json.loads(device.run([program, "--dir", folder, "--status"], timeout=30).text)
    assert (status["running"], status["port"]) == (True, PORT)
    outside = device.forward(PORT, timeout=10)
    with socket.create_connection(("127.0.0.1", outside), timeout=10) as link:
        link.settimeout(20)
        link.sendall(b"this is no handshake, but long enough for one")
        assert link.recv(100) == b""  # It has heard it, and hung up.
    device.unforward(outside, timeout=10)
    assert device.run([program, "--dir", folder, "--stop"], timeout=30).exit_code == 0
    status = json.loads(device.run([program, "--dir", folder, "--status"], timeout=30).text)
    assert not status["running"]


def test_programs_for_arm_run_by_name_and_find_themselves(
    phone: EmulatedPhone, tmp_path: Path
) -> None:
    source = tmp_path / "hello.c"
    source.write_text(
        textwrap.dedent("""
        #include <stdio.h>
        #include <sys/utsname.h>
        #include <unistd.h>
        int main(int argc, char** argv) {
          char self[256] = "";
          struct utsname name;
          uname(&name);
          readlink("/proc/self/exe", self, sizeof(self) - 1);
          printf("%s %s %s %d\\n", name.machine, argv[0], self, argc);
          return 5;
        }
        """)
    )
    compiler = "aarch64-linux-gnu-gcc"
    subprocess.run([compiler, str(source), "-o", str(tmp_path / "hello")], check=True)
    device = AdbDevice(phone.serial)
    device.push(tmp_path / "hello", TMP / "arm" / "hello", timeout=10)
    here = f"aarch64 ./hello {TMP}/arm/hello 2"
    for script, code in (("./hello x", 5), ("nohup ./hello x", 5), ("./hello x | cat", 0)):
        done = device.run(["sh", "-c", f"cd {TMP}/arm; {script}"], timeout=10)
        assert (done.exit_code, done.text) == (code, here)
    named = device.run(["sh", "-c", f"PATH=$PATH:{TMP}/arm; taskset 1 hello"], timeout=10)
    assert named.exit_code == 5


def test_nothing_is_left_of_a_phone() -> None:
    mounts = Path("/proc/self/mounts").read_text()
    with small_phone() as phone:
        phone.connect()
        AdbDevice(phone.serial).run(
            ["sh", "-c", "nohup setsid sleep 98765 >/dev/null 2>&1 &"], timeout=10
        )
        assert (own := first_processes("sleep 98765"))
        assert Path("/proc/self/mounts").read_text() == mounts
        phone.disconnect()
        descriptors = phone._fuse
    assert descriptors is not None
    assert descriptors.descriptor == -1
    assert gone("sleep 98765")
    assert gone(FIRST, own)
    assert Path("/proc/self/mounts").read_text() == mounts


CHILD = """
import sys
sys.path[:0] = {paths!r}
from small_phone import small_phone
from autotune.devices.adb import AdbDevice
from autotune.emulator.phone import serve

def ready(phone):
    phone.connect()
    command = ["sh", "-c", "nohup setsid sleep 87654 >/dev/null 2>&1 &"]
    AdbDevice(phone.serial).run(command, timeout=10)
    phone.disconnect()
    print(phone.serial, flush=True)

serve(small_phone(), ready)
print("over", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_phone_whose_process_is_killed(number: signal.Signals) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    here = Path(support.__file__).parent
    code = CHILD.format(paths=[str(here), str(here.parents[1])])
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith(b"127.0.0.1:")
        assert (own := first_processes("sleep 87654"))
        child.send_signal(number)
        rest = child.stdout.read()
    if number == signal.SIGTERM:
        assert (child.returncode, rest) == (0, b"over\n")
    assert gone("sleep 87654")
    assert gone(FIRST, own)
    assert Path("/proc/self/mounts").read_text() == mounts
