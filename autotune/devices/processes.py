"""Runs commands of this host as the commands of a device, with hard limits."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from autotune.children import TooMuchOutput, run_to_end
from autotune.devices.device import MOST_ANSWER_BYTES, Completed
from autotune.errors import StableDeviceError, TransientDeviceError


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
        StableDeviceError: It wrote too much, and was killed likewise.
        OSError: The command could not be started.
    """
    try:
        done = run_to_end(command, timeout=timeout, stdin=stdin, most_bytes=MOST_ANSWER_BYTES)
    except subprocess.TimeoutExpired:
        raise TransientDeviceError(
            f"{who}: `{argv[0]}` did not end within {timeout:g} s and was killed"
        ) from None
    except TooMuchOutput:
        raise StableDeviceError(
            f"{who}: `{argv[0]}` wrote more than {MOST_ANSWER_BYTES >> 20} MiB and was killed"
        ) from None
    code = done.returncode
    return Completed(tuple(argv), code if code >= 0 else 128 - code, done.stdout, done.stderr)
