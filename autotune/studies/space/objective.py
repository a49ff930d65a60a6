"""What a study looks for: objectives, and limits that a configuration must keep."""

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
    """What a step took under a configuration.

    Attributes:
        time_s: Seconds.
        energy_j: Joules above idle; None without a meter.
        celsius: Highest temperature seen; None without a sensor.
        memory_bytes: Peak memory; None unknown.
        deviation_j: Standard uncertainty of the joules, by the meter and the idle baseline; None unknown.
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
    """What a step may take at most; None for no limit.

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
        """Of those that are set, in the order of `METRICS`."""
        return [name for name in METRICS if getattr(self, name) is not None]

    def excess(self, figures: Figures) -> tuple[float, ...]:
        """How far each limit that is set is broken, as a share of it; at or below zero where it is kept.

        A figure that is unknown keeps its limit: see `unknown`.
        """
        found = []
        for name in self.names:
            limit, value = getattr(self, name), getattr(figures, name)
            # Degrees may be zero, or below.
            found.append(0.0 if value is None else (value - limit) / (abs(limit) or 1.0))
        return tuple(found)

    def unknown(self, figures: Figures) -> list[Metric]:
        """Limits that are set, of which nobody knows whether they are kept."""
        return [name for name in self.names if getattr(figures, name) is None]

    def kept(self, figures: Figures) -> bool:
        """Whether every limit is kept."""
        return all(excess <= 0 for excess in self.excess(figures))

    def to_json(self) -> dict[str, Any]:
        """A plain object."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


NO_LIMITS = Limits()


def needs_energy(objective: Objective, limits: Limits) -> bool:
    """Whether nothing can be said without a meter."""
    return objective != "latency" or limits.energy_j is not None


def values(objective: Objective, figures: Figures) -> tuple[float, ...]:
    """What is to be small: one number, or two of the Pareto front (seconds, joules).

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
    """What `values` are, with their units, for other programs to show."""
    return {
        "latency": (_SECONDS,),
        "energy": (_JOULES,),
        "edp": ("energy x time of a step (J s)",),
        "pareto": (_SECONDS, _JOULES),
    }[objective]


def best(objective: Objective, limits: Limits, found: Sequence[Figures]) -> int | None:
    """Index of the best of several by one number; of a Pareto study, the least energy-delay product.

    None where no one keeps the limits.
    """
    kept = [i for i, figures in enumerate(found) if limits.kept(figures)]
    single: Objective = "edp" if objective == "pareto" else objective
    return min(kept, key=lambda i: values(single, found[i])[0], default=None)
