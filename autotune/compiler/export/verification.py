"""Checks an export: its files are those that were written, and its kernels compute correct results."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from platform import machine as platform_machine
from typing import Any, Literal, get_args

from autotune.compiler.export.example_program import Run, call, emulator, run_here, run_on
from autotune.compiler.export.findings import ResultFinding, Verdict, results_of
from autotune.compiler.export.manifest import MANIFEST
from autotune.compiler.export.manifest_reading import check_library, read_manifest
from autotune.compiler.export.objects import Report
from autotune.compiler.export.rounds import (
    Round,
    beyond_memory,
    chosen_kernels,
    prepare,
    rounds,
    without_result,
)
from autotune.compiler.export.tree import compared
from autotune.compiler.native import Platform, check_disks, check_room
from autotune.devices import Device
from autotune.errors import UsageError
from autotune.records import write_json
from autotune.scratch import Scratch

Where = Literal["host", "qemu"]
WHERE: tuple[Where, ...] = get_args(Where)
_ARM = ("aarch64", "arm64")
_RUN = """
import runpy
import sys

sys.modules["torch"] = None  # TVM would import it, which takes seconds.
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@dataclass(frozen=True)
class Remote:
    """Another device to run an export's example.

    Attributes:
        device: The device.
        platform: Its platform.
        folder: A folder on it with space for files.
    """

    device: Device
    platform: Platform
    folder: PurePosixPath


def verify(
    path: Path,
    where: Where | None,
    device: Remote | None = None,
    *,
    sample: int | None = None,
    report: Report = lambda phase, done, total: None,
) -> Verdict:
    """Checks the files of an export, and the results of its kernels.

    If all files are as listed, they are copied and compared again, and the copy is used. So nothing that changes
    meanwhile is run.

    Args:
        path: Its folder.
        where: `host`, or `qemu` for aarch64 under emulation on this host; None for the fitting one.
        device: Another device to use instead.
        sample: Number of kernels to run; None for all.
        report: Receives progress.

    Raises:
        UsageError: There is no export, or it cannot run there.
        RecordError: Its manifest is damaged.
        ToolchainError: A tool for the check is missing.
        DeviceError: The device went away, or refused.
    """
    content, kernels = read_manifest(path)
    check_room()
    platform = _platform(content, where) if device is None else _fitting(content, device)
    wanted = chosen_kernels(content, kernels, sample)
    beyond = beyond_memory(wanted)
    wanted = tuple(kernel for kernel in wanted if kernel.name not in beyond)
    results = list(beyond.values())
    with Scratch("verify") as work:
        copy = work / "export"
        try:
            files = tuple(
                compared(path, content["files"], MANIFEST, report=report)
                or compared(path, content["files"], MANIFEST, copy)
            )
        except OSError as error:
            check_disks(str(error))
            raise UsageError(
                f"{path} cannot be read, or copied to {work.parent}: {error.strerror or error}",
                hint="free space there, or set TMPDIR to another folder",
            ) from error
        if not files:
            check_library(copy, content)
            write_json(copy / MANIFEST, content)
            with _place(copy, content, platform, device) as run:
                done = 0
                for own in rounds(content, wanted):
                    report("kernels", done, len(wanted))
                    results += run(prepare(copy, content, own))
                    done += len(own.kernels)
                results += without_result(content, wanted, results)
    named = "qemu" if platform == "linux-aarch64" and platform_machine() not in _ARM else "host"
    return Verdict(
        path,
        str(content["format"]),
        named if device is None else device.device.serial,
        len(content["files"]),
        files,
        () if files else tuple(results),
        len(kernels),
        {str(one["name"]): str(one["spec"]) for one in content["kernels"] if "spec" in one},
        *_work(content),
    )


def _work(content: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Returns the model and the batch size that a manifest names; None where it names none."""
    model, batch = content.get("model"), content.get("batch")
    return model if isinstance(model, str) else None, batch if isinstance(batch, int) else None


def _platform(content: Mapping[str, Any], wanted: Where | None) -> Platform:
    """Returns the platform that an export's example is built for, to run on this host."""
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
    """Returns the platform that an export's example is built for, to run on a device."""
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


@contextmanager
def _place(
    copy: Path, content: Mapping[str, Any], platform: Platform, device: Remote | None
) -> Iterator[Run]:
    """Yields the function that runs the example of an export."""
    if device is not None:
        with run_on(device.device, copy, content, platform, device.folder) as run:
            yield run
    elif content["format"] == "tvm":
        yield _python_example(copy, content)
    else:
        yield run_here(copy, platform)


def _python_example(path: Path, content: Mapping[str, Any]) -> Run:
    families = {variant.get("family") for variant in content["variants"]}
    if "opencl" in families:
        from autotune.compiler.native import opencl_sidecar

        opencl_sidecar.ensure()
    if "aarch64" in families:
        emulator()

    def run(own: Round) -> tuple[ResultFinding, ...]:
        # Modules are loaded from Python's own path, not from the export.
        command = [sys.executable, "-P", "-I", "-c", _RUN, str(path / "example" / "example.py")]
        done = call(command, os.environ, own.limit_s)
        return results_of(done.stdout, done.stderr, done.returncode)

    return run
