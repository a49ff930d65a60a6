"""Devices behind a tracker, as the command line names them."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from typing import TYPE_CHECKING

from autotune.errors import DeviceError, UsageError, choices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotune.compiler.runners import RpcRunner
    from autotune.compiler.target import Fleet, TargetSpec, TuneRequest
    from autotune.tracker import Served, TrackerLink

_DEFAULT_TRACKER = "127.0.0.1:9190"


def fleet_of(tracker: str | None, key: str | None) -> Fleet | None:
    """Returns the devices that --tracker and --key name; None if neither is given.

    Missing values are taken from `TVM_TRACKER_HOST`, `TVM_TRACKER_PORT` and `TVM_TRACKER_KEY`.

    Raises:
        UsageError: The key is missing, or the tracker's address is invalid.
    """
    from autotune.compiler.target import Fleet
    from autotune.tracker import TrackerLink

    if tracker is None and key is None:
        return None
    key = key or os.environ.get("TVM_TRACKER_KEY")
    if not key:
        raise UsageError(
            "--tracker needs --key", hint="`autotune tracker status` shows the keys that there are"
        )
    return Fleet(str(TrackerLink.parse(tracker or _tracker_of_environment())), key)


def _tracker_of_environment() -> str:
    host, port = os.environ.get("TVM_TRACKER_HOST"), os.environ.get("TVM_TRACKER_PORT")
    return f"{host or '127.0.0.1'}:{port or 9190}" if host or port else _DEFAULT_TRACKER


def target_on(target: TargetSpec, fleet: Fleet) -> TargetSpec:
    """Returns the target with its host code set for the devices' kind of machine.

    Raises:
        DeviceError: The tracker does not answer, or has nothing under the key.
        UsageError: The target does not match the devices.
    """
    from autotune.compiler.target import ARM_TRIPLE

    served = served_under(fleet)
    machine = served[0].machine or _usual_machine(target)
    if target.name == "cpu" and served[0].serial != "local":
        raise UsageError(
            f"--target cpu is this host's processor, and key '{fleet.key}' is another device",
            hint="give --target arm-cpu, or --target-json with the device's processor",
        )
    if target.triple:
        return target
    if machine == "aarch64" and platform.machine() != "aarch64":
        return replace(target, triple=ARM_TRIPLE)
    return target


def _usual_machine(target: TargetSpec) -> str:
    """Returns the usual machine for a device whose server does not report it: phones are 64-bit ARM."""
    return "aarch64" if target.name in ("arm-cpu", "adreno", "mali") else platform.machine()


def fleet_runner(request: TuneRequest) -> RpcRunner:
    """Returns the runner for a request's devices.

    Raises:
        DeviceError: The tracker does not answer, or has nothing under the key.
    """
    from autotune.compiler.runners import DeviceFingerprint, RpcRunner, opencl_fingerprint

    if request.fleet is None:
        raise ValueError("the request names no tracker")
    link, key = _link(request.fleet), request.fleet.key
    served = served_under(request.fleet)
    emulated = sorted({one.emulated for one in served if one.emulated})
    device = DeviceFingerprint(
        name=key,
        kind=f"rpc-{request.target.family}",
        driver="; ".join(emulated),
        details=(
            ("machine", served[0].machine),
            ("serials", tuple(one.serial for one in served)),
            ("emulated", bool(emulated)),
        ),
        stand_in=bool(emulated),
    )
    runner = RpcRunner(link, key, device)
    if request.target.family == "opencl":
        found = runner.opencl_device()
        if found is not None:
            seen = opencl_fingerprint(request.target, found)
            runner.device = replace(
                device,
                driver="; ".join([*emulated, f"{seen.name} ({seen.driver})"]),
                details=device.details + seen.details,
                stand_in=device.stand_in or seen.stand_in,
            )
    return runner


def _link(fleet: Fleet) -> TrackerLink:
    from autotune.tracker import TrackerLink

    return TrackerLink.parse(fleet.tracker)


def served_under(fleet: Fleet) -> Sequence[Served]:
    """Returns the servers that a tracker lists under a key.

    Raises:
        DeviceError: The tracker does not answer, or has nothing under the key.
    """
    link, key = _link(fleet), fleet.key
    served = link.served()
    found = [one for one in served if one.key == key]
    if not found:
        keys = sorted({one.key for one in served})
        raise DeviceError(
            f"the tracker at {link} has no device under key '{key}'",
            hint=choices(key, keys, "it has") if keys else "start one with `autotune tracker up`",
        )
    return found
