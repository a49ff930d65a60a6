"""Goals of a study: objectives, and limits that a configuration must keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

Objective = Literal["latency", "energy", "edp", "pareto"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)

_SECONDS, _JOULES = "time of a step (s)", "energy of a step (J)"

Metric = Literal["time_s", "energy_j", "celsius", "memory_bytes"]
METRICS: tuple[Metric, ...] = get_args(Metric)


@dataclass(frozen=True)
class Figures:
    """Figures of a step under a configuration.

    Attributes:
        time_s: Seconds.
        energy_j: Joules above idle; None without a meter.
        celsius: Highest temperature seen; None without a sensor.
        memory_bytes: Peak memory; None if unknown.
        deviation_j: Standard uncertainty of the joules, from the meter and the idle baseline; None if unknown.
    """

    time_s: float
    energy_j: float | None = None
    celsius: float | None = None
    memory_bytes: int | None = None
    deviation_j: float | None = None

    @property
    def edp(self) -> float | None:
        """Energy-delay product in joule seconds."""
        return None if self.energy_j is None else self.energy_j * self.time_s


@dataclass(frozen=True)
class Limits:
    """Upper limits of a step; None for no limit.

    Attributes:
        time_s: Seconds (`--deadline`).
        energy_j: Joules above idle (`--energy-budget`).
        celsius: Temperature (`--max-temperature`).
        memory_bytes: Peak memory (`--memory-limit`).
    """

    time_s: float | None = None
    energy_j: float | None = None
    celsius: float | None = None
    memory_bytes: int | None = None

    @property
    def names(self) -> list[Metric]:
        """Names of the limits that are set, in the order of `METRICS`."""
        return [name for name in METRICS if getattr(self, name) is not None]

    def excess(self, figures: Figures) -> tuple[float, ...]:
        """Returns how far each limit that is set is exceeded, as a share of it; at or below zero if it is kept.

        An unknown figure counts as keeping its limit: see `unknown`.
        """
        found = []
        for name in self.names:
            limit, value = getattr(self, name), getattr(figures, name)
            # A limit in degrees may be zero or negative.
            found.append(0.0 if value is None else (value - limit) / (abs(limit) or 1.0))
        return tuple(found)

    def unknown(self, figures: Figures) -> list[Metric]:
        """Returns limits that are set and whose figures are unknown."""
        return [name for name in self.names if getattr(figures, name) is None]

    def kept(self, figures: Figures) -> bool:
        """Returns whether every limit is kept."""
        return all(excess <= 0 for excess in self.excess(figures))

    def to_json(self) -> dict[str, Any]:
        """Returns a plain object."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


NO_LIMITS = Limits()


def needs_energy(objective: Objective, limits: Limits) -> bool:
    """Returns whether the objective or the limits need a meter."""
    return objective != "latency" or limits.energy_j is not None


def values(objective: Objective, figures: Figures) -> tuple[float, ...]:
    """Returns the values to minimise: one number, or two for a Pareto front (seconds, joules).

    Raises:
        ValueError: The objective needs joules, and there are none.
    """
    if objective == "latency":
        return (figures.time_s,)
    if figures.energy_j is None or figures.edp is None:
        raise ValueError(f"the objective '{objective}' needs joules")
    if objective == "energy":
        return (figures.energy_j,)
    if objective == "edp":
        return (figures.edp,)
    return (figures.time_s, figures.energy_j)


def value_names(objective: Objective) -> tuple[str, ...]:
    """Returns the names of `values`, with units, for other programs to show."""
    return {
        "latency": (_SECONDS,),
        "energy": (_JOULES,),
        "edp": ("energy x time of a step (J s)",),
        "pareto": (_SECONDS, _JOULES),
    }[objective]


def best(objective: Objective, limits: Limits, found: Sequence[Figures]) -> int | None:
    """Returns the index of the best of several by one number; for a Pareto study, the least energy-delay product.

    Returns None if none keeps the limits.
    """
    kept = [i for i, figures in enumerate(found) if limits.kept(figures)]
    single: Objective = "edp" if objective == "pareto" else objective
    return min(kept, key=lambda i: values(single, found[i])[0], default=None)
