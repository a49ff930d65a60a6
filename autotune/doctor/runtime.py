"""Checks of the programs that run kernels: TVM itself, and OpenCL."""

from __future__ import annotations

import json
from typing import Any

from autotune.doctor import child
from autotune.doctor.check import Check, absent, install_packages, run_python
from autotune.doctor.packages import pinned
from autotune.errors import AutotuneError, pip_install
from autotune.scratch import Scratch

SELF_CHECK = "autotune.compiler.runners.self_check"
TVM_TIMEOUT_S = 180.0
OPENCL_TIMEOUT_S = 60.0
_GPU_WORK = "tuning for adreno, mali and opencl"
_TVM_PACKAGES = ("apache-tvm", "apache-tvm-ffi")
_OPENCL_PACKAGES = ("ocl-icd-libopencl1", "pocl-opencl-icd")
_BUILD_SIDECAR = "from autotune.compiler.native import opencl_sidecar as s; s.ensure(print)"


def tvm(program: str = SELF_CHECK) -> Check:
    """Checks in a child process that TVM compiles, schedules and runs.

    Args:
        program: The module that tries it out.
    """
    name, purpose = "TVM self-check", "everything"
    ended = child.run_module(program, "tvm", timeout=TVM_TIMEOUT_S)
    if ended.works:
        answer = _last_json(ended.output)
        found = f"{answer['version']}, compiles for {answer['cpu'] or 'this processor'} and runs"
        return Check(name, "ok", found, purpose, required=True)
    found = ended.reason
    if ended.signal:
        found += ": its packages do not fit together"
    fix = pip_install(*pinned(_TVM_PACKAGES), options="--force-reinstall --no-deps")
    return Check(name, "broken", found, purpose, fix, required=True)


def opencl_library() -> Check:
    """Checks that an OpenCL library can be loaded."""
    name = "OpenCL library"
    fix = install_packages(*_OPENCL_PACKAGES)
    ended = child.run_module("autotune.doctor.opencl_library", timeout=OPENCL_TIMEOUT_S)
    if not ended.works:
        return Check(name, "broken", ended.reason, _GPU_WORK, fix)
    library = _last_json(ended.output)
    if library is None:
        return absent(name, "no library can be loaded", _GPU_WORK, fix)
    return Check(name, "ok", library, _GPU_WORK)


def opencl_sidecar() -> Check:
    """Checks that the OpenCL runtime for TVM has been built for the installed TVM and these sources."""
    name, fix = "OpenCL runtime for TVM", run_python(_BUILD_SIDECAR)
    try:
        from autotune.compiler.native import library_path

        path = library_path()
    except (AutotuneError, ImportError, OSError) as error:
        return Check(name, "broken", str(error), _GPU_WORK, fix)
    if not path.is_file():
        return absent(name, "not built yet; the first run builds it", _GPU_WORK, fix)
    return Check(name, "ok", str(path), _GPU_WORK)


def opencl_devices(library: Check, sidecar: Check, linker: Check) -> Check:
    """Checks in a child process that there are OpenCL devices, and that the first one runs a kernel.

    Args:
        library: The check of the OpenCL library, without which there is no device.
        sidecar: The check of the OpenCL runtime, which lists devices.
        linker: The check of `ld`, without which PoCL aborts the process.
    """
    name = "OpenCL devices"
    for needed in (library, sidecar):
        if needed.status != "ok":
            found = f"unknown: {needed.name} is not there"
            return absent(name, found, _GPU_WORK, needed.fix)
    with Scratch("doctor") as empty:  # To make PoCL compile.
        ended = child.run_module(
            SELF_CHECK,
            "opencl",
            timeout=OPENCL_TIMEOUT_S,
            variables={"POCL_CACHE_DIR": str(empty)},
        )
    if not ended.works:
        aborted_pocl = ended.signal == "SIGABRT" and linker.status != "ok"
        fix = linker.fix if aborted_pocl else install_packages(*_OPENCL_PACKAGES)
        found = f"{ended.reason}, as PoCL does without ld" if aborted_pocl else ended.reason
        if ended.last_words:
            found += f": {ended.last_words}"
        return Check(name, "broken", found, _GPU_WORK, fix)
    answer = _last_json(ended.output)
    if isinstance(answer, dict):
        fix = answer["hint"] or install_packages(*_OPENCL_PACKAGES)
        return absent(name, answer["error"], _GPU_WORK, fix)
    found = "; ".join(
        f"{device['name']} ({device['type']}, {device['platform']}, driver {device['driver']})"
        for device in answer
    )
    return Check(name, "ok", found, _GPU_WORK)


def _last_json(output: str) -> Any:
    """Returns the last line as JSON, because a driver may write to stdout before it."""
    return json.loads(output.strip().splitlines()[-1])
