"""Devices that are reached through a shell: all except the emulated ones in this process."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

from autotune.devices.device import Completed, quoted
from autotune.errors import StableDeviceError, TransientDeviceError

_SMALL_FILE_BYTES = 65536
_ROOT_TIMEOUT_S = 8.0
_POLL_S = 0.5
BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""A file whose text changes at every start of the kernel."""


class ShellDevice(ABC):
    """Provides commands, small files, and root (if available) through a shell.

    A subclass defines how a script reaches the device's shell.
    """

    root_prefixes: tuple[tuple[str, ...], ...] = ()
    """Ways to run a script as root, tried in order; the script follows as one word."""

    def __init__(self, serial: str) -> None:
        self._serial = serial
        self._root: tuple[str, ...] | None = None
        self._root_known = False

    @property
    def serial(self) -> str:
        return self._serial

    @abstractmethod
    def _script(self, script: str, argv: Sequence[str], *, timeout: float) -> Completed:
        """Runs a script with `sh -c` on the device. `argv` is the command to name in the result."""

    def run(self, argv: Sequence[str], *, timeout: float, root: bool = False) -> Completed:
        """See `Device.run`."""
        script = quoted(argv)
        return self._script(self._as_root(script) if root else script, argv, timeout=timeout)

    def rooted(self) -> bool:
        """Returns whether the device gives root."""
        if not self._root_known:
            self._root = self._way_to_root()
            self._root_known = True
        return self._root is not None

    def _way_to_root(self) -> tuple[str, ...] | None:
        done = self._script("id -u", ["id", "-u"], timeout=_ROOT_TIMEOUT_S)
        if done.text == "0":
            return ()
        for prefix in self.root_prefixes:
            # Without a terminal, `su` and `sudo` must not wait for an answer.
            script = quoted([*prefix, "id -u"]) + " </dev/null"
            done = self._script(script, [*prefix, "id", "-u"], timeout=_ROOT_TIMEOUT_S)
            if done.exit_code == 0 and done.text == "0":
                return prefix
        return None

    def _as_root(self, script: str) -> str:
        if not self.rooted():
            raise StableDeviceError(
                f"{self.serial} gives no root",
                hint="what needs root (frequencies, cores going offline) stays as it is",
            )
        return quoted([*self._root, script]) if self._root else script

    def _privileged(self, script: str) -> str:
        return self._as_root(script) if self.rooted() else script

    def read(self, path: PurePosixPath, *, timeout: float) -> bytes:
        """See `Device.read`."""
        argv = ["cat", str(path)]
        done = self._script(self._privileged(quoted(argv)), argv, timeout=timeout)
        if done.exit_code != 0:
            raise StableDeviceError(f"{self.serial}: cannot read {path}: {done.complaint}")
        return done.stdout

    def write(self, path: PurePosixPath, data: bytes, *, timeout: float) -> None:
        """See `Device.write`."""
        where = quoted([str(path)])
        argv = ["printf", "%s", data.decode()]
        # The file must exist: sysfs makes none, and elsewhere a typo would leave a new file.
        script = f"test -e {where} && {quoted(argv)} > {where}"
        done = self._script(self._privileged(script), argv, timeout=timeout)
        if done.exit_code != 0:
            reason = done.complaint if done.stderr.strip() else "no such file"
            raise StableDeviceError(
                f"{self.serial}: cannot write '{data.decode().strip()}' to {path}: {reason}"
            )

    def collect(self, patterns: Iterable[str], *, timeout: float) -> dict[str, bytes | None]:
        """See `Device.collect`."""
        mark = f"=={secrets.token_hex(8)}"
        script = (
            f"for f in {_globs(patterns)}; do "
            'if [ -f "$f" ]; then '
            f'if c=$(head -c {_SMALL_FILE_BYTES} "$f" 2>/dev/null); '
            f'then printf "{mark} + %s\\n%s\\n" "$f" "$c"; '
            f'else printf "{mark} - %s\\n" "$f"; fi; fi; done'
        )
        done = self._script(self._privileged(script), ["collect"], timeout=timeout)
        found: dict[str, bytes | None] = {}
        for part in done.stdout.split(mark.encode())[1:]:
            head, _, content = part.partition(b"\n")
            _, readable, path = head.decode(errors="replace").split(" ", 2)
            found[path] = content if readable == "+" else None
        return found

    def find(self, patterns: Iterable[str], *, timeout: float) -> list[str]:
        """See `Device.find`."""
        script = f'for f in {_globs(patterns)}; do [ -e "$f" ] && printf "%s\\n" "$f"; done; true'
        done = self._script(self._privileged(script), ["find"], timeout=timeout)
        return done.stdout.decode(errors="replace").splitlines()


def _globs(patterns: Iterable[str]) -> str:
    """Quotes patterns for the shell: they are expanded, but nothing else in them is special."""
    return " ".join("".join(c if c in "*?[]-" else quoted([c]) for c in p) for p in patterns)


def wait_until(ready: Callable[[], bool], who: str, timeout: float) -> None:
    """Asks repeatedly until `ready` is true. A device that does not answer counts as not ready.

    Raises:
        TransientDeviceError: The time was over.
    """
    deadline = time.monotonic() + timeout
    while True:
        with suppress(TransientDeviceError):
            if ready():
                return
        if time.monotonic() > deadline:
            raise TransientDeviceError(f"{who} did not come back within {timeout:g} s")
        time.sleep(_POLL_S)
