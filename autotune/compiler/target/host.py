"""This host's cores: what builds in parallel, and what a kernel's threads may use."""

from __future__ import annotations

import os

import psutil


def cores() -> int:
    """Physical cores that this process may run on, at least 1."""
    physical = psutil.cpu_count(logical=False) or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else physical
    return max(1, min(physical, usable))


def runtime_environment(cores_of_cluster: int = 0) -> dict[str, str]:
    """Environment of a process that runs kernels with TVM's runtime alone.

    On some cores only it has a thread for each, which TVM may not bind: it counts cores from 0 on. On all, unless
    the user says otherwise, it has as many threads as there are cores: TVM by itself takes half of an x86
    machine's processors, for hyper-threads, also where there are none.
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
    """Threads that a kernel's parallel loops use on this host."""
    value = runtime_environment()["TVM_NUM_THREADS"]
    return int(value) if value.isdecimal() and int(value) else cores()
