"""`autotune_observe` and a trainer for the in-process emulator, with the same arguments and the same record.

On the emulator's virtual clock, a training step takes no time on this host. A record's lines have the times that
the model gives, including caps that come and go.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from autotune.devices import Completed, cpu_list, cpu_list_text
from autotune.emulator.device.view import FileView
from autotune.emulator.model import (
    STEP_RUNNER,
    TRAINER,
    Load,
    Piece,
    Program,
    StepRunner,
    Trainer,
    VirtualClock,
    arguments,
)
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.emulator.device.device import EmulatedDevice
    from autotune.emulator.device.device import Program as DeviceProgram

OBSERVE = "autotune_observe"
_FIRST_PID = 4200
_TERMINATED = 143
_SETTLES_S = 1e-8


def observing() -> dict[str, DeviceProgram]:
    """Returns programs for an `EmulatedDevice`: the observer, and `kill` for the commands that it runs."""
    running: dict[int, _Run] = {}

    def observe(device: EmulatedDevice, argv: Sequence[str], root: bool) -> Completed:
        if "--clock" in argv:
            return Completed(tuple(argv), 0, f"{device.clock.now():.9f}\n".encode(), b"")
        pid = _FIRST_PID + len(running)
        try:
            running[pid] = _Run(device, _options(argv[1:]), pid, root=root)
        except UsageError as error:
            return Completed(tuple(argv), 2, b"", f"{error.message}\n".encode())
        return Completed(tuple(argv), 0, f"{pid}\n".encode(), b"")

    def kill(device: EmulatedDevice, argv: Sequence[str], root: bool) -> Completed:
        run = running.get(int(argv[-1]))
        if run is None or run.over:
            return Completed(tuple(argv), 1, b"", b"kill: no such process\n")
        if "-0" not in argv:
            run.finish(_TERMINATED, "asked")
        return Completed(tuple(argv), 0, b"", b"")

    return {OBSERVE: observe, "kill": kill}


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = arguments()
    parser.add_argument("--out", required=True)
    parser.add_argument("--interval-ms", type=float, default=100.0)
    parser.add_argument("--limit-s", type=float, default=600.0)
    parser.add_argument("--cpus", default="")
    parser.add_argument("--watch", action="append", default=[])
    parser.add_argument("--detach", action="store_true")
    words = list(argv)
    at = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:at])
    options.command = words[at + 1 :]
    return options


def _program(
    device: EmulatedDevice, view: FileView, command: Sequence[str], seed: int
) -> Program | None:
    """Returns the program that stands in for a command; None if there is none."""
    name = command[0].rpartition("/")[2]
    if name == TRAINER:
        return Trainer(command[1:], seed)
    if name == STEP_RUNNER and device.files.kind(command[0]) == "file":
        return StepRunner(command[1:], view.read, seed)
    return None


class _Run:
    """An observed command. Its events are triggered by the clock's alarms."""

    def __init__(
        self, device: EmulatedDevice, options: argparse.Namespace, pid: int, *, root: bool
    ) -> None:
        if not isinstance(device.clock, VirtualClock):
            raise UsageError("the emulated observer needs a virtual clock")
        self._device, self._clock, self._options = device, device.clock, options
        self._view = device.tree(root=root)
        self._began = self._next_sample = device.clock.now()
        self._watch = [path.replace("%p", str(pid)) for path in options.watch]
        self._readers = [self._view.reader(path) for path in self._watch]
        self._busy_s, self._seen_cpus = 0.0, ""
        self._load: Load | None = None
        self._resumes = math.inf
        self._piece_began = self._began
        self._over, self._boot = False, device.boots
        self._program: Program | None = None
        self._pieces: Iterator[Piece] = iter(())
        self._cpus = cpu_list(options.cpus) or device.profile.cpus
        device.files.store(options.out, b"", 0o644)
        self._write(
            begin=self._began, pid=pid, interval_s=options.interval_ms / 1e3, watch=self._watch
        )
        if options.command:
            try:
                self._program = _program(
                    device, self._view, options.command, round(1e6 * self._began)
                )
            except (UsageError, OSError) as error:
                self._fail(str(error), 2)
                return
            if self._program is None:
                self._fail(f"{options.command[0]}: No such file or directory", 127)
                return
            self._pieces = self._program.pieces()
            self._next_piece()
        self._tick()

    def _fail(self, message: str, exit_code: int) -> None:
        self._write(error=[self._began, message])
        self.finish(exit_code, "")

    def _next_piece(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            self.finish(0, "")
            return
        for path, text in piece.writes:
            self._view.write(path, text.encode())
        self._piece = piece
        self._resumes = self._clock.now() + piece.wait_s
        if not piece.wait_s:
            self._begin_piece()

    def _begin_piece(self) -> None:
        piece = self._piece
        self._resumes, self._piece_began = math.inf, self._clock.now()
        if piece.workload is None:
            self._end_piece()
            return
        cpus = self._cpus if piece.cpus is None else piece.cpus
        online = [c for c in cpus if c in self._device.soc.online()]
        if (seen := cpu_list_text(tuple(online))) != self._seen_cpus:
            self._write(cpus=[self._clock.now(), seen])
            self._seen_cpus = seen
        self._load = self._device.soc.begin(
            piece.workload, cpus, steps=piece.times, threads=piece.threads
        )

    def _end_piece(self) -> None:
        assert self._program is not None
        if self._load is not None:
            self._busy_s += self._load.busy_s
            self._load = None
        now = self._clock.now()
        for line in self._program.printed(self._piece_began, now):
            self._write(line=[now, line])
        self._next_piece()

    @property
    def over(self) -> bool:
        """Whether it has ended, or its device has restarted. After a restart nothing more is written."""
        return self._over or self._device.boots != self._boot

    def _tick(self) -> None:
        if self.over:
            return
        if self._device.files.kind(self._options.out) is None:
            self.finish(_TERMINATED, "asked")  # The record was removed.
            return
        now = self._clock.now()
        soc = self._device.soc
        soc.advance()
        if now >= self._next_sample:
            self._sample()
            self._next_sample += self._options.interval_ms / 1e3
        if self._load is not None and self._load.ended:
            self._end_piece()
        elif now >= self._resumes:
            self._begin_piece()
        if self._over:
            return
        if now >= self._began + self._options.limit_s:
            self.finish(_TERMINATED if self._program else 0, "limit")
            return
        due = min(self._next_sample, self._began + self._options.limit_s, self._resumes)
        if self._load is not None:
            due = min(due, now + soc.remaining_s(self._load) + _SETTLES_S)
        self._clock.at(max(due, now + _SETTLES_S), self._tick)

    def _sample(self) -> None:
        now = self._clock.now()
        texts: list[str | None] = []
        for read in self._readers:
            try:
                texts.append(read().strip())
            except OSError:
                texts.append(None)
        self._write(sample=[now, now, texts])

    def finish(self, exit_code: int, why: str) -> None:
        """Ends it. A second call does nothing."""
        if self.over:
            return
        self._over = True
        if self._load is not None:
            self._device.soc.end(self._load)
        self._sample()
        memory = self._program.memory_bytes // 1024 if self._program else 0
        now = self._clock.now()
        busy = self._busy_s + (self._load.busy_s if self._load else 0.0)
        self._write(end=now, exit=exit_code, max_rss_kb=memory, user_s=busy, system_s=0.0, why=why)

    def _write(self, **entry: Any) -> None:
        files, path = self._device.files, self._options.out
        line = json.dumps(entry).replace('"end": ', '"end":').encode()
        if files.kind(path) == "file":  # Otherwise it was removed meanwhile.
            with suppress(OSError):  # The disk is full: the reader sees that the record has no end.
                files.append(path, line + b"\n")
