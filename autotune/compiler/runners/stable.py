"""Measurements that count only if their device was in good condition. Otherwise they are repeated once it is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from autotune.errors import TransientDeviceError
from autotune.measurement import Best, Broken, Conditions

LOGGER = logging.getLogger("autotune.devices")


class Timed(Protocol):
    """A measurement with its device's conditions before and after it (empty if the device reports none)."""

    @property
    def samples(self) -> tuple[object, ...]: ...
    @property
    def device(self) -> str: ...
    @property
    def conditions(self) -> tuple[Conditions, ...]: ...


T = TypeVar("T", bound=Timed)


@dataclass(frozen=True)
class Limits:
    """When a measurement counts, and how long to wait for its device.

    Attributes:
        band_k: Largest allowed temperature of a device's body above its coolest, in kelvins.
        again: How often a measurement that does not count is repeated.
        rest_s: Longest wait for a device to recover, in seconds.
        look_s: Seconds between two readings of its conditions.
        in_vain: Number of successive measurements without a result after which the run is given up.
    """

    band_k: float = 10.0
    again: int = 2
    rest_s: float = 300.0
    look_s: float = 2.0
    in_vain: int = 3


USUAL = Limits()


@dataclass(frozen=True)
class StableMeasurement(Generic[T]):
    """A measurement and its rejected attempts.

    Attributes:
        value: The measurement that counts; None if none does.
        serial: The device.
        broken: Why none counts.
        rejected: Measurements that do not count.
    """

    value: T | None
    serial: str
    broken: tuple[Broken, ...]
    rejected: tuple[T, ...]

    @property
    def why(self) -> str:
        """Why none counts, as text."""
        return _words(self.broken)


class UnstableDevice(Exception):  # noqa: N818  # what happened
    """A device did not recover within its rest."""

    def __init__(self, serial: str, broken: Sequence[Broken]) -> None:
        super().__init__(serial)
        self.serial = serial
        self.broken = tuple(broken)


class StabilityWatch:
    """Watches the devices of a run. Several threads may use it, but only one per device.

    Args:
        kind: The devices' kind. Clocks of their cores count; those of a graphics processor only if kernels run on
            it.
        limits: When a measurement counts.
        wanted: Called while a device rests; returns whether the measurement is still wanted.
    """

    def __init__(self, kind: str, limits: Limits, wanted: Callable[[], bool]) -> None:
        self._kind = kind
        self._limits = limits
        self._wanted = wanted
        self._lock = threading.Lock()
        self._best: dict[str, Best] = {}
        self._resting: dict[str, bool] = {}
        self._silent: set[str] = set()
        self._in_vain = 0

    def hold(self, measure: Callable[[], T]) -> StableMeasurement[T]:
        """Measures until a measurement counts, or the attempts are used up.

        Args:
            measure: Measures once, after `rest`.

        Raises:
            TransientDeviceError: Several successive measurements gave no result because of the devices' conditions.
        """
        rejected: list[T] = []
        serial, broken = "", tuple[Broken, ...]()
        for _ in range(1 + self._limits.again):
            try:
                timed = measure()
            except UnstableDevice as found:
                serial, broken = found.serial, found.broken
                break
            serial, broken = timed.device, self._judge(timed)
            if not broken:
                self._in_vain = 0
                return StableMeasurement(timed, serial, (), tuple(rejected))
            LOGGER.warning("%s: a measurement does not count: %s", _name(serial), _words(broken))
            rejected.append(timed)
        self._in_vain += 1
        if self._in_vain >= self._limits.in_vain:
            raise TransientDeviceError(
                f"measurements came to nothing {self._in_vain} times in a row: {_words(broken)}",
                hint="let the device cool; all that was measured is kept: --resume continues",
            )
        return StableMeasurement(None, serial, broken, tuple(rejected))

    def _judge(self, timed: Timed) -> tuple[Broken, ...]:
        """Returns what was wrong before or after a measurement; empty if the measurement itself failed."""
        serial = timed.device
        if not timed.samples:
            return ()
        if not timed.conditions:
            if serial not in self._silent:
                self._silent.add(serial)
                LOGGER.warning(
                    "%s: its server reports neither temperature nor clocks: throttling cannot be detected",
                    _name(serial),
                )
            return ()
        best = self._best_of(serial)
        for seen in timed.conditions:
            best.learn(seen)
        self._resting[serial] = bool(best.broken(timed.conditions[-1]))
        return tuple(broken for seen in timed.conditions for broken in best.broken(seen))

    def _best_of(self, serial: str) -> Best:
        with self._lock:
            return self._best.setdefault(serial, Best(self._limits.band_k, self._kind))

    def rest(self, serial: str, look: Callable[[], Conditions]) -> None:
        """Waits until a device has recovered, if it was in bad condition when last seen.

        Args:
            serial: The device.
            look: Reads its conditions.

        Raises:
            UnstableDevice: It did not recover within `rest_s`.
            TransientDeviceError: The measurement is no longer wanted.
        """
        if not self._resting.get(serial):
            return
        best, began, warned = self._best_of(serial), time.monotonic(), False
        while True:
            now = look()
            best.learn(now)
            broken = best.broken(now, rested=True)
            if not broken:
                break
            if not warned:
                warned = True
                LOGGER.warning(
                    "%s rests before it is measured on: %s", _name(serial), _words(broken)
                )
            if time.monotonic() - began > self._limits.rest_s:
                raise UnstableDevice(serial, broken)
            if not self._wanted():
                raise TransientDeviceError(f"{_name(serial)} was still resting")
            time.sleep(self._limits.look_s)
        self._resting[serial] = False
        if warned:
            rested = time.monotonic() - began
            LOGGER.warning("%s continues after %.0f s of rest", _name(serial), rested)


def _words(broken: Sequence[Broken]) -> str:
    return "; ".join(dict.fromkeys(one.why for one in broken))


def _name(serial: str) -> str:
    return serial or "this host"
