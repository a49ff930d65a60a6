"""Checks an export: that its files are those that were written, and that its kernels compute the right results."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from platform import machine as platform_machine
from typing import Any, Literal, get_args

from autotune.compiler.export.example_program import call, emulator, run_here, run_on
from autotune.compiler.export.findings import FileFinding, ResultFinding, Verdict, results_of
from autotune.compiler.export.manifest import MANIFEST, MANIFEST_SCHEMA_VERSION, digest
from autotune.compiler.platforms import Platform
from autotune.devices.device import Device
from autotune.errors import RecordError, UsageError

Where = Literal["host", "qemu"]
WHERE: tuple[Where, ...] = get_args(Where)
_ARM = ("aarch64", "arm64")


@dataclass(frozen=True)
class Remote:
    """Another device that runs an export's example.

    Attributes:
        device: The device.
        platform: What it runs.
        folder: Where it has room for files.
    """

    device: Device
    platform: Platform
    folder: PurePosixPath


def verify(path: Path, where: Where | None, device: Remote | None = None) -> Verdict:
    """Checks the files of an export, and what its kernels compute.

    Args:
        path: Its folder.
        where: `host`, or `qemu` for aarch64 under emulation on this host; None for what fits.
        device: Another device, instead.

    Raises:
        UsageError: There is no export, or it cannot run there.
        RecordError: Its manifest is damaged.
        ToolchainError: A tool for the check is missing.
        DeviceError: The device went away, or refused.
    """
    content = read_manifest(path)
    platform = _platform(content, where) if device is None else _fitting(content, device)
    files = _files(path, content["files"])
    results: tuple[ResultFinding, ...] = ()
    if all(one.status == "unlisted" for one in files):
        if device is not None:
            results = run_on(device.device, path, content, platform, device.folder)
        elif content["format"] == "tvm":
            results = _python_example(path, content)
        else:
            results = run_here(path, platform)
    named = "qemu" if platform == "linux-aarch64" and platform_machine() not in _ARM else "host"
    where_ran = named if device is None else device.device.serial
    return Verdict(path, str(content["format"]), where_ran, len(content["files"]), files, results)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of an export.

    Raises:
        UsageError: There is none.
        RecordError: It is damaged, or of another version.
    """
    file = path / MANIFEST
    if not file.is_file():
        raise UsageError(
            f"no export at {path}: {MANIFEST} is missing", hint="make one with `autotune export`"
        )
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{file} is damaged: {error}") from error
    if not isinstance(content, dict) or content.get("schema_version") != MANIFEST_SCHEMA_VERSION:
        raise RecordError(
            f"{file} is not a manifest of schema version {MANIFEST_SCHEMA_VERSION}",
            hint="export the run again",
        )
    if not {"format", "files", "variants", "checks", "platform"} <= content.keys():
        raise RecordError(f"{file} is damaged: parts are missing", hint="export the run again")
    return content


def _files(path: Path, listed: Mapping[str, str]) -> tuple[FileFinding, ...]:
    findings = []
    for name, expected in sorted(listed.items()):
        file = path / name
        if not file.is_file():
            findings.append(FileFinding(name, "missing"))
        elif digest(file) != expected:
            findings.append(FileFinding(name, "changed"))
    present = {p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()}
    extra = sorted(present - listed.keys() - {MANIFEST})
    return (*findings, *(FileFinding(name, "unlisted") for name in extra))


def _platform(content: Mapping[str, Any], wanted: Where | None) -> Platform:
    """What an export's example is built for, to run on this host."""
    built_for = content["platform"]
    if built_for == "android-arm64":
        raise UsageError(
            "a library for Android runs on Android only",
            hint="name a phone with --device, as `autotune devices` lists it",
        )
    arm = built_for == "linux-aarch64"
    fits: Where = "qemu" if arm and platform_machine() not in _ARM else "host"
    if wanted is not None and wanted != fits:
        raise UsageError(
            f"an export for {built_for} cannot run on {wanted}", hint=f"give --device {fits}"
        )
    return "linux-aarch64" if fits == "qemu" else "host"


def _fitting(content: Mapping[str, Any], device: Remote) -> Platform:
    """What an export's example is built for, to run on a device."""
    if content["format"] == "tvm":
        raise UsageError(
            "TVM's runtime runs such an export on a device, over RPC",
            hint="see the export's README.md: example/example.py --rpc HOST:PORT",
        )
    if content["platform"] not in ("any", device.platform):
        raise UsageError(
            f"{device.device.serial} runs {device.platform}, and the export is for {content['platform']}",
            hint=f"export it with --for {device.platform}",
        )
    return device.platform


def _python_example(path: Path, content: Mapping[str, Any]) -> tuple[ResultFinding, ...]:
    if any(variant["family"] == "opencl" for variant in content["variants"]):
        from autotune.compiler import opencl_sidecar

        opencl_sidecar.ensure()
    if any(variant["family"] == "aarch64" for variant in content["variants"]):
        emulator()
    done = call([sys.executable, str(path / "example" / "example.py")], os.environ)
    return results_of(done.stdout, done.stderr, done.returncode)
