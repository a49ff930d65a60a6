"""Compiles an export's example as a user would, and runs it here, under emulation or on another device."""

from __future__ import annotations

import logging
import os
import re
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from autotune.children import run_to_end
from autotune.compiler.export.checks import DATA
from autotune.compiler.export.findings import ResultFinding, results_of
from autotune.compiler.export.rounds import Round
from autotune.compiler.native import NativePart, Platform, check_disks, for_platform, native_build
from autotune.devices import Change, Device, Journal
from autotune.errors import AutotuneError, ToolchainError
from autotune.scratch import Scratch

_EXAMPLE = NativePart("example", "check", "check", ())
_ARM_ROOT = "/usr/aarch64-linux-gnu"
_BUILD_TIMEOUT_S = 120.0
_BUILD_KIB = 4 << 20
"""Memory of each program of a build. What a compiler needs is in the export's hands."""
_PUSH_TIMEOUT_S = 120.0
_HEADERS = (Path("/usr/include"), Path("/usr/local/include"))
_FAULT = re.compile(
    r"\berror: |CMake Error|out of memory|memory exhausted|undefined reference", re.IGNORECASE
)
_MISSING = re.compile(
    r"Could NOT find|No CMAKE_\w+ could be found|compile a simple test program|CL/cl\.h"
)
_LONGEST = 300
_MORE = "with -v, all that the compiler said is logged"

LOGGER = logging.getLogger("autotune.export")

Run = Callable[[Round], tuple[ResultFinding, ...]]
"""Compiles an example that is prepared for a round, and runs it."""


def run_here(path: Path, platform: Platform) -> Run:
    """Returns a function that runs an export's example on this host, under qemu-user if it is for aarch64.

    The returned function raises:
        ToolchainError: A tool is missing.
        AutotuneError: The example does not compile, or takes too long.
    """

    def run(own: Round) -> tuple[ResultFinding, ...]:
        with _built(path / "example", platform) as program:
            command = [str(program), str(path.resolve())]
            if platform == "linux-aarch64":
                command = [*emulator(), *command]
            # The library must contain all that it needs, so the program does not get this process's environment.
            kept = ("PATH", "HOME", "OCL_ICD_VENDORS", "TMPDIR", "AUTOTUNE_OPENCL_LIBRARY")
            environment = {key: os.environ[key] for key in kept if key in os.environ}
            done = call(command, environment, own.limit_s)
        return results_of(done.stdout, done.stderr, done.returncode)

    return run


@contextmanager
def run_on(
    device: Device,
    path: Path,
    content: Mapping[str, Any],
    platform: Platform,
    folder: PurePosixPath,
) -> Iterator[Run]:
    """Yields a function that runs an export's example on another device. Nothing is left there afterwards.

    Args:
        device: The device.
        path: The export.
        content: Its manifest.
        platform: The device's platform.
        folder: A folder on the device with space for files.

    Raises:
        ToolchainError: A tool is missing.
        AutotuneError: The example does not compile, or takes too long.
        DeviceError: The device went away, or refused.
    """
    there = folder / f"autotune-verify-{secrets.token_hex(6)}"
    needed = ("lib/lib", "kernels/", "launch_table.json")
    libraries = [name for name in content["files"] if name.startswith(needed)]

    def push(name: str) -> None:
        device.push(path / name, there / name, timeout=_PUSH_TIMEOUT_S)

    def run(own: Round) -> tuple[ResultFinding, ...]:
        data = sorted(one for one in (path / DATA).rglob("*") if one.is_file())
        with _built(path / "example", platform) as program:
            device.push(program, there / "check", timeout=_PUSH_TIMEOUT_S)
        for file in data:
            push(file.relative_to(path).as_posix())
        command = ["env", f"LD_LIBRARY_PATH={there}/lib", f"{there}/check", str(there)]
        done = device.run(command, timeout=own.limit_s)
        device.run(["rm", "-rf", str(there / DATA)], timeout=_PUSH_TIMEOUT_S)
        stdout, stderr = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return results_of(stdout, stderr, done.exit_code)

    with Journal(device) as journal:
        journal.note(Change(f"files in {there}", "remove", path=str(there)))
        for name in libraries:
            push(name)
        yield run


def emulator() -> list[str]:
    """Returns the words that start a program for aarch64 here.

    Raises:
        ToolchainError: The emulator is missing.
    """
    qemu = native_build.require_tool(
        ("qemu-aarch64-static", "qemu-aarch64"),
        "qemu-user-static",
        "kernels for aarch64 run here only under emulation",
    )
    return [qemu, "-L", _ARM_ROOT]


def call(
    command: Sequence[str], environment: Mapping[str, str], limit_s: float
) -> subprocess.CompletedProcess[str]:
    """Runs a command until it ends.

    Raises:
        AutotuneError: It took too long, or printed without end.
    """
    try:
        done = run_to_end(command, timeout=limit_s, environment=environment, bound=True)
    except subprocess.TimeoutExpired as error:
        raise AutotuneError(f"the example took longer than {limit_s:.0f} s") from error
    stdout, stderr = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(command, done.returncode, stdout, stderr)


@contextmanager
def _built(example: Path, platform: Platform) -> Iterator[Path]:
    """Yields the path of the example's program, which exists inside the context."""
    purpose = "the example has to be compiled"
    cmake = native_build.require_tool(("cmake",), "cmake", purpose)
    part = for_platform(_EXAMPLE, platform)
    if part.compilers:
        native_build.require_tool(part.compilers, part.compiler_package, purpose)
    with Scratch("verify") as build:
        # Without optimisation: the program runs once, and an optimiser would take longer than that.
        configure = [cmake, "-S", str(example), "-B", str(build), "-DCMAKE_BUILD_TYPE=None"]
        configure += [f"-D{name}={value}" for name, value in part.definitions]
        if part.toolchain:
            toolchain = native_build.rpc_sources() / part.toolchain
            configure += [f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", *_opencl_headers(build)]
        if platform == "linux-aarch64":
            # The device's own C++ library may differ, or be missing.
            configure.append("-DCMAKE_EXE_LINKER_FLAGS=-static-libstdc++ -static-libgcc")
        for command in (configure, [cmake, "--build", str(build)]):
            _build(command, example.parent, build)
        yield build / "check"


def _build(command: Sequence[str], export: Path, build: Path) -> None:
    """Runs a step of an example's build within limits of time and memory."""
    limited = ["sh", "-c", f'ulimit -v {_BUILD_KIB}; exec "$@"', "sh", *command]
    try:
        done = run_to_end(limited, timeout=_BUILD_TIMEOUT_S, bound=True)
    except subprocess.TimeoutExpired as error:
        raise AutotuneError(
            f"the example takes longer than {_BUILD_TIMEOUT_S:.0f} s to compile"
        ) from error
    if done.returncode == 0:
        return
    said = (done.stderr + done.stdout).decode(errors="replace").replace(f"{export}/", "").strip()
    check_disks(said, [build])
    LOGGER.info("the example does not compile:\n%s", said)
    if missing := _MISSING.search(said):
        line = next(line for line in said.splitlines() if missing[0] in line)
        raise ToolchainError(
            f"a tool is missing to compile the example: {line.strip()[:_LONGEST]}",
            hint="install it; " + ("opencl-headers has CL/cl.h" if "CL/" in line else _MORE),
        )
    lines = said.splitlines() or [f"{Path(command[0]).name} said nothing"]
    fault = next(filter(_FAULT.search, lines), lines[-1])
    raise AutotuneError(
        f"the example does not compile: {fault.strip()[:_LONGEST]}", hint=f"export again; {_MORE}"
    )


def _opencl_headers(build: Path) -> list[str]:
    """Returns CMake options for OpenCL's headers, which are the same on all machines, without other headers."""
    found = next((root / "CL" for root in _HEADERS if (root / "CL" / "cl.h").is_file()), None)
    if found is None:
        return []
    folder = build / "opencl_headers"
    folder.mkdir()
    (folder / "CL").symlink_to(found)
    return [f"-DOPENCL_HEADERS={folder}"]
