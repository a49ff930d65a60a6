"""The whole file tree of an emulated kernel, from its live model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotune.emulator.kernel.cpu_files import cpu_files
from autotune.emulator.kernel.identity_files import identity_files
from autotune.emulator.kernel.kernel import KernelFile, KernelTree
from autotune.emulator.kernel.sensor_files import MeterState, sensor_files
from autotune.emulator.kernel.thermal import thermal_service_files
from autotune.emulator.model import Soc


def kernel_tree(
    soc: Soc,
    *,
    meters: MeterState | None = None,
    privileged: bool = True,
    writable: Callable[[], bool] = lambda: True,
    more: Mapping[str, KernelFile] | None = None,
) -> KernelTree:
    """Returns the files of `/sys`, `/proc` and `/etc` for a device of the model's profile.

    Args:
        soc: The live model.
        meters: Faults of its meters; None for no faults.
        privileged: Whether the caller is root; `KernelTree.as_user` gives the other view.
        writable: Called before each write; False refuses it with EACCES.
        more: Further files, by path.
    """
    files = dict(more or {})
    files |= cpu_files(soc) | sensor_files(soc, meters or MeterState()) | identity_files(soc)
    files |= thermal_service_files(soc)
    return KernelTree(files, privileged=privileged, writable=writable)
