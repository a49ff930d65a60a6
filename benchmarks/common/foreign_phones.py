"""Phones for benchmarks/cpu_config.py whose physics differs from the search's models.

They share no code with `autotune/emulator` or `autotune/studies/models/physics.py`, and the search was not adjusted
to them. Their constants are invented, but plausible in size. They differ from the search's models as follows:

- `tabulated`: rates and voltages are tables over the clock, with jumps and flat parts. The cores of a cluster add
  up by a table in which the fourth core adds little or even reduces the rate. Clusters share the work in proportion
  to their rates, so that no core waits for the slowest. A step ends on a tick.
- `shared-bus`: all clusters share one memory bus, whose clock follows the fastest cluster in steps. Cores wait for
  the bus as in a queue. Above a power budget, all clocks fall in steps below their caps, without any report.

Measurements are noisy: each has a small error, and occasionally one is much slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from autotune.devices.topology import Cluster
from autotune.studies.evaluators.evaluator import Measured
from autotune.studies.space.configuration import CpuConfiguration
from autotune.studies.space.objective import Figures

SPREAD = 0.04
"""Relative standard deviation of a measurement's seconds and of its watts."""
OUTLIERS, SLOWER = 0.05, 1.25
"""Share of measurements that are disturbed, and the factor by which they are slower."""
_WORK, _FIXED_S, _TICK_S = 40.0, 1.1, 40.0 / 192
"""For `tabulated`: work of a step, its fixed time, and the interval of the ticks on which it can end."""


class Phone(Protocol):
    """A phone whose exact figures are known."""

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """The clusters, from slow to fast."""

    def exact(self, configuration: CpuConfiguration) -> tuple[float, float]:
        """Returns seconds and joules of a step, without noise."""


def _cluster(name: str, first: int, cores: int, capacity: int, mhz: Sequence[int]) -> Cluster:
    cpus = tuple(range(first, first + cores))
    clocks = tuple(1000 * value for value in mhz)
    return Cluster(name, cpus, capacity, clocks[0], clocks[-1], clocks, (), ())


@dataclass(frozen=True)
class _Table:
    """Tables of a cluster of `Tabulated`.

    Attributes:
        rates: Work of one core per second, by clock.
        volts: Voltage by clock.
        scaling: Combined rate of the first n cores, relative to one core; from n = 1 on.
        farads: Switched capacitance of a core, in a unit that gives watts with GHz.
    """

    rates: tuple[float, ...]
    volts: tuple[float, ...]
    scaling: tuple[float, ...]
    farads: float


class Tabulated:
    """The phone `tabulated`; see the module."""

    clusters = (
        _cluster("little", 0, 4, 300, (400, 600, 800, 1000, 1200, 1400, 1600, 1700, 1800, 1900)),
        _cluster(
            "big", 4, 4, 1024, (500, 700, 900, 1100, 1300, 1500, 1700, 1900, 2100, 2300, 2500, 2700)
        ),
    )
    _tables = (
        _Table(
            (0.40, 0.61, 0.79, 1.02, 1.18, 1.21, 1.52, 1.58, 1.60, 1.61),
            (0.55, 0.55, 0.55, 0.60, 0.60, 0.65, 0.70, 0.80, 0.80, 0.90),
            (1.0, 1.93, 2.70, 2.85),
            0.11,
        ),
        _Table(
            (1.5, 2.2, 2.9, 3.6, 4.2, 4.3, 5.4, 5.9, 6.2, 6.9, 7.0, 7.1),
            (0.60, 0.60, 0.60, 0.65, 0.65, 0.70, 0.75, 0.75, 0.85, 0.90, 1.00, 1.10),
            (1.0, 1.88, 2.60, 2.52),
            0.62,
        ),
    )

    def exact(self, configuration: CpuConfiguration) -> tuple[float, float]:
        """See `Phone.exact`."""
        rate = watts = 0.0
        for cluster, table, setting in zip(
            self.clusters, self._tables, configuration.clusters, strict=True
        ):
            if not setting.cores:
                continue
            at = len(table.rates) - 1
            if setting.khz is not None:
                at = cluster.frequencies_khz.index(setting.khz)
            rate += table.rates[at] * table.scaling[setting.cores - 1]
            ghz, volts = cluster.frequencies_khz[at] / 1e6, table.volts[at]
            leak = 0.02 * float(np.exp(4.0 * (volts - 0.6)))
            watts += setting.cores * (table.farads * volts**2 * ghz + leak)
        both = all(setting.cores for setting in configuration.clusters)
        rate *= 0.86 if both else 1.0
        seconds = _FIXED_S + _TICK_S * float(np.ceil(_WORK / rate / _TICK_S))
        return seconds, (watts + 0.35) * seconds


class SharedBus:
    """The phone `shared-bus`; see the module."""

    clusters = (
        _cluster("little", 0, 4, 280, (300, 550, 800, 1050, 1300, 1500, 1700, 1800)),
        _cluster("big", 4, 3, 850, (600, 900, 1200, 1500, 1750, 2000, 2200, 2350, 2500)),
        _cluster("prime", 7, 1, 1024, (700, 1100, 1500, 1900, 2200, 2500, 2750, 3000)),
    )
    _per_ghz = (0.9, 2.6, 3.3)
    _watts = (0.07, 0.42, 0.66)
    _bus = ((0.8, 3.0), (1.4, 6.0), (2.1, 9.5), (9.9, 13.0))
    """Pairs (g, b): the bus moves b GB/s while the fastest clock of a training cluster is at most g GHz."""
    _bytes, _work = 21.0, 36.0
    _budget_w, _fall = 4.2, 0.92

    def exact(self, configuration: CpuConfiguration) -> tuple[float, float]:
        """See `Phone.exact`."""
        cores = [setting.cores for setting in configuration.clusters]
        ghz = [
            (setting.khz or cluster.frequencies_khz[-1]) / 1e6
            for cluster, setting in zip(self.clusters, configuration.clusters, strict=True)
        ]
        # The firmware lowers every clock by a step until the budget is met, without reporting it.
        for _ in range(12):
            seconds, watts = self._at(cores, ghz)
            if watts <= self._budget_w:
                break
            ghz = [self._fall * value for value in ghz]
        return seconds, watts * seconds

    def _at(self, cores: Sequence[int], ghz: Sequence[float]) -> tuple[float, float]:
        rate = sum(n * k * f for n, k, f in zip(cores, self._per_ghz, ghz, strict=True))
        fastest = max(f for n, f in zip(cores, ghz, strict=True) if n)
        bus = next(width for most, width in self._bus if fastest <= most)
        computing = self._work / rate
        moving = self._bytes / bus
        # The waiting time grows with the load of the bus, as in a queue with one server.
        full = min(0.95, moving / (computing + moving) * (1 + 0.08 * (sum(cores) - 1)))
        seconds = 0.4 + computing + moving / (1 - full) * 0.6
        busy = computing / seconds
        watts = 0.2 + 0.055 * bus
        for n, k, f in zip(cores, self._watts, ghz, strict=True):
            watts += n * k * (0.25 + 0.75 * busy) * f**2.6 / 2.0 + 0.03 * n
        return seconds, watts


PHONES: dict[str, Phone] = {"tabulated": Tabulated(), "shared-bus": SharedBus()}


class ForeignBench:
    """A phone of `PHONES` as a bench, with noise.

    Args:
        name: Name of the phone.
        seed: Seed of the noise.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._phone = PHONES[name]
        self.clusters = self._phone.clusters
        self.device: dict[str, Any] = {"emulated": f"{name} (foreign physics)"}
        self._rng = np.random.default_rng([seed, 78])

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """See `Evaluator.measure`."""
        assert configuration is not None
        seconds, joules = self._phone.exact(configuration)
        slower, power = np.exp(self._rng.normal(0.0, SPREAD, size=2))
        if self._rng.random() < OUTLIERS:
            slower *= SLOWER
        return Measured("ok", figures=Figures(seconds * slower, joules * slower * power))
