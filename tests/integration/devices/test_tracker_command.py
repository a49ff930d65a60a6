"""`autotune tracker` and `autotune devices` end to end: this host, a board behind sshd, crashes and clean ends."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from boards import SSHD, ssh_board
from command import AUTOTUNE, autotune
from fleets import free_port, servers

from autotune.tracker import TrackerLink

MATMUL = "matmul:m=8,n=24,k=40"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A state folder of its own; whatever tracker is left in it is ended."""
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    yield environment
    autotune("tracker", "down", **environment)


def port_of(running: dict[str, Any]) -> str:
    return str(running["tracker"]).rpartition(":")[2]


def up(home: dict[str, str], *arguments: str) -> dict[str, Any]:
    done = autotune("tracker", "up", *arguments, "--port", str(free_port()), "--json", **home)
    assert done.returncode == 0, done.stderr + done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_up_status_kernels_down(home: dict[str, str], tmp_path: Path) -> None:
    running = up(home, "--device", "local", "--per-cluster")
    keys = [key["key"] for device in running["devices"] for key in device["keys"]]
    assert keys[0] == "local"
    assert len(keys) == 2
    twice = autotune("tracker", "up", "--device", "local", **home)
    assert (twice.returncode, "runs already" in twice.stderr) == (2, True)
    tuned = autotune(
        "kernels", "--op", MATMUL, "--role", "forward", "--trials", "10", "--json",
        "--tracker", running["tracker"], "--key", "local", "--logs", tmp_path, **home,
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    result = json.loads(tuned.stdout)
    assert result["trials"] == 10
    assert result["device"]["kind"] == "rpc-cpu"
    assert result["tasks"][0]["max_rel_error"] < 1e-4
    events = next(tmp_path.glob("2*/events.jsonl")).read_text().splitlines()
    trials = [event for event in map(json.loads, events) if event["event"] == "trial"]
    assert {event["serial"] for event in trials} == {"local"}
    # The server tells the tracker every two seconds what it has done.
    deadline = time.monotonic() + 20
    while True:
        status = autotune("tracker", "status", "--json", **home)
        (device,) = json.loads(status.stdout)["devices"]
        assert device["state"] == "serving"
        if device["keys"][0]["candidates"] >= 10:
            break
        assert time.monotonic() < deadline, status.stdout
        time.sleep(0.5)
    assert "trials/min" in autotune("tracker", "status", **home).stdout
    down = autotune("tracker", "down", **home)
    assert down.returncode == 0, down.stderr
    assert servers(port_of(running)) == []
    assert list((tmp_path / "state" / "autotune" / "restore").glob("*")) == []
    assert not Path(f"/tmp/autotune-server-{os.getuid()}-{port_of(running)}").exists()
    none = autotune("tracker", "status", **home)
    assert (none.returncode, "autotune tracker up" in none.stderr) == (3, True)


def test_what_a_killed_tracker_left_is_undone(home: dict[str, str]) -> None:
    running = up(home, "--device", "local")
    os.kill(running["pid"], signal.SIGKILL)
    assert servers(port_of(running))
    assert "devices restore" in autotune("devices", **home).stderr
    restored = autotune("devices", "restore", "--json", **home)
    assert restored.returncode == 0, restored.stdout
    (left,) = json.loads(restored.stdout)["restored"]
    assert (left["serial"], left["failures"]) == ("local", [])
    assert left["changes"] >= 3
    deadline = time.monotonic() + 10
    while servers(port_of(running)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert servers(port_of(running)) == []
    assert "nothing was left" in autotune("devices", "restore", **home).stdout
    assert autotune("tracker", "status", **home).returncode == 3


def test_a_server_of_ones_own_is_used(home: dict[str, str], tmp_path: Path) -> None:
    # TVM's Python server takes the options of its tvm_rpc, but for the first word.
    program = tmp_path / "tvm_rpc"
    program.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} -m tvm.exec.rpc_server "$@"\n')
    program.chmod(0o755)
    running = up(home, "--device", "local", "--server", str(program), "--key", "own")
    tuned = autotune(
        "kernels", "--op", MATMUL, "--role", "forward", "--trials", "6", "--json",
        "--target-json", host_target(tmp_path), "--tracker", running["tracker"], "--key", "own",
        "--logs", tmp_path / "logs", **home,
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    assert json.loads(tuned.stdout)["trials"] == 6
    down = autotune("tracker", "down", **home)
    assert down.returncode == 0, down.stderr
    left = subprocess.run(["pgrep", "-f", "tvm.exec.rpc_server"], capture_output=True, text=True)
    assert left.stdout == ""
    refused = autotune(
        "tracker", "up", "--device", "local", "--server", str(program), "--per-cluster", **home
    )
    assert (refused.returncode, "cluster" in refused.stderr) == (2, True)


def host_target(folder: Path) -> Path:
    path = folder / "board.json"
    path.write_text(json.dumps({"kind": "llvm"}))
    return path


@pytest.mark.skipif(not SSHD, reason="sshd is not installed (apt install openssh-server)")
def test_a_board_behind_sshd_is_tuned(home: dict[str, str], tmp_path: Path) -> None:
    with ssh_board(tmp_path / "board") as (destination, config):
        home["AUTOTUNE_SSH_CONFIG"] = str(config)
        listed = autotune("devices", "--ssh", destination, "--json", **home)
        board = json.loads(listed.stdout)["devices"][0]
        assert (board["serial"], board["state"]) == ("board", "ready")
        assert board["info"]["abi"] == platform.machine()
        shown = autotune("devices", "show", destination, "--ssh", destination, **home)
        assert "CPU kernels" in shown.stdout
        running = up(home, "--ssh", destination, "--device", destination, "--key", "board")
        tuned = autotune(
            "kernels", "--op", MATMUL, "--role", "weight_grad", "--trials", "8", "--json",
            "--target-json", host_target(tmp_path), "--tracker", running["tracker"], "--key", "board",
            "--logs", tmp_path / "logs", **home,
        )  # fmt: skip
        assert tuned.returncode == 0, tuned.stderr
        assert json.loads(tuned.stdout)["tasks"][0]["max_rel_error"] < 1e-4
        assert autotune("tracker", "down", **home).returncode == 0
    assert servers(port_of(running)) == []


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["tracker", "up", "--device", "nobody"], 2, "there is no device 'nobody'"),
        (["tracker", "up", "--port", "0", "--device", "local"], 2, "--port is 0"),
        (["tracker", "up", "--device", "local", "--server", "/nowhere"], 2, "autotune_server"),
        (["tracker", "down"], 3, "no tracker runs"),
        (["devices", "show", "nobody"], 2, "there is no device 'nobody'"),
        (["rpc", "build", "--for", "toaster"], 2, "toaster"),
        (["tracker", "up", "--device", "local", "--key", "../../x"], 2, "is not a valid key"),
        (["tracker", "up", "--device", "local", "--key", 'q";reboot;"'], 2, "is not a valid key"),
        (["tracker", "up", "--device", "local", "--listen", "256.1.1.1"], 2, "not an address of"),
        (["devices", "emulate", "meizu-16t", "--port", "99999"], 2, "--port is 99999"),
        (["devices", "restore", "--forget", "nobody"], 2, "nothing is left of 'nobody'"),
        (["kernels", "--op", MATMUL, "--tracker", "here"], 2, "--key"),
        (["kernels", "--op", MATMUL, "--tracker", "here", "--key", "k"], 2, "HOST:PORT"),
        (["kernels", "--op", MATMUL, "--tracker", "127.0.0.1:1", "--key", "k"], 3, "not answer"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    home: dict[str, str], arguments: list[str], code: int, text: str
) -> None:
    done = autotune(*arguments, **home)
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_a_tracker_that_dies_is_started_anew(home: dict[str, str]) -> None:
    running = up(home, "--device", "local")
    port = port_of(running)
    found = subprocess.run(
        ["pgrep", "-f", f"tracker_process 127.0.0.1 {port}"], capture_output=True, text=True
    )
    os.kill(int(found.stdout.split()[0]), signal.SIGKILL)
    silent = autotune("tracker", "status", "--json", **home)
    assert silent.returncode == 3 or json.loads(silent.stdout)["answers"]
    deadline = time.monotonic() + 60
    while True:
        status = autotune("tracker", "status", "--json", **home)
        reported = json.loads(status.stdout)
        if status.returncode == 0 and reported["queue"].get("local", [0])[0] == 1:
            break
        assert time.monotonic() < deadline, status.stdout
        time.sleep(0.5)
    # It was the tracker's fault, and not the device's.
    assert reported["devices"][0]["restarts"] == 0
    assert autotune("tracker", "down", **home).returncode == 0


def test_of_two_that_start_at_once_one_is_refused(home: dict[str, str]) -> None:
    command = [*AUTOTUNE, "tracker", "up", "--device", "local", "--port"]
    both = [
        subprocess.Popen(
            [*command, str(free_port())], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, **home},
        )
        for _ in range(2)
    ]  # fmt: skip
    codes = sorted(one.wait(240) for one in both)
    assert codes == [0, 2]
    assert autotune("tracker", "down", **home).returncode == 0
    left = subprocess.run(["pgrep", "-f", "autotune.tracker.supervisor"], capture_output=True)
    mine = [
        pid
        for pid in left.stdout.decode().split()
        if str(home["XDG_STATE_HOME"]) in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    assert mine == []


def test_a_port_that_another_program_has_is_not_taken_for_ours(home: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = autotune("tracker", "up", "--device", "local", "--port", str(port), **home)
    assert (done.returncode, "cannot listen" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr


def test_what_a_device_refuses_is_told_soon(home: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "wrong"
    folder.mkdir()
    (folder / "autotune_server").write_bytes(b"\x7fELF of another machine")
    (folder / "autotune_server").chmod(0o755)
    began = time.monotonic()
    done = autotune(
        "tracker", "up", "--device", "local", "--server", str(folder), "--port", str(free_port()),
        **home,
    )  # fmt: skip
    assert done.returncode == 3
    assert "does not start" in done.stdout
    assert time.monotonic() - began < 60


OUTSIDE = [
    one.address
    for entries in psutil.net_if_addrs().values()
    for one in entries
    if one.family == socket.AF_INET and not one.address.startswith("127.")
]


@pytest.mark.skipif(not OUTSIDE, reason="this machine has no address but loopback")
def test_listening_elsewhere_serves_clients_there(home: dict[str, str], tmp_path: Path) -> None:
    port = free_port()
    done = autotune(
        "tracker", "up", "--device", "local", "--listen", OUTSIDE[0], "--port", str(port), "--json",
        **home,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "runs code on the devices" in done.stderr
    assert json.loads(done.stdout)["tracker"] == f"{OUTSIDE[0]}:{port}"
    (served,) = TrackerLink(OUTSIDE[0], port).served()
    assert served.address[0] == OUTSIDE[0]
    tuned = autotune(
        "kernels", "--op", MATMUL, "--role", "forward", "--trials", "4", "--json",
        "--tracker", f"{OUTSIDE[0]}:{port}", "--key", "local", "--logs", tmp_path, **home,
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    assert json.loads(tuned.stdout)["trials"] == 4
