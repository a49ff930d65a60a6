"""Oclgrind: OpenCL on the processor that checks each access (Price and McIntosh-Smith, IWOCL 2015)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forks import forked

ICD = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
TIMEOUT_S = 120.0


def variables(folder: Path, *, images: bool = False) -> dict[str, str]:
    """The environment of a process whose OpenCL is Oclgrind's, with a log in the folder.

    It loses sight of where the values of images come from, so whether somebody wrote them is not asked of those.
    """
    vendors = folder / "vendors"
    vendors.mkdir(exist_ok=True)
    (vendors / "oclgrind.icd").write_text(f"{ICD}\n", encoding="utf-8")
    return {
        "OCL_ICD_VENDORS": str(vendors),
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_UNINITIALIZED": "0" if images else "1",
        # The kernel as it is written: an optimiser may read ahead where the device allows it.
        "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
        "OCLGRIND_LOG": str(_log(folder)),
    }


def said(folder: Path) -> str:
    """What Oclgrind has to say of the kernels that ran with `variables` of this folder."""
    log = _log(folder)
    return log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""


def measured(request: dict[str, Any], folder: Path, *, images: bool = False) -> dict[str, Any]:
    """The answer of a run worker to a request, with Oclgrind's device.

    In a process for each kernel, since Oclgrind takes memory that another one left for memory that nobody wrote.
    """
    environment = variables(folder, images=images)
    try:
        answer: dict[str, Any] = forked(
            _measure, request, environment=environment, timeout_s=TIMEOUT_S
        )
    except EOFError as error:
        return {"error": str(error)}
    return answer


def _log(folder: Path) -> Path:
    return folder / "oclgrind.log"


def _measure(request: dict[str, Any]) -> dict[str, Any]:
    import tvm

    from autotune.compiler.native import opencl_sidecar
    from autotune.compiler.runners.run_worker import KernelTimer

    opencl_sidecar.load()
    return KernelTimer(tvm.device("opencl", 0)).carry_out(request)
