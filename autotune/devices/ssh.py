"""Boards reached through the user's own OpenSSH client, with the user's keys and configuration."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from autotune.devices.device import Completed, quoted
from autotune.devices.ports import free_port
from autotune.devices.processes import run_limited
from autotune.devices.shell import BOOT_ID, ShellDevice, wait_until
from autotune.errors import StableDeviceError, ToolchainError, TransientDeviceError

_CONNECTION_FAILED = 255
_PERSIST_S = 300
_REBOOT_CALL_S = 10.0
_FORWARD_TRIES = 5
_REFUSED = ("Permission denied", "Host key verification failed", "Could not resolve hostname")


class SshDevice(ShellDevice):
    """A board behind `ssh`.

    All calls share one connection (OpenSSH's `ControlMaster`). It ends by itself some minutes after the last call.

    Args:
        destination: As for `ssh`: `user@host`, or a host of `~/.ssh/config`.
        config: A configuration file of `ssh` instead of the user's own; `AUTOTUNE_SSH_CONFIG` by default.
    """

    kind = "ssh"
    root_prefixes = (("sudo", "-n", "sh", "-c"),)

    def __init__(self, destination: str, config: Path | None = None) -> None:
        super().__init__(destination)
        if destination.startswith("-"):
            raise StableDeviceError(f"'{destination}' is not a host", hint="give user@host")
        chosen = os.environ.get("AUTOTUNE_SSH_CONFIG", "")
        self.config = config or (Path(chosen) if chosen else None)
        self._ways: dict[tuple[str, int], tuple[str, str]] = {}
        # Short, because a socket's path holds 108 bytes at most, and OpenSSH adds 17 during the connection.
        self._sockets = Path(tempfile.gettempdir()) / f"autotune-ssh-{os.getuid()}"

    def _ssh(self, timeout: float) -> list[str]:
        self._sockets.mkdir(mode=0o700, exist_ok=True)
        if self._sockets.stat().st_uid != os.getuid():
            raise StableDeviceError(f"{self._sockets} belongs to somebody else")
        settings = {
            "BatchMode": "yes",  # Never ask for a password: there may be no user.
            "ConnectTimeout": str(max(1, round(timeout))),
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
            "ControlMaster": "auto",
            "ControlPersist": str(_PERSIST_S),
            "ControlPath": str(self._sockets / "%C"),
        }
        own = ["-F", str(self.config)] if self.config else []
        return ["ssh", *own, *(f"-o{k}={v}" for k, v in settings.items())]

    def _call(
        self, words: Sequence[str], argv: Sequence[str], timeout: float, stdin: bytes | None = None
    ) -> Completed:
        command = [*self._ssh(timeout), *words]
        try:
            done = run_limited(command, argv, who=self.serial, timeout=timeout, stdin=stdin)
        except FileNotFoundError as error:
            raise ToolchainError(
                "ssh is not installed", hint="sudo apt install openssh-client"
            ) from error
        if done.exit_code == _CONNECTION_FAILED:
            text = done.stderr.decode(errors="replace")
            if any(reason in text for reason in _REFUSED):
                raise StableDeviceError(
                    f"{self.serial}: {done.complaint}",
                    hint=f"make `ssh {self.serial} true` work without a password first",
                )
            raise TransientDeviceError(f"{self.serial}: {done.complaint}")
        return done

    def _script(
        self, script: str, argv: Sequence[str], *, timeout: float, stdin: bytes | None = None
    ) -> Completed:
        # The login shell may be any shell, so scripts are run by `sh -c`, for which they are written.
        return self._call(
            ["--", self.serial, quoted(["sh", "-c", script])], argv, timeout, stdin=stdin
        )

    def push(self, source: Path, target: PurePosixPath, *, timeout: float) -> None:
        """See `Device.push`."""
        where, part = quoted([str(target)]), quoted([f"{target}.part"])
        mode = f"{source.stat().st_mode & 0o777:o}"
        folder = quoted([str(target.parent)])
        script = f"mkdir -p {folder} && cat > {part} && chmod {mode} {part} && mv -f {part} {where}"
        done = self._script(script, ["push"], timeout=timeout, stdin=source.read_bytes())
        if done.exit_code != 0:
            raise StableDeviceError(f"{self.serial}: cannot write {target}: {done.complaint}")

    def pull(self, source: PurePosixPath, target: Path, *, timeout: float) -> None:
        """See `Device.pull`."""
        done = self._script(quoted(["cat", str(source)]), ["pull"], timeout=timeout)
        if done.exit_code != 0:
            raise StableDeviceError(f"{self.serial}: cannot read {source}: {done.complaint}")
        target.write_bytes(done.stdout)

    def forward(self, device_port: int, *, timeout: float, host_port: int = 0) -> int:
        """See `Device.forward`."""
        self._script("true", ["true"], timeout=timeout)  # The request needs a master.
        for attempt in range(_FORWARD_TRIES):
            port = host_port if host_port and not attempt else free_port()
            spec = ("-L", f"127.0.0.1:{port}:127.0.0.1:{device_port}")
            done = self._control("forward", spec, timeout)
            if done.exit_code == 0:
                self._ways["-L", port] = spec
                return port
        raise TransientDeviceError(f"{self.serial}: no way to port {device_port}: {done.complaint}")

    def reverse(self, host_port: int, *, timeout: float) -> int:
        """See `Device.reverse`."""
        self._script("true", ["true"], timeout=timeout)
        spec = ("-R", f"127.0.0.1:0:127.0.0.1:{host_port}")  # 0: the board chooses and reports.
        done = self._control("forward", spec, timeout)
        if done.exit_code != 0 or not done.text.isdecimal():
            raise TransientDeviceError(
                f"{self.serial}: no way back to port {host_port}: {done.complaint}",
                hint="the board's sshd may forbid it: AllowTcpForwarding",
            )
        self._ways["-R", int(done.text)] = spec
        return int(done.text)

    def unforward(self, host_port: int, *, timeout: float) -> None:
        """See `Device.unforward`."""
        self._cancel("-L", host_port, timeout)

    def unreverse(self, device_port: int, *, timeout: float) -> None:
        """See `Device.unreverse`."""
        self._cancel("-R", device_port, timeout)

    def _cancel(self, way: str, port: int, timeout: float) -> None:
        # A port that another process forwarded ends with their shared connection.
        spec = self._ways.pop((way, port), None)
        if spec is not None:
            with suppress(TransientDeviceError):
                self._control("cancel", spec, timeout)

    def _control(self, verb: str, spec: tuple[str, str], timeout: float) -> Completed:
        return self._call(["-O", verb, *spec, self.serial], ["ssh", "-O", verb], timeout)

    def reconnect(self, *, timeout: float) -> None:
        """See `Device.reconnect`."""
        self.disconnect()
        self._ways.clear()
        self._script("true", ["true"], timeout=timeout)

    def reboot(self, *, timeout: float) -> None:
        """See `Device.reboot`."""
        before = self._boot_id(timeout)
        with suppress(TransientDeviceError):  # The connection may end before the answer does.
            self.run(["reboot"], timeout=min(timeout, _REBOOT_CALL_S), root=True)
        self.disconnect()
        wait_until(lambda: self._boot_id(_REBOOT_CALL_S) != before, self.serial, timeout)

    def _boot_id(self, timeout: float) -> str:
        return self._script(f"cat {BOOT_ID}", ["cat", BOOT_ID], timeout=timeout).text

    def disconnect(self) -> None:
        """Ends the shared connection, and every forwarded port with it."""
        with suppress(TransientDeviceError, StableDeviceError):
            self._call(["-O", "exit", self.serial], ["ssh", "-O", "exit"], 5.0)
