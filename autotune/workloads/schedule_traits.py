"""Traits of a schedule that predict its speed on other cores and clocks than those it was measured on."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass
from typing import Any

CACHE_SIZES = tuple(2**exponent for exponent in range(9, 25))
"""Cache sizes in bytes for which a nest's traffic is computed: from 512 bytes (vector registers) to 16 MiB."""


@dataclass(frozen=True)
class NestTraits:
    """A loop nest of a scheduled kernel, from one parallel loop to the next.

    Attributes:
        flops: Floating-point operations.
        jobs: Number of parts that threads can share; 1 if nothing is parallel.
        vector_share: Share of the operations in vectorised loops.
        traffic: Bytes that go through a cache, for each of `CACHE_SIZES`; they never rise with the size.
    """

    flops: float
    jobs: int
    vector_share: float
    traffic: tuple[float, ...]

    def scaled(self, factor: float) -> NestTraits:
        """Returns the traits with the work multiplied by a factor, in the same number of jobs."""
        return NestTraits(
            self.flops * factor,
            self.jobs,
            self.vector_share,
            tuple(size * factor for size in self.traffic),
        )

    def bytes_through(self, cache_bytes: float) -> float:
        """Returns the bytes that go through a cache: those of the next smaller of `CACHE_SIZES`."""
        return self.traffic[max(0, bisect_right(CACHE_SIZES, cache_bytes) - 1)]


@dataclass(frozen=True)
class ScheduleTraits:
    """The nests of a scheduled kernel, in order."""

    nests: tuple[NestTraits, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns plain data: `{"nests": [{"flops", "jobs", "vector_share", "traffic"}]}`."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> ScheduleTraits:
        """Returns the traits from the output of `to_json`.

        Raises:
            KeyError: A key is missing.
        """
        return cls(
            tuple(
                NestTraits(n["flops"], n["jobs"], n["vector_share"], tuple(n["traffic"]))
                for n in found["nests"]
            )
        )
