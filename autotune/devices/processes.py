"""Runs commands of this host with a hard limit. At the limit, the whole process group is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from autotune.devices.device import Completed
from autotune.errors import TransientDeviceError

_KILL_GRACE_S = 2.0


def run_limited(
    command: Sequence[str],
    argv: Sequence[str],
    *,
    who: str,
    timeout: float,
    stdin: bytes | None = None,
) -> Completed:
    """Runs a command of this host.

    Args:
        command: The command to run here.
        argv: The command to name in the result.
        who: The device, for messages.
        timeout: Limit in seconds.
        stdin: The command's input; None for nothing.

    Raises:
        TransientDeviceError: The time was over; the process and its children were killed.
        OSError: The command could not be started.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout)
        except BaseException as error:
            # Also at Ctrl-C: the child has its own session and would not receive the signal.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=_KILL_GRACE_S)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TransientDeviceError(
                    f"{who}: `{argv[0]}` did not end within {timeout:g} s and was killed"
                ) from None
            raise
    code = process.returncode
    return Completed(tuple(argv), code if code >= 0 else 128 - code, stdout, stderr)
