"""A meter that another program reads. Its lines come from a file, a FIFO or a TCP port of any host.

A line is `seconds,watts`, or only `watts`. A first line may name columns. The host reads the lines while the device
works, and records when each arrived.
"""

from __future__ import annotations

import logging
import math
import os
import re
import select
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from autotune.errors import UsageError
from autotune.power.stamps import Arrived, segments, unit_of

LOGGER = logging.getLogger("autotune.power")

PREFIX = "csv:"
"""Prefix of such a meter on the command line: `csv:SOURCE`."""
COLUMNS = {
    "seconds": (
        ("seconds", 1.0),
        ("time", 1.0),
        ("time_s", 1.0),
        ("milliseconds", 1e-3),
        ("microseconds", 1e-6),
    ),
    "watts": (("watts", 1.0), ("power_w", 1.0), ("milliwatts", 1e-3), ("microwatts", 1e-6)),
    "volts": (("volts", 1.0), ("millivolts", 1e-3)),
    "amperes": (("amperes", 1.0), ("amps", 1.0), ("milliamperes", 1e-3), ("milliamps", 1e-3)),
}
"""Names that a first line may give to columns, and their units. Other columns are ignored."""
_FIRST_READING_S = 10.0
_PAUSE_S = 0.01
_AGAIN_S = 2.0
_CONNECT_S = 5.0
_LATE_S = 2.0
"""How long to wait for a line about the window's end."""
_KEPT_S = 120.0
"""How long lines before a window are kept, to align their stamps with the host's clock."""
_LONGEST_LINE = 4096
_SHOWN = 60


@dataclass(frozen=True)
class Taken:
    """Lines that belong to a window.

    Attributes:
        readings: Time of each on the host's monotonic clock, watts, the line itself.
        errors: When a line arrived that is not a reading, or the source ended, with a message.
        deviation_s: Possible common error of the readings' times, since the meter's clock is not the host's.
    """

    readings: tuple[tuple[float, str, str], ...]
    errors: tuple[tuple[float, str], ...]
    deviation_s: float = 0.0


class _UnknownColumnsError(ValueError):
    """A first line names no known columns, so the following lines could be in any unit."""


_UNNAMED = {1: {"watts": (0, 1.0)}, 2: {"seconds": (0, 1.0), "watts": (1, 1.0)}}


class Columns:
    """The meaning of a line's fields. A first line may name them."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[int, float]] = {}
        self._first = True

    def read(self, line: str) -> tuple[float | None, float] | None:
        """Returns the stamp (None without one) and the watts of a line; None for a line that names columns.

        Raises:
            ValueError: The line is neither.
        """
        fields = [field.strip().strip('"') for field in line.split(",")]
        first, self._first = self._first, False
        named = _named(fields)
        if "watts" in named or {"volts", "amperes"} <= set(named):
            self._at = named
            return None
        if first and not any(_is_number(field) for field in fields):
            raise _UnknownColumnsError(f"its first line is '{line[:_SHOWN]}'")
        at = self._at or _UNNAMED.get(len(fields))
        if at is None:
            raise ValueError(f"{len(fields)} fields, and no line has named them")
        try:
            values = {name: unit * float(fields[index]) for name, (index, unit) in at.items()}
        except IndexError as error:
            raise ValueError("a field is missing") from error
        watts = values["watts"] if "watts" in values else values["volts"] * values["amperes"]
        if not all(math.isfinite(value) for value in (*values.values(), watts)):
            raise ValueError("not finite")
        return values.get("seconds"), watts


def _named(fields: Sequence[str]) -> dict[str, tuple[int, float]]:
    """Returns the position and the unit of each quantity."""
    known = {other: (name, unit) for name, others in COLUMNS.items() for other, unit in others}
    found = [(index, known.get(field.lower())) for index, field in enumerate(fields)]
    return {of[0]: (index, of[1]) for index, of in found if of is not None}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shown(line: str) -> str:
    return re.sub(r"\s+", " ", line[:_SHOWN])


class _File:
    """A growing file, a FIFO or a serial line.

    Attributes:
        past_bytes: Bytes that a file already held and that are still to be read. Only column names in them count.
        over: Whether the next read begins anew, because a FIFO has no writer or a file was emptied.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        about = os.fstat(self._file)
        self._grows, self._fifo = stat.S_ISREG(about.st_mode), stat.S_ISFIFO(about.st_mode)
        self._news = select.poll()
        self._news.register(self._file, select.POLLIN)
        self.over = False
        self.past_bytes = about.st_size if self._grows else 0

    def read(self) -> bytes | None:
        """Returns new bytes, after a short wait at most."""
        # Returns at once when woken: a FIFO's next writer may open it soon after the last one closed it.
        self._news.poll(_PAUSE_S * 1000)
        try:
            got = os.read(self._file, 65536)
        except BlockingIOError:
            return b""
        self.over = not got and self._fifo
        if (
            not got
            and self._grows
            and os.fstat(self._file).st_size < os.lseek(self._file, 0, os.SEEK_CUR)
        ):
            os.lseek(self._file, 0, os.SEEK_SET)
            self.past_bytes, self.over = 0, True
        if not got:
            time.sleep(_PAUSE_S)
        return got

    def close(self) -> None:
        """Closes it."""
        os.close(self._file)


class _Port:
    """A TCP port to connect to."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=_CONNECT_S)
        self._socket.settimeout(0.2)
        self.past_bytes, self.over = 0, False

    def read(self) -> bytes | None:
        """Returns new bytes, after a short wait at most; None if the other side has ended the connection."""
        try:
            return self._socket.recv(65536) or None
        except TimeoutError:
            return b""
        except OSError:
            return None

    def close(self) -> None:
        """Closes it."""
        self._socket.close()


def check(source: str) -> None:
    """Refuses an invalid source before anything is started.

    Raises:
        UsageError: It is not a source.
    """
    hint = "give csv:FILE, a file, FIFO or serial line that another program writes to, or csv:tcp://HOST:PORT"
    if not source or source == "-":
        raise UsageError("--meter csv: needs a source other than the standard input", hint=hint)
    if "://" in source:
        _address(source, hint)
        return
    path = Path(source)
    if not path.exists():
        raise UsageError(f"--meter csv: there is no file {source}", hint=hint)
    if path.is_dir():
        raise UsageError(f"--meter csv: {source} is a folder", hint=hint)


def _address(source: str, hint: str = "") -> tuple[str, int]:
    try:
        parts = urlsplit(source)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not source.startswith("tcp://") or not host or not port or parts.path.strip("/"):
        raise UsageError(f"--meter csv: '{source}' is not tcp://HOST:PORT", hint=hint)
    return host, port


class Stream:
    """A source that a thread reads for as long as it is entered.

    A TCP connection that ends is retried, and a FIFO continues with its next writer.

    Args:
        source: A path, or `tcp://HOST:PORT`.
        now: The host's monotonic clock.
        wall: The host's clock since the epoch.
        first_s: Longest wait for the first reading.
    """

    def __init__(
        self,
        source: str,
        *,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        first_s: float = _FIRST_READING_S,
    ) -> None:
        self.source, self.now, self._wall, self._first_s = source, now, wall, first_s
        self._columns = Columns()
        self._lines: deque[Arrived] = deque()
        self._errors: deque[tuple[float, str]] = deque()
        self._news = threading.Condition()
        self._over = threading.Event()
        self._refused = ""
        self._clock_reported = False
        self._thread = threading.Thread(target=self._follow, name="meter", daemon=True)
        self._open: _File | _Port | None = None

    def __enter__(self) -> Stream:
        try:
            self._open = self._connect()
        except OSError as error:
            raise UsageError(
                f"--meter csv: {self.source} cannot be read: {error.strerror or error}",
                hint="start the program that reads the meter first",
            ) from error
        self._thread.start()
        with self._news:
            self._news.wait_for(lambda: self._lines or self._refused, self._first_s)
            if self._lines and not self._refused:
                return self
            said = self._refused or (self._errors[-1][1] if self._errors else "it says nothing")
        self.__exit__()
        raise UsageError(
            f"--meter csv: {self.source} gives no readings: {said}",
            hint="lines are seconds,watts or watts; a first line may name columns: "
            + ", ".join(name for others in COLUMNS.values() for name, _ in others),
        )

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._open is not None:
            self._open.close()

    def take(self, start: float, end: float) -> Taken:
        """Returns the readings measured within a window of the host's monotonic time, and forgets older lines.

        A line about the window's end may still be under way, so it is waited for.
        """
        with self._news:
            self._news.wait_for(lambda: self._lines and self._lines[-1].host_s > end, _LATE_S)
            while self._lines and self._lines[0].host_s < start - _KEPT_S:
                self._lines.popleft()
            while self._errors and self._errors[0][0] < start:
                self._errors.popleft()
            lines, errors = list(self._lines), list(self._errors)
        found: list[tuple[float, str, str]] = []
        deviation_s = 0.0
        for part in segments(lines):
            inside = [
                (time_s, f"{line.watts!r}", line.text)
                for time_s, line in zip(part.times_s, part.lines, strict=True)
                if start <= time_s <= end
            ]
            if inside and part.fault:
                errors.append((inside[-1][0], part.fault))
            elif inside:
                found += inside
                deviation_s = max(deviation_s, part.deviation_s)
                self._tell_clock(part.behind_s)
        until_end = tuple(error for error in errors if error[0] <= end)
        return Taken(tuple(sorted(found)), until_end, deviation_s)

    def _tell_clock(self, behind_s: float) -> None:
        """Reports once that stamps come from another clock."""
        if behind_s and not self._clock_reported:
            self._clock_reported = True
            LOGGER.warning(
                "--meter csv: %s: its time stamps are %.1f s %s this host's clock: the fastest line is taken as "
                "having had no delay",
                self.source,
                abs(behind_s),
                "behind" if behind_s > 0 else "ahead of",
            )

    def _connect(self) -> _File | _Port:
        if "://" in self.source:
            return _Port(*_address(self.source))
        return _File(Path(self.source))

    def _follow(self) -> None:
        rest = b""
        while not self._over.is_set():
            source = self._open
            data = source.read() if source else None
            if source is None or data is None:
                rest = b""
                self._anew()
                continue
            arrived = self.now(), self._wall()
            if source.over and rest:
                # The start of the next writer's output does not complete this one's line.
                self._tell(arrived[0], f"'{_shown(rest.decode(errors='replace'))}' broke off")
                rest = b""
            rest += data
            *whole, rest = rest.split(b"\n")
            rest = rest[-_LONGEST_LINE:]
            for line in whole:
                source.past_bytes -= len(line) + 1
                text = line.decode(errors="replace").strip("\r\0 ")
                self._put(text, *arrived, new=source.past_bytes < 0)

    def _anew(self) -> None:
        """Reconnects after a connection has ended."""
        if self._open is not None:
            self._open.close()
            self._open = None
            self._tell(self.now(), "the other side has closed the connection")
        if not self._over.wait(_AGAIN_S):
            with suppress(OSError):
                self._open = self._connect()

    def _tell(self, host_s: float, said: str) -> None:
        with self._news:
            self._errors.append((host_s, said))

    def _put(self, line: str, host_s: float, wall_s: float, *, new: bool) -> None:
        if not line or line.startswith("#"):
            return
        with self._news:
            try:
                found = self._columns.read(line)
            except _UnknownColumnsError as error:
                self._refused = str(error)
            except ValueError as error:
                if new:
                    self._errors.append((host_s, f"'{_shown(line)}' is not a reading: {error}"))
            else:
                if found is not None and new:
                    own_s, watts = found
                    if not self._lines and own_s is not None and (unit := unit_of(own_s, wall_s)):
                        self._refused = f"its stamps are {unit}, and no line has named them"
                    self._lines.append(Arrived(host_s, wall_s, own_s, watts, line))
            self._news.notify_all()
