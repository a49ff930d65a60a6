"""Faults of an emulated device, as plain data: what goes wrong, when, and for how long."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from autotune.emulator.model import Clock
from autotune.errors import UsageError

FaultKind = Literal[
    "drop",
    "hang",
    "garbage",
    "unauthorised",
    "offline",
    "slow_link",
    "reboot",
    "server_crash",
    "driver_hang",
    "out_of_memory",
    "disk_full",
    "write_denied",
    "write_capped",
    "throttle",
    "meter_stuck",
    "meter_saturated",
]
CallKind = Literal[
    "run",
    "session",
    "push",
    "pull",
    "read",
    "write",
    "collect",
    "find",
    "forward",
    "reverse",
    "unforward",
    "unreverse",
]
"""Calls of the `Device` protocol; a `session` is a `run` of a program that the emulation gives a behaviour."""
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
CALL_KINDS: tuple[CallKind, ...] = get_args(CallKind)

_SUITED: dict[FaultKind, tuple[CallKind, ...]] = {
    "drop": ("run", "push", "session", "read", "write", "collect"),
    "garbage": ("run", "read", "collect"),
    "server_crash": ("session",),
    "driver_hang": ("session",),
    "out_of_memory": ("session",),
    "disk_full": ("push",),
    "write_denied": ("write",),
    "write_capped": ("write",),
}
_ANY: tuple[CallKind, ...] = ("run", "push", "read", "write", "collect", "session")


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    - `drop`: the link breaks in the middle of a call. A push leaves half a file; anything else was done, but its
      answer is lost.
    - `hang`: no answer until the call's time is over. `garbage`: an answer that nobody can read.
    - `unauthorised`, `offline`: adb's states. `slow_link`: everything over the link takes 20 times as long.
    - `reboot`: settings, ports and loads are gone, and the device is offline for the duration.
    - `server_crash`, `driver_hang`, `out_of_memory`: a session ends with SIGABRT, never, or with SIGKILL.
    - `disk_full`, `write_denied` (EACCES even for root), `write_capped` (a power service caps the clocks at half).
    - `throttle`: the clocks are capped as if the device were hot.
    - `meter_stuck`: currents show one value (a charge counter goes on). `meter_saturated`: they show 2.35 W at
      most, as the paper's did.

    Attributes:
        kind: What goes wrong.
        call: The kind of call whose `number`-th one it begins with; None where `time_s` says when.
        number: Counted from 1.
        time_s: The clock's time from which on it waits for a call.
        duration_s: How long it lasts; 0 for one call.
    """

    kind: FaultKind
    call: CallKind | None = None
    number: int = 1
    time_s: float | None = None
    duration_s: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in FAULT_KINDS or (self.call and self.call not in CALL_KINDS):
            raise UsageError(f"there is no fault '{self.kind}' of '{self.call}'")
        if (self.call is None) == (self.time_s is None):
            raise UsageError(f"the fault {self.kind} begins either with a call or at a time")
        if self.number < 1 or self.duration_s < 0:
            raise UsageError(f"the fault {self.kind} has a call below 1 or a negative duration")


@dataclass(frozen=True)
class FaultPlan:
    """What goes wrong with a device, in any order."""

    faults: tuple[Fault, ...] = ()

    @staticmethod
    def random(
        seed: int,
        count: int,
        *,
        kinds: Sequence[FaultKind] = FAULT_KINDS,
        calls: int = 20,
        seconds: float = 60.0,
    ) -> FaultPlan:
        """A plan that the seed determines.

        Args:
            seed: Any number.
            count: How many faults.
            kinds: What may go wrong.
            calls: They begin with one of this many calls of a kind,
            seconds: or within this many seconds, and last a tenth of it at most.
        """
        chance = random.Random(seed)
        faults = []
        for _ in range(count):
            kind = chance.choice(list(kinds))
            lasting = chance.choice([0.0, chance.uniform(0.0, seconds / 10)])
            suited = _SUITED.get(kind, _ANY)
            if kind in _SUITED or chance.random() < 0.5:
                call = chance.choice(suited)
                faults.append(
                    Fault(kind, call, number=chance.randint(1, calls), duration_s=lasting)
                )
            else:
                faults.append(Fault(kind, time_s=chance.uniform(0, seconds), duration_s=lasting))
        return FaultPlan(tuple(faults))

    @staticmethod
    def from_json(listed: Iterable[Mapping[str, Any]]) -> FaultPlan:
        """The plan of `to_json`.

        Raises:
            UsageError: It is none.
        """
        try:
            return FaultPlan(tuple(Fault(**item) for item in listed))
        except TypeError as error:
            raise UsageError(f"no fault plan: {error}") from error

    def to_json(self) -> list[dict[str, Any]]:
        """A plain list of objects."""
        return [asdict(fault) for fault in self.faults]


class FaultState:
    """Which faults of a plan are in force.

    Args:
        plan: The plan.
        clock: The device's time.
    """

    def __init__(self, plan: FaultPlan, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._calls: Counter[CallKind] = Counter()
        self._until: dict[int, float] = {}
        self._lock = threading.Lock()

    def begin(self, call: CallKind) -> tuple[Fault, ...]:
        """Counts a call; returns the faults that are in force for it, in the plan's order."""
        with self._lock:
            return self._begin(call, self._clock.now())

    def _begin(self, call: CallKind, now: float) -> tuple[Fault, ...]:
        self._calls[call] += 1
        found = []
        for index, fault in enumerate(self._plan.faults):
            starts = index not in self._until and self._due(fault, call, now)
            if starts:
                begun = now if fault.time_s is None else fault.time_s
                self._until[index] = begun + fault.duration_s
            # One of a call or without a duration is in force for the call that it begins with.
            alone = starts and (fault.duration_s == 0 or fault.time_s is None)
            if alone or (index in self._until and now < self._until[index]):
                found.append(fault)
        return tuple(found)

    def _due(self, fault: Fault, call: CallKind, now: float) -> bool:
        if fault.time_s is not None:
            return now >= fault.time_s
        return fault.call == call and self._calls[call] == fault.number
