"""Checks an export: that its files are those that were written, and that its kernels compute the right results."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from autotune.compiler import native_build
from autotune.compiler.export.manifest import MANIFEST, MANIFEST_SCHEMA_VERSION, digest
from autotune.errors import RecordError, ToolchainError, UsageError

Where = Literal["host", "qemu"]
WHERE: tuple[Where, ...] = get_args(Where)
_ARM = ("aarch64", "arm64")
_ARM_ROOT = "/usr/aarch64-linux-gnu"
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class FileFinding:
    """A file that is not as the manifest says: `changed`, `missing` or `unlisted`, which is no fault by itself."""

    file: str
    status: str


@dataclass(frozen=True)
class ResultFinding:
    """A kernel that was run, or a variant that this device cannot run.

    Attributes:
        variant: The variant.
        kernel: The kernel; None where the whole variant is meant.
        role: Its role.
        status: `ok`, `wrong`, `skipped` where the device lacks something, or `not checked`.
        max_rel_error: Largest relative error; None without a result.
        reason: Why it is not `ok`.
    """

    variant: str
    kernel: str | None
    role: str | None
    status: str
    max_rel_error: float | None
    reason: str


@dataclass(frozen=True)
class Verdict:
    """What was found.

    Attributes:
        path: The export.
        kind: Its format.
        device: Where its kernels ran.
        checked_files: Files that were compared.
        files: Those that are not as they were.
        results: Kernels that ran; none where a file has changed, since that is not run.
    """

    path: Path
    kind: str
    device: str
    checked_files: int
    files: tuple[FileFinding, ...]
    results: tuple[ResultFinding, ...]

    @property
    def ok(self) -> bool:
        """Whether every file is right, every result is, and there is at least one."""
        statuses = {one.status for one in self.results}
        whole = all(one.status == "unlisted" for one in self.files)
        return whole and "ok" in statuses and statuses <= {"ok", "skipped"}

    def to_json(self) -> dict[str, Any]:
        """Plain data; docs/export.md describes it."""
        return {
            "path": str(self.path),
            "format": self.kind,
            "device": self.device,
            "ok": self.ok,
            "checked_files": self.checked_files,
            "files": [asdict(one) for one in self.files],
            "results": [asdict(one) for one in self.results],
        }


def verify(path: Path, where: Where | None) -> Verdict:
    """Checks the files of an export, and what its kernels compute.

    Args:
        path: Its folder.
        where: `host`, or `qemu` for aarch64 under emulation on this host; None for what fits.

    Raises:
        UsageError: There is no export, or it cannot run there.
        RecordError: Its manifest is damaged.
        ToolchainError: A tool for the check is missing.
    """
    content = read_manifest(path)
    chosen = _where(content, where)
    files = _files(path, content["files"])
    damaged = any(one.status != "unlisted" for one in files)
    return Verdict(
        path,
        str(content["format"]),
        chosen,
        len(content["files"]),
        files,
        () if damaged else _results(path, content, chosen),
    )


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


def _where(content: Mapping[str, Any], wanted: Where | None) -> Where:
    """Where an export's kernels can run."""
    built_for = content["platform"]
    if built_for == "android-arm64":
        raise UsageError(
            "a library for Android runs on Android only",
            hint="build its example with the NDK, push example and library with adb, and run `check` there",
        )
    arm = built_for == "linux-aarch64"
    fits: Where = "qemu" if arm and platform.machine() not in _ARM else "host"
    if wanted is not None and wanted != fits:
        raise UsageError(
            f"an export for {built_for} cannot run on {wanted}", hint=f"give --device {fits}"
        )
    return fits


def _results(path: Path, content: Mapping[str, Any], where: Where) -> tuple[ResultFinding, ...]:
    if content["format"] == "tvm":
        return _run(_python_example(path, content), dict(os.environ))
    with tempfile.TemporaryDirectory(prefix="autotune-verify-") as build:
        program = _built(path / "example", Path(build), where)
        command = [str(program), str(path.resolve())]
        if where == "qemu":
            command = [*_emulator(), *command]
        # What the library needs must be in it: the program sees nothing of this process's environment.
        kept = ("PATH", "HOME", "OCL_ICD_VENDORS", "TMPDIR", "AUTOTUNE_OPENCL_LIBRARY")
        return _run(command, {key: os.environ[key] for key in kept if key in os.environ})


def _python_example(path: Path, content: Mapping[str, Any]) -> list[str]:
    if any(variant["family"] == "opencl" for variant in content["variants"]):
        from autotune.compiler import opencl_sidecar

        opencl_sidecar.ensure()
    if any(variant["family"] == "aarch64" for variant in content["variants"]):
        _emulator()
    return [sys.executable, str(path / "example" / "example.py")]


def _emulator() -> list[str]:
    qemu = native_build.require_tool(
        ("qemu-aarch64-static", "qemu-aarch64"),
        "qemu-user-static",
        "kernels for aarch64 run here only under emulation",
    )
    return [qemu, "-L", _ARM_ROOT]


def _built(example: Path, build: Path, where: Where) -> Path:
    """The example, compiled as a user would."""
    purpose = "the example has to be compiled"
    cmake = native_build.require_tool(("cmake",), "cmake", purpose)
    configure = [cmake, "-S", str(example), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"]
    if where == "qemu":
        native_build.require_tool(("aarch64-linux-gnu-gcc",), "g++-aarch64-linux-gnu", purpose)
        toolchain = native_build.rpc_sources() / "cmake" / "aarch64-linux-gnu.cmake"
        configure.append(f"-DCMAKE_TOOLCHAIN_FILE={toolchain}")
    for command in (configure, [cmake, "--build", str(build)]):
        done = _call(command, dict(os.environ))
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
            raise ToolchainError(f"the example does not compile:\n{tail}")
    return build / "check"


def _run(command: Sequence[str], environment: dict[str, str]) -> tuple[ResultFinding, ...]:
    done = _call(command, environment)
    findings = []
    for line in done.stdout.splitlines():
        try:
            findings.append(ResultFinding(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    wrong = done.returncode != 0 and all(one.status in ("ok", "skipped") for one in findings)
    if wrong or not findings:
        # It died: what it had printed is not all.
        how = (
            f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        )
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        reason = f"the example ended with {how}: {said}"
        findings.append(ResultFinding("", None, None, "wrong", None, reason))
    return tuple(findings)


def _call(command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(
            f"{Path(command[0]).name} took longer than {_TIMEOUT_S:.0f} s"
        ) from error
