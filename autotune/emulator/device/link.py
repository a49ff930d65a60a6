"""The link to an emulated device: the time that calls take, and what goes wrong with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from autotune.emulator.device.faults import CallKind, FaultKind, FaultPlan, FaultState
from autotune.emulator.model import Clock
from autotune.errors import StableDeviceError, TransientDeviceError

LATENCY_S = 0.005
"""Seconds that a call takes over the link: an assumption, of a USB cable."""
BANDWIDTH_BYTES_S = 20e6
"""Bytes a second that a push or pull reaches: an assumption, of USB 2."""
SLOW_FACTOR = 20.0


class _CallNow(threading.local):
    """The call that a thread is in."""

    deadline = 0.0
    faults: frozenset[FaultKind] = frozenset()


class Link:
    """Calls to a device, at the clock's pace; each thread has a call of its own.

    Args:
        serial: The device's, for messages.
        clock: Its time.
        faults: What goes wrong.
        impose: Makes the device's state what the faults of a call say.
    """

    def __init__(
        self,
        serial: str,
        clock: Clock,
        faults: FaultPlan,
        impose: Callable[[frozenset[FaultKind]], None],
    ) -> None:
        self._serial, self._clock, self._impose = serial, clock, impose
        self._plan = FaultState(faults, clock)
        self._now = _CallNow()
        self.met: frozenset[FaultKind] = frozenset()
        """The faults that calls have met."""

    @property
    def faults(self) -> frozenset[FaultKind]:
        """The faults of the present call."""
        return self._now.faults

    def time_left_s(self) -> float:
        """Seconds until the present call's limit."""
        return self._now.deadline - self._clock.now()

    @contextmanager
    def call(self, kind: CallKind, timeout: float) -> Iterator[None]:
        """One call over the link, with what goes wrong with it.

        Raises:
            StableDeviceError: The device does not trust this computer.
            TransientDeviceError: It is offline or silent, or the link broke.
        """
        faults = frozenset(fault.kind for fault in self._plan.begin(kind))
        self.met |= faults
        # A program may make calls of its own while it runs.
        outer = self._now.deadline, self._now.faults
        self._now.deadline, self._now.faults = self._clock.now() + timeout, faults
        self._impose(faults)
        try:
            yield from self._answered(faults, timeout)
        finally:
            self._now.deadline, self._now.faults = outer

    def transfer(self, size: int) -> int:
        """Lets the time of a transfer pass; returns how many bytes came over within the call's limit."""
        needed = size / BANDWIDTH_BYTES_S * (SLOW_FACTOR if "slow_link" in self.faults else 1)
        left = self.time_left_s()
        self._clock.sleep(min(needed, left))
        return size if needed <= left else int(size * max(0.0, left) / needed)

    def silent(self, timeout: float) -> TransientDeviceError:
        """The error of a call that is not answered."""
        return TransientDeviceError(f"{self._serial}: no answer within {timeout:g} s")

    def _answered(self, faults: frozenset[FaultKind], timeout: float) -> Iterator[None]:
        if faults & {"unauthorised", "offline", "reboot"}:
            self._clock.sleep(min(LATENCY_S, timeout))
        if "unauthorised" in faults:
            raise StableDeviceError(
                f"{self._serial} does not trust this computer",
                hint="unlock it and allow USB debugging",
            )
        if faults & {"offline", "reboot"}:
            raise TransientDeviceError(f"{self._serial}: device offline")
        latency = LATENCY_S * (SLOW_FACTOR if "slow_link" in faults else 1)
        if "hang" in faults or latency > timeout:
            self._clock.sleep(self.time_left_s())
            raise self.silent(timeout)
        self._clock.sleep(latency)
        try:
            yield
        except StableDeviceError as error:
            if "drop" not in faults:
                raise
            raise TransientDeviceError(f"{self._serial}: the connection broke") from error
        if "drop" in faults:
            raise TransientDeviceError(f"{self._serial}: the connection broke")
        if "garbage" in faults:
            raise TransientDeviceError(f"{self._serial}: the answer is garbled")
