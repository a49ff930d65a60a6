"""Server programs: the commands that start them for a key, and end them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from autotune.devices import quoted

OWN = "autotune_server"


@dataclass(frozen=True)
class Offer:
    """What a server offers, and where.

    Attributes:
        folder: Its own folder on the device.
        key: Key at the tracker.
        tracker_port: The tracker's port on the device's loopback.
        port: Its own port on the device's loopback.
        public_host: Address of this host for clients.
        public_port: Its port on this host.
        serial: The device.
        cpus: Cores of the kernels' threads; empty for all.
        emulated: The device's emulator; empty for a real device.
        thermal_zone: File of a temperature; empty for none.
    """

    folder: PurePosixPath
    key: str
    tracker_port: int
    port: int
    public_host: str
    public_port: int
    serial: str
    cpus: str
    emulated: str
    thermal_zone: str


class ServerProgram(Protocol):
    """A program that serves TVM's RPC.

    Attributes:
        same_port: Whether it always reports its own listening port to the tracker, and no other.
    """

    same_port: bool

    def start(self, program: PurePosixPath, offer: Offer) -> list[str]:
        """Returns the command that starts it in the background."""

    def stop(self, program: PurePosixPath, folder: PurePosixPath) -> list[str]:
        """Returns the command that ends it, whether it runs or not."""


class OwnServer:
    """The device server of this project."""

    same_port = False

    def start(self, program: PurePosixPath, offer: Offer) -> list[str]:
        """See `ServerProgram.start`."""
        options = {
            "--dir": str(offer.folder),
            "--key": offer.key,
            "--tracker": f"127.0.0.1:{offer.tracker_port}",
            "--port": str(offer.port),
            "--public-host": offer.public_host,
            "--public-port": str(offer.public_port),
            "--serial": offer.serial,
            "--cpus": offer.cpus,
            "--emulated": offer.emulated,
            "--thermal-zone": offer.thermal_zone,
        }
        words = [word for option, text in options.items() if text for word in (option, text)]
        return [str(program), *words, "--daemon"]

    def stop(self, program: PurePosixPath, folder: PurePosixPath) -> list[str]:
        """See `ServerProgram.stop`."""
        return [str(program), "--dir", str(folder), "--stop"]


class TvmRpc:
    """TVM's own `tvm_rpc`, or a program with the same options. It reports neither crashes nor temperature."""

    same_port = True

    def start(self, program: PurePosixPath, offer: Offer) -> list[str]:
        """See `ServerProgram.start`."""
        serve = quoted(
            [
                *(str(program), "server", "--host=127.0.0.1"),
                *(f"--port={offer.port}", f"--port-end={offer.port + 1}"),
                *(f"--tracker=127.0.0.1:{offer.tracker_port}", f"--key={offer.key}"),
                f"--custom-addr={offer.public_host}",
            ]
        )
        folder = quoted([str(offer.folder)])
        # The subshell's shell ends at once, so that the server has no parent shell and leads its own process group.
        return [
            "sh",
            "-c",
            f"mkdir -p {folder} && cd {folder} && "
            f"(setsid sh -c 'echo $$ > pid; exec {serve}' > server.log 2>&1 < /dev/null &)",
        ]

    def stop(self, program: PurePosixPath, folder: PurePosixPath) -> list[str]:
        """See `ServerProgram.stop`."""
        pid = quoted([f"{folder}/pid"])
        return ["sh", "-c", f"[ ! -f {pid} ] || kill -9 -$(cat {pid}) 2>/dev/null; rm -f {pid}"]


def program_named(name: str) -> ServerProgram:
    """Returns the commands for a program: ours by its name, TVM's for any other name."""
    return OwnServer() if name == OWN else TvmRpc()
