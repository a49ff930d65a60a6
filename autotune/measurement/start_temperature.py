"""The temperature at which runs begin. A device is left to cool, or warmed by its own workload."""

from __future__ import annotations

from collections.abc import Callable

from autotune.devices import Device, DeviceInfo, ThermalZone
from autotune.measurement import conditions
from autotune.measurement.setting import Setting
from autotune.measurement.step_run import Band, Protocol


class StartTemperature:
    """Brings a device into the band of temperatures at which runs begin.

    Args:
        device: The device.
        info: Its properties.
        protocol: Sets the width of the band, and the longest wait.
        band: Temperatures at which runs begin; None uses the protocol's band around the temperature in `info`.
        sleep: How time passes.
    """

    def __init__(
        self,
        device: Device,
        info: DeviceInfo,
        protocol: Protocol,
        band: Band | None,
        sleep: Callable[[float], None],
    ) -> None:
        self._device, self._info, self._protocol, self._sleep = device, info, protocol, sleep
        self.zone = conditions.body_zone(info)
        """The sensor; None without one."""
        self.band = band
        """Temperatures at which runs begin; None without a sensor."""
        if band is None and self.zone is not None and self.zone.celsius is not None:
            now = self.zone.celsius
            self.band = Band(now - protocol.cold_k, now + protocol.band_k)

    def reach(
        self, setting: Setting, warmed: Callable[[ThermalZone, float], float]
    ) -> tuple[str, ...]:
        """Waits until the device is cool enough, or warms it if it is too cold.

        Args:
            setting: The clocks of the run; none of them may be throttled.
            warmed: Runs the workload until a sensor reads the given degrees Celsius, and returns its reading then.

        Returns:
            Marks of the run, if it began colder than others.

        Raises:
            StableDeviceError: The device does not cool down, or stays throttled.
        """
        limit_s, sleep = self._protocol.cooling_limit_s, self._sleep
        marks: tuple[str, ...] = ()
        if (zone := self.zone) is not None and (band := self.band) is not None:
            now = conditions.wait_until_cool(
                self._device, zone, band.high_c, limit_s=limit_s, sleep=sleep
            )
            if now < band.low_c:
                now = warmed(zone, band.low_c)
            if now < band.low_c:
                marks = (
                    f"{zone.name} began at {now:.1f} C, and others at {band.low_c:.1f} C at least",
                )
        conditions.wait_until_unthrottled(
            self._device, self._info, setting, limit_s=limit_s, sleep=sleep
        )
        return marks
