"""Faults of an emulated device as plain data: their kinds, times and durations."""

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
"""Calls of the `Device` protocol. A `session` is a `run` of a program with emulated behaviour."""
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
    """One fault.

    - `drop`: the link breaks in the middle of a call. A push leaves half a file. Any other call is carried out, but
    its
      answer is lost.
    - `hang`: no answer until the call's time is over. `garbage`: an unreadable answer.
    - `unauthorised`, `offline`: adb's states. `slow_link`: everything over the link takes 20 times as long.
    - `reboot`: settings, ports and loads are lost, and the device is offline for the duration.
    - `server_crash`, `driver_hang`, `out_of_memory`: a session ends with SIGABRT, never, or with SIGKILL.
    - `disk_full`, `write_denied` (EACCES even for root), `write_capped` (a power service caps the clocks at half).
    - `throttle`: the clocks are capped as if the device were hot.
    - `meter_stuck`: currents show one value (a charge counter continues). `meter_saturated`: they show 2.35 W at
      most, as the paper's meter did.

    Attributes:
        kind: The kind of fault.
        call: The kind of call that starts it, at the `number`-th such call; None if `time_s` gives the start.
        number: Counted from 1.
        time_s: The clock's time after which the next call starts it.
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
    """The faults of a device, in any order."""

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
        """Returns a plan that is determined by the seed.

        Args:
            seed: Any number.
            count: Number of faults.
            kinds: Possible kinds of faults.
            calls: Faults begin with one of this many calls of a kind,
            seconds: or within this many seconds. They last a tenth of this time at most.
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
        """Returns the plan from the output of `to_json`.

        Raises:
            UsageError: The value is not a plan.
        """
        try:
            return FaultPlan(tuple(Fault(**item) for item in listed))
        except TypeError as error:
            raise UsageError(f"no fault plan: {error}") from error

    def to_json(self) -> list[dict[str, Any]]:
        """Returns a plain list of objects."""
        return [asdict(fault) for fault in self.faults]


class FaultState:
    """Tracks which faults of a plan are in force.

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
        """Counts a call, and returns the faults in force for it, in the plan's order."""
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
            # A fault started by a call, or without a duration, is in force for the call that starts it.
            alone = starts and (fault.duration_s == 0 or fault.time_s is None)
            if alone or (index in self._until and now < self._until[index]):
                found.append(fault)
        return tuple(found)

    def _due(self, fault: Fault, call: CallKind, now: float) -> bool:
        if fault.time_s is not None:
            return now >= fault.time_s
        return fault.call == call and self._calls[call] == fault.number
