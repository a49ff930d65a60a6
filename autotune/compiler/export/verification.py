"""Checks an export: its files are those that were written, and its kernels compute correct results."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from platform import machine as platform_machine
from typing import Any, Literal, get_args

from autotune.compiler.export.example_program import Run, call, emulator, run_here, run_on
from autotune.compiler.export.findings import ResultFinding, Verdict, results_of
from autotune.compiler.export.manifest import MANIFEST, MANIFEST_SCHEMA_VERSION
from autotune.compiler.export.objects import Report
from autotune.compiler.export.rounds import (
    Round,
    beyond_memory,
    chosen_kernels,
    kernels_in,
    prepare,
    rounds,
    without_result,
)
from autotune.compiler.export.tree import compared, folders_of, is_plain
from autotune.compiler.native import Platform
from autotune.compiler.target import LARGEST_TOLERANCE
from autotune.devices import Device
from autotune.errors import RecordError, UsageError
from autotune.reading import is_version, read_json
from autotune.records import write_json
from autotune.scratch import Scratch

Where = Literal["host", "qemu"]
WHERE: tuple[Where, ...] = get_args(Where)
_PARTS = {"format", "name", "platform", "files", "variants", "kernels", "checks"}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ARM = ("aarch64", "arm64")


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
    content = read_manifest(path)
    platform = _platform(content, where) if device is None else _fitting(content, device)
    kernels = kernels_in(content)
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
            raise UsageError(
                f"{path} cannot be read, or copied to {work.parent}: {error.strerror or error}",
                hint="free space there, or set TMPDIR to another folder",
            ) from error
        if not files:
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


def read_manifest(path: Path) -> dict[str, Any]:
    """Returns the manifest of an export.

    Raises:
        UsageError: There is no export.
        RecordError: It is damaged, or of another version.
    """
    file = path / MANIFEST
    if file.is_symlink() or not file.is_file():
        raise UsageError(
            f"no export at {path}: {MANIFEST} is missing", hint="make one with `autotune export`"
        )
    content = read_json(file, error=RecordError)
    if not isinstance(content, dict) or not is_version(
        content.get("schema_version"), MANIFEST_SCHEMA_VERSION
    ):
        raise RecordError(
            f"{file} is not a manifest of schema version {MANIFEST_SCHEMA_VERSION}",
            hint="export the run again",
        )
    fault = _fault(content)
    if fault:
        raise RecordError(f"{file} is damaged: {fault}", hint="export the run again")
    return content


def _fault(content: Mapping[str, Any]) -> str:
    """Returns what is wrong with a manifest; empty if it has everything that a check uses."""
    if not content.keys() >= _PARTS:
        return "parts are missing"
    files = content["files"]
    if not isinstance(files, dict) or not all(_DIGEST.fullmatch(str(d)) for d in files.values()):
        return "its files have no SHA-256 each"
    if not files:
        return "it lists no files"
    odd = next((name for name in files if not is_plain(name)), None)
    if odd is not None or MANIFEST in files or files.keys() & folders_of(files):
        return f"{odd or 'a file'!a} cannot be a file of an export"
    if content["format"] not in ("tvm", "c", "opencl") or not isinstance(content["name"], str):
        return "its format is not tvm, c or opencl, or its name is no text"
    if not content["name"].isascii() or not content["name"].isidentifier():
        return "its name is not a name in C"
    lists = [content[key] for key in ("variants", "kernels", "checks")]
    if not all(isinstance(some, list) and all(isinstance(e, dict) for e in some) for some in lists):
        return "its variants, kernels or checks are not lists"
    names = {
        entry.get("name") for entry in content["kernels"] if isinstance(entry.get("figures"), dict)
    }
    if len(names) != len(content["kernels"]):
        return "a kernel has no figures, or is listed twice"
    if not content["checks"] or not all(_is_check(one, names, files) for one in content["checks"]):
        return (
            "it has no checks, or one names a kernel or a file that is not listed, or has no tolerance "
            f"of at most {LARGEST_TOLERANCE}"
        )
    if not content["variants"]:
        return "it has no variants"
    loaded = [content["runner"]] if "runner" in content else []
    if content["format"] == "tvm":
        loaded += [one.get("library") for one in content["variants"]]
    if not all(isinstance(one, str) and one in files for one in loaded):
        return "it names a library or program that it does not list"
    return ""


def _is_check(one: Mapping[str, Any], kernels: AbstractSet[Any], files: Mapping[str, str]) -> bool:
    data = [one.get(key) for key in ("inputs", "expected")]
    tolerance = one.get("tolerance")
    return (
        all(
            isinstance(some, list) and all(isinstance(f, str) and f in files for f in some)
            for some in data
        )
        and isinstance(one.get("kernel"), str)
        and one["kernel"] in kernels
        and isinstance(tolerance, float)
        and 0 < tolerance <= LARGEST_TOLERANCE
    )


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
        command = [sys.executable, "-P", "-I", str(path / "example" / "example.py")]
        done = call(command, os.environ, own.limit_s)
        return results_of(done.stdout, done.stderr, done.returncode)

    return run
