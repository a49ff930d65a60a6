"""A small space of two clusters, and requests of studies over it, for tests."""

from pathlib import Path

import numpy as np

from autotune.devices.topology import Cluster
from autotune.studies.run.study import SamplerName, StudyRequest
from autotune.studies.space.configuration import CpuConfiguration
from autotune.studies.space.objective import NO_LIMITS, Objective
from autotune.studies.space.ranges import CpuRanges
from autotune.studies.space.space import CpuSpace

TABLE = Path(__file__).parents[1] / "data" / "meizu16t_alexnet_b16.csv"
LITTLE = Cluster(
    "little", (0, 1, 2, 3), 360, 300_000, 1_800_000, (300_000, 1_000_000, 1_800_000), (), ()
)
BIG = Cluster("big", (4, 5), 1024, 700_000, 2_400_000, (700_000, 2_400_000), (), ())
NAMES = ("little", "big")


def small_space(**ranges: object) -> CpuSpace:
    return CpuSpace.of((LITTLE, BIG), CpuRanges.model_validate(ranges), clocks=True)


def every(space: CpuSpace) -> list[CpuConfiguration]:
    return [space.at(int(n)) for n in space.numbers(np.random.default_rng(0), 10**6)]


def request(
    space: CpuSpace, trials: int, sampler: SamplerName = "tpe", *, model: bool = True,
    objective: Objective = "pareto", seed: int = 1,
) -> StudyRequest:  # fmt: skip
    return StudyRequest(space, objective, NO_LIMITS, trials, sampler, model, seed)
