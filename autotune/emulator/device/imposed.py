"""Applies the faults in force to the state of an emulated device: denied writes, caps, stuck meters."""

from __future__ import annotations

import threading
from collections.abc import Callable

from autotune.emulator.device.faults import FaultKind
from autotune.emulator.kernel import MeterState
from autotune.emulator.model import Soc

CAPPED_SHARE = 0.5
SATURATED_W = 2.35
"""Power at which the paper's meter saturated: 484 mA at 4.85 V."""


class ImposedFaults:
    """Faults that show in a device's state.

    Args:
        soc: The device's chip.
        restart: Restarts the device.
        read_meters: Reads all meters, which then keep their readings.
    """

    def __init__(
        self, soc: Soc, restart: Callable[[], None], read_meters: Callable[[], None]
    ) -> None:
        self._soc, self._restart, self._read_meters = soc, restart, read_meters
        self._before: frozenset[FaultKind] = frozenset()
        self._lock = threading.RLock()
        self.meters = MeterState()
        self.denied = False
        """Whether the kernel's files refuse writes."""

    def impose(self, kinds: frozenset[FaultKind]) -> None:
        """Applies the faults of a call that begins."""
        with self._lock:
            before, self._before = self._before, kinds
            self._change(before, kinds)

    def _change(self, before: frozenset[FaultKind], kinds: frozenset[FaultKind]) -> None:
        soc = self._soc
        if "reboot" in kinds - before:
            self._restart()
        self.denied = "write_denied" in kinds
        if "throttle" in kinds or "throttle" in before:
            soc.force_throttle(("throttle" in kinds and len(soc.profile.thermal.trips)) or 0)
        with soc.lock:
            soc.advance()
            for policy in soc.policies:
                half = policy.nearest(round(CAPPED_SHARE * policy.cluster.frequencies_khz[-1]))
                policy.cap("power service", half if "write_capped" in kinds else None)
        self.meters.limit_w = SATURATED_W if "meter_saturated" in kinds else None
        if "meter_stuck" not in kinds:
            self.meters.stuck_since_s = None
        elif self.meters.stuck_since_s is None:
            self.meters.stuck_since_s = soc.clock.now()
            self._read_meters()
