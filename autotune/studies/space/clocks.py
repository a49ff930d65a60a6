"""Configurations as arrays, for models of time and power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.devices import Cluster
from autotune.studies.space.configuration import CpuConfiguration

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Clocks:
    """Configurations as arrays.

    Attributes:
        cores: Cores in use, shape (n, clusters).
        ghz: Clock of each cluster, whether in use or not, shape (n, clusters).
        threads: Shape (n,).
    """

    cores: Floats
    ghz: Floats
    threads: Floats

    @classmethod
    def of(cls, configurations: Sequence[CpuConfiguration], clusters: Sequence[Cluster]) -> Clocks:
        """Converts configurations to arrays. A clock that is left to the system counts as the highest."""
        highest = [(cluster.max_khz or 1_000_000) / 1e6 for cluster in clusters]
        cores = [[s.cores for s in c.clusters] for c in configurations]
        ghz = [
            [s.khz / 1e6 if s.khz else top for s, top in zip(c.clusters, highest, strict=True)]
            for c in configurations
        ]
        shape = (len(configurations), len(clusters))
        return cls(
            np.asarray(cores, np.float64).reshape(shape),
            np.asarray(ghz, np.float64).reshape(shape),
            np.asarray([c.threads for c in configurations], np.float64),
        )
