"""Programs that an emulated device can train with: a sequence of pieces of work, and the lines printed meanwhile.

`emulated_train` stands in for any trainer. `autotune_step_runner` stands in for the program of that name, with the
same arguments and the same lines.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Protocol

from autotune.devices import cpu_list
from autotune.emulator.model.step_model import ALEXNET_B16, Workload
from autotune.errors import UsageError
from autotune.workloads import ScheduleTraits

TRAINER, STEP_RUNNER = "emulated_train", "autotune_step_runner"
CLOCK_CHANGE_S = 300e-6
"""Seconds for a change of a clock: `clock-latency-ns` of arm64 boards in Linux's device trees (r8a774a1.dtsi)."""
NOMINAL_BYTES = 10.08
"""The model's bytes for each byte that kernels read or write. It is the nominal 12 GB of `ALEXNET_B16` divided by
the
1.19 GB of the kernels of AlexNet's step at batch 16. Their operations agree within 0.3 %.
"""
_NOISE = tuple(math.exp(0.02 * NormalDist().inv_cdf((i + 0.5) / 8)) for i in range(8))
"""Factors on the model's time of a step: normal, 2 %. There are few, so that computed steps can be cached."""
_BURST_S = 0.05
"""Steps with short calls are done together for about this long, and reported by one line."""
_BURSTS = 8
"""Bursts between two single steps: a single step costs as much as all of its calls."""
_SHORT_CALL_S = 1e-3
_LIMITS = "scaling_max_freq", "scaling_min_freq"


@dataclass(frozen=True)
class Piece:
    """Work that runs without a change.

    Attributes:
        workload: The work, in successive parts if there are several; None if only time passes.
        cpus: Cores; None for those of the process.
        threads: Number of threads.
        writes: Files that are written first, in order.
        wait_s: Time that passes first.
        times: How often it is done.
    """

    workload: Workload | tuple[Workload, ...] | None
    threads: int | None = None
    cpus: tuple[int, ...] | None = None
    writes: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0
    times: int = 1


class Program(Protocol):
    """A program that trains."""

    memory_bytes: int

    def pieces(self) -> Iterator[Piece]:
        """Yields its work, in order. The program ends after the last piece."""

    def printed(self, began: float, now: float) -> list[str]:
        """Returns the lines that it prints at `now`, after a piece that began at `began` has ended."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(message)


def arguments() -> argparse.ArgumentParser:
    """Returns a parser that raises `UsageError`."""
    return _Parser(add_help=False)


def scaled(workload: Workload, factor: float) -> Workload:
    """Returns a workload that takes `factor` times as long, except for the cost of its parallel loops."""
    return replace(
        workload,
        flops=workload.flops * factor,
        bytes_moved=workload.bytes_moved * factor,
        nest=workload.nest and workload.nest.scaled(factor),
    )


class Trainer:
    """`emulated_train`: steps of the paper's AlexNet. Their times are the model's, with some noise.

    Raises:
        UsageError: Its arguments are wrong.
    """

    memory_bytes = ALEXNET_B16.memory_bytes

    def __init__(self, argv: Sequence[str], seed: int) -> None:
        parser = arguments()
        parser.add_argument("--steps", type=float, default=math.inf)
        parser.add_argument("--threads", type=int, default=0)
        parser.add_argument("--scale", type=float, default=1.0)
        parser.add_argument("--noise", type=float, default=0.0)
        parser.add_argument("--seed", type=int, default=0)
        self._options = parser.parse_args(list(argv))
        self._noise = random.Random(self._options.seed * 1_000_003 + seed)
        self._done = 0

    def pieces(self) -> Iterator[Piece]:
        """See `Program.pieces`."""
        while self._done < self._options.steps:
            factor = self._options.scale * math.exp(self._noise.gauss(0.0, self._options.noise))
            yield Piece(scaled(ALEXNET_B16, factor), self._options.threads or None)

    def printed(self, began: float, now: float) -> list[str]:
        """See `Program.printed`."""
        self._done += 1
        return [f"step {self._done}"]


@dataclass(frozen=True)
class _Setting:
    cpus: tuple[int, ...] | None
    threads: int
    khz: dict[str, int]


class StepRunner:
    """`autotune_step_runner`: the calls of a step.

    The work of a call is that of its kernel, or of its schedule's nests.

    Short steps are done in bursts. Single steps between bursts show how long each call takes. So the cost on this
    host does not grow with the number of steps. A burst's line counts all of its steps.

    Args:
        argv: Its arguments.
        read: Reads a file of the device.
        seed: Seed of the noise.

    Raises:
        UsageError: Its arguments are wrong.
        OSError: A file does not exist.
    """

    def __init__(self, argv: Sequence[str], read: Callable[[str], bytes], seed: int) -> None:
        parser = arguments()
        parser.add_argument("folder", nargs="?")
        parser.add_argument("--threads", type=int, default=1)
        parser.add_argument("--steps", type=float, default=math.inf)
        parser.add_argument("--settings")
        parser.add_argument("--switches")
        parser.add_argument("--trace", action="store_true")
        self._options = options = parser.parse_args(list(argv))
        self._noise = random.Random(seed)
        self.memory_bytes = 0
        self._schedules: list[list[tuple[Workload, ...]]] = []
        self._lines: list[str] = []
        self._begins: list[float] = []
        self._read = read
        self._khz: dict[str, int] = {}
        self._done = 0
        self._burst, self._bursts_left, self._spans = 1, 0, [0.0]
        self._settings, self._at = [_Setting(None, options.threads, {})], {0: 0}
        used: dict[int, int] = {}
        file = options.settings or options.switches
        if file:
            self._settings, self._at, used = _settings(read(file).decode())
        if options.folder:
            self._take(read(f"{options.folder}/step.work").decode())
        self._work = [
            schedules[used.get(call, 0)] for call, schedules in enumerate(self._schedules)
        ]
        self._ends = list(itertools.accumulate(len(nests) for nests in self._work))

    def _take(self, text: str) -> None:
        known: set[int] = set()
        for kind, *words in (line.split(maxsplit=2) for line in text.splitlines()):
            if kind == "memory":
                self.memory_bytes = int(words[0])
            elif kind == "call":
                flops, moved = map(float, words)
                sums = Workload("call", max(flops, 1.0), NOMINAL_BYTES * moved, 1)
                self._schedules.append([(sums,)])
            else:
                call = int(words[0])
                if call not in known:  # Its known loops are more precise than sums.
                    self._schedules[call].clear()
                    known.add(call)
                traits = ScheduleTraits.from_json(json.loads(words[1]))
                self._schedules[call].append(tuple(Workload.of(nest) for nest in traits.nests))

    def pieces(self) -> Iterator[Piece]:
        """See `Program.pieces`."""
        if self._options.switches:
            for a, b in itertools.permutations(range(len(self._settings)), 2):
                cost = self._change_s(self._settings[a], self._settings[b])
                self._lines.append(f"switch {a} {b} us {1e6 * cost:.2f}")
            yield Piece(None, wait_s=1e-3)
            return
        now: _Setting | None = None
        scaled_work = {f: [[scaled(w, f) for w in call] for call in self._work] for f in _NOISE}
        while self._done < self._options.steps:
            factor = self._noise.choice(_NOISE)
            if now and (times := self._next_burst()) > 1:
                every = tuple(itertools.chain.from_iterable(scaled_work[factor]))
                yield Piece(every, now.threads, now.cpus, times=times)
                continue
            for number, call in enumerate(scaled_work[factor]):
                setting = self._settings[self._at[number]] if number in self._at else now
                assert setting is not None
                writes = self._writes(setting) if setting is not now else ()
                wait = CLOCK_CHANGE_S if now and writes else 0.0
                now = setting
                for work in call:
                    yield Piece(work, setting.threads, setting.cpus, writes, wait)
                    writes, wait = (), 0.0

    def _next_burst(self) -> int:
        """Returns how many steps to do together next: one after `_BURSTS`, or if calls are long or change cores."""
        step_s = sum(self._spans)
        short = 0 < step_s < _SHORT_CALL_S * self._ends[-1] and len(set(self._at.values())) == 1
        if self._burst == 1:
            self._bursts_left = _BURSTS
        self._bursts_left -= 1
        left = self._options.steps - self._done
        alone = self._bursts_left < 0 or not short
        self._burst = 1 if alone else int(max(1, min(_BURST_S / step_s, left)))
        return self._burst

    def _change_s(self, old: _Setting, new: _Setting) -> float:
        changed = any(old.khz.get(policy, khz) != khz for policy, khz in new.khz.items())
        return CLOCK_CHANGE_S if changed else 0.0

    def _writes(self, setting: _Setting) -> tuple[tuple[str, str], ...]:
        """Returns the writes that set a setting's clocks, in an order in which the limits never cross."""
        writes: list[tuple[str, str]] = []
        for policy, khz in setting.khz.items():
            high, low = (f"{policy}/{name}" for name in _LIMITS)
            before = self._khz.get(policy) or int(self._read(high))
            if before != khz or policy not in self._khz:
                first, second = (high, low) if khz > before else (low, high)
                writes += [(first, str(khz)), (second, str(khz))]
            self._khz[policy] = khz
        return tuple(writes)

    def printed(self, began: float, now: float) -> list[str]:
        """See `Program.printed`."""
        if self._options.switches:
            return self._lines
        if self._burst > 1:
            step_s, first = (now - began) / self._burst, began
            spans = [step_s * span / sum(self._spans) for span in self._spans]
        else:
            self._begins.append(began)
            if len(self._begins) < self._ends[-1]:
                return []
            times = [self._begins[first] for first in [0, *self._ends[:-1]]] + [now]
            self._begins.clear()
            self._spans = spans = [b - a for a, b in itertools.pairwise(times)]
            step_s, first = now - times[0], times[0]
        self._done += self._burst
        step = f"step {self._done} loss 0 ms {1e3 * step_s:.6g}"
        if not self._options.trace:
            return [step]
        return [f"calls {first:.6f} {' '.join(f'{1e6 * span:.3f}' for span in spans)}", step]


def _settings(text: str) -> tuple[list[_Setting], dict[int, int], dict[int, int]]:
    """Parses settings, their beginnings, and the schedules of calls; `rpc/step_runner/settings.h` has the
    format.
    """
    settings: list[_Setting] = []
    at: dict[int, int] = {}
    used: dict[int, int] = {}
    for kind, *words in (line.split() for line in text.splitlines()):
        if kind in ("at", "use"):
            (at if kind == "at" else used)[int(words[0])] = int(words[1])
            continue
        khz = dict(word.rsplit("=", 1) for word in words[2:])
        cpus = None if words[0] == "-" else cpu_list(words[0])
        settings.append(
            _Setting(cpus, int(words[1]), {policy: int(value) for policy, value in khz.items()})
        )
    return settings, {0: 0} | at, used
