"""Faults injected into an emulated phone behind the real adb server, while kernels are measured on it.

A fault hits the link, the device server or the phone itself.
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
from common.sleeping_kernel import sleeping_kernel

KEY = "phone"
# Faults as typed to the phone, each with words of which the log must contain at least one.
FAULTS: dict[str, tuple[str, ...]] = {
    "drop": ("session lost", "reconnecting", "restarting"),
    "offline 3": ("session lost", "reconnecting", "offline", "not found"),
    "hang 40": (
        "session lost",
        "no answer",
        "restarting",
        "longer than its limit",
        "to receive",
        "to be free",
    ),
    "garbage": ("session lost", "reconnecting", "restarting"),
    "slow 60000": ("no answer", "session lost", "longer than its limit"),
    "reboot": ("session lost", "restarting", "reconnecting"),
    "kill": ("session lost", "restarting", "SIGKILL"),
}


@dataclass
class Phone:
    """The emulated phone's process and its adb device."""

    process: subprocess.Popen[str]
    device: AdbDevice

    def say(self, command: str) -> None:
        """Injects a fault."""
        if command == "kill":
            # Under qemu-user the process name is qemu's, but the command line is that of the server.
            done = self.device.run(["pkill", "-9", "-f", "[a]utotune_server --dir"], timeout=10)
            if done.exit_code != 0:
                raise SystemExit(f"the server could not be killed: {done.complaint}")
            return
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()


@contextmanager
def phone(home: Path) -> Iterator[Phone]:
    """Yields an emulated phone that is connected to an adb server of its own."""
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
    """Compiles the kernel for the phone; the kernel sleeps a little, so that faults hit it."""
    import tvm

    arm = {"kind": "llvm", "mtriple": ARM_TRIPLE, "mattr": ["+neon"]}
    path = folder / "arm.so"
    module = tvm.compile(sleeping_kernel(30), tvm.target.Target(arm, host=arm))
    module.export_library(str(path), fcompile=linker(ARM_TRIPLE, fast=True))
    return path


@contextmanager
def served(phone: Phone, journals: Path) -> Iterator[tuple[TrackerLink, Watched]]:
    """Yields a tracker on which the phone serves; afterwards the phone is restored to its earlier state."""
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
    """Makes one run with one fault at a random moment; returns the fault, seconds, run folder and problems."""
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
    """Returns the files, the forwarded ports and the running servers of a phone."""
    ports = {
        way: subprocess.run(
            ["adb", "-s", device.serial, way, "--list"], capture_output=True, text=True, check=False
        ).stdout
        for way in ("forward", "reverse")
    }
    files = device.run(["ls", "-A", "/data/local/tmp"], timeout=20).text
    running = device.run(["pgrep", "-f", "[a]utotune_server --dir"], timeout=20).text
    return {**ports, "files": files, "running": running}
