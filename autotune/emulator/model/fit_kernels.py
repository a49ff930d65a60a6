"""Calibrates how the model's cores run schedules, so that known schedules take as long as the paper's step.

`python -m autotune.emulator.model.fit_kernels PROFILE RESULT.json...` prints the constants of a profile.

EMDL'21's table (`fit.py`) gives the cycles and the waiting for memory that one core needs for AlexNet's step of
batch 16. The best known schedules of its kernels are assumed to be as good as the paper's library. Their cycles and
their traffic, computed from their loops, are scaled to the same two numbers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.emulator.model.profile import Kernels, Profile, load
from autotune.emulator.model.step_model import ALEXNET_B16, nest_bytes, nest_cycles
from autotune.errors import UsageError
from autotune.workloads import NestTraits, ScheduleTraits

_LARGEST = 1e4
_ROUNDS = 60


@dataclass(frozen=True)
class KnownKernel:
    """A kernel of the step: how often it runs, and its known schedules."""

    count: int
    schedules: tuple[ScheduleTraits, ...]


def read_pools(paths: Sequence[Path]) -> list[KnownKernel]:
    """Reads kernels and their pools from runs' `result.json`.

    Raises:
        UsageError: A file cannot be read, or its schedules have no traits.
    """
    found: dict[str, KnownKernel] = {}
    for path in paths:
        try:
            for task in json.loads(path.read_text(encoding="utf-8"))["tasks"]:
                own = tuple(ScheduleTraits.from_json(s["traits"]) for s in task["pool"])
                known = found.get(task["name"])
                schedules = (*known.schedules, *own) if known else own
                found[task["name"]] = KnownKernel(task["count"], schedules)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{path} is not a result with pools: {error}",
                hint="make one: autotune kernels --model alexnet --batch 16 --emulate meizu-16t --json",
            ) from error
    return list(found.values())


def calibrated(
    profile: Profile, kernels: Sequence[KnownKernel], *, rounds: int = 4
) -> tuple[Profile, float]:
    """Returns a profile whose single cores take as long for the step as its core models predict.

    Args:
        profile: The start of the calibration.
        kernels: AlexNet's kernels at batch 16.
        rounds: Number of rounds. The best schedule of a pool depends on the constants, so both are found again each
            round.

    Returns:
        The profile, and the largest relative difference of a cluster's step on one core.
    """
    fastest = len(profile.clusters) - 1
    for _ in range(rounds):
        chosen = [_best(profile, kernels, cluster) for cluster in range(len(profile.clusters))]
        moved = sum(nest_bytes(profile, nest, fastest, 1) for nest in chosen[fastest])
        shared = profile.model.model_copy(
            update={
                "traffic_scale": ALEXNET_B16.bytes_moved / (moved / profile.model.traffic_scale)
            }
        )
        clusters = [
            cluster.model_copy(
                update={
                    "kernels": _with_rate(
                        cluster.kernels,
                        chosen[number],
                        ALEXNET_B16.flops / cluster.model.flops_per_cycle,
                    )
                }
            )
            for number, cluster in enumerate(profile.clusters)
        ]
        profile = profile.model_copy(update={"clusters": tuple(clusters), "model": shared})
    return profile, max(_difference(profile, kernels, k) for k in range(len(profile.clusters)))


def _best(profile: Profile, kernels: Sequence[KnownKernel], cluster: int) -> list[NestTraits]:
    """Returns the nests of one core's fastest schedules in a cluster, each as often as it runs."""
    return [
        nest
        for kernel in kernels
        for nest in min(
            kernel.schedules, key=lambda s: sum(_seconds(profile, n, cluster) for n in s.nests)
        ).nests
        for _ in range(kernel.count)
    ]


def _seconds(profile: Profile, nest: NestTraits, cluster: int) -> float:
    found = profile.clusters[cluster]
    khz = found.frequencies_khz[-1]
    stall = nest_bytes(profile, nest, cluster, 1) / (1e9 * found.model.bandwidth_gb_s)
    return stall + nest_cycles(found.kernels, nest) / (1e3 * khz)


def _with_rate(core: Kernels, nests: Sequence[NestTraits], cycles: float) -> Kernels:
    """Returns the core with a rate at which nests take `cycles` in total, found by bisection of the logarithm."""
    low, high = 1e-2, _LARGEST
    for _ in range(_ROUNDS):
        rate = (low * high) ** 0.5
        trial = core.model_copy(update={"flops_per_cycle": rate})
        if sum(nest_cycles(trial, nest) for nest in nests) > cycles:
            low = rate
        else:
            high = rate
    return core.model_copy(update={"flops_per_cycle": high})


def _difference(profile: Profile, kernels: Sequence[KnownKernel], cluster: int) -> float:
    found = profile.clusters[cluster]
    wanted = ALEXNET_B16.bytes_moved / (1e9 * found.model.bandwidth_gb_s) + (
        ALEXNET_B16.flops / found.model.flops_per_cycle / (1e3 * found.frequencies_khz[-1])
    )
    taken = sum(_seconds(profile, nest, cluster) for nest in _best(profile, kernels, cluster))
    return abs(taken / wanted - 1)


def main(argv: Sequence[str]) -> int:
    """Prints a profile's constants in the form of its TOML file."""
    if len(argv) < 2:
        print(
            "usage: python -m autotune.emulator.model.fit_kernels PROFILE RESULT.json...",
            file=sys.stderr,
        )
        return 2
    found, difference = calibrated(load(argv[0]), read_pools([Path(path) for path in argv[1:]]))
    for cluster in found.clusters:
        print(f"{cluster.core}: flops_per_cycle = {cluster.kernels.flops_per_cycle:.4g}")
    print(f"traffic_scale = {found.model.traffic_scale:.4g}")
    print(f"largest difference of a core's step: {100 * difference:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
