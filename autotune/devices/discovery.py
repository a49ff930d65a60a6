"""Finds the devices that exist, and reaches one by its serial."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.devices.device import Device
from autotune.devices.info import DeviceInfo, probe
from autotune.errors import DeviceError, ToolchainError, UsageError, choices

READY = "ready"
_SOON_S = 0.5


@dataclass(frozen=True)
class Listed:
    """A device in the list.

    Attributes:
        serial: Its identifier.
        kind: `adb`, `ssh` or `local`.
        state: `ready`, or why it is not: `offline`, `unauthorized`, `unreachable`.
        info: Its properties; None unless it is ready.
        reason: Why it is not ready, in words.
    """

    serial: str
    kind: str
    state: str
    info: DeviceInfo | None
    reason: str = ""


_REASONS = {
    "offline": "adb sees it but it does not answer; unplug it and plug it in again",
    "unauthorized": "unlock it and allow USB debugging from this computer",
    "no permissions": "this user may not open it; see `adb devices` about udev rules",
}


def known(ssh: Sequence[str] = ()) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Returns serial, kind and state of every device, without asking any of them, and notices.

    Args:
        ssh: Boards, as `user@host`.
    """
    *boards, host = _boards_and_host(ssh)
    try:
        from autotune.devices import adb

        phones = [(one.serial, "adb", one.state) for one in adb.attached()]
    except (ToolchainError, DeviceError) as error:
        return [*boards, host], [f"no adb phones: {error.message}"]
    return [*boards, *phones, host], []


def ready(ssh: Sequence[str] = ()) -> list[str]:
    """Returns serials of devices that are ready, as far as they are known within a second; starts no adb server.

    Args:
        ssh: Boards, as `user@host`.
    """
    found = [serial for serial, _, _ in _boards_and_host(ssh)]
    try:
        from autotune.devices import adb

        phones = adb.attached(_SOON_S, start=False)
    except (ToolchainError, DeviceError):
        return found
    return [*found, *(one.serial for one in phones if one.state == READY)]


def _boards_and_host(ssh: Sequence[str]) -> list[tuple[str, str, str]]:
    return [*((name, "ssh", READY) for name in ssh), ("local", "local", READY)]


def look(serial: str, kind: str, state: str) -> Listed:
    """Probes one device. A device that does not answer is listed with the reason."""
    if state != READY:
        return Listed(serial, kind, state, None, _REASONS.get(state, f"adb says '{state}'"))
    try:
        return Listed(serial, kind, READY, probe(reach(serial, kind)))
    except (DeviceError, ToolchainError) as error:
        return Listed(serial, kind, "unreachable", None, error.message)


def reach(serial: str, kind: str) -> Device:
    """Returns the device with a serial and kind, without asking it anything.

    Raises:
        UsageError: There is no such kind.
    """
    if kind == "adb":
        from autotune.devices.adb import AdbDevice

        return AdbDevice(serial)
    if kind == "ssh":
        from autotune.devices.ssh import SshDevice

        return SshDevice(serial)
    if kind == "local":
        from autotune.devices.local import LocalDevice

        return LocalDevice()
    raise UsageError(f"there is no way to reach a device of kind '{kind}'")


def choose(wanted: Sequence[str], ssh: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Returns serial and kind of the requested devices.

    Args:
        wanted: Serials; if empty, `ANDROID_SERIAL` or, without it, every phone and board that is ready.
        ssh: Boards, as `user@host`.

    Raises:
        UsageError: A serial does not exist.
        DeviceError: There are no devices, or a requested one is not ready.
    """
    chosen = list(wanted) or list(filter(None, [os.environ.get("ANDROID_SERIAL", "")]))
    devices = _boards_and_host(ssh)
    notices: list[str] = []
    if not chosen or set(chosen) - {serial for serial, _, _ in devices}:
        # Asked only now, because the question starts an adb server if there is none.
        devices, notices = known(ssh)
    by_serial = {serial: (kind, state) for serial, kind, state in devices}
    for serial in chosen:
        if serial not in by_serial:
            raise UsageError(
                f"there is no device '{serial}'" + "".join(f"; {notice}" for notice in notices),
                hint=f"{choices(serial, by_serial, 'there are')}; `autotune devices` lists them",
            )
        state = by_serial[serial][1]
        if state != READY:
            raise DeviceError(f"{serial} is {state}", hint=_REASONS.get(state, ""))
    if not chosen:
        chosen = [s for s, (kind, state) in by_serial.items() if kind != "local" and state == READY]
    if not chosen:
        raise DeviceError(
            "no phone or board is ready" + "".join(f"; {notice}" for notice in notices),
            hint="connect one and allow USB debugging, or give --ssh user@host, or --device local",
        )
    return [(serial, by_serial[serial][0]) for serial in chosen]


__all__ = ["READY", "Listed", "choose", "known", "look", "reach", "ready"]
