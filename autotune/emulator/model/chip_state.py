"""The state of an emulated chip between two changes: its clocks, each load's step and the power."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field

from autotune.emulator.model.policy import Policy
from autotune.emulator.model.profile import Profile
from autotune.emulator.model.running_load import Estimates, Load
from autotune.emulator.model.step_model import StepEstimate


@dataclass
class ChipState:
    """The state until the next change: clocks, each load's step, the time factor of shared cores, the power."""

    clocks_khz: tuple[int, ...]
    steps: dict[int, tuple[Load, StepEstimate, int]] = field(default_factory=dict)
    net_w: float = 0.0

    def left_s(self) -> list[float]:
        """Returns seconds until each load ends."""
        return [
            load.steps_left * step.time_s * rivals for load, step, rivals in self.steps.values()
        ]


class ChipStates:
    """Computes the present state from policies, loads and the cores that are on.

    Args:
        profile: The device.
        policies: Its clusters' policies.
    """

    def __init__(self, profile: Profile, policies: Sequence[Policy]) -> None:
        self._policies = policies
        self._estimates = Estimates(profile)
        self._kept: tuple[Hashable, ChipState] = (None, ChipState(()))

    def of(self, loads: Sequence[Load], online: Collection[int]) -> ChipState:
        """Returns the present state.

        It is cached until a policy, a load or a core changes, because every file read asks for it.
        """
        key = (
            tuple(policy.state for policy in self._policies),
            tuple(id(load) for load in loads),
            tuple(online),
        )
        if key != self._kept[0]:
            self._kept = key, self._new(loads, online)
        return self._kept[1]

    def step(
        self,
        load: Load,
        cpus: tuple[int, ...],
        clocks_khz: tuple[int, ...],
        online: Collection[int],
    ) -> StepEstimate:
        """Returns the estimate of a load's step on some cores.

        Raises:
            UsageError: There are no cores or threads, or a core does not exist.
        """
        return self._estimates.of(load, cpus, clocks_khz, frozenset(online))

    def _new(self, loads: Sequence[Load], online: Collection[int]) -> ChipState:
        used = {cpu for load in loads for cpu in _cores(load, online)}
        state = ChipState(
            tuple(p.clock_khz(bool(used.intersection(p.cluster.cpus))) for p in self._policies)
        )
        for load in loads:
            mine = _cores(load, online)
            rivals = sum(1 for other in loads if set(mine).intersection(_cores(other, online)))
            step = self.step(load, mine, state.clocks_khz, online)
            state.steps[id(load)] = (load, step, rivals)
            state.net_w += step.net_w / rivals
        return state


def _cores(load: Load, online: Collection[int]) -> tuple[int, ...]:
    """Returns the cores that a load runs on: its own that are on, or else every core that is on."""
    return tuple(c for c in load.cpus if c in online) or tuple(sorted(online))
