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
        protocol: Sets how long and how often it may be away.
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
        """Runs an action on the device. Repeats it if the device went away, as often as the protocol allows.

        Args:
            action: The action.
            taken: Receives incomplete records.

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
        """Waits for a device that was away, and returns whether it restarted.

        Args:
            error: The error that reported the loss.
            taken: Receives the incomplete record.

        Raises:
            TransientDeviceError: It stays away.
            StableDeviceError: It restarted, and has lost the files that were copied there.
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
        """Restores settings that could not be restored when a measurement broke off."""
        for failure in self._journal.undo(SETTINGS):
            LOGGER.warning("%s: not restored: %s", self._device.serial, failure)
