"""An emulated device in this process, behind the `Device` protocol and on a virtual clock: no root, no sockets."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from autotune.devices import BOOT_ID, Completed
from autotune.emulator.device.commands import Shell, run_command
from autotune.emulator.device.faults import FaultKind, FaultPlan
from autotune.emulator.device.imposed import ImposedFaults
from autotune.emulator.device.link import LATENCY_S, SLOW_FACTOR, Link
from autotune.emulator.device.view import FileView
from autotune.emulator.kernel import MemoryFiles, kernel_tree
from autotune.emulator.model import Clock, Profile, Soc, load
from autotune.errors import StableDeviceError, TransientDeviceError

Program = Callable[["EmulatedDevice", Sequence[str], bool], Completed]
"""Behaviour of a pushed program.

It receives the device, its arguments including its own path, and whether it is root.
"""

BOOT_S = 30.0
"""Seconds that a restart takes (an assumption)."""
_SMALL_FILE_BYTES = 65536
_ABORTED, _KILLED = 134, 137
_INSTANT_S = 1e-6
_ANDROID_FOLDERS = ("/data/local/tmp", "/sdcard")
_BOARD_FOLDERS = ("/tmp", "/home")


def _sleep(device: EmulatedDevice, argv: Sequence[str], root: bool) -> Completed:
    device.clock.sleep(min(float(argv[1]), max(0.0, device.time_left_s())))
    return Completed(tuple(argv), 0, b"", b"")


class EmulatedDevice:
    """A phone or board that is a model.

    All calls take time on the clock. With a virtual clock nothing really waits, and a call that hangs ends after
    exactly its `timeout`. Times and joules of work on the device are the model's.

    It is safe to use from several threads, as a real device is. Each thread has its own limit and faults.

    Args:
        profile: The device, or the name of a shipped profile.
        clock: Its time; None for a virtual clock.
        faults: Its faults.
        serial: Its serial; if empty, `emulated-` and the profile's name.
        programs: Behaviour of pushed programs, by their file's name. A program can ask `device.time_left_s()` for
            its limit, and do work with `device.soc.run(...)`.
    """

    def __init__(
        self,
        profile: Profile | str,
        *,
        clock: Clock | None = None,
        faults: FaultPlan | None = None,
        serial: str = "",
        programs: dict[str, Program] | None = None,
    ) -> None:
        self.profile = load(profile) if isinstance(profile, str) else profile
        self.soc = Soc(self.profile, clock)
        self.clock = self.soc.clock
        self.files = MemoryFiles(self.profile.disk_bytes)
        self.programs: dict[str, Program] = {"sleep": _sleep, **(programs or {})}
        self.forwarded: dict[int, int] = {}
        self.reversed: dict[int, int] = {}
        self.boots = 0
        self._serial = serial or f"emulated-{self.profile.name}"
        imposed = ImposedFaults(self.soc, self.restarted, self._read_meters)
        self._link = Link(self._serial, self.clock, faults or FaultPlan(), imposed.impose)
        kernel = kernel_tree(self.soc, meters=imposed.meters, writable=lambda: not imposed.denied)
        owned = _ANDROID_FOLDERS if self.profile.android else _BOARD_FOLDERS
        self._views = {
            True: FileView(kernel, self.files),
            False: FileView(kernel.as_user(False), self.files, owned),
        }
        for folder in owned:
            self.files.make_folder(folder)
        self._boot()
        if self.profile.opencl:
            self.files.store(self.profile.opencl, b"\x7fELF emulated", 0o644)

    @property
    def serial(self) -> str:
        """See `Device.serial`."""
        return self._serial

    @property
    def kind(self) -> str:
        """See `Device.kind`."""
        return "emulated"

    @property
    def met(self) -> frozenset[FaultKind]:
        """The faults that calls have encountered."""
        return self._link.met

    def rooted(self) -> bool:
        """See `Device.rooted`."""
        return self.profile.rooted

    def tree(self, *, root: bool) -> FileView:
        """Returns all files as root or another user sees them, without the link and its faults."""
        return self._views[root]

    def time_left_s(self) -> float:
        """Returns seconds until the present call's limit."""
        return self._link.time_left_s()

    def run(self, argv: Sequence[str], *, timeout: float, root: bool = False) -> Completed:
        """See `Device.run`."""
        if root and not self.rooted():
            raise StableDeviceError(
                f"{self.serial} gives no root",
                hint="what needs root (frequencies, cores going offline) stays as it is",
            )
        name = argv[0].rpartition("/")[2] if argv else ""
        program = self.programs.get(name)
        # A program with a path must exist. A program without a path is found in any folder.
        if program is not None and "/" in argv[0] and not self._executable(argv[0]):
            program = None
        with self._link.call("run" if program is None else "session", timeout):
            if program is None:
                shell = Shell(self.profile, self._views[root], self.files, root)
                return run_command(shell, argv)
            if "driver_hang" in self._link.faults:
                self.clock.sleep(self.time_left_s())
                raise self._link.late(argv[0], timeout)
            if (killed := _killed(self._link.faults, argv)) is not None:
                return killed
            done = program(self, argv, root)
            if self.time_left_s() <= _INSTANT_S:  # It was cut off at its limit.
                raise self._link.late(argv[0], timeout)
            return done

    def push(self, source: Path, target: PurePosixPath, *, timeout: float) -> None:
        """See `Device.push`."""
        data, mode = source.read_bytes(), source.stat().st_mode & 0o777
        with self._link.call("push", timeout):
            part = f"{target}.part"
            try:
                self._views[self.rooted()].may_change(str(target))
                if "disk_full" in self._link.faults:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if "drop" in self._link.faults:
                    self.files.store(part, data[: len(data) // 2], mode)
                    return  # The call reports that the link broke.
                if (arrived := self._link.transfer(len(data))) < len(data):
                    self.files.store(part, bytes(arrived), 0o600)
                    raise self._link.silent(timeout)
                self.files.store(str(target), data, mode)
                self.files.remove(part)
            except OSError as error:
                raise StableDeviceError(
                    f"{self.serial}: cannot write {target} ({len(data)} bytes): {error.strerror}"
                ) from error

    def pull(self, source: PurePosixPath, target: Path, *, timeout: float) -> None:
        """See `Device.pull`."""
        with self._link.call("pull", timeout):
            data = self._read(str(source))
            if self._link.transfer(len(data)) < len(data):
                raise self._link.silent(timeout)
        target.write_bytes(data)

    def read(self, path: PurePosixPath, *, timeout: float) -> bytes:
        """See `Device.read`."""
        with self._link.call("read", timeout):
            return self._read(str(path))

    def write(self, path: PurePosixPath, data: bytes, *, timeout: float) -> None:
        """See `Device.write`."""
        with self._link.call("write", timeout):
            try:
                self._views[self.rooted()].write(str(path), data)
            except OSError as error:
                absent = error.errno == errno.ENOENT
                reason = "no such file" if absent else f"sh: {path}: {error.strerror}"
                text = data.decode(errors="replace").strip()
                raise StableDeviceError(
                    f"{self.serial}: cannot write '{text}' to {path}: {reason}"
                ) from error

    def collect(self, patterns: Iterable[str], *, timeout: float) -> dict[str, bytes | None]:
        """See `Device.collect`."""
        with self._link.call("collect", timeout):
            view = self._views[self.rooted()]
            found: dict[str, bytes | None] = {}
            for path in view.expand(patterns):
                if view.kind(path) == "file":
                    try:
                        found[path] = view.read(path)[:_SMALL_FILE_BYTES]
                    except OSError:
                        found[path] = None
            return found

    def find(self, patterns: Iterable[str], *, timeout: float) -> list[str]:
        """See `Device.find`."""
        with self._link.call("find", timeout):
            return self._views[self.rooted()].expand(patterns)

    def forward(self, device_port: int, *, timeout: float, host_port: int = 0) -> int:
        """See `Device.forward`.

        Without a preferred port both numbers are equal: an emulated server listens on this host.
        """
        with self._link.call("forward", timeout):
            self.forwarded[host_port or device_port] = device_port
            return host_port or device_port

    def reverse(self, host_port: int, *, timeout: float) -> int:
        """See `Device.reverse`. Both numbers are equal, as for `forward`."""
        with self._link.call("reverse", timeout):
            self.reversed[host_port] = host_port
            return host_port

    def unforward(self, host_port: int, *, timeout: float) -> None:
        """See `Device.unforward`."""
        with self._link.call("unforward", timeout):
            self.forwarded.pop(host_port, None)

    def unreverse(self, device_port: int, *, timeout: float) -> None:
        """See `Device.unreverse`."""
        with self._link.call("unreverse", timeout):
            self.reversed.pop(device_port, None)

    def reconnect(self, *, timeout: float) -> None:
        """See `Device.reconnect`. Forwarded ports are lost, as over a real link."""
        _wait_for_an_answer(self, timeout)
        self.forwarded.clear()
        self.reversed.clear()

    def reboot(self, *, timeout: float) -> None:
        """See `Device.reboot`."""
        with suppress(TransientDeviceError):
            self.run(["true"], timeout=min(timeout, LATENCY_S * SLOW_FACTOR))
        self.restarted()
        self.clock.sleep(min(timeout, BOOT_S))
        _wait_for_an_answer(self, timeout)

    def restarted(self) -> None:
        """Resets the device as a restart does: files stay; settings, ports and running programs are lost."""
        self._boot()
        self.soc.reset()
        self.forwarded.clear()
        self.reversed.clear()

    def _boot(self) -> None:
        self.boots += 1
        self.files.store(BOOT_ID, f"{uuid.UUID(int=self.boots)}\n".encode(), 0o444)

    def _read(self, path: str) -> bytes:
        try:
            return self._views[self.rooted()].read(path)
        except OSError as error:
            raise StableDeviceError(
                f"{self.serial}: cannot read {path}: cat: {path}: {error.strerror}"
            ) from error

    def _read_meters(self) -> None:
        for path in self._views[True].expand(["/sys/class/*/*/curr*"]):
            self._views[True].read(path)

    def _executable(self, path: str) -> bool:
        return self.files.kind(path) == "file" and bool(self.files.mode(path) & 0o111)


def _killed(faults: frozenset[FaultKind], argv: Sequence[str]) -> Completed | None:
    """Returns the end of a program that a fault kills; None without such a fault."""
    for kind, code, word in (
        ("server_crash", _ABORTED, "Aborted"),
        ("out_of_memory", _KILLED, "Killed"),
    ):
        if kind in faults:
            return Completed(tuple(argv), code, b"", f"{word}\n".encode())
    return None


def _wait_for_an_answer(device: EmulatedDevice, timeout: float) -> None:
    """Waits until a device answers.

    Raises:
        TransientDeviceError: It does not answer within `timeout` seconds.
    """
    deadline = device.clock.now() + timeout
    while True:
        try:
            device.run(["true"], timeout=min(timeout, 1.0))
        except TransientDeviceError:
            if device.clock.now() >= deadline:
                raise
            device.clock.sleep(0.5)
        else:
            return
