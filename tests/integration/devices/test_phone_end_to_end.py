"""The main job on an emulated phone behind the real adb: tuned over a tracker, its cable pulled meanwhile."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from command import AUTOTUNE, autotune
from exports import exported, untuned_variant
from fleets import free_port
from small_phone import needs_phone, private_adb

from autotune.devices.adb import AdbDevice
from autotune.devices.info import probe
from autotune.errors import StableDeviceError
from autotune.measurement.conditions import thermal_status
from autotune.workloads.spec import parse_kernel

CONV = "conv2d:n=2,c=8,h=14,w=14,k=8,r=3,s=3,stride=1,pad=1"
TRIALS = 15


@pytest.fixture
def home(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An adb server and a state folder of the test's own."""
    (tmp_path / "home").mkdir()
    with private_adb(tmp_path / "home"):
        environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
        yield environment
        autotune("tracker", "down", **environment)


@contextmanager
def phone(profile: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`autotune devices emulate`: adb's name for the phone, and what takes its faults on stdin."""
    with subprocess.Popen(
        [*AUTOTUNE, "devices", "emulate", profile],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            serial = process.stdout.readline().strip()
            assert serial, process.stderr.read() if process.stderr else ""
            yield serial, process
        finally:
            process.terminate()
            process.wait(30)


def settings(serial: str) -> dict[str, str]:
    """Frequency limits, governors and what lies in the folder for pushed files."""
    script = (
        "cat /sys/devices/system/cpu/cpufreq/policy*/scaling_m*_freq "
        "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor; ls -A /data/local/tmp"
    )
    done = subprocess.run(["adb", "-s", serial, "shell", script], capture_output=True, text=True)
    ports = [
        subprocess.run(["adb", "-s", serial, way, "--list"], capture_output=True, text=True).stdout
        for way in ("forward", "reverse")
    ]
    return {"files": done.stdout, "forward": ports[0], "reverse": ports[1]}


@needs_phone
def test_tuning_survives_a_cut_connection_and_leaves_the_phone_as_it_was(
    home: dict[str, str], tmp_path: Path
) -> None:
    with phone("meizu-16t") as (serial, process):
        before = settings(serial)
        up = autotune("tracker", "up", "--port", str(free_port()), "--json", **home)
        assert up.returncode == 0, up.stderr + up.stdout
        running = json.loads(up.stdout)
        (device,) = running["devices"]
        assert (device["serial"], device["kind"]) == (serial, "adb")
        assert "emulated" in device["emulated"]
        key = device["keys"][0]["key"]
        logs = tmp_path / "logs"
        cut = threading.Thread(target=pull_the_cable, args=(process, logs))
        cut.start()
        tuned = autotune(
            "kernels", "--target", "arm-cpu", "--op", CONV, "--role",
            "forward,data_grad,weight_grad", "--trials", str(TRIALS), "--json",
            "--tracker", running["tracker"], "--key", key, "--logs", logs, timeout=400, **home,
        )  # fmt: skip
        cut.join(60)
        assert tuned.returncode == 0, tuned.stderr
        result = json.loads(tuned.stdout)
        assert "STAND-IN" in tuned.stderr
        assert "emulated" in tuned.stderr
        assert "session lost" in tuned.stderr, tuned.stderr
        assert result["trials"] == TRIALS
        assert result["stand_in"] is True
        assert [task["role"] for task in result["tasks"]] == ["forward", "data_grad", "weight_grad"]
        for task in result["tasks"]:
            assert task["max_rel_error"] < 1e-4
        events = next(logs.glob("2*/events.jsonl")).read_text().splitlines()
        trials = [event for event in map(json.loads, events) if event["event"] == "trial"]
        assert len(trials) == TRIALS
        assert set(Counter(event["digest"] for event in trials).values()) == {1}
        assert {event["serial"] for event in trials if event["status"] == "ok"} == {serial}
        exported = autotune("export", next(logs.glob("2*")), "--out", tmp_path / "out", **home)
        assert exported.returncode == 2
        assert "stand-in" in exported.stderr.lower()
        down = autotune("tracker", "down", **home)
        assert down.returncode == 0, down.stderr
        log = Path(running["log"]).read_text()
        assert "reconnecting" in log, log
        assert settings(serial) == before


def pull_the_cable(process: subprocess.Popen[str], logs: Path) -> None:
    """Takes the phone off for some seconds once a few trials are recorded."""
    await_trials(logs, 6)
    say(process, "offline 4")


def await_trials(logs: Path, count: int) -> None:
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        events = [path.read_text() for path in logs.glob("2*/events.jsonl")]
        if sum(text.count('"trial"') for text in events) >= count:
            break
        time.sleep(0.1)


def say(process: subprocess.Popen[str], command: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{command}\n")
    process.stdin.flush()


@needs_phone
def test_what_is_timed_while_the_phone_throttles_is_timed_again(
    home: dict[str, str], tmp_path: Path
) -> None:
    with phone("meizu-16t") as (serial, process):
        up = autotune("tracker", "up", "--port", str(free_port()), "--json", **home)
        assert up.returncode == 0, up.stderr + up.stdout
        running = json.loads(up.stdout)
        logs = tmp_path / "logs"

        def throttle() -> None:
            await_trials(logs, 4)
            say(process, "throttle 4")
            time.sleep(5)
            say(process, "throttle 0")

        heat = threading.Thread(target=throttle)
        heat.start()
        tuned = autotune(
            "kernels", "--target", "arm-cpu", "--op", CONV, "--role", "forward",
            "--trials", str(TRIALS), "--json", "--tracker", running["tracker"],
            "--key", running["devices"][0]["keys"][0]["key"], "--logs", logs, timeout=400, **home,
        )  # fmt: skip
        heat.join(60)
    assert tuned.returncode == 0, tuned.stderr
    assert "does not count: policy0 is held to 1478 of 1786 MHz; policy4" in tuned.stderr
    assert f"{serial} rests before it is measured on" in tuned.stderr
    assert f"{serial} continues after" in tuned.stderr
    events = next(logs.glob("2*/events.jsonl")).read_text().splitlines()
    timed = [e for e in map(json.loads, events) if e["event"] in ("default", "trial", "reference")]
    again = [other for event in timed for other in event.get("rejected", ())]
    assert again
    assert all(other["samples_s"] for other in again)
    assert any(clock["cap_khz"] < 2419200 for clock in caps(again, "policy4"))
    valid = [event for event in timed if event["status"] == "ok"]
    assert len(valid) > TRIALS // 2
    assert all(clock["cap_khz"] == 2419200 for clock in caps(valid, "policy4"))


def caps(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """A cluster's clock before and after each measurement."""
    readings = [seen for event in events for seen in event["conditions"]]
    assert len(readings) == 2 * len(events)
    return [clock for seen in readings for clock in seen["clocks"] if clock["name"] == name]


@needs_phone
def test_what_a_phone_is_and_what_was_done_to_it_is_shown(home: dict[str, str]) -> None:
    with phone("three-cluster") as (serial, process):
        shown = autotune("devices", "show", serial, **home)
        assert "emulated: three-cluster" in shown.stdout
        assert "frequency of prime" in shown.stdout
        assert "setting it takes root" in shown.stdout
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("dance\nunauthorised\n")
        process.stdin.flush()
        said = [process.stderr.readline() for _ in range(3)]
        assert "'dance' is nothing that can be done" in "".join(said)
        deadline = time.monotonic() + 20
        while "unauthorized" not in (listed := autotune("devices", **home).stdout):
            assert time.monotonic() < deadline, listed
        assert "allow USB debugging" in listed


def test_a_board_is_not_emulated_behind_adb() -> None:
    done = autotune("devices", "emulate", "jetson-tx2")
    assert (done.returncode, "ssh" in done.stderr) == (2, True)
    assert "meizu-16t" in autotune("devices", "emulate", "--list").stdout


@needs_phone
def test_what_goes_wrong_with_the_kernel_is_typed_too(home: dict[str, str]) -> None:
    policy = "/sys/devices/system/cpu/cpufreq/policy4"
    current = "/sys/class/power_supply/battery/current_now"
    with phone("meizu-16t") as (serial, process):
        device = AdbDevice(serial)

        def read(path: str) -> str:
            return device.read(PurePosixPath(path), timeout=20).decode().strip()

        def say(command: str) -> None:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write(f"{command}\n")
            process.stdin.flush()
            while command not in process.stderr.readline():
                pass

        assert read(f"{policy}/scaling_max_freq") == "2419200"
        say("throttle 4")
        assert read(f"{policy}/scaling_max_freq") == "1497600"
        say("deny")
        with pytest.raises(StableDeviceError, match="Permission denied"):
            device.write(PurePosixPath(f"{policy}/scaling_min_freq"), b"825600", timeout=20)
        say("saturate 0.5")
        time.sleep(0.5)
        assert abs(int(read(current))) == round(0.5 / 4.32 * 1e6)
        say("clear")
        time.sleep(0.5)
        assert read(f"{policy}/scaling_max_freq") == "2419200"
        assert abs(int(read(current))) > 400_000
        say("stuck")
        done = device.run(["dumpsys", "thermalservice"], timeout=20)
        assert "Can't find service" in done.stderr.decode()  # Android 9 has none.
        assert len({read(current) for _ in range(5) if not time.sleep(0.3)}) == 1


@needs_phone
def test_the_thermal_service_tells_of_throttling(home: dict[str, str]) -> None:
    with phone("three-cluster") as (serial, process):
        device = AdbDevice(serial)
        info = probe(device)
        assert thermal_status(device, info) == 0
        assert process.stdin is not None
        process.stdin.write("throttle 2\n")
        process.stdin.flush()
        deadline = time.monotonic() + 20
        while thermal_status(device, info) != 2:
            assert time.monotonic() < deadline
            time.sleep(0.2)


@needs_phone
def test_an_export_is_verified_on_the_phone(home: dict[str, str], tmp_path: Path) -> None:
    kernel = parse_kernel("matmul:m=8,n=24,k=40", "forward")
    exported([untuned_variant("arm-cpu", [kernel])], tmp_path / "out", "c")
    with phone("meizu-16t") as (serial, _):
        before = settings(serial)
        done = autotune("verify", tmp_path / "out", "--device", serial, "--json", **home)
        assert done.returncode == 0, done.stderr
        content = json.loads(done.stdout)
        assert (content["device"], content["ok"]) == (serial, True)
        assert [one["variant"] for one in content["results"]] == ["default", "v"]
        assert settings(serial) == before
