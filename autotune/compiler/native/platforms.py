"""The platforms that the C++ programs of `rpc/` are built for."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from autotune.compiler.native.native_build import NativePart
from autotune.errors import ToolchainError, UsageError, choices

Platform = Literal["host", "linux-aarch64", "android-arm64"]
PLATFORMS: tuple[Platform, ...] = get_args(Platform)

_NDK_VARIABLES = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT")
_NDK_TOOLCHAIN = "build/cmake/android.toolchain.cmake"
_OLDEST_NDK = 22  # Older ones have no std::filesystem.
_ANDROID_DEFINITIONS = (
    ("ANDROID_ABI", "arm64-v8a"),
    ("ANDROID_PLATFORM", "android-24"),
    ("ANDROID_STL", "c++_static"),
)


def named_platform(name: str) -> Platform:
    """Returns a platform by its name.

    Raises:
        UsageError: The name is unknown.
    """
    for known in PLATFORMS:
        if known == name:
            return known
    raise UsageError(f"nothing is built for '{name}'", hint=choices(name, PLATFORMS))


def platform_of(abi: str, *, android: bool) -> Platform:
    """Returns the platform of a device with this ABI.

    Raises:
        ToolchainError: Nothing can be built for it.
    """
    arm = abi in ("aarch64", "arm64", "arm64-v8a")
    if android and arm:
        return "android-arm64"
    if arm and platform.machine() not in ("aarch64", "arm64"):
        return "linux-aarch64"
    if not android and abi == platform.machine():
        return "host"
    raise ToolchainError(
        f"no programs can be built for {abi}{' on Android' if android else ''}",
        hint="64-bit ARM Linux and Android, and this machine's own kind, are known",
    )


def for_platform(
    part: NativePart, wanted: Platform, definitions: tuple[tuple[str, str], ...] = ()
) -> NativePart:
    """Returns a part with the settings to build it for a platform.

    Raises:
        ToolchainError: The NDK is missing, or too old.
    """
    part = replace(part, definitions=part.definitions + definitions, variant=wanted)
    if wanted == "host":
        return part
    if wanted == "linux-aarch64":
        return replace(
            part,
            toolchain="cmake/aarch64-linux-gnu.cmake",
            compilers=("aarch64-linux-gnu-g++",),
            compiler_package="g++-aarch64-linux-gnu",
        )
    ndk = _android_ndk()
    return replace(
        part,
        definitions=part.definitions + _ANDROID_DEFINITIONS,
        toolchain=str(ndk / _NDK_TOOLCHAIN),
        compilers=(),
        variant=f"{wanted}-ndk{_ndk_revision(ndk)}",
    )


def _android_ndk() -> Path:
    """Returns the user's NDK.

    Raises:
        ToolchainError: No variable is set, or its folder is not an NDK, or the NDK is too old.
    """
    variable = next((name for name in _NDK_VARIABLES if os.environ.get(name)), None)
    if variable is None:
        raise ToolchainError(
            f"programs for Android need the Android NDK, and neither {' nor '.join(_NDK_VARIABLES)} is set",
            hint="get it with `sdkmanager --install 'ndk;27.2.12479018'` or from "
            "https://developer.android.com/ndk/downloads, and set ANDROID_NDK_HOME to its folder",
        )
    folder = Path(os.environ[variable]).expanduser().absolute()
    if not (folder / _NDK_TOOLCHAIN).is_file():
        raise ToolchainError(
            f"{variable} is {folder}, which has no {_NDK_TOOLCHAIN}",
            hint="set it to the NDK's own folder, such as ~/Android/Sdk/ndk/27.2.12479018",
        )
    revision = _ndk_revision(folder)
    if not revision:
        raise ToolchainError(
            f"{variable} is {folder}, whose source.properties names no revision",
            hint="set it to the NDK's own folder, such as ~/Android/Sdk/ndk/27.2.12479018",
        )
    if int(revision.split(".")[0]) < _OLDEST_NDK:
        raise ToolchainError(
            f"the NDK in {folder} is {revision}, but the build needs r{_OLDEST_NDK} or newer",
            hint="get a newer one with `sdkmanager --install 'ndk;27.2.12479018'`",
        )
    return folder


def _ndk_revision(folder: Path) -> str:
    """Returns the revision, such as `27.2.12479018`; empty if the folder does not state it."""
    try:
        properties = (folder / "source.properties").read_text(errors="replace")
    except OSError:
        return ""
    found = re.search(r"^Pkg\.Revision\s*=\s*(\d+(?:\.\d+)*)", properties, re.MULTILINE)
    return found.group(1) if found else ""
