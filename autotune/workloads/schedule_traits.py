"""What decides how a schedule fares on other cores and clocks than those that it was measured on, as plain data."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass
from typing import Any

CACHE_SIZES = tuple(2**exponent for exponent in range(9, 25))
"""Sizes in bytes for which a nest's traffic is told: 512 bytes, which vector registers hold, to 16 MiB."""


@dataclass(frozen=True)
class NestTraits:
    """A loop nest of a scheduled kernel, from one parallel loop to the next.

    Attributes:
        flops: Floating-point operations.
        jobs: Parts that threads can share; 1 where nothing is parallel.
        vector_share: Share of the operations that are in vectorised loops.
        traffic: Bytes that go through a cache of each of `CACHE_SIZES`, which never rise with the size.
    """

    flops: float
    jobs: int
    vector_share: float
    traffic: tuple[float, ...]

    def scaled(self, factor: float) -> NestTraits:
        """As many times the work, in as many jobs."""
        return NestTraits(
            self.flops * factor,
            self.jobs,
            self.vector_share,
            tuple(size * factor for size in self.traffic),
        )

    def bytes_through(self, cache_bytes: float) -> float:
        """Bytes that a cache of some size lets through: those of the next smaller one of `CACHE_SIZES`."""
        return self.traffic[max(0, bisect_right(CACHE_SIZES, cache_bytes) - 1)]


@dataclass(frozen=True)
class ScheduleTraits:
    """The nests of a scheduled kernel, in order."""

    nests: tuple[NestTraits, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data: `{"nests": [{"flops", "jobs", "vector_share", "traffic"}]}`."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> ScheduleTraits:
        """What `to_json` gave.

        Raises:
            KeyError: A key is missing.
        """
        return cls(
            tuple(
                NestTraits(n["flops"], n["jobs"], n["vector_share"], tuple(n["traffic"]))
                for n in found["nests"]
            )
        )
