"""Waits for a device that went away during a measurement, and makes it ready again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from autotune.devices import SETTINGS, Device, Journal
from autotune.errors import TransientDeviceError
from autotune.measurement.observer import Observer
from autotune.measurement.step_run import Protocol

LOGGER = logging.getLogger("autotune.measurement")
_RECONNECT_S = 10.0
_RETURN_PAUSE_S = 5.0
_T = TypeVar("_T")


class Reconnection:
    """A device that may go away and come back.

    Args:
        device: The device.
        observer: Runs commands on it.
        journal: Its restore journal.
        protocol: How long and how often it may be away.
        sleep: How time passes.
    """

    def __init__(
        self,
        device: Device,
        observer: Observer,
        journal: Journal,
        protocol: Protocol,
        sleep: Callable[[float], None],
    ) -> None:
        self._device, self._observer, self._journal = device, observer, journal
        self._protocol, self._sleep = protocol, sleep

    def retried(self, action: Callable[[], _T], taken: list[str]) -> _T:
        """Does something on the device; again where it went away meanwhile, as often as the protocol allows.

        Args:
            action: What to do.
            taken: Where records go that were broken off.

        Raises:
            DeviceError: The device is gone.
        """
        for _ in range(self._protocol.returns):
            try:
                return action()
            except TransientDeviceError as error:
                self.wait(error, taken)
                self.put_back()
        return action()

    def wait(self, error: TransientDeviceError, taken: list[str]) -> bool:
        """Waits for a device that was away; returns whether it restarted.

        Args:
            error: What told that it is.
            taken: Where the record goes that was broken off.

        Raises:
            TransientDeviceError: It stays away.
            StableDeviceError: It restarted, and has lost what was brought there.
        """
        LOGGER.warning("%s; what was measured meanwhile is measured again", error.message)
        if self._observer.unfinished:
            taken.append(self._observer.unfinished)
        waited = 0.0
        while True:
            try:
                return self._observer.recover()
            except TransientDeviceError:
                if waited >= self._protocol.return_s:
                    raise
            with suppress(TransientDeviceError):
                self._device.reconnect(timeout=_RECONNECT_S)
            self._sleep(_RETURN_PAUSE_S)
            waited += _RETURN_PAUSE_S

    def put_back(self) -> None:
        """Restores settings that could not be restored when a measurement was broken off."""
        for failure in self._journal.undo(SETTINGS):
            LOGGER.warning("%s: not restored: %s", self._device.serial, failure)
