"""The device server, which serves TVM's RPC on a phone or board. It is built here for the device's platform.

It is built from `rpc/server/`, in one of two ways. Either it is linked against the runtime of the TVM wheel for the
device, which is then copied beside it. Or TVM's runtime is compiled into it from the sources in the wheels, because
Android's libc cannot load the wheels' libraries. `autotune tracker up` copies it to the device; it can also be
copied by hand. See docs/device-server.md.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Literal

from autotune.compiler.native import native_build
from autotune.compiler.native.native_build import Log, NativePart, cache_root, package_folder
from autotune.compiler.native.platforms import Platform, for_platform, named_platform
from autotune.errors import ToolchainError, UsageError
from autotune.scratch import Scratch

__all__ = ["PROGRAM", "Runtime", "bundle"]

Runtime = Literal["wheel", "sources"]
PROGRAM = "autotune_server"
_SIDECAR = "libautotune_opencl.so"
_LIBRARIES = {
    "apache-tvm": "tvm/lib/libtvm_runtime.so",
    "apache-tvm-ffi": "tvm_ffi/lib/libtvm_ffi.so",
}
_WHEEL_PLATFORMS = tuple(f"manylinux_2_{n}_aarch64" for n in (17, 24, 27, 28, 31, 34))
_DOWNLOAD_TIMEOUT_S = 900.0
_NO_RUNNERS = (("AUTOTUNE_KERNEL_RUNNER", "OFF"), ("AUTOTUNE_STEP_RUNNER", "OFF"))
_SERVER = NativePart(
    name="server",
    target="autotune_server",
    artifact="server/autotune_server",
    sources=("CMakeLists.txt", "cmake", "common", "server"),
    definitions=(("AUTOTUNE_OPENCL", "OFF"), *_NO_RUNNERS),
)
_SERVER_FROM_SOURCES = NativePart(
    name="server",
    target="autotune_server",
    artifact="server/autotune_server",
    sources=(
        "CMakeLists.txt",
        "cmake",
        "common",
        "opencl",
        "opencl_loader",
        "runtime_shims",
        "server",
    ),
    definitions=(
        ("AUTOTUNE_RUNTIME", "sources"),
        ("AUTOTUNE_OPENCL", "OFF"),
        *_NO_RUNNERS,
    ),
)
_OPENCL = NativePart(
    name="sidecar",
    target="autotune_opencl",
    artifact=_SIDECAR,
    sources=("CMakeLists.txt", "cmake", "common", "opencl", "opencl_loader"),
    definitions=(("AUTOTUNE_SERVER", "OFF"), *_NO_RUNNERS),
)


def bundle(
    wanted: str,
    log: Log | None = None,
    *,
    wheels: Path | None = None,
    runtime: Runtime | None = None,
) -> Path:
    """Builds the server unless the cache has it.

    Args:
        wanted: A `Platform`.
        log: Receives one line before each slow step.
        wheels: Folder with the aarch64 wheels of apache-tvm and apache-tvm-ffi; None downloads them once.
        runtime: `wheel`: TVM's libraries and the OpenCL runtime are files beside the server. `sources`: one program
            contains TVM's runtime and OpenCL. None: `sources` for Android, where nothing else is possible, and
            `wheel` elsewhere. `sources` works on all platforms, so tests can run Android's variant on other
            machines.

    Returns:
        A folder with the server and the libraries that it needs.

    Raises:
        ToolchainError: A tool, a wheel or the NDK is missing; the hint says how to get it.
        UsageError: The platform is unknown, or does not have the runtime.
    """
    platform = named_platform(wanted)
    if wanted == "android-arm64" and runtime == "wheel":
        raise UsageError("TVM has no wheel for Android")
    if wanted == "android-arm64" or runtime == "sources":
        return _gathered(wanted, [native_build.ensure_built(_from_sources(platform, log), log)])
    libraries = _libraries(wanted, wheels, log)
    definitions = (
        ("TVM_LIBRARIES", str(libraries["apache-tvm"].parent)),
        ("TVM_FFI_LIBRARIES", str(libraries["apache-tvm-ffi"].parent)),
    )
    parts = [_SERVER, _OPENCL] if native_build.has_opencl_headers() else [_SERVER]
    built = [
        native_build.ensure_built(for_platform(part, platform, definitions), log) for part in parts
    ]
    return _gathered(wanted, [*built, *libraries.values()])


def _from_sources(wanted: Platform, log: Log | None) -> NativePart:
    """Returns the part for a server that contains everything."""
    opencl = native_build.has_opencl_headers()
    if not opencl and log is not None:
        log("the server gets no OpenCL: for that, `sudo apt install opencl-headers`")
    definitions = (("AUTOTUNE_SERVER_OPENCL", "ON" if opencl else "OFF"),)
    part = for_platform(_SERVER_FROM_SOURCES, wanted, definitions)
    return replace(part, variant=f"{part.variant}-{'sources' if opencl else 'sources-cpu'}")


def _gathered(wanted: str, files: list[Path]) -> Path:
    """Returns a folder with these files, named after their paths. It is made once."""
    key = hashlib.sha256("\0".join(map(str, files)).encode()).hexdigest()[:16]
    folder = cache_root() / "server" / f"bundle-{wanted}-{key}"
    if folder.is_dir():
        return folder
    with Scratch("gather", folder.parent) as made:
        content = made / "bundle"
        content.mkdir()
        for file in files:
            shutil.copy(file, content / file.name)
        try:
            content.rename(folder)
        except OSError:  # Another process was first.
            if not folder.is_dir():
                raise
    return folder


def _libraries(wanted: str, wheels: Path | None, log: Log | None) -> dict[str, Path]:
    """Returns TVM's runtime libraries for the platform, by package."""
    if wanted == "host":
        return {
            "apache-tvm": package_folder("tvm") / "lib" / "libtvm_runtime.so",
            "apache-tvm-ffi": package_folder("tvm_ffi") / "lib" / "libtvm_ffi.so",
        }
    folder = cache_root() / "server" / "libraries" / wanted
    found = {
        package: folder / metadata.version(package) / Path(member).name
        for package, member in _LIBRARIES.items()
    }
    for package, path in found.items():
        if path.is_file():
            continue
        with Scratch("wheels") as downloads:
            wheel = _wheel(package, wheels, downloads, log)
            _unpack(wheel, _LIBRARIES[package], path)
    return found


def _wheel(package: str, wheels: Path | None, downloads: Path, log: Log | None) -> Path:
    """Returns the aarch64 wheel of a package, in the version that is installed here."""
    version = metadata.version(package)
    pattern = f"{package.replace('-', '_')}-{version}-*aarch64.whl"
    if wheels is None:
        if log is not None:
            log(f"downloading {package} {version} for aarch64 (once)")
        _download(f"{package}=={version}", downloads)
    folder = wheels or downloads
    found = sorted(folder.glob(pattern))
    if not found:
        raise ToolchainError(
            f"there is no {pattern} in {folder}",
            hint=f"pip download --no-deps --only-binary=:all: --platform {_WHEEL_PLATFORMS[-3]} "
            f"{package}=={version}",
        )
    return found[0]


def _download(requirement: str, folder: Path) -> None:
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--only-binary=:all:", "--dest", str(folder)),
        *(word for name in _WHEEL_PLATFORMS for word in ("--platform", name)),
        requirement,
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise ToolchainError(
            f"downloading {requirement} took longer than {_DOWNLOAD_TIMEOUT_S:.0f} s"
        ) from late
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise ToolchainError(
            f"{requirement} for aarch64 cannot be downloaded: {reason}",
            hint="download the wheel elsewhere and give its folder with --wheels",
        )


def _unpack(wheel: Path, member: str, target: Path) -> None:
    """Extracts one file from a wheel, atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".part{id(target):x}")
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as source,
            part.open("wb") as file,
        ):
            shutil.copyfileobj(source, file)
    except (KeyError, zipfile.BadZipFile) as error:
        part.unlink(missing_ok=True)
        raise ToolchainError(f"{wheel} has no {member}: {error}") from error
    part.replace(target)
