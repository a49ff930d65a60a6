"""Checks of compilers, emulators and Android's tools."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from autotune.doctor import child
from autotune.doctor.check import Check, absent, install_packages
from autotune.scratch import Scratch

VERSION_TIMEOUT_S = 20.0
COMPILE_TIMEOUT_S = 60.0
NDK_VARIABLES = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT")
_ARM_WORK = "tuning for arm-cpu without a device"
_PHONE_WORK = "Android phones"
_SAMPLE = """#include <string>
extern "C" unsigned long size() { return std::string(3, 'x').size(); }
"""


def cxx_compiler() -> Check:
    """Checks that the C++ compiler compiles and links a shared library."""
    chosen = os.environ.get("CXX", "")
    names = (chosen,) if chosen else ("c++", "g++", "clang++")
    purpose = "linking kernels, building the OpenCL runtime"
    return _compiler("C++ compiler", names, purpose, "g++", required=True)


def arm_compiler() -> Check:
    """Checks that the cross compiler for aarch64 compiles and links a shared library."""
    names = ("aarch64-linux-gnu-g++",)
    return _compiler("aarch64 compiler", names, _ARM_WORK, "g++-aarch64-linux-gnu", required=False)


def linker() -> Check:
    """Checks for `ld`. It links TVM's kernels, and PoCL aborts the process without it."""
    purpose = "linking kernels; OpenCL on the CPU aborts without it"
    return _tool("linker ld", ("ld",), purpose, "binutils", required=True)


def cmake() -> Check:
    """Checks for CMake."""
    return _tool("cmake", ("cmake",), "building the OpenCL runtime", "cmake")


def qemu() -> Check:
    """Checks for the user-mode emulator of aarch64."""
    names = ("qemu-aarch64-static", "qemu-aarch64")
    return _tool("qemu for aarch64", names, _ARM_WORK, "qemu-user-static")


def adb() -> Check:
    """Checks for the Android debug bridge, without starting its server."""
    return _tool("adb", ("adb",), _PHONE_WORK, "adb", version_argument="version")


def android_ndk() -> Check:
    """Checks for the Android NDK in the place given by the usual variables."""
    name, purpose = "Android NDK", "building the device server for phones"
    fix = f"unpack the Android NDK and set it: export {NDK_VARIABLES[0]}=FOLDER"
    variable = next((name for name in NDK_VARIABLES if os.environ.get(name)), None)
    if variable is None:
        return absent(name, f"{' and '.join(NDK_VARIABLES)} are not set", purpose, fix)
    folder = Path(os.environ[variable])
    try:
        lines = (folder / "source.properties").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        found = f"{variable}={folder} has no source.properties"
        return Check(name, "broken", found, purpose, fix)
    properties = {key.strip(): value.strip() for key, _, value in (x.partition("=") for x in lines)}
    revision = properties.get("Pkg.Revision", "unknown")
    return Check(name, "ok", f"revision {revision} in {folder}", purpose)


def _compiler(
    name: str, names: tuple[str, ...], purpose: str, package: str, *, required: bool
) -> Check:
    found = _tool(name, names, purpose, package, required=required)
    if found.status != "ok":
        return found
    with Scratch("doctor") as folder:
        source = folder / "sample.cc"
        source.write_text(_SAMPLE, encoding="utf-8")
        path = next(path for path in map(shutil.which, names) if path)
        argv = [path, "-shared", "-fPIC", "-o", f"{folder}/sample.so", str(source)]
        ended = child.run(argv, timeout=COMPILE_TIMEOUT_S)
    if ended.works:
        return found
    fix = install_packages(package)
    why = f"{path} does not link a shared library: {ended.reason}"
    return Check(name, "broken", why, purpose, fix, required)


def _tool(
    name: str,
    programs: tuple[str, ...],
    purpose: str,
    package: str,
    *,
    version_argument: str = "--version",
    required: bool = False,
) -> Check:
    fix = install_packages(package)
    path = next((path for path in map(shutil.which, programs) if path), None)
    if path is None:
        found = f"{' or '.join(programs)} is not on the PATH"
        return absent(name, found, purpose, fix, required=required)
    ended = child.run([path, version_argument], timeout=VERSION_TIMEOUT_S)
    if not ended.works:
        found = f"{path} {version_argument}: {ended.reason}"
        return Check(name, "broken", found, purpose, fix, required)
    first = next(iter(ended.output.strip().splitlines()), "")
    return Check(name, "ok", f"{path}: {first}" if first else path, purpose, required=required)
