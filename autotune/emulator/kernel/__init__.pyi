from . import thermal
from .kernel import KernelFile, KernelTree, refused
from .memory_files import MemoryFiles
from .sensor_files import MeterState
from .sysfs import kernel_tree
from .tree import Tree

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
