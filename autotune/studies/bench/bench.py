"""What a study measures with: a device, or a recorded table that stands for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from autotune.devices import Cluster
from autotune.studies.space import CpuConfiguration, Figures

TrialStatus = Literal["ok", "invalid", "failed"]
WAYS = {"copied_s": "copies", "mapped_s": "maps", "reordered_s": "layout changes"}
"""Raw data of what tensors took to cross between host and GPU, and how it is told."""
_KEPT = ("marks", "rails", "khz", *WAYS)
"""What events have of a measurement's raw data that later parts of a run need."""


@dataclass(frozen=True)
class Measured:
    """What became of one configuration.

    Attributes:
        status: `ok`; `invalid` where conditions were not held, so that the numbers say nothing; `failed` where the
            workload did not run under it.
        message: What went wrong; empty when `ok`.
        figures: What a step took; None unless `ok`.
        raw: Every sample, as plain data.
        memo: What other processes of a study should know of it, as plain data.
    """

    status: TrialStatus
    message: str = ""
    figures: Figures | None = None
    raw: dict[str, Any] | None = None
    memo: dict[str, Any] | None = None

    @classmethod
    def of_event(cls, event: Mapping[str, Any]) -> Measured:
        """What a run's event tells of a measurement; the samples are in its raw records."""
        figures = event["figures"]
        return cls(
            event["status"],
            event["message"],
            Figures(**figures) if figures else None,
            {name: event[name] for name in _KEPT if event.get(name) is not None},
        )

    @property
    def marks(self) -> tuple[str, ...]:
        """What makes the energy doubtful."""
        return tuple((self.raw or {}).get("marks", ()))

    @property
    def rails(self) -> dict[str, float]:
        """Joules of a step by rail, of a meter that has several."""
        return dict((self.raw or {}).get("rails", {}))

    @property
    def seen_khz(self) -> dict[str, float]:
        """Mean clock of each cluster meanwhile, by name, where it could be read."""
        return dict((self.raw or {}).get("khz", {}))


class Bench(Protocol):
    """Measures configurations of one device."""

    @property
    def clusters(self) -> Sequence[Cluster]:
        """The device's clusters, from slow to fast."""

    @property
    def device(self) -> dict[str, Any]:
        """What the device is, as plain data; `emulated` says what stands in for it, and is empty for a real one."""

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """Measures a configuration; None for what the system does by itself.

        Raises:
            DeviceError: The device is gone; nothing is known of the configuration.
        """
