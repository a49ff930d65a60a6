"""Programs of this host within limits of time and of output."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from autotune.children import TooMuchOutput, run_to_end
from autotune.compiler.workers import Worker, WorkerLost
from autotune.devices import LocalDevice, adb
from autotune.doctor import child
from autotune.errors import StableDeviceError

ENDLESS = "import sys\nwhile True: sys.{}.write('a' * 65536)"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_what_a_program_writes_and_reads_is_whole() -> None:
    code = (
        "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d); sys.exit(f'{len(d)}')"
    )
    data = os.urandom(1 << 20)
    done = run_to_end(python(code), timeout=60, stdin=data)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, data, b"1048576")
    # It may end without reading its input.
    assert run_to_end(python("pass"), timeout=60, stdin=data).returncode == 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_program_that_prints_without_end_is_stopped(stream: str) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(TooMuchOutput, match="wrote more than 1 MiB of output and was stopped"):
        run_to_end(python(ENDLESS.format(stream)), timeout=60, most_bytes=1 << 20)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_program_and_its_children_are_killed_at_the_limit(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired, match=r"after 0\.5 seconds"):
        run_to_end(["sh", "-c", f"(sleep 3; touch {tmp_path}/late) & wait"], timeout=0.5)
    assert time.monotonic() - began < 2
    time.sleep(3)
    assert not (tmp_path / "late").exists()


def test_a_device_or_a_check_that_prints_without_end_is_one_line() -> None:
    with pytest.raises(StableDeviceError, match=r"local: `yes` wrote more than 64 MiB"):
        LocalDevice().run(["yes"], timeout=60)
    done = child.run(["yes"], timeout=60)
    assert (done.works, "more than 16 MiB" in done.reason) == (False, True)


def test_a_phone_that_answers_without_end_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(connection: socket.socket) -> None:
        """Answers as the adb server does, and to a shell command without end."""
        with connection, suppress(OSError):
            while size := connection.recv(4):
                words = connection.recv(int(size, 16))
                said = {
                    b"host:version": b"00040028",
                    b"host-serial:phone:features": b"0008shell_v2",
                }
                connection.sendall(b"OKAY" + said.get(words, b""))
                while words.startswith(b"shell,v2"):
                    connection.sendall(b"\x01" + (1 << 16).to_bytes(4, "little") + bytes(1 << 16))

    def serve(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=[server.accept()[0]], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(server.getsockname()[1]))
        threading.Thread(target=serve, args=[server], daemon=True).start()
        with pytest.raises(StableDeviceError, match="phone: its answer is longer than 64 MiB"):
            adb.AdbDevice("phone").run(["yes"], timeout=60)
        server.shutdown(socket.SHUT_RDWR)


def test_the_output_of_a_worker_takes_no_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loud.py").write_text(
        "import os, sys\n"
        "from autotune.compiler.workers import serve\n"
        "def handle(request):\n"
        "    for _ in range(4096):\n"
        "        print('a' * 65536)\n"
        "    print('the end', flush=True)\n"
        "    if request['die']:\n"
        "        os._exit(7)\n"
        "    return {}\n"
        "serve(sys.argv[1:], handle)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    worker = Worker("loud")
    disk = tempfile.gettempdir()
    free = shutil.disk_usage(disk).free
    assert worker.ask({"die": False}, timeout=60) == {}
    assert free - shutil.disk_usage(disk).free < 128 << 20
    with pytest.raises(WorkerLost, match=r"exit code 7: a+\nthe end$"):
        worker.ask({"die": True}, timeout=60)
    worker.stop()


def test_a_bound_program_ends_with_the_process_that_started_it() -> None:
    """Even with one that was killed. An example of `verify` once ran on for ever."""
    code = (
        "import sys; from autotune.children import run_to_end;"
        "run_to_end([sys.executable, '-c', "
        "'import os, time; os.write(2, str(os.getpid()).encode()); time.sleep(100)'], timeout=100, bound=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        deadline = time.monotonic() + 30
        while not (children := psutil.Process(parent.pid).children()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (child,) = children
        while "sleep" not in " ".join(child.cmdline()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)  # Python starts in it.
        parent.kill()
    assert psutil.wait_procs([child], timeout=10) == ([child], [])


def test_a_bound_program_is_named_by_its_own_name() -> None:
    with pytest.raises(TooMuchOutput, match=r"^yes wrote more"):
        run_to_end(["yes"], timeout=30, bound=True)
