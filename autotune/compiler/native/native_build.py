"""Builds the C++ parts of the project on the user's machine, and keeps the results in a cache.

The wheel of autotune is pure Python, and the wheel of TVM has no stable binary interface. So the C++ code in `rpc/`
is compiled at first use, against the headers of the installed TVM. The cache key covers everything that the result
depends on: the versions of TVM and its FFI, the machine and the sources. Several processes may request the same
result at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from autotune.compiler.native.disk_space import check_disks
from autotune.errors import ToolchainError, pip_install
from autotune.scratch import Scratch
from autotune.waits import waiting

Log = Callable[[str], None]

_TVM = "apache-tvm"
_TVM_FFI = "apache-tvm-ffi"
_BUILD_TIMEOUT_S = 900.0
_COUNTED = re.compile(r"^\[(?:(\d+)/([1-9]\d*)| *(\d+)%)\]", re.MULTILINE)
_INCLUDE_FOLDERS = ("/usr/include", "/usr/local/include")


@dataclass(frozen=True)
class NativePart:
    """A part of `rpc/` that can be built.

    Attributes:
        name: Its folder in the cache.
        target: CMake target; nothing else is built.
        artifact: Path of the result, relative to the build folder.
        sources: Files and folders below `rpc/` that the result depends on.
        definitions: CMake definitions, such as `("AUTOTUNE_OPENCL", "OFF")`.
        toolchain: Toolchain file for a cross build, relative to `rpc/` or absolute; empty for this machine.
        compilers: Names of C++ compilers, one of which must be on the path; empty if the toolchain includes one.
        compiler_package: Debian package of the compiler.
        variant: Distinguishes builds of one part, such as its target triple.
    """

    name: str
    target: str
    artifact: str
    sources: tuple[str, ...]
    definitions: tuple[tuple[str, str], ...] = ()
    toolchain: str = ""
    compilers: tuple[str, ...] = ("c++", "g++", "clang++")
    compiler_package: str = "g++"
    variant: str = ""


def rpc_sources() -> Path:
    """Returns the folder of the C++ sources: in the installed wheel, or in the checkout."""
    package = Path(__file__).resolve().parents[2]
    installed = package / "_rpc"
    # The wheel's copy first: next to an installed package, `../rpc` may be something else.
    return installed if installed.is_dir() else package.parent / "rpc"


def cache_root() -> Path:
    """Returns `$XDG_CACHE_HOME/autotune`, or `~/.cache/autotune`."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says to ignore a relative path.
    base = Path(chosen) if chosen.startswith("/") else Path.home() / ".cache"
    return base / "autotune"


def artifact_path(part: NativePart) -> Path:
    """Returns the path of the result for the installed TVM and the present sources, even if it is not built yet.

    Raises:
        ToolchainError: TVM is not installed, or the sources are missing.
    """
    versions = f"tvm{_version(_TVM)}-ffi{_version(_TVM_FFI)}"
    variant = f"-{part.variant}" if part.variant else ""
    key = f"{versions}-{platform.machine()}{variant}-{_digest(part)}"
    return cache_root() / part.name / key / Path(part.artifact).name


def ensure_built(part: NativePart, log: Log | None = None) -> Path:
    """Builds the part unless the cache has it.

    Args:
        part: What to build.
        log: Receives one line before each slow step.

    Returns:
        The path of the result.

    Raises:
        ToolchainError: A tool or a header is missing (the hint says how to install it), or the sources do not
            compile.
        RecordError: A disk is full.
    """
    path = artifact_path(part)
    if path.is_file():
        return path
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        # Others may build the same part for another machine meanwhile.
        with _locked(path.parent.parent / f"{path.parent.name}.lock"):
            if not path.is_file():  # Another process may have built it while this one waited.
                _build(part, path, log or (lambda _line: None))
    except OSError as error:
        raise ToolchainError(
            f"cannot build {part.target} in {path.parent.parent}: {error}",
            hint="check the disk, or choose another cache with XDG_CACHE_HOME",
        ) from error
    return path


def require_tool(names: tuple[str, ...], package: str, purpose: str) -> str:
    """Returns the path of the first tool that is installed.

    Raises:
        ToolchainError: None is installed.
    """
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return found
    raise ToolchainError(
        f"{' or '.join(names)} is not installed, but {purpose}",
        hint=f"sudo apt install {package}",
    )


def has_opencl_headers() -> bool:
    """Returns whether the OpenCL headers are in the compilers' include folders."""
    return any((Path(root) / "CL" / "cl.h").is_file() for root in _INCLUDE_FOLDERS)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise ToolchainError(
            f"the Python package {package} is not installed", hint=pip_install(package)
        ) from error


def _digest(part: NativePart) -> str:
    root = rpc_sources()
    digest = hashlib.sha256()
    for entry in part.sources:
        path = root / entry
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_dir():
                continue
            try:
                content = file.read_bytes()
            except OSError as error:
                raise ToolchainError(
                    f"the C++ sources of autotune are incomplete: {error}",
                    hint="reinstall autotune",
                ) from error
            digest.update(f"{file.relative_to(root)}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # The lock ends with the process, so a killed build does not block the next one.
    with path.open("w") as file:
        with waiting("another process to compile the same"):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def package_folder(module: str) -> Path:
    """Returns the folder of an installed Python package, without importing it.

    Raises:
        ToolchainError: The package is not installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ToolchainError(f"the Python package {module} is not installed")
    return Path(spec.origin).parent


def build_in(part: NativePart, build: Path) -> None:
    """Builds a part in a folder, and keeps nothing elsewhere.

    Raises:
        ToolchainError: A tool or a header is missing, or the sources do not compile.
    """
    purpose = f"{part.target} has to be compiled"
    cmake = require_tool(("cmake",), "cmake", purpose)
    chosen = os.environ.get("CXX", "") if not part.toolchain else ""
    compilers = (chosen,) if chosen else part.compilers
    if compilers:
        require_tool(compilers, part.compiler_package, purpose)
    ninja = shutil.which("ninja") or shutil.which("ninja-build")
    if ninja is None:
        require_tool(("make", "gmake"), "ninja-build", purpose)
    configure = [
        cmake,
        *("-S", str(rpc_sources()), "-B", str(build)),
        *("-G", "Ninja" if ninja else "Unix Makefiles"),
        f"-DTVM_ROOT={package_folder('tvm')}",
        f"-DTVM_FFI_ROOT={package_folder('tvm_ffi')}",
        *(f"-D{name}={value}" for name, value in part.definitions),
    ]
    if part.toolchain:
        configure.append(f"-DCMAKE_TOOLCHAIN_FILE={rpc_sources() / part.toolchain}")
    jobs = str(len(os.sched_getaffinity(0)))
    compiling = [cmake, "--build", str(build), "--target", part.target, "--parallel", jobs]
    build.mkdir(parents=True, exist_ok=True)
    output = build / "output.txt"
    with waiting(f"compiling {part.target} (usually under a minute)", lambda: _share_built(output)):
        _run(configure, part, build, output)
        _run(compiling, part, build, output)


def _share_built(output: Path) -> float | None:
    """Returns a build's progress by its last such line, `[3/10]` (Ninja) or `[ 30%]` (Make); None without one."""
    try:
        found = _COUNTED.findall(output.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    if not found:
        return None
    done, of, share = found[-1]
    # The counter is of steps that have begun, and the last step takes time.
    return min(float(share) / 100 if share else (int(done) - 1) / int(of), 0.99)


def _build(part: NativePart, path: Path, log: Log) -> None:
    # Build in the cache itself, so that the last step is a rename within one file system.
    with Scratch("build", path.parent.parent) as build:
        log(f"compiling {part.target} (once for this version of TVM)")
        build_in(part, build)
        path.parent.mkdir(exist_ok=True)
        (build / part.artifact).replace(path)
    log(f"compiled {path}")


def _run(command: list[str], part: NativePart, build: Path, output: Path) -> None:
    try:
        with output.open("wb") as file:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=_BUILD_TIMEOUT_S,
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(
            f"compiling {part.target} took longer than {_BUILD_TIMEOUT_S:.0f} s"
        ) from error
    if done.returncode == 0:
        return
    said = output.read_text(encoding="utf-8", errors="replace")
    if "install opencl-headers" in said:  # Text from CMakeLists.txt.
        raise ToolchainError(
            f"the OpenCL headers (CL/cl.h) are not installed, but {part.target} has to be compiled",
            hint="sudo apt install opencl-headers",
        )
    check_disks(said, [build])
    tail = "\n".join(said.strip().splitlines()[-30:])
    raise ToolchainError(f"{part.target} does not compile:\n{tail}")
