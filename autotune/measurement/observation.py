"""What was recorded on a device while a command ran there: samples of files, printed lines, cores, and the end."""

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
        texts: Contents by path; None where one could not be read.
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
    """A record of `autotune_observe`; times are the device's monotonic ones, in seconds.

    Attributes:
        begin_s: When the command was started.
        end_s: When it was seen to have ended; None where the record breaks off (the device restarted, a full disk).
        exit_code: 128 + number where a signal ended it.
        why: `limit` or `asked` where it was ended from outside; empty otherwise.
        max_rss_bytes: Its peak memory.
        user_s: Processor time that it and its children took.
        system_s: The kernel's for them.
        interval_s: How often files were to be read.
        samples: What they held.
        lines: What it printed.
        errors: What it printed as errors.
        cpus: Cores that its threads could use, as the kernel writes lists, and since when.
        meter: What a meter printed that is no file of the device: a program beside the command, or a stream that
            the host read meanwhile.
        meter_errors: What it printed that is no reading, and how it ended.
        clock_deviation_s: How far the times of `meter` may be off: they are another clock's.
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
        """Its last error line, or how it ended; for messages."""
        if self.why == "limit":
            return "it did not end within its limit and was killed"
        told = [line.text.strip() for line in self.errors if line.text.strip()]
        return told[-1] if told else f"exit code {self.exit_code}"

    def series(self, path: str) -> list[tuple[float, str]]:
        """A file's contents over time, where it could be read."""
        found = [(s.time_s, s.texts.get(path)) for s in self.samples]
        return [(time, text) for time, text in found if text is not None]


class Record:
    """A record of `autotune_observe` as it grows: each of its lines is read once."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._read = 0
        self._begin: dict[str, Any] = {}
        self._end: dict[str, Any] = {}
        self._clock_deviation_s = 0.0
        self._samples: list[Sample] = []
        self._told: dict[str, list[Line]] = {
            kind: [] for kind in ("line", "error", "cpus", "meter", "meter_error")
        }

    @property
    def size(self) -> int:
        """Bytes of it that are here."""
        return len(self._bytes)

    @property
    def begun(self) -> bool:
        """Whether its first line is here."""
        return bool(self._begin)

    @property
    def ended(self) -> bool:
        """Whether its last line is here."""
        return bool(self._end)

    def add(self, more: bytes) -> None:
        """Adds what came next; a line that is not whole yet waits for its rest."""
        self._bytes += more
        whole = self._bytes.rfind(b"\n") + 1
        if whole > self._read:
            for line in bytes(self._bytes[self._read : whole]).split(b"\n"):
                self._take(line)
            self._read = whole

    def close(self) -> None:
        """Takes a last line that has no line feed."""
        self.add(b"\n" if self._read < len(self._bytes) else b"")

    def observation(self) -> Observation:
        """What is recorded so far.

        Raises:
            StableDeviceError: It does not begin as a record.
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
            lines=tuple(self._told["line"]),
            errors=tuple(self._told["error"]),
            cpus=tuple(self._told["cpus"]),
            meter=tuple(self._told["meter"]),
            meter_errors=tuple(self._told["meter_error"]),
            clock_deviation_s=self._clock_deviation_s,
            text=self._bytes.decode(errors="replace"),
        )

    def _take(self, line: bytes) -> None:
        try:
            entry = parse_json(line.decode(errors="replace"))
        except ValueError:
            return  # Cut off by a full disk or a restart: what came before it is good.
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
            for kind, lines in self._told.items():
                if kind in entry:
                    lines.append(Line(*entry[kind][:2]))


def parted(records: Sequence[str]) -> tuple[Observation, tuple[Observation, ...]]:
    """A run, and the idle device around it, of a run's records: before, the run, after; or the run alone.

    Raises:
        StableDeviceError: One does not begin as a record.
    """
    read = [parse(text) for text in records]
    at = 1 if len(read) > 1 else 0
    return read[at], (*read[:at], *read[at + 1 :])


def parse(text: str) -> Observation:
    """A record that is whole.

    Raises:
        StableDeviceError: It does not begin as one.
    """
    record = Record()
    record.add(text.encode())
    record.close()
    return record.observation()


@dataclass(frozen=True)
class Steps:
    """Steps of a workload.

    Attributes:
        start_s: When the first one that counts began.
        ends_s: When each of them ended, as its line arrived.
        told_s: How long each took by its own line; empty where they do not tell.
        count: How many steps there were: one a line, or as many as the lines count.
    """

    start_s: float
    ends_s: tuple[float, ...]
    told_s: tuple[float, ...] = ()
    count: int = 0

    @property
    def seconds(self) -> tuple[float, ...]:
        """How long each took: lines of short steps arrive together, so what they tell themselves comes first."""
        if self.told_s:
            return self.told_s
        edges = (self.start_s, *self.ends_s)
        return tuple(b - a for a, b in pairwise(edges))


def steps(lines: Sequence[Line], pattern: re.Pattern[str], *, warm_up: int) -> Steps | None:
    """Steps from the lines that their ends print; those of the warm-up are left out.

    The first step's beginning is not printed, so it is always left out.

    Args:
        lines: What was printed.
        pattern: What a step's line holds; a group named `ms` is the step's own milliseconds, and one named `number`
            counts steps from the program's beginning: lines may tell of several.
        warm_up: How many first steps do not count; at least one.

    Returns:
        None where no step is left.
    """
    found = [(line.time_s, match) for line in lines if (match := pattern.search(line.text))]
    first = max(warm_up, 1)
    if len(found) <= first:
        return None
    counted = found[first:]
    return Steps(
        found[first - 1][0],
        tuple(time_s for time_s, _ in counted),
        _told_s([match for _, match in counted]) if "ms" in pattern.groupindex else (),
        _count(found[first - 1][1], counted[-1][1], len(counted)),
    )


def _count(before: re.Match[str], last: re.Match[str], lines: int) -> int:
    """How many steps there were after a line up to the last one; a line each where they do not count them."""
    if "number" not in last.re.groupindex:
        return lines
    return max(lines, int(last["number"]) - int(before["number"]))


def _told_s(matches: Sequence[re.Match[str]]) -> tuple[float, ...]:
    """Seconds that lines tell of their steps; nothing where one of them tells none."""
    try:
        told = tuple(1e-3 * float(match["ms"]) for match in matches)
    except (ValueError, TypeError):
        return ()
    return told if all(0 < seconds < math.inf for seconds in told) else ()
