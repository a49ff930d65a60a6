"""Android phones, reached through the adb server of this host."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

import adbutils

from autotune.children import TooMuchOutput
from autotune.devices.device import MOST_ANSWER_BYTES, Completed, quoted
from autotune.devices.shell import BOOT_ID, ShellDevice, wait_until
from autotune.errors import StableDeviceError, ToolchainError, TransientDeviceError

_R = TypeVar("_R")
_START_TIMEOUT_S = 20.0
_CALL_S = 10.0
_STATES = {
    "device": "ready",
    "offline": "offline",
    "unauthorized": "unauthorized",
}


@dataclass(frozen=True)
class Attached:
    """A phone in the adb server's list: its serial, and `ready`, `offline`, `unauthorized` or adb's own word."""

    serial: str
    state: str


class _Connection(adbutils.AdbConnection):  # type: ignore[misc]  # it has no types
    """A connection that reads at most `MOST_ANSWER_BYTES`. adbutils keeps all that it reads in memory."""

    _left = MOST_ANSWER_BYTES

    def read(self, n: int) -> bytes:
        return self._counted(super().read, n)

    def read_exact(self, n: int) -> bytes:
        return self._counted(super().read_exact, n)

    def _counted(self, read: Callable[[int], bytes], n: int) -> bytes:
        if n > self._left:
            raise TooMuchOutput("it", MOST_ANSWER_BYTES)
        data = read(n)
        self._left -= len(data)
        return data


class _Client(adbutils.AdbClient):  # type: ignore[misc]  # it has no types
    """A client whose connections can be cut from another thread.

    A socket's own timeout would limit each read, but not the whole call. It also makes `send` stop half-way, which
    adbutils does not expect. Cutting the connection at the limit ends every wait on it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._opened: list[adbutils.AdbConnection] = []
        self._cut = False

    def make_connection(self, timeout: float | None = None) -> adbutils.AdbConnection:
        connection = _Connection(self.host, self.port)
        self._opened.append(connection)
        if self._cut:
            self.cut()
        return connection

    def cut(self) -> None:
        """Ends everything in progress on this client."""
        self._cut = True
        for connection in self._opened:
            with suppress(OSError, adbutils.AdbError):
                connection.conn.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes connections that adbutils leaves open when a call fails."""
        for connection in self._opened:
            with suppress(OSError, adbutils.AdbError):
                connection.close()


def start_server() -> None:
    """Makes sure that an adb server runs on this host.

    Raises:
        ToolchainError: There is no `adb`, or it does not start.
    """
    program = shutil.which("adb")
    if program is None:
        raise ToolchainError("adb is not installed", hint="sudo apt install adb")
    try:
        subprocess.run(
            [program, "start-server"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_START_TIMEOUT_S,
            check=True,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise ToolchainError(
            f"the adb server does not start: {error}", hint="try `adb kill-server`"
        ) from error


def attached(timeout: float = 10.0, *, start: bool = True) -> list[Attached]:
    """Returns the phones that the adb server knows, ready or not.

    Args:
        timeout: Limit in seconds, without the server's start.
        start: Whether a server is started if there is none. Otherwise no phone is known then.

    Raises:
        ToolchainError: There is no adb server and none can be started.
        TransientDeviceError: The server does not answer.
    """
    if start:
        start_server()
    elif not _runs(timeout):
        return []
    with _limited("the adb server", timeout) as client:
        listed = client.list()
    return [Attached(item.serial, _STATES.get(item.state, item.state)) for item in listed]


def _runs(timeout: float) -> bool:
    """Returns whether an adb server runs. adbutils would start one."""
    client = _Client()
    try:
        socket.create_connection((client.host, client.port), timeout).close()
    except OSError:
        return False
    return True


@contextmanager
def _limited(who: str, timeout: float) -> Iterator[_Client]:
    """Yields a separate client for one call. It is cut off when the time is over."""
    client = _Client()
    late = threading.Event()

    def end() -> None:
        late.set()
        client.cut()

    timer = threading.Timer(timeout, end)
    timer.daemon = True
    timer.start()
    try:
        yield client
    except TooMuchOutput:
        raise StableDeviceError(
            f"{who}: its answer is longer than {MOST_ANSWER_BYTES >> 20} MiB"
        ) from None
    except (adbutils.AdbError, EOFError, OSError) as error:
        if late.is_set():
            raise TransientDeviceError(f"{who}: no answer within {timeout:g} s") from error
        raise _mapped(who, error) from error
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        # adbutils' error for an answer that ends early or does not come from adb.
        raise TransientDeviceError(f"{who}: the answer is garbled: {error}") from error
    else:
        # Some of adbutils' calls mistake a cut connection for the end of the output.
        if late.is_set():
            raise TransientDeviceError(f"{who}: no answer within {timeout:g} s")
    finally:
        timer.cancel()
        client.close()


def _mapped(who: str, error: Exception) -> TransientDeviceError | StableDeviceError:
    text = str(error) or type(error).__name__
    if "unauthorized" in text:
        return StableDeviceError(
            f"{who} does not trust this computer", hint="unlock it and allow USB debugging"
        )
    if "Permission denied" in text or "No such file" in text or "No space left" in text:
        return StableDeviceError(f"{who}: {text}")
    return TransientDeviceError(f"{who}: {text}")


class AdbDevice(ShellDevice):
    """A phone that the adb server reaches.

    Args:
        serial: adb's serial.
    """

    kind = "adb"
    # First the form of Magisk and SuperSU, then that of userdebug builds.
    root_prefixes = (("su", "-c"), ("su", "0", "sh", "-c"))

    def _call(self, timeout: float, work: Callable[[adbutils.AdbDevice], _R]) -> _R:
        with _limited(self.serial, timeout) as client:
            return work(client.device(self.serial))

    def _script(self, script: str, argv: Sequence[str], *, timeout: float) -> Completed:
        def shell(device: adbutils.AdbDevice) -> Completed:
            # Protocol 2, because version 1 has no exit code and ends silently if the connection does.
            done = device.shell2(quoted(["sh", "-c", script]), timeout=None, encoding=None, v2=True)
            return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)

        return self._call(timeout, shell)

    def push(self, source: Path, target: PurePosixPath, *, timeout: float) -> None:
        """See `Device.push`."""
        size = source.stat().st_size
        part = f"{target}.part"
        mode = source.stat().st_mode & 0o777

        def send(device: adbutils.AdbDevice) -> None:
            try:
                device.sync.push(source, part, mode, check=True)
            except adbutils.AdbError as error:
                if str(error) != "FAIL":
                    raise
                # adbutils does not read the phone's reason.
                raise StableDeviceError(
                    f"{self.serial}: refuses to take {target} ({size} bytes)",
                    hint="it has no room for it, or its shell may not write there",
                ) from error

        self._call(timeout, send)
        script = f"mv -f {quoted([part])} {quoted([str(target)])}"
        done = self._script(script, ["mv"], timeout=timeout)
        if done.exit_code != 0:
            raise StableDeviceError(
                f"{self.serial}: cannot write {target} ({size} bytes): {done.complaint}"
            )

    def pull(self, source: PurePosixPath, target: Path, *, timeout: float) -> None:
        """See `Device.pull`."""
        target.write_bytes(self._call(timeout, lambda device: device.sync.read_bytes(str(source))))

    def forward(self, device_port: int, *, timeout: float, host_port: int = 0) -> int:
        """See `Device.forward`."""
        if not host_port:
            return self._call(timeout, lambda device: int(device.forward_port(device_port)))
        there = f"tcp:{device_port}"
        self._call(timeout, lambda device: device.forward(f"tcp:{host_port}", there))
        return host_port

    def reverse(self, host_port: int, *, timeout: float) -> int:
        """See `Device.reverse`."""
        # The same number on both sides, so that port numbers of this host are also valid on the device.
        where = f"tcp:{host_port}"
        known = self._call(
            timeout, lambda device: {r.remote: r.local for r in device.reverse_list()}
        )
        if known.get(where, where) != where:
            raise StableDeviceError(
                f"{self.serial}: its port {host_port} leads to {known[where]} of a host already",
                hint="`adb reverse --remove` it, or choose another --port",
            )
        self._call(timeout, lambda device: device.reverse(where, where))
        return host_port

    def reconnect(self, *, timeout: float) -> None:
        """See `Device.reconnect`."""
        deadline = time.monotonic() + timeout
        self._dial()
        wait_until(self._answers, self.serial, max(1.0, deadline - time.monotonic()))

    def reboot(self, *, timeout: float) -> None:
        """See `Device.reboot`."""
        deadline = time.monotonic() + timeout
        before = self._boot_id()
        with suppress(TransientDeviceError), _limited(self.serial, _CALL_S) as client:
            connection = client.device(self.serial).open_transport()
            connection.send_command("reboot:")
            connection.check_okay()

        def back() -> bool:
            return self._answers() and self._boot_id() != before and self._booted()

        wait_until(back, self.serial, max(1.0, deadline - time.monotonic()))

    def _dial(self) -> None:
        """Makes the adb server reconnect to the device."""
        with suppress(TransientDeviceError), _limited(self.serial, _CALL_S) as client:
            if ":" in self.serial:  # An address: reached over the network, not USB.
                client.disconnect(self.serial)
                client.connect(self.serial)
            else:
                client.device(self.serial).open_transport("reconnect").close()

    def _answers(self) -> bool:
        try:
            return self._script("echo here", ["echo"], timeout=_CALL_S).text == "here"
        except TransientDeviceError:
            self._dial()
            raise

    def _boot_id(self) -> str:
        return self._script(f"cat {BOOT_ID}", ["cat", BOOT_ID], timeout=_CALL_S).text

    def _booted(self) -> bool:
        """Returns whether Android itself is up. The shell answers long before."""
        script = "getprop sys.boot_completed"
        return self._script(script, ["getprop"], timeout=_CALL_S).text == "1"

    def unforward(self, host_port: int, *, timeout: float) -> None:
        """See `Device.unforward`."""
        self._call(
            timeout,
            lambda device: device.forward_remove(f"tcp:{host_port}", raise_non_found=False),
        )

    def unreverse(self, device_port: int, *, timeout: float) -> None:
        """See `Device.unreverse`."""
        try:
            self._call(timeout, lambda device: device.reverse_remove(f"tcp:{device_port}"))
        except TransientDeviceError as error:
            if "not found" not in error.message:
                raise
