"""Energy counter and memory of an NVIDIA board, read through NVML."""

from __future__ import annotations

import ctypes
import os
from typing import Any


class Memory(ctypes.Structure):
    """A board's memory in bytes. Memory that the driver reserves for processes counts as used."""

    total: int
    free: int
    used: int
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Board:
    """The first NVIDIA GPU that this process sees.

    Raises:
        OSError: There is no NVML, or no such GPU.
    """

    def __init__(self) -> None:
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        index = int(first) if first.isdigit() else 0
        self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self._device))

    def millijoules(self) -> int:
        """Returns the board's energy counter, which is updated several times a second."""
        found = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self._device, ctypes.byref(found))
        return found.value

    def memory(self) -> Memory:
        """Returns the memory that all processes use now."""
        found = Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._device, ctypes.byref(found))
        return found

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._nvml, name)(*arguments):
            raise OSError(f"NVML: {name} failed: {code}")
