"""Device servers on devices: brought there, started under their keys, and taken away again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from autotune.devices import Device
from autotune.devices.journal import Change, Journal
from autotune.errors import DeviceError, StableDeviceError, TransientDeviceError

LOGGER = logging.getLogger("autotune.tracker")

PROGRAM = "autotune_server"
_FIRST_PORT = 9300
_PORTS = 100
_CALL_S = 20.0
_SLOWEST_LINK_BYTES_PER_S = 1e6


@dataclass(frozen=True)
class Service:
    """One key of a device.

    Attributes:
        key: Key under which the tracker is to give the device out.
        cpus: Cores of the kernels' threads, such as `4-7`; empty for all.
    """

    key: str
    cpus: str = ""


@dataclass(frozen=True)
class Deployment:
    """What is to serve on a device.

    Attributes:
        serial: The device.
        kind: How it is connected.
        services: Its keys; one server each, of which one at a time has a session.
        bundle: Folder of this host with the server's program and what it needs beside it.
        program: Name of the program in it.
        emulated: What emulates the device; empty for a real one.
        thermal_zone: File of the temperature that the server is to tell; empty for none.
        android: Whether it runs Android.
    """

    serial: str
    kind: str
    services: tuple[Service, ...]
    bundle: Path
    program: str
    emulated: str
    thermal_zone: str
    android: bool


class DeviceServers:
    """The servers of one device, with everything that they need on it. Every change is journalled first.

    Args:
        device: The device.
        deployment: What is to serve.
        journal: The device's restore journal.
        tracker_port: The tracker's port on this host.
    """

    def __init__(
        self, device: Device, deployment: Deployment, journal: Journal, tracker_port: int
    ) -> None:
        self._device = device
        self._deployment = deployment
        self._journal = journal
        self._tracker_port = tracker_port
        self._folder: PurePosixPath | None = None
        self._notes: dict[str, int] = {}

    def push(self) -> None:
        """Brings the program and its libraries to the device, unless this very bundle is there.

        Raises:
            DeviceError: The device is away, or full.
        """
        folder = self._place()
        bundle = self._deployment.bundle
        self._note("folder", Change(f"files in {folder}", "remove", path=str(folder)))
        marker = folder / f"{bundle.name}.complete"
        if self._device.find([str(marker)], timeout=_CALL_S):
            return
        self._run(["mkdir", "-p", str(folder)])
        for other in self._device.find([f"{folder}/*.complete"], timeout=_CALL_S):
            self._run(["rm", "-f", other])
        for file in sorted(bundle.iterdir()):
            size = file.stat().st_size
            limit = _CALL_S + size / _SLOWEST_LINK_BYTES_PER_S
            self._device.push(file, folder / file.name, timeout=limit)
        self._run(["chmod", "755", str(folder / self._deployment.program)])
        self._run(["touch", str(marker)])

    def start(self) -> None:
        """Opens the ways to and from the device, and starts the servers.

        Raises:
            DeviceError: The device is away, or the server does not start.
        """
        back = self._device.reverse(self._tracker_port, timeout=_CALL_S)
        self._note("reverse", Change(f"reversed port {back}", "reverse", port=back))
        for number, service in enumerate(self._deployment.services):
            self._start(service, back, _FIRST_PORT + number)

    def _start(self, service: Service, tracker: int, first: int) -> None:
        """Starts one server on the first port that is free on the device."""
        folder = self._place()
        own = folder / service.key
        program = str(folder / self._deployment.program)
        self._note(
            f"server {service.key}",
            Change(
                f"server for key {service.key}", "command", argv=(program, "--dir", str(own), "--stop")
            ),
        )  # fmt: skip
        for port in range(first, first + _PORTS, len(self._deployment.services)):
            public = self._device.forward(port, timeout=_CALL_S)
            name = f"forward {service.key}"
            self._note(name, Change(f"forwarded port {public}", "forward", port=public))
            options = {
                "--dir": str(own),
                "--key": service.key,
                "--tracker": f"127.0.0.1:{tracker}",
                "--port": str(port),
                "--public-host": "127.0.0.1",
                "--public-port": str(public),
                "--serial": self._deployment.serial,
                "--cpus": service.cpus,
                "--emulated": self._deployment.emulated,
                "--thermal-zone": self._deployment.thermal_zone,
            }
            words = [word for option, text in options.items() if text for word in (option, text)]
            done = self._device.run([program, *words, "--daemon"], timeout=_CALL_S)
            if done.exit_code == 0:
                LOGGER.info("%s: serving key %s", self._deployment.serial, service.key)
                return
            self._device.unforward(public, timeout=_CALL_S)
            self._settle(name)
            if "cannot listen" not in done.complaint:
                raise StableDeviceError(
                    f"{self._deployment.serial}: the server does not start: {done.complaint}",
                    hint="see its log, server.log in the folder of its key on the device",
                )
        raise StableDeviceError(f"{self._deployment.serial}: no port is free for the server")

    def stop(self) -> None:
        """Ends the servers, the sessions with them; the files stay.

        Raises:
            DeviceError: The device is away.
        """
        program = str(self._place() / self._deployment.program)
        for service in self._deployment.services:
            own = str(self._place() / service.key)
            self._device.run([program, "--dir", own, "--stop"], timeout=_CALL_S)

    def forget_ways(self) -> None:
        """After the connection was made anew or the device restarted: ports that were forwarded are gone."""
        for name in [n for n in self._notes if n == "reverse" or n.startswith("forward ")]:
            change = self._journal.change(self._notes[name])
            with suppress(DeviceError):
                change.undo(self._device)
            self._settle(name)

    def _place(self) -> PurePosixPath:
        """The folder on the device; it belongs to this user and this tracker alone."""
        if self._folder is None:
            if self._deployment.android:
                name, base = "autotune-server", PurePosixPath("/data/local/tmp")
            else:
                user = self._device.run(["id", "-u"], timeout=_CALL_S).text
                name, base = f"autotune-server-{user}", PurePosixPath("/tmp")
            self._folder = base / f"{name}-{self._tracker_port}"
        return self._folder

    def _run(self, argv: Sequence[str]) -> None:
        done = self._device.run(argv, timeout=_CALL_S)
        if done.exit_code != 0:
            raise TransientDeviceError(
                f"{self._deployment.serial}: `{' '.join(argv)}`: {done.complaint}"
            )

    def _note(self, name: str, change: Change) -> None:
        """Writes a change down, once, or anew where it is another one."""
        number = self._notes.get(name)
        if number is not None and self._journal.change(number) == change:
            return
        fresh = self._journal.note(change)
        if number is not None:
            self._journal.settle(number)
        self._notes[name] = fresh

    def _settle(self, name: str) -> None:
        self._journal.settle(self._notes.pop(name))
