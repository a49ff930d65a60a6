"""The protocol that a study measures with: a device, or a recorded table in place of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from autotune.devices import Cluster
from autotune.studies.space import CpuConfiguration, Figures

TrialStatus = Literal["ok", "invalid", "failed"]
WAYS = {"copied_s": "copies", "mapped_s": "maps", "reordered_s": "layout changes"}
"""Raw data about the time for tensors to cross between host and GPU, and the words for it."""
_KEPT = ("marks", "rails", "khz", *WAYS)
"""Raw data of a measurement that events keep because later parts of a run need it."""


@dataclass(frozen=True)
class Measured:
    """The outcome of measuring one configuration.

    Attributes:
        status: `ok`; `invalid` if conditions were not held, so that the numbers mean nothing; `failed` if the
            workload did not run under the configuration.
        message: The error; empty when `ok`.
        figures: The figures of a step; None unless `ok`.
        raw: Every sample, as plain data.
        memo: Facts that other processes of a study should know, as plain data.
    """

    status: TrialStatus
    message: str = ""
    figures: Figures | None = None
    raw: dict[str, Any] | None = None
    memo: dict[str, Any] | None = None

    @classmethod
    def of_event(cls, event: Mapping[str, Any]) -> Measured:
        """Returns the measurement that a run's event describes; its samples are in the run's raw records."""
        figures = event["figures"]
        return cls(
            event["status"],
            event["message"],
            Figures(**figures) if figures else None,
            {name: event[name] for name in _KEPT if event.get(name) is not None},
        )

    @property
    def marks(self) -> tuple[str, ...]:
        """Reasons to doubt the energy."""
        return tuple((self.raw or {}).get("marks", ()))

    @property
    def rails(self) -> dict[str, float]:
        """Joules of a step by rail, for a meter with several rails."""
        return dict((self.raw or {}).get("rails", {}))

    @property
    def seen_khz(self) -> dict[str, float]:
        """Mean clock of each cluster during the measurement, by name, if it could be read."""
        return dict((self.raw or {}).get("khz", {}))


class Evaluator(Protocol):
    """Measures configurations of one device."""

    @property
    def clusters(self) -> Sequence[Cluster]:
        """The device's clusters, from slow to fast."""

    @property
    def device(self) -> dict[str, Any]:
        """The device as plain data.

        `emulated` names the model that stands in for it, and is empty for a real device.
        """

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """Measures a configuration; None for the system's default behaviour.

        Raises:
            DeviceError: The device is gone, so nothing is known of the configuration.
        """
