"""A real sshd on loopback that serves as a board."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if Path("/usr/sbin/sshd").exists() else "")


@contextmanager
def ssh_board(folder: Path) -> Iterator[tuple[str, Path]]:
    """Destination and configuration file of `ssh` for a server of this user, with keys of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    (folder / "user.pub").replace(folder / "authorized_keys")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPidFile {folder}/pid\nUsePAM no\n"
        "StrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\nAllowTcpForwarding yes\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([SSHD, "-D", "-E", str(folder / "log"), "-f", str(config)])
    try:
        _await(port)
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True)
        client = folder / "ssh_config"
        client.write_text(
            f"Host board\n  HostName 127.0.0.1\n  Port {port}\n  User {user.stdout.strip()}\n"
            f"  IdentityFile {folder}/user\n  StrictHostKeyChecking no\n"
            f"  UserKnownHostsFile {folder}/known\n"
        )
        yield "board", client
    finally:
        server.kill()
        server.wait()


def _await(port: int) -> None:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("sshd does not listen")
