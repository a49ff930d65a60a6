"""Runs programs of this host within limits of time and of output.

A program may print without end: an export's example, a candidate, a user's code, a device's shell. What it prints
is kept in memory, so it is stopped at a limit.
"""

from __future__ import annotations

import os
import select
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from autotune.errors import AutotuneError

MOST_OUTPUT_BYTES = 16 << 20
"""Bytes that a program may write to stdout and stderr together."""
_CHUNK_BYTES = 1 << 16
_TAIL_WAIT_S = 1.0


class TooMuchOutput(AutotuneError):  # noqa: N818  # what happened, as KeyboardInterrupt is
    """A program wrote more than it may, and was stopped.

    Args:
        who: The program.
        most_bytes: Bytes that it may write.
    """

    def __init__(self, who: str, most_bytes: int) -> None:
        super().__init__(
            f"{who} wrote more than {most_bytes >> 20} MiB of output and was stopped",
            hint="make it print less",
        )


def _bound(command: Sequence[str | Path]) -> list[str | Path]:
    """Returns a command whose process is killed when this one ends; the same command without `setpriv`."""
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []), *command]


def run_to_end(
    command: Sequence[str | Path],
    *,
    timeout: float,
    stdin: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    most_bytes: int = MOST_OUTPUT_BYTES,
    bound: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Runs a program until it ends. At a limit, or if this process is interrupted, its process group is killed.

    Args:
        command: The program and its arguments.
        timeout: Limit in seconds.
        stdin: Its input; None for nothing.
        environment: Its variables; None for those of this process.
        most_bytes: Bytes that it may write to stdout and stderr together.
        bound: Whether its process is killed when this one ends, even if by SIGKILL. That needs `setpriv` of
            util-linux, and has no effect without it.

    Raises:
        subprocess.TimeoutExpired: The time was over.
        TooMuchOutput: It wrote more than it may.
        OSError: It cannot be started.
    """
    with subprocess.Popen(
        _bound(command) if bound else command,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + timeout
        try:
            stdout, stderr = _exchanged(
                process, Path(command[0]).name, stdin or b"", deadline, most_bytes
            )
            process.wait(max(0.0, deadline - time.monotonic()))
        except BaseException as error:
            # Also at Ctrl-C: the child has its own session and would not receive the signal.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise subprocess.TimeoutExpired(command, timeout) from None
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _exchanged(
    process: subprocess.Popen[bytes], who: str, stdin: bytes, deadline: float, most_bytes: int
) -> tuple[bytes, bytes]:
    """Writes a program's input, and returns what it wrote when it has closed both outputs."""
    got = {process.stdout: bytearray(), process.stderr: bytearray()}
    left = memoryview(stdin)
    with selectors.DefaultSelector() as pipes:
        for pipe in filter(None, got):
            pipes.register(pipe, selectors.EVENT_READ)
        if process.stdin is not None:
            pipes.register(process.stdin, selectors.EVENT_WRITE)
        while pipes.get_map():
            wait = deadline - time.monotonic()
            if wait <= 0:
                raise subprocess.TimeoutExpired(process.args, 0)
            for key, _ in pipes.select(wait):
                if key.fileobj is process.stdin:
                    with suppress(BrokenPipeError):
                        left = left[os.write(key.fd, left[: select.PIPE_BUF]) :]
                        if left:
                            continue
                    pipes.unregister(key.fileobj)
                    with suppress(BrokenPipeError):
                        process.stdin.close()
                    continue
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if not chunk:
                    pipes.unregister(key.fileobj)
                next(text for pipe, text in got.items() if pipe is key.fileobj).extend(chunk)
                if sum(map(len, got.values())) > most_bytes:
                    raise TooMuchOutput(who, most_bytes)
    return bytes(got[process.stdout]), bytes(got[process.stderr])


class LastWords:
    """Reads what a long-lived program writes, and keeps the end of it.

    Args:
        output: The reading end of its output; closed at its end.
        most_bytes: Bytes to keep.
    """

    def __init__(self, output: IO[bytes], most_bytes: int) -> None:
        self._output, self._most = output, most_bytes
        self._kept = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def text(self) -> str:
        """Returns the end of the output of a program that has ended."""
        self._reader.join(_TAIL_WAIT_S)  # A child of its own may still hold its output.
        return self._kept.decode(errors="replace").strip()

    def _read(self) -> None:
        with self._output:
            while chunk := os.read(self._output.fileno(), _CHUNK_BYTES):
                self._kept = (self._kept + chunk)[-self._most :]
