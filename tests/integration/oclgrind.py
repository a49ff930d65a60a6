"""Oclgrind: OpenCL on the processor that checks each access (Price and McIntosh-Smith, IWOCL 2015)."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ICD = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
TIMEOUT_S = 120.0

# A process for each kernel, since Oclgrind takes memory that another one left for memory that nobody wrote; all of
# them from one that has imported TVM.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    ["tvm", "autotune.compiler.native.opencl_sidecar", "autotune.compiler.runners.run_worker"]
)


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
    """The answer of a run worker to a request, with Oclgrind's device."""
    receiver, sender = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(
        target=_measure, args=(sender, request, variables(folder, images=images))
    )
    process.start()
    sender.close()
    try:
        if not receiver.poll(TIMEOUT_S):
            raise TimeoutError(f"no answer within {TIMEOUT_S:g} s")
        answer: dict[str, Any] = receiver.recv()
        return answer
    except EOFError:
        process.join()
        return {"error": f"the process ended with {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def _log(folder: Path) -> Path:
    return folder / "oclgrind.log"


def _measure(
    sender: Connection[Any, Any], request: dict[str, Any], environment: Mapping[str, str]
) -> None:
    os.environ.update(environment)
    import tvm

    from autotune.compiler.native import opencl_sidecar
    from autotune.compiler.runners.run_worker import KernelTimer

    opencl_sidecar.load()
    sender.send(KernelTimer(tvm.device("opencl", 0)).carry_out(request))
