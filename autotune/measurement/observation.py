"""The record of a command on a device: samples of files, printed lines, cores, and how it ended."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from autotune.errors import StableDeviceError
from autotune.reading import parse_json


@dataclass(frozen=True)
class Sample:
    """Files that were read together.

    Attributes:
        time_s: The middle of the reading, in the device's monotonic time.
        texts: Contents by path; None for a file that could not be read.
    """

    time_s: float
    texts: Mapping[str, str | None]


@dataclass(frozen=True)
class Line:
    """A line that the command printed."""

    time_s: float
    text: str


@dataclass(frozen=True)
class Observation:
    """A record of `autotune_observe`. Times are the device's monotonic ones, in seconds.

    Attributes:
        begin_s: When the command was started.
        end_s: When its end was noticed; None if the record breaks off (the device restarted, a full disk).
        exit_code: 128 + number if a signal ended it.
        why: `limit` or `asked` if it was ended from outside; empty otherwise.
        max_rss_bytes: Its peak memory.
        user_s: Processor time of the command and its children.
        system_s: Kernel time for them.
        interval_s: Intended seconds between readings of files.
        samples: Contents of the files.
        lines: Its standard output.
        errors: Its error output.
        cpus: Cores that its threads could use, as the kernel writes lists, and the time of each change.
        meter: Output of a meter that is not a file of the device: a program beside the command, or a stream that
            the host read during the run.
        meter_errors: The meter's output that is not a reading, and how it ended.
        clock_deviation_s: Possible error of the times in `meter`, which come from another clock.
        text: The record itself.
    """

    begin_s: float
    end_s: float | None
    exit_code: int
    why: str
    max_rss_bytes: int
    user_s: float
    system_s: float
    interval_s: float
    samples: tuple[Sample, ...]
    lines: tuple[Line, ...]
    errors: tuple[Line, ...]
    cpus: tuple[Line, ...]
    meter: tuple[Line, ...] = ()
    meter_errors: tuple[Line, ...] = ()
    clock_deviation_s: float = 0.0
    text: str = ""

    @property
    def complaint(self) -> str:
        """Its last error line, or how it ended, for messages."""
        if self.why == "limit":
            return "it did not end within its limit and was killed"
        lines = [line.text.strip() for line in self.errors if line.text.strip()]
        return lines[-1] if lines else f"exit code {self.exit_code}"

    def series(self, path: str) -> list[tuple[float, str]]:
        """Returns a file's contents over time, leaving out failed readings."""
        found = [(s.time_s, s.texts.get(path)) for s in self.samples]
        return [(time, text) for time, text in found if text is not None]


class Record:
    """A record of `autotune_observe` that grows. Each of its lines is read once."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._read = 0
        self._begin: dict[str, Any] = {}
        self._end: dict[str, Any] = {}
        self._clock_deviation_s = 0.0
        self._samples: list[Sample] = []
        self._lines: dict[str, list[Line]] = {
            kind: [] for kind in ("line", "error", "cpus", "meter", "meter_error")
        }

    @property
    def size(self) -> int:
        """Bytes received so far."""
        return len(self._bytes)

    @property
    def begun(self) -> bool:
        """Whether its first line has been received."""
        return bool(self._begin)

    @property
    def ended(self) -> bool:
        """Whether its last line has been received."""
        return bool(self._end)

    def add(self, more: bytes) -> None:
        """Adds the next part. An incomplete line waits for its rest."""
        self._bytes += more
        whole = self._bytes.rfind(b"\n") + 1
        if whole > self._read:
            for line in bytes(self._bytes[self._read : whole]).split(b"\n"):
                self._take(line)
            self._read = whole

    def close(self) -> None:
        """Accepts a last line without a line feed."""
        self.add(b"\n" if self._read < len(self._bytes) else b"")

    def observation(self) -> Observation:
        """Returns what is recorded so far.

        Raises:
            StableDeviceError: It does not begin like a record.
        """
        begin, end = self._begin, self._end
        if not begin:
            raise StableDeviceError("the device has recorded nothing")
        return Observation(
            begin_s=begin["begin"],
            end_s=end.get("end"),
            exit_code=end.get("exit", -1),
            why=end.get("why", ""),
            max_rss_bytes=1024 * end.get("max_rss_kb", 0),
            user_s=end.get("user_s", 0.0),
            system_s=end.get("system_s", 0.0),
            interval_s=begin["interval_s"],
            samples=tuple(self._samples),
            lines=tuple(self._lines["line"]),
            errors=tuple(self._lines["error"]),
            cpus=tuple(self._lines["cpus"]),
            meter=tuple(self._lines["meter"]),
            meter_errors=tuple(self._lines["meter_error"]),
            clock_deviation_s=self._clock_deviation_s,
            text=self._bytes.decode(errors="replace"),
        )

    def _take(self, line: bytes) -> None:
        try:
            entry = parse_json(line.decode(errors="replace"))
        except ValueError:
            return  # Cut off by a full disk or a restart; everything before it is good.
        if "begin" in entry:
            self._begin = entry
        elif "sample" in entry and self._begin:
            before, after, values = entry["sample"]
            texts = dict(zip(self._begin["watch"], values, strict=True))
            self._samples.append(Sample((before + after) / 2, texts))
        elif "end" in entry:
            self._end = entry
        elif "clock" in entry:
            self._clock_deviation_s = entry["clock"][1]
        else:
            for kind, lines in self._lines.items():
                if kind in entry:
                    lines.append(Line(*entry[kind][:2]))


def parted(records: Sequence[str]) -> tuple[Observation, tuple[Observation, ...]]:
    """Splits a run's records into the run and the idle records around it.

    The records are: idle before, the run, idle after; or the run alone.

    Raises:
        StableDeviceError: A record does not begin like one.
    """
    read = [parse(text) for text in records]
    at = 1 if len(read) > 1 else 0
    return read[at], (*read[:at], *read[at + 1 :])


def parse(text: str) -> Observation:
    """Parses a complete record.

    Raises:
        StableDeviceError: It does not begin like a record.
    """
    record = Record()
    record.add(text.encode())
    record.close()
    return record.observation()


@dataclass(frozen=True)
class Steps:
    """Steps of a workload.

    Attributes:
        start_s: When the first step that counts began.
        ends_s: When each step ended, by the arrival of its line.
        told_s: Duration of each step according to its own line; empty if the lines do not contain it.
        count: Number of steps: one for each line, or as many as the lines count.
    """

    start_s: float
    ends_s: tuple[float, ...]
    told_s: tuple[float, ...] = ()
    count: int = 0

    @property
    def seconds(self) -> tuple[float, ...]:
        """The duration of each step.

        The step's own figure takes precedence, as lines of short steps arrive together.
        """
        if self.told_s:
            return self.told_s
        edges = (self.start_s, *self.ends_s)
        return tuple(b - a for a, b in pairwise(edges))


def steps(lines: Sequence[Line], pattern: re.Pattern[str], *, warm_up: int) -> Steps | None:
    """Finds steps from the lines printed at their ends. Steps of the warm-up are left out.

    The beginning of the first step is not printed, so the first step is always left out.

    Args:
        lines: The printed lines.
        pattern: A pattern for a step's line. A group named `ms` is the step's own milliseconds. A group named
            `number` counts steps from the program's beginning, since one line may stand for several steps.
        warm_up: Number of first steps that do not count; at least one.

    Returns:
        None if no step is left.
    """
    found = [(line.time_s, match) for line in lines if (match := pattern.search(line.text))]
    first = max(warm_up, 1)
    if len(found) <= first:
        return None
    counted = found[first:]
    return Steps(
        found[first - 1][0],
        tuple(time_s for time_s, _ in counted),
        _seconds_of_steps([match for _, match in counted]) if "ms" in pattern.groupindex else (),
        _count(found[first - 1][1], counted[-1][1], len(counted)),
    )


def _count(before: re.Match[str], last: re.Match[str], lines: int) -> int:
    """Returns the number of steps after a line up to the last one.

    Lines without a count stand for one step each.
    """
    if "number" not in last.re.groupindex:
        return lines
    return max(lines, int(last["number"]) - int(before["number"]))


def _seconds_of_steps(matches: Sequence[re.Match[str]]) -> tuple[float, ...]:
    """Returns the seconds in the steps' lines; empty if one line has none."""
    try:
        found = tuple(1e-3 * float(match["ms"]) for match in matches)
    except (ValueError, TypeError):
        return ()
    return found if all(0 < seconds < math.inf for seconds in found) else ()
