"""This host's cores: how many processes build in parallel, and how many threads a kernel uses."""

from __future__ import annotations

import os

import psutil


def cores() -> int:
    """Returns the number of physical cores that this process may run on, at least 1."""
    physical = psutil.cpu_count(logical=False) or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else physical
    return max(1, min(physical, usable))


def runtime_environment(cores_of_cluster: int = 0) -> dict[str, str]:
    """Returns the environment of a process that runs kernels with TVM's runtime alone.

    Args:
        cores_of_cluster: Number of cores, if the process runs on some cores only; 0 for all cores.

    On some cores, the process has one thread per core. TVM must not bind these threads, because it counts cores
    from 0. On all cores, it has one thread per core unless the user has set `TVM_NUM_THREADS`. TVM's own default is
    half of an x86 machine's processors. It assumes hyper-threads even if there are none.
    """
    if cores_of_cluster:
        return {
            "TVM_USE_RUNTIME_LIB": "1",
            "TVM_NUM_THREADS": str(cores_of_cluster),
            "TVM_BIND_THREADS": "0",
        }
    threads = os.environ.get("TVM_NUM_THREADS", str(cores()))
    return {"TVM_USE_RUNTIME_LIB": "1", "TVM_NUM_THREADS": threads}


def kernel_threads() -> int:
    """Returns the number of threads that a kernel's parallel loops use on this host."""
    value = runtime_environment()["TVM_NUM_THREADS"]
    return int(value) if value.isdecimal() and int(value) else cores()
