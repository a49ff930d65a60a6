"""Runs commands on a device under `autotune_observe`, which records the device during the run."""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from autotune.devices import BOOT_ID, Change, Device, Journal
from autotune.errors import StableDeviceError, TransientDeviceError
from autotune.measurement.observation import Observation, Record
from autotune.power import Stream, Taken

LOGGER = logging.getLogger("autotune.measurement")

PROGRAM = "autotune_observe"
_CALL_S = 30.0
_PUSH_S = 60.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_SHARE_OF_TIME = 0.1
_APPEARS_S = 5.0
_PATIENCE_S = 60.0
"""How long a device may be away before its command is given up."""
_END = b'{"end":'
_TAIL_BYTES = 400
_SLOWEST_BYTES_A_SECOND = 1e6
_ROUND_TRIPS = 5
_UPTIME = "/proc/uptime"


class RestartedError(TransientDeviceError):
    """The device has restarted. Everything that ran or was set on it is gone."""


@dataclass(frozen=True)
class _Start:
    """Identity of a device's boot: the kernel's boot number, and the seconds since boot. None: not known."""

    number: str
    up_s: float | None

    @classmethod
    def of(cls, text: str) -> _Start:
        """Parses the contents of the kernel's files for both."""
        said = text.splitlines()
        number = next((line.strip() for line in said if "-" in line), "")
        up = next((line.split()[0] for line in said if re.match(r"[\d.]+ [\d.]+$", line)), "")
        return cls(number, float(up) if up else None)

    def over(self, now: _Start) -> bool:
        """Returns whether the device has booted again between this and `now`."""
        if self.number and now.number:
            return self.number != now.number
        return self.up_s is not None and now.up_s is not None and now.up_s < self.up_s


@dataclass(frozen=True)
class Task:
    """What to run, and what to record.

    Attributes:
        command: The program and its arguments; empty to record an idle device.
        cpus: Cores that it may use, such as `4-7`; empty to leave the choice to the system.
        watch: Files to sample; `%p` stands for its process.
        interval_s: Seconds between samples.
        limit_s: Seconds after which it is killed; for an idle device, the length of the record.
        meter_command: A program that prints a meter's values. It runs beside the command for as long.
    """

    command: tuple[str, ...]
    cpus: str
    watch: tuple[str, ...]
    interval_s: float
    limit_s: float
    meter_command: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClockOffset:
    """How far a device's monotonic clock is ahead of the host's.

    Attributes:
        seconds: Device time minus host time.
        deviation_s: Largest possible error: half of the round trip of the query.
    """

    seconds: float
    deviation_s: float


class Observer:
    """The observer program on one device, for as long as it is entered. Everything is journalled first.

    A command runs independently of the link. If the link breaks, the command goes on. Its record is read when the
    device is back.

    Args:
        device: The device.
        program: The program, built for the device.
        journal: The device's restore journal.
        android: Whether it runs Android, which has another folder for such files.
        stream: A meter that the host reads during runs. Its readings are added to the records, in the device's
            time.
        sleep: How time passes; the emulator's clock in tests.
    """

    def __init__(
        self,
        device: Device,
        program: Path,
        journal: Journal,
        *,
        android: bool,
        stream: Stream | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._device = device
        self._program = program
        self._journal = journal
        parent = "/data/local/tmp" if android else "/tmp"
        self._folder = PurePosixPath(parent) / f"autotune-observe-{secrets.token_hex(4)}"
        self._stream, self._sleep = stream, sleep
        self._android = android
        self._note: int | None = None
        self._records = 0
        self._started = _Start("", None)
        self._running = ""
        self.unfinished = ""
        """The part of the last record that was received, if the run ended with an error."""

    def __enter__(self) -> Observer:
        # The program ends a command whose record is removed, so this undoes both.
        self._note = self._journal.note(
            Change(f"files in {self._folder}", "remove", path=str(self._folder))
        )
        device = self._device
        device.run(["mkdir", "-p", str(self._folder)], timeout=_CALL_S)
        device.push(self._program, self._folder / PROGRAM, timeout=_PUSH_S)
        done = device.run(["chmod", "755", str(self._folder / PROGRAM)], timeout=_CALL_S)
        if done.exit_code != 0:
            raise StableDeviceError(f"{device.serial}: {self._folder}: {done.complaint}")
        self._started = self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._note is not None:
            # If this fails, `autotune devices restore` does it.
            self._journal.change(self._note).undo(self._device)
            self._journal.settle(self._note)
            self._note = None

    def bring(self, source: Path, name: str) -> PurePosixPath:
        """Copies a file, with its mode, into a folder of the device that is removed at the end.

        Args:
            source: The file.
            name: Its name there; missing folders are made.

        Raises:
            DeviceError: It cannot be copied.
        """
        target = self._folder / name
        limit = _PUSH_S + source.stat().st_size / _SLOWEST_BYTES_A_SECOND
        self._device.push(source, target, timeout=limit)
        return target

    def run(
        self, task: Task, enough: Callable[[Observation], bool] = lambda _: False
    ) -> Observation:
        """Runs a command until it ends or is told to end, and returns the record.

        Args:
            task: The command.
            enough: Called with the record so far; the command is ended when it returns true.

        Raises:
            RestartedError: The device restarted during the run.
            TransientDeviceError: It went away and did not come back, or the observer there was killed.
            StableDeviceError: The program cannot run there.
        """
        self._records += 1
        path = self._folder / f"record-{self._records}.jsonl"
        argv = [str(self._folder / PROGRAM), "--detach", "--out", str(path), *_options(task)]
        # Root if available: some meters, and all cores, need it.
        root = self._device.rooted()
        done = self._device.run(argv, timeout=_CALL_S, root=root)
        if done.exit_code != 0:
            raise StableDeviceError(
                f"{self._device.serial}: {PROGRAM} cannot run: {done.complaint}",
                hint="it is for 64-bit ARM and x86-64 Linux and Android",
            )
        self._running, found = done.text, Record()
        try:
            self._follow(path, found, task.limit_s, enough)
        except BaseException as error:
            self.unfinished = found.observation().text if found.begun else ""
            # After a restart the number may belong to another program.
            if not isinstance(error, RestartedError):
                self._stop()
            raise
        self.unfinished = self._running = ""
        self._device.run(["rm", "-f", str(path)], timeout=_CALL_S, root=root)
        if self._stream is not None:
            self._add_stream(found, self._stream)
        return found.observation()

    def recover(self) -> bool:
        """Prepares a device that was away for the next command, and returns whether it restarted meanwhile.

        Raises:
            TransientDeviceError: It is still away, or still starting.
            StableDeviceError: It restarted and lost the files in the observer's folder.
        """
        device, now = self._device, self._start()
        restarted = self._started.over(now)
        if not restarted:
            self._stop()
        elif self._android:
            booted = device.run(["getprop", "sys.boot_completed"], timeout=_CALL_S).text
            if booted != "1":
                raise TransientDeviceError(f"{device.serial}: it is still starting")
        if not device.find([str(self._folder / PROGRAM)], timeout=_CALL_S):
            raise StableDeviceError(
                f"{device.serial}: it restarted, which emptied {self._folder.parent}",
                hint="start the command again; --resume continues a search",
            )
        self._started, self._running = now, ""
        return restarted

    def clock(self, now: Callable[[], float] = time.monotonic) -> ClockOffset:
        """Returns the offset of the device's clock, from the middle of the fastest of several round trips.

        Args:
            now: The host's clock.

        Raises:
            DeviceError: The device does not report its time.
        """
        found: list[ClockOffset] = []
        for _ in range(_ROUND_TRIPS):
            before = now()
            done = self._device.run([str(self._folder / PROGRAM), "--clock"], timeout=_CALL_S)
            after = now()
            try:
                device_s = float(done.text)
            except ValueError as error:
                raise StableDeviceError(
                    f"{self._device.serial}: its clock cannot be read: {done.complaint}"
                ) from error
            found.append(ClockOffset(device_s - (before + after) / 2, (after - before) / 2))
        return min(found, key=lambda offset: offset.deviation_s)

    def _add_stream(self, record: Record, stream: Stream) -> None:
        """Adds a stream's readings from the run, with their times converted to the device's clock."""
        offset = self.clock(stream.now)
        observed = record.observation()
        end = observed.end_s if observed.end_s is not None else observed.begin_s
        taken = stream.take(observed.begin_s - offset.seconds, end - offset.seconds)
        record.add(_lines(taken, offset).encode())

    def _follow(
        self,
        path: PurePosixPath,
        record: Record,
        limit_s: float,
        enough: Callable[[Observation], bool],
    ) -> None:
        """Reads the record as it grows. It does so rarely, because each look is work for the device."""
        tail, silent = b"", 0
        waited, pause, away, stopped = 0.0, _FIRST_PAUSE_S, 0.0, False
        while waited <= limit_s + _PATIENCE_S:
            try:
                done = self._device.run(
                    ["tail", "-c", f"+{record.size + 1}", str(path)], timeout=_CALL_S
                )
            except TransientDeviceError as error:
                LOGGER.warning("%s: away while a command runs: %s", self._device.serial, error)
                if away > _PATIENCE_S:
                    raise
                away += pause
            else:
                if away:
                    self._same_start()
                away = 0.0
                if done.exit_code != 0 and waited > _APPEARS_S:
                    raise TransientDeviceError(
                        f"{self._device.serial}: the record of a command is gone: did it restart?"
                    )
                more = done.stdout if done.exit_code == 0 else b""
                record.add(more)
                tail = (tail + more)[-_TAIL_BYTES:]
                # A last line that a full disk cut off will not grow.
                if record.ended or (not more and _END in tail):
                    record.close()
                    return
                silent = 0 if more or waited <= _APPEARS_S else silent + 1
                # Twice, because it may have written its end just after a look.
                if silent > 1 and self._gone() and silent > 2:
                    raise TransientDeviceError(
                        f"{self._device.serial}: what observed a command is gone, and its record has no end: "
                        "the system killed it"
                    )
                if not stopped and record.begun and enough(record.observation()):
                    self._stop()
                    stopped, pause = True, _FIRST_PAUSE_S
            self._sleep(pause)
            waited += pause
            pause = min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, _SHARE_OF_TIME * waited))
        raise TransientDeviceError(
            f"{self._device.serial}: the record of a command has no end after {waited:.0f} s"
        )

    def _start(self) -> _Start:
        return _Start.of(self._device.run(["cat", BOOT_ID, _UPTIME], timeout=_CALL_S).text)

    def _same_start(self) -> None:
        """Raises `RestartedError` if the device has restarted since it was entered."""
        if self._started.over(self._start()):
            raise RestartedError(f"{self._device.serial}: it restarted while a command ran")

    def _gone(self) -> bool:
        """Returns whether the observer program has ended."""
        self._same_start()
        if not self._running.isdecimal():
            return False
        argv = ["kill", "-0", self._running]
        done = self._device.run(argv, timeout=_CALL_S, root=self._device.rooted())
        return done.exit_code == 1

    def _stop(self) -> None:
        if (pid := self._running).isdecimal():
            try:
                self._same_start()
                self._device.run(
                    ["kill", "-TERM", pid], timeout=_CALL_S, root=self._device.rooted()
                )
            except RestartedError:
                return  # The number may belong to another program now.
            except TransientDeviceError as error:
                LOGGER.warning("%s: a command may still run: %s", self._device.serial, error)


def _lines(taken: Taken, offset: ClockOffset) -> str:
    """Returns a stream's readings as lines of a record in the device's time."""
    entries: list[dict[str, object]] = [
        {"clock": [offset.seconds, offset.deviation_s + taken.deviation_s]}
    ]
    for kind, lines in (("meter", taken.readings), ("meter_error", taken.errors)):
        entries += [{kind: [time_s + offset.seconds, *texts]} for time_s, *texts in lines]
    return "".join(f"{json.dumps(entry, allow_nan=False)}\n" for entry in entries)


def _options(task: Task) -> list[str]:
    """Returns a task as options of the program."""
    options = ["--interval-ms", f"{1000 * task.interval_s:g}", "--limit-s", f"{task.limit_s:g}"]
    options += ["--cpus", task.cpus] if task.cpus else []
    for watched in task.watch:
        options += ["--watch", watched]
    for word in task.meter_command:
        options += ["--meter-command", word]
    return [*options, "--", *task.command] if task.command else options


def words(command: Sequence[str], threads: int) -> tuple[str, ...]:
    """Returns a command with `{threads}` filled in."""
    return tuple(word.replace("{threads}", str(threads)) for word in command)
