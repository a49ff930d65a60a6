"""Every kind of device keeps the contract that the package ships."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import pytest
from boards import SSHD, ssh_board

from autotune.devices import Completed, Device, contract
from autotune.devices.local import LocalDevice
from autotune.devices.ssh import SshDevice
from autotune.emulator.device.device import EmulatedDevice
from autotune.errors import StableDeviceError, TransientDeviceError


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshDevice]:
    if not SSHD:
        pytest.skip("sshd is not installed (apt install openssh-server)")
    with ssh_board(tmp_path_factory.mktemp("board")) as (destination, config):
        device = SshDevice(destination, config)
        yield device
        device.disconnect()


@pytest.mark.parametrize("check", contract.CHECKS, ids=contract.name)
def test_this_host(check: contract.Check, tmp_path: Path) -> None:
    check(LocalDevice(), PurePosixPath(tmp_path))


@pytest.mark.parametrize("check", contract.CHECKS, ids=contract.name)
def test_a_board_behind_sshd(check: contract.Check, board: Device, tmp_path: Path) -> None:
    check(board, PurePosixPath(tmp_path))


@pytest.mark.parametrize(
    "profile", ["meizu-16t", "three-cluster", "four-cluster", "raspberry-pi-3b-plus"]
)
@pytest.mark.parametrize("check", contract.CHECKS, ids=contract.name)
def test_an_emulated_device_in_process(check: contract.Check, profile: str) -> None:
    def hello(device: EmulatedDevice, argv: Sequence[str], root: bool) -> Completed:
        return Completed(tuple(argv), 0, f"hello from {argv[1]}\n".encode(), b"")

    device = EmulatedDevice(profile, programs={"hello": hello})
    base = PurePosixPath("/data/local/tmp" if device.profile.android else "/tmp")
    check(device, base / "contract")


def test_a_board_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Port 1\n")
    device = SshDevice("nobody@127.0.0.1", config)
    with pytest.raises(TransientDeviceError, match="refused"):
        device.run(["true"], timeout=10)


def test_a_board_that_refuses_the_key_names_the_next_step(board: SshDevice, tmp_path: Path) -> None:
    config = tmp_path / "config"
    text = board.config.read_text(encoding="utf-8") if board.config else ""
    config.write_text("".join(line for line in text.splitlines(True) if "Identity" not in line))
    device = SshDevice(f"nobody@{board.serial}", config)
    with pytest.raises(StableDeviceError) as caught:
        device.run(["true"], timeout=10)
    assert "without a password" in caught.value.hint


def test_ports_of_a_board_carry_bytes_both_ways(board: SshDevice) -> None:
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def echo() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(connection.recv(100)[::-1])

        thread = threading.Thread(target=echo, daemon=True)
        thread.start()
        # The board is this machine: its port is the server's, and so is this host's.
        for way in (board.forward(port, timeout=10), board.reverse(port, timeout=10)):
            with socket.create_connection(("127.0.0.1", way), timeout=5) as connection:
                connection.sendall(b"abc")
                assert connection.recv(100) == b"cba"
        thread.join(5)
