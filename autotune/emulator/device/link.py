"""The link to an emulated device: the time that calls take, and their faults."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from autotune.emulator.device.faults import CallKind, FaultKind, FaultPlan, FaultState
from autotune.emulator.model import Clock
from autotune.errors import StableDeviceError, TransientDeviceError

LATENCY_S = 0.005
"""Seconds that a call takes over the link (an assumption, for a USB cable)."""
BANDWIDTH_BYTES_S = 20e6
"""Bytes per second of a push or pull (an assumption, for USB 2)."""
SLOW_FACTOR = 20.0


class _CallNow(threading.local):
    """The present call of a thread."""

    deadline = 0.0
    faults: frozenset[FaultKind] = frozenset()


class Link:
    """Calls to a device that take time on its clock. Each thread has its own call.

    Args:
        serial: The device's serial, for messages.
        clock: Its time.
        faults: Its faults.
        impose: Applies the faults of a call to the device's state.
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
        """The faults that calls have encountered."""

    @property
    def faults(self) -> frozenset[FaultKind]:
        """The faults of the present call."""
        return self._now.faults

    def time_left_s(self) -> float:
        """Returns seconds until the present call's limit."""
        return self._now.deadline - self._clock.now()

    @contextmanager
    def call(self, kind: CallKind, timeout: float) -> Iterator[None]:
        """Makes one call over the link, with its faults.

        Raises:
            StableDeviceError: The device does not trust this computer.
            TransientDeviceError: It is offline or silent, or the link broke.
        """
        faults = frozenset(fault.kind for fault in self._plan.begin(kind))
        self.met |= faults
        # A running program may make calls itself.
        outer = self._now.deadline, self._now.faults
        self._now.deadline, self._now.faults = self._clock.now() + timeout, faults
        self._impose(faults)
        try:
            yield from self._answered(faults, timeout)
        finally:
            self._now.deadline, self._now.faults = outer

    def transfer(self, size: int) -> int:
        """Lets the time of a transfer pass, and returns the bytes that were transferred within the call's limit."""
        needed = size / BANDWIDTH_BYTES_S * (SLOW_FACTOR if "slow_link" in self.faults else 1)
        left = self.time_left_s()
        self._clock.sleep(min(needed, left))
        return size if needed <= left else int(size * max(0.0, left) / needed)

    def silent(self, timeout: float) -> TransientDeviceError:
        """Returns the error for a call without an answer."""
        return TransientDeviceError(f"{self._serial}: no answer within {timeout:g} s")

    def late(self, program: str, timeout: float) -> TransientDeviceError:
        """Returns the error for a program that ran past its call's limit."""
        return TransientDeviceError(
            f"{self._serial}: `{program}` did not end within {timeout:g} s and was killed"
        )

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
