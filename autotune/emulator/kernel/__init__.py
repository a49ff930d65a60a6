"""The files of an emulated kernel, answered by the model: cpufreq, sensors, identity."""

from autotune.emulator.kernel import thermal
from autotune.emulator.kernel.kernel import KernelFile, KernelTree, refused
from autotune.emulator.kernel.memory_files import MemoryFiles
from autotune.emulator.kernel.sensor_files import MeterState
from autotune.emulator.kernel.sysfs import kernel_tree
from autotune.emulator.kernel.tree import Tree

__all__ = [
    "kernel_tree",
    "KernelFile",
    "KernelTree",
    "MemoryFiles",
    "MeterState",
    "refused",
    "thermal",
    "Tree",
]
