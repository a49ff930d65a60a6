"""`autotune_observe` and a trainer for the in-process emulator: the same arguments and the same record.

On the emulator's virtual clock a step of training takes no time of this host. A record's lines come at the times
that the model gives, with caps that come and go meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from autotune.devices.device import Completed
from autotune.devices.topology import cpu_list, cpu_list_text
from autotune.emulator.clock import VirtualClock
from autotune.emulator.soc import Load
from autotune.emulator.step_model import ALEXNET_B16, Workload
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.emulator.device import EmulatedDevice, Program

OBSERVE = "autotune_observe"
TRAINER = "emulated_train"
_FIRST_PID = 4200
_TERMINATED = 143
_SETTLES_S = 1e-6


def observing() -> dict[str, Program]:
    """Programs for an `EmulatedDevice`: the observer, and `kill` for what it runs."""
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
        if run is None:
            return Completed(tuple(argv), 1, b"", b"kill: no such process\n")
        run.finish(_TERMINATED, "asked")
        return Completed(tuple(argv), 0, b"", b"")

    return {OBSERVE: observe, "kill": kill}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(message)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(add_help=False)
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


def trainer_options(argv: Sequence[str]) -> argparse.Namespace:
    """Arguments of the emulated trainer.

    Raises:
        UsageError: They are others.
    """
    parser = _Parser(add_help=False)
    parser.add_argument("--steps", type=float, default=math.inf)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(list(argv))


def scaled(workload: Workload, factor: float) -> Workload:
    """A workload that takes `factor` times as long, but for what its parallel loops cost."""
    return Workload(
        workload.name,
        workload.flops * factor,
        workload.bytes_moved * factor,
        workload.regions,
        workload.memory_bytes,
    )


class _Run:
    """A command that is observed; what happens is done by the clock's alarms."""

    def __init__(
        self, device: EmulatedDevice, options: argparse.Namespace, pid: int, *, root: bool
    ) -> None:
        if not isinstance(device.clock, VirtualClock):
            raise UsageError("the emulated observer needs a virtual clock")
        self._device, self._clock, self._options = device, device.clock, options
        self._view = device.tree(root=root)
        self._began = self._next_sample = device.clock.now()
        self._watch = [path.replace("%p", str(pid)) for path in options.watch]
        self._load: Load | None = None
        self._done = 0
        self._over = False
        self._train: argparse.Namespace | None = None
        self._cpus = cpu_list(options.cpus) or device.profile.cpus
        command = options.command
        if command and command[0].rpartition("/")[2] == TRAINER:
            self._train = trainer_options(command[1:])
            self._noise = random.Random(self._train.seed * 1_000_003 + round(1e6 * self._began))
        device.files.store(options.out, b"", 0o644)
        self._write(
            begin=self._began, pid=pid, interval_s=options.interval_ms / 1e3, watch=self._watch
        )
        if command and self._train is None:
            self._write(error=[self._began, f"{command[0]}: No such file or directory"])
            self.finish(127, "")
            return
        if self._train is not None:
            self._begin_step()
        self._tick()

    def _begin_step(self) -> None:
        assert self._train is not None
        online = [c for c in self._cpus if c in self._device.soc.online()]
        self._write(cpus=[self._clock.now(), cpu_list_text(tuple(online))])
        factor = self._train.scale * math.exp(self._noise.gauss(0.0, self._train.noise))
        self._load = self._device.soc.begin(
            scaled(ALEXNET_B16, factor), self._cpus, steps=1, threads=self._train.threads or None
        )

    def _tick(self) -> None:
        if self._over:
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
            assert self._train is not None
            self._done += 1
            self._write(line=[now, f"step {self._done}"])
            if self._done >= self._train.steps:
                self.finish(0, "")
                return
            self._begin_step()
        if now >= self._began + self._options.limit_s:
            self.finish(_TERMINATED if self._train else 0, "limit")
            return
        due = min(self._next_sample, self._began + self._options.limit_s)
        if self._load is not None:
            due = min(due, now + soc.remaining_s(self._load) + _SETTLES_S)
        self._clock.at(max(due, now + _SETTLES_S), self._tick)

    def _sample(self) -> None:
        now = self._clock.now()
        texts: list[str | None] = []
        for path in self._watch:
            try:
                texts.append(self._view.read(path).decode().strip())
            except OSError:
                texts.append(None)
        self._write(sample=[now, now, texts])

    def finish(self, exit_code: int, why: str) -> None:
        """Ends it; a second time does nothing."""
        if self._over:
            return
        self._over = True
        if self._load is not None:
            self._device.soc.end(self._load)
        self._sample()
        memory = ALEXNET_B16.memory_bytes // 1024 if self._train else 0
        now = self._clock.now()
        busy = self._load.busy_s if self._load else 0.0
        self._write(end=now, exit=exit_code, max_rss_kb=memory, user_s=busy, system_s=0.0, why=why)

    def _write(self, **entry: Any) -> None:
        files, path = self._device.files, self._options.out
        line = json.dumps(entry).replace('"end": ', '"end":').encode()
        if files.kind(path) == "file":  # Else it was removed meanwhile.
            with suppress(OSError):  # A full disk: the reader sees that the record has no end.
                files.append(path, line + b"\n")
