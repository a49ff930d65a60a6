"""Faults of an emulated phone behind the real adb server: its link, its server and itself, while
kernels are measured.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sleeping_kernel import sleeping_kernel

from autotune.compiler.native import device_server
from autotune.compiler.runners.build_worker import linker
from autotune.compiler.runners.reference_data import ReferenceData
from autotune.compiler.runners.rpc_runner import RpcRunner
from autotune.compiler.runners.runner import DeviceFingerprint
from autotune.compiler.target.targets import ARM_TRIPLE
from autotune.devices.adb import AdbDevice
from autotune.devices.device import Device
from autotune.devices.ports import free_port
from autotune.tracker import TrackerLink
from autotune.tracker.deploy import Deployment, Service
from autotune.tracker.supervisor import Heard, tracker_process
from autotune.tracker.watch import Watched

KEY = "phone"
# What is typed to the phone, and words of which the log must hold one.
FAULTS: dict[str, tuple[str, ...]] = {
    "drop": ("session lost", "reconnecting", "restarting"),
    "offline 3": ("session lost", "reconnecting", "offline", "not found"),
    "hang 40": ("session lost", "no answer", "restarting", "longer than its limit"),
    "garbage": ("session lost", "reconnecting", "restarting"),
    "slow 60000": ("no answer", "session lost", "longer than its limit"),
    "reboot": ("session lost", "restarting", "reconnecting"),
    "kill": ("session lost", "restarting", "SIGKILL"),
}


@dataclass
class Phone:
    """The phone's process, and its device."""

    process: subprocess.Popen[str]
    device: AdbDevice

    def say(self, command: str) -> None:
        """Does a fault to it."""
        if command == "kill":
            # Under qemu-user a process has qemu's name; its command line is its own.
            done = self.device.run(["pkill", "-9", "-f", "[a]utotune_server --dir"], timeout=10)
            if done.exit_code != 0:
                raise SystemExit(f"the server could not be killed: {done.complaint}")
            return
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()


@contextmanager
def phone(home: Path) -> Iterator[Phone]:
    """An emulated phone, connected to an adb server of its own."""
    home.mkdir()
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    before = {name: os.environ.get(name) for name in ("HOME", "ANDROID_ADB_SERVER_PORT")}
    os.environ.update(HOME=str(home), ANDROID_ADB_SERVER_PORT=str(free_port()))
    process = subprocess.Popen(
        [sys.executable, "-m", "autotune", "devices", "emulate", "meizu-16t"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        serial = process.stdout.readline().strip()
        if not serial:
            raise SystemExit("no emulated phone can run here: try `autotune devices emulate`")
        yield Phone(process, AdbDevice(serial))
    finally:
        process.terminate()
        process.wait(30)
        subprocess.run(["adb", "kill-server"], capture_output=True, check=False)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def arm_library(folder: Path) -> Path:
    """The kernel, compiled for the phone; it sleeps a little, so that faults meet it."""
    import tvm

    arm = {"kind": "llvm", "mtriple": ARM_TRIPLE, "mattr": ["+neon"]}
    path = folder / "arm.so"
    module = tvm.compile(sleeping_kernel(30), tvm.target.Target(arm, host=arm))
    module.export_library(str(path), fcompile=linker(ARM_TRIPLE, fast=True))
    return path


@contextmanager
def served(phone: Phone, journals: Path) -> Iterator[tuple[TrackerLink, Watched]]:
    """A tracker with the phone on it; afterwards the phone is left as it was."""
    deployment = Deployment(
        serial=phone.device.serial,
        kind="adb",
        services=(Service(KEY),),
        bundle=device_server.bundle("linux-aarch64"),
        program=device_server.PROGRAM,
        emulated="emulated: meizu-16t",
        thermal_zone="",
        android=True,
    )
    with tracker_process(free_port()) as link:
        watch = Watched(
            deployment,
            lambda: AdbDevice(deployment.serial),
            Heard(link),
            tracker_port=link.port,
            allow_reboot=True,
            journals=journals,
        )
        watch.start()
        deadline = time.monotonic() + 60
        while watch.status().state != "serving":
            if time.monotonic() > deadline:
                raise SystemExit(f"the phone does not serve: {watch.status()}")
            time.sleep(0.1)
        try:
            yield link, watch
        finally:
            if not watch.stop(120):
                raise SystemExit("the watch does not end")


def one(
    seed: int,
    phone: Phone,
    measured: Any,
    folder: Path,
    data: ReferenceData,
    library: Path,
) -> tuple[str, float, Path, list[str]]:
    """One run with one fault at some moment of it: the fault, seconds, run folder, problems."""
    chance = random.Random(seed)
    fault = chance.choice(sorted(FAULTS))
    with served(phone, folder / "journals") as (link, _watch):
        device = DeviceFingerprint(KEY, "rpc-cpu", "emulated: meizu-16t", (), stand_in=True)
        runner = RpcRunner(link, KEY, device)
        runner.start()
        strike = threading.Timer(chance.uniform(0.5, 2.5), phone.say, [fault])
        strike.start()
        began = time.monotonic()
        path, problems = measured(folder, runner, data, library)
        seconds = time.monotonic() - began
        strike.join()
        runner.stop()
        phone.say("clear")
    return fault, seconds, path, problems


def state_of(device: Device) -> dict[str, Any]:
    """Files and forwarded ports of a phone."""
    ports = {
        way: subprocess.run(
            ["adb", "-s", device.serial, way, "--list"], capture_output=True, text=True, check=False
        ).stdout
        for way in ("forward", "reverse")
    }
    files = device.run(["ls", "-A", "/data/local/tmp"], timeout=20).text
    running = device.run(["pgrep", "-f", "[a]utotune_server --dir"], timeout=20).text
    return {**ports, "files": files, "running": running}
