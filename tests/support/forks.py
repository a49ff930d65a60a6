"""Forks processes from one that has imported TVM and the OpenCL runtime. It has opened no device."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    ["tvm", "autotune.compiler.native.opencl_sidecar", "autotune.compiler.runners.run_worker"]
)


def forked(
    work: Callable[..., Any],
    *arguments: Any,
    environment: Mapping[str, str | None],
    timeout_s: float = 120.0,
) -> Any:
    """What a function returns in a process of its own.

    Args:
        work: A function of a module.
        arguments: What it is called with.
        environment: Variables that are set before, or taken away.
        timeout_s: Seconds that it may take.

    Raises:
        TimeoutError: It took longer.
        EOFError: The process ended without an answer.
    """
    receiver, sender = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_answer, args=(sender, work, arguments, dict(environment)))
    process.start()
    sender.close()
    try:
        if not receiver.poll(timeout_s):
            raise TimeoutError(f"no answer within {timeout_s:g} s")
        return receiver.recv()
    except EOFError:
        process.join()
        raise EOFError(f"the process ended with {process.exitcode}") from None
    finally:
        process.kill()
        process.join()


def _answer(
    sender: Connection[Any, Any],
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    environment: Mapping[str, str | None],
) -> None:
    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    sender.send(work(*arguments))
