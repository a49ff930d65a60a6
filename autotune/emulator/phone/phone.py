"""An emulated phone that the real adb server sees."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType

from autotune.emulator.adbd import Authorise, Daemon, Identity, LinkFaults, PhoneServices, Rooted
from autotune.emulator.kernel import Tree
from autotune.emulator.phone.fuse_files import FuseFiles
from autotune.emulator.phone.userland import Contents, Userland
from autotune.errors import ToolchainError, TransientDeviceError

_ADB_TIMEOUT_S = 20.0
_POLL_S = 0.2
_MARK = "/etc/autotune-emulated"


class EmulatedPhone:
    """A phone with a kernel written in Python, a shell, and adb; a context manager.

    Threads of this process answer for it. Code that waits for the phone while it holds Python's lock waits for
    ever. TVM's RPC client does this when it frees a remote object. In such cases, run the phone in its own process,
    with `serve`.

    Args:
        tree_for: Returns the kernel's files as they are after a boot; called at every boot.
        serial: The phone's own serial number; adb names the phone by `serial` below.
        contents: Content of the phone.
        rooted: How it gives root.
        authorise: Hosts that it trusts.
        port: Listening port of its daemon on this machine's loopback; 0 takes any.
        emulates: Text of `/etc/autotune-emulated`, which names the emulated device.

    Attributes:
        faults: Faults of the link; may be changed at any time.
        tree: The kernel's files since the last boot.
    """

    def __init__(
        self,
        tree_for: Callable[[], Tree],
        *,
        serial: str,
        contents: Contents | None = None,
        rooted: Rooted = "no",
        authorise: Authorise = "always",
        port: int = 0,
        emulates: str = "a phone",
    ) -> None:
        self._tree_for = tree_for
        self._contents = _completed(contents or Contents(), serial, rooted, emulates)
        self.faults = LinkFaults()
        self._authorise = authorise
        self._rooted: Rooted = rooted
        self._port = port
        self._userland: Userland | None = None
        self._daemon: Daemon | None = None
        self._fuse: FuseFiles | None = None
        self._reboots: list[threading.Thread] = []
        self._boots = threading.Lock()
        self.tree: Tree | None = None

    @property
    def serial(self) -> str:
        """adb's name for the phone: `127.0.0.1:PORT`."""
        return f"127.0.0.1:{self._daemon.port if self._daemon else self._port}"

    def start(self) -> None:
        """Boots it and listens for adb.

        Raises:
            ToolchainError: This machine lacks a part that the phone needs.
        """
        try:
            self._userland = Userland(self._contents)
            services = PhoneServices(self._userland, self._rooted, self._reboot_soon)
            identity = Identity(_banner(self._contents.properties), self._authorise)
            self._daemon = Daemon(identity, services, self.faults, self._port)
            self._boot()
            self._daemon.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends it and everything that runs in it. A second call does nothing."""
        for thread in self._reboots:
            thread.join(_ADB_TIMEOUT_S)
        with self._boots:
            if self._daemon is not None:
                self._port = self._daemon.port
                self._daemon.stop()
                self._daemon = None
            self._halt()
            if self._userland is not None:
                self._userland.close()
                self._userland = None

    def reboot(self, offline_s: float = 2.0) -> None:
        """Ends everything that runs in it.

        After `offline_s` seconds it is back with a fresh kernel and the same `/data`.
        """
        with self._boots:
            if self._daemon is None:
                return
            self._daemon.pause()
            self._halt()
            time.sleep(offline_s)
            self._boot()
            self._daemon.start()

    def connect(self, timeout: float = _ADB_TIMEOUT_S) -> None:
        """Connects the adb server that `ANDROID_ADB_SERVER_PORT` names to the phone, and waits until it is
        connected.

        Raises:
            ToolchainError: There is no adb.
            TransientDeviceError: It does not connect in time.
        """
        adb = shutil.which("adb")
        if adb is None:
            raise ToolchainError("adb is not installed", hint="sudo apt install adb")
        ends = time.monotonic() + timeout
        said = ""
        while (left := ends - time.monotonic()) > 0:
            with suppress(subprocess.TimeoutExpired):
                subprocess.run([adb, "connect", self.serial], capture_output=True, timeout=left)
                asked = subprocess.run(
                    [adb, "-s", self.serial, "get-state"],
                    capture_output=True,
                    text=True,
                    timeout=left,
                )
                said = asked.stdout.strip() or asked.stderr.strip()
            if said == "device":
                return
            # adb keeps a dead connection for a while, and treats `connect` as done.
            self.disconnect()
            time.sleep(_POLL_S)
        raise TransientDeviceError(f"adb does not reach the emulated phone: {said}")

    def disconnect(self) -> None:
        """Makes the adb server forget the phone."""
        adb = shutil.which("adb")
        if adb is not None:
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    [adb, "disconnect", self.serial], capture_output=True, timeout=_ADB_TIMEOUT_S
                )

    def __enter__(self) -> EmulatedPhone:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _boot(self) -> None:
        assert self._userland is not None
        self.tree = self._tree_for()
        self._fuse = FuseFiles(self.tree)
        self._userland.boot(self._fuse.descriptor)

    def _halt(self) -> None:
        if self._userland is not None:
            self._userland.halt()
        if self._fuse is not None:
            self._fuse.close()
            self._fuse = None

    def _reboot_soon(self) -> None:
        thread = threading.Thread(target=self.reboot, name="reboot", daemon=True)
        self._reboots = [t for t in self._reboots if t.is_alive()] + [thread]
        thread.start()


def serve(phone: EmulatedPhone, ready: Callable[[EmulatedPhone], None]) -> None:
    """Runs a phone until SIGTERM, SIGINT or SIGHUP. Only the main thread may call it.

    Args:
        phone: The phone; not started yet.
        ready: Called once, when the phone can be reached.
    """
    over = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: over.set())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        with phone:
            ready(phone)
            while not over.wait(1.0):
                pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _completed(contents: Contents, serial: str, rooted: Rooted, emulates: str) -> Contents:
    """Returns the contents with additions that every phone has."""
    properties = {
        "ro.serialno": serial,
        "ro.product.cpu.abi": "arm64-v8a",
        "ro.build.type": "userdebug" if rooted == "adb" else "user",
        "sys.boot_completed": "1",
        **contents.properties,
    }
    files = dict(contents.files)
    if _MARK not in contents.kernel_files:
        files.setdefault(_MARK, f"{emulates}\n")
    return Contents(
        properties=properties,
        programs=contents.programs,
        files=files,
        kernel_files=contents.kernel_files,
        su=contents.su or rooted == "su",
        data_bytes=contents.data_bytes,
    )


def _banner(properties: Mapping[str, str]) -> str:
    values = "".join(
        f"{name}={properties.get(name, 'emulated')};"
        for name in ("ro.product.name", "ro.product.model", "ro.product.device")
    )
    return f"device::{values}features=shell_v2"


__all__ = ["Contents", "EmulatedPhone", "LinkFaults", "serve"]
