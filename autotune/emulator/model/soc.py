"""The live model of a device: clocks, loads, power, energy and heat over a clock's time."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

from autotune.emulator.model.chip_state import ChipState, ChipStates
from autotune.emulator.model.clock import Clock, VirtualClock
from autotune.emulator.model.heat import Heat
from autotune.emulator.model.policy import Policy
from autotune.emulator.model.power_history import PowerHistory, Segment
from autotune.emulator.model.profile import Profile
from autotune.emulator.model.running_load import DONE_S, Load, Work
from autotune.emulator.model.step_model import Workload
from autotune.errors import UsageError

_REAL_SLICE_S = 0.05


class Soc:
    """A device's chip, battery and body.

    The state is updated to the clock's time whenever it is read or changed. Between two events (a setting, a load's
    beginning or end, a trip point) power is constant, so energy and temperature are integrated exactly. It is safe
    to use from several threads.

    Args:
        profile: The device.
        clock: Its time; None for a virtual clock.
    """

    def __init__(self, profile: Profile, clock: Clock | None = None) -> None:
        self.profile = profile
        self.clock: Clock = clock or VirtualClock()
        self.lock = threading.RLock()
        self.policies = tuple(Policy(cluster) for cluster in profile.clusters)
        self._online = set(profile.cpus)
        self._heat = Heat(profile.thermal)
        self._loads: list[Load] = []
        self._time = self.clock.now()
        self._net_j = 0.0
        self._history = PowerHistory()
        self._core_busy_s = dict.fromkeys(profile.cpus, 0.0)
        self._states = ChipStates(profile, self.policies)

    # The present state.

    def online(self) -> tuple[int, ...]:
        """Numbers of the cores that are on."""
        with self.lock:
            return tuple(sorted(self._online))

    def clocks_khz(self) -> tuple[int, ...]:
        """Returns the present clock of each cluster."""
        with self.lock:
            self.advance()
            return self._state().clocks_khz

    def net_w(self) -> float:
        """Returns the present power above idle, in watts."""
        with self.lock:
            self.advance()
            return self._state().net_w

    def net_j(self) -> float:
        """Returns energy above idle since the start, in joules."""
        with self.lock:
            self.advance()
            return self._net_j

    def energy_j(self) -> float:
        """Returns total energy since the start, including idle power, in joules."""
        with self.lock:
            return self.net_j() + self.profile.model.idle_w * self._time

    def celsius(self) -> float:
        """Returns the body's temperature in degrees Celsius."""
        with self.lock:
            self.advance()
            return self._heat.celsius

    def throttle_level(self) -> int:
        """Returns the number of trip points that cap the clocks at present."""
        with self.lock:
            self.advance()
            return self._heat.throttle_level

    def busy_s(self) -> dict[int, float]:
        """Returns seconds for which each core has worked on a load since the start."""
        with self.lock:
            self.advance()
            return dict(self._core_busy_s)

    def loads(self) -> tuple[Load, ...]:
        """Returns the work in progress."""
        with self.lock:
            self.advance()
            return tuple(self._loads)

    def mean_net_w(self, start: float, end: float) -> float:
        """Returns the mean power above idle between two times of the last minute, in watts."""
        with self.lock:
            self.advance()
            if end <= start:
                return self._state().net_w
            return self._history.mean_w(start, end)

    # Changes of the state.

    def set_online(self, cpu: int, on: bool) -> None:
        """Switches a core on or off. The last one stays on.

        Raises:
            UsageError: There is no such core, or it is the last.
        """
        with self.lock:
            self.advance()
            self.profile.cluster_of(cpu)
            if not on and self._online <= {cpu}:
                raise UsageError("the last core stays on")
            (self._online.add if on else self._online.discard)(cpu)

    def set_celsius(self, celsius: float) -> None:
        """Sets the body's temperature immediately."""
        with self.lock:
            self.advance()
            self._heat.celsius = celsius
            self._settle()

    def force_throttle(self, level: int) -> None:
        """Caps the clocks as if `level` trip points were passed, at any temperature; 0 ends this."""
        with self.lock:
            self.advance()
            self._heat.force(level)
            self._settle()

    def reset(self) -> None:
        """Resets the state as a restart of the device does: loads end, settings go back; heat and energy stay."""
        with self.lock:
            self.advance()
            for load in self._loads:
                load.ended = True
            self._loads.clear()
            self._online = set(self.profile.cpus)
            for policy in self.policies:
                policy.reset()

    def begin(
        self,
        workload: Work,
        cpus: Sequence[int],
        *,
        steps: float = math.inf,
        threads: int | None = None,
    ) -> Load:
        """Starts a load that runs as time passes. It moves to other cores if all of its own are switched off.

        Args:
            workload: One step of it.
            cpus: Cores that it may use.
            steps: Steps after which it ends by itself.
            threads: Its threads; None for one on each core.

        Raises:
            UsageError: There are no cores or threads, or a core does not exist.
        """
        with self.lock:
            self.advance()
            load = Load(workload, tuple(cpus), threads, steps)
            self._states.step(load, load.cpus, self._state().clocks_khz, self._online)
            self._loads.append(load)
            return load

    def remaining_s(self, load: Load) -> float:
        """Returns seconds until a load ends if nothing changes; 0 if it has ended."""
        with self.lock:
            self.advance()
            found = self._state().steps.get(id(load))
            return found[0].steps_left * found[1].time_s * found[2] if found else 0.0

    def end(self, load: Load) -> None:
        """Ends a load now."""
        with self.lock:
            self.advance()
            load.ended = True
            if load in self._loads:
                self._loads.remove(load)

    def run(
        self,
        workload: Workload,
        cpus: Sequence[int],
        *,
        steps: float = 1,
        threads: int | None = None,
        limit_s: float = math.inf,
    ) -> Load:
        """Runs steps one after another. Returns when they are done, or when `limit_s` seconds are over.

        Args:
            workload: One step.
            cpus: Cores that it may use.
            steps: Number of steps.
            threads: Its threads; None for one on each core.
            limit_s: Limit in seconds.

        Raises:
            UsageError: See `begin`.
        """
        load = self.begin(workload, cpus, steps=steps, threads=threads)
        _wait(self, load, limit_s)
        return load

    def until_event_s(self) -> float:
        """Returns seconds until a load ends or a trip point is passed, if nothing changes."""
        with self.lock:
            self.advance()
            return self._until_event(self._state())

    # Progress of the state.

    def advance(self) -> None:
        """Updates the state to the clock's time."""
        with self.lock:
            now = self.clock.now()
            while self._time < now:
                state = self._state()
                seconds = min(now - self._time, self._until_event(state))
                self._pass(state, max(seconds, min(DONE_S, now - self._time)))

    def _state(self) -> ChipState:
        return self._states.of(self._loads, self._online)

    def _until_event(self, state: ChipState) -> float:
        return min([self._heat.until_next_level(state.net_w), *state.left_s()])

    def _pass(self, state: ChipState, seconds: float) -> None:
        for load, step, rivals in state.steps.values():
            load.advance(step, seconds, rivals)
            for cpu, share in step.busy.items():
                self._core_busy_s[cpu] += share * seconds / rivals
            if load.ended:
                self._loads.remove(load)
        self._history.add(Segment(self._time, self._time + seconds, state.net_w))
        self._net_j += state.net_w * seconds
        self._heat.advance(state.net_w, seconds)
        # However late it is, time must move on: a nanosecond may be lost beside many days.
        self._time = max(self._time + seconds, math.nextafter(self._time, math.inf))
        self._settle()

    def _settle(self) -> None:
        """Sets the thermal caps for the present temperature."""
        self._heat.settle()
        for number, policy in enumerate(self.policies):
            policy.cap("thermal", self._heat.cap_khz(number))


def _wait(soc: Soc, load: Load, limit_s: float) -> None:
    """Lets time pass until a load has ended. Ends it after `limit_s` seconds."""
    start = soc.clock.now()
    virtual = isinstance(soc.clock, VirtualClock)
    while True:
        with soc.lock:
            soc.advance()
            left = start + limit_s - soc.clock.now()
            if load.ended or left <= DONE_S:
                soc.end(load)
                return
            wait = min(left, soc.until_event_s())
        # Without the lock. In real time others may change a clock meanwhile, so look again soon.
        soc.clock.sleep(max(wait, DONE_S) if virtual else min(wait, _REAL_SLICE_S))
