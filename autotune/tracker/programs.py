"""Server programs: how each is told to serve a key, and to end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from autotune.devices import quoted

OWN = "autotune_server"


@dataclass(frozen=True)
class Offer:
    """What a server is to offer, and where.

    Attributes:
        folder: Its own folder on the device.
        key: Key at the tracker.
        tracker_port: The tracker's port, as the device sees it on its loopback.
        port: Where it listens on the device's loopback.
        public_host: Where clients reach this host.
        public_port: The same port as this host has it.
        serial: The device.
        cpus: Cores of the kernels' threads; empty for all.
        emulated: What emulates the device; empty for a real one.
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
        same_port: Whether it can only tell the tracker the port that it listens on.
    """

    same_port: bool

    def start(self, program: PurePosixPath, offer: Offer) -> list[str]:
        """The command that starts it in the background."""

    def stop(self, program: PurePosixPath, folder: PurePosixPath) -> list[str]:
        """The command that ends it, whether it runs or not."""


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
    """TVM's own `tvm_rpc`, or whatever takes its options; it tells neither crashes nor temperature."""

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
        # The subshell's shell ends at once: the server belongs to nobody, and leads a group of its own.
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
    """How a program of that name is told: ours by its name, every other one as TVM's."""
    return OwnServer() if name == OWN else TvmRpc()
