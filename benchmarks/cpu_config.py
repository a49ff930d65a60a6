"""Measurements that a search for a CPU configuration needs, compared with random search and plain TPE.

The searches run first over the 21 recorded configurations of EMDL'21's Table 3, then over the full spaces of two
emulated phones with noisy measurements and clocks that fall when warm. The method was not adjusted to the second
phone. The last two phones have foreign physics (common/foreign_phones.py) and were made after the method. They have
no goals: their figures are only reported.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

# One thread per process, set before numpy is imported: two searches run side by side.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import optuna
from common.bars import Report, resampled, run
from common.foreign_phones import PHONES, ForeignBench

from autotune.devices.topology import Cluster
from autotune.emulator.model.clock import VirtualClock
from autotune.emulator.model.profile import load
from autotune.emulator.model.soc import Soc
from autotune.emulator.model.step_model import ALEXNET_B16, estimate
from autotune.studies.evaluators.evaluator import Measured
from autotune.studies.replay.replay import read_paper_table, search
from autotune.studies.run.study import SamplerName, StudyRequest, study_of
from autotune.studies.space.configuration import CpuConfiguration
from autotune.studies.space.objective import NO_LIMITS, Figures, Objective, values
from autotune.studies.space.pareto import hypervolume
from autotune.studies.space.ranges import CpuRanges
from autotune.studies.space.space import CpuSpace

TABLE = Path(__file__).parents[1] / "tests" / "data" / "meizu16t_alexnet_b16.csv"
PROFILES = ("meizu-16t", "three-cluster")
NAMES = {2: ("little", "big"), 3: ("little", "big", "prime")}
NOISE = 0.05
"""Relative standard deviation of the measured seconds and watts."""
STEPS, WARM_UP = 5, 2
BAND_K = 2.0
REST_S = 10.0

# Name, sampler, and whether the models guide the search.
METHODS: tuple[tuple[str, SamplerName, bool], ...] = (
    ("ours", "tpe", True),
    ("TPE", "tpe", False),
    ("random", "random", False),
)


class EmulatedPhone:
    """A bench over a profile's live model: clocks, heat, caps, and noise on the readings.

    Args:
        profile: Name of the profile.
        seed: Seed of the noise.
    """

    def __init__(self, profile: str, seed: int) -> None:
        self._profile = load(profile)
        self.clusters = clusters_of(profile)
        self.device: dict[str, Any] = {"emulated": profile}
        self._rng = np.random.default_rng([seed, 77])
        self._soc = Soc(self._profile, VirtualClock())
        self._start_c = self._soc.celsius() + BAND_K
        self.capped = 0

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """See `Evaluator.measure`. Measures again after a rest if a clock was capped meanwhile."""
        assert configuration is not None
        for _ in range(2):
            while self._soc.celsius() > self._start_c:
                self._soc.clock.sleep(REST_S)
            figures = self._run(configuration)
            if figures is not None:
                return Measured("ok", figures=figures)
            self.capped += 1
        return Measured("invalid", "throttled")

    def _run(self, configuration: CpuConfiguration) -> Figures | None:
        for policy, setting in zip(self._soc.policies, configuration.clusters, strict=True):
            khz = setting.khz or policy.cluster.frequencies_khz[-1]
            policy.set_max(policy.cluster.frequencies_khz[-1])
            policy.set_min(khz)
            policy.set_max(khz)
        cpus = configuration.cpus(self.clusters)
        self._soc.run(ALEXNET_B16, cpus, steps=WARM_UP, threads=configuration.threads)
        load_ = self._soc.run(ALEXNET_B16, cpus, steps=STEPS, threads=configuration.threads)
        if self._soc.throttle_level():
            return None
        noise = np.exp(self._rng.normal(0.0, NOISE, size=2))
        seconds = load_.busy_s / STEPS * noise[0]
        return Figures(float(seconds), float(load_.net_j / STEPS * noise[0] * noise[1]))


def clusters_of(profile: str) -> tuple[Cluster, ...]:
    """Returns the clusters of a profile or a foreign phone, with all clock frequencies."""
    if profile in PHONES:
        return PHONES[profile].clusters
    found = load(profile).clusters
    return tuple(
        Cluster(name, c.cpus, c.capacity, c.frequencies_khz[0], c.frequencies_khz[-1],
                c.frequencies_khz, c.governors, ())
        for name, c in zip(NAMES[len(found)], found, strict=True)
    )  # fmt: skip


@cache
def truth(profile: str) -> tuple[CpuSpace, dict[str, float], tuple[float, float], float]:
    """Returns a profile's whole space, and in logarithms its optima, worst point and hypervolume."""
    space = CpuSpace.of(clusters_of(profile), CpuRanges(), clocks=True)
    numbers = space.numbers(np.random.default_rng(0), 10**9)
    points = np.log([exact(profile, space.at(int(n))) for n in numbers])
    worst = (float(points[:, 0].max()), float(points[:, 1].max()))
    best = {"latency": float(points[:, 0].min()), "energy": float(points[:, 1].min())}
    return space, best, worst, hypervolume(points, worst)


def exact(profile: str, configuration: CpuConfiguration) -> tuple[float, float]:
    """Returns seconds and joules of a step without noise and heat."""
    if profile in PHONES:
        return PHONES[profile].exact(configuration)
    clusters = clusters_of(profile)
    khz = [
        s.khz or c.frequencies_khz[0] for s, c in zip(configuration.clusters, clusters, strict=True)
    ]
    step = estimate(
        load(profile), ALEXNET_B16, configuration.cpus(clusters), khz, threads=configuration.threads
    )
    return step.time_s, step.net_j


def replayed(job: tuple[str, Objective, int]) -> int:
    """Returns the number of measurements of the table after which a search has reached its goal."""
    method, objective, seed = job
    _, sampler, model = next(m for m in METHODS if m[0] == method)
    bench = read_paper_table(TABLE)
    space = bench.space()
    return search(
        bench, StudyRequest(space, objective, NO_LIMITS, space.size, sampler, model, seed)
    ).measurements


def emulated(job: tuple[str, str, Objective, int, int]) -> list[float]:
    """Returns the gap to the optimum after each measurement.

    The gap is computed from the exact figures of the configurations that the search considers best.
    """
    profile, method, objective, trials, seed = job
    _, sampler, model = next(m for m in METHODS if m[0] == method)
    space, best, worst, whole = truth(profile)
    phone = ForeignBench(profile, seed) if profile in PHONES else EmulatedPhone(profile, seed)
    request = StudyRequest(space, objective, NO_LIMITS, trials, sampler, model, seed)
    study = study_of(request, optuna.storages.InMemoryStorage(), "emulated")
    found: list[tuple[Figures, CpuConfiguration]] = []
    gaps: list[float] = []

    def on_measured(trial: Any, _: Measured) -> None:
        if trial.figures is not None:
            found.append((trial.figures, trial.configuration))
        if objective == "pareto":
            # Uses all measured points: which of them are on the front depends on noise, and is measured again at
            # the end.
            points = np.log([exact(profile, c) for _, c in found])
            gaps.append(1 - hypervolume(points, worst) / whole)
        else:
            chosen = min(found, key=lambda f: values(objective, f[0]))[1]
            index = ("latency", "energy").index(objective)
            gaps.append(float(np.expm1(np.log(exact(profile, chosen)[index]) - best[objective])))

    study.run(phone, on_measured)
    return gaps


def _most_of_nine_in_ten(counts: Any, axis: int) -> Any:
    return np.quantile(counts, 0.9, axis=axis)


def _ratio_of_medians(theirs: Any, ours: Any, axis: int) -> Any:
    return np.median(theirs, axis=axis) / np.maximum(np.median(ours, axis=axis), 1e-9)


def on_the_table(report: Report, pool: ProcessPoolExecutor) -> None:
    """Searches the 21 recorded configurations."""
    seeds = range(1, 3 if report.quick else 1 + report.options.table_seeds)
    for objective, most, most_90 in (("latency", 8, 12), ("energy", 8, 12), ("pareto", 16, None)):
        for method, _, _ in METHODS:
            counts = list(pool.map(replayed, [(method, objective, s) for s in seeds], chunksize=4))
            median, ends = resampled(np.median, counts)
            high, high_ends = resampled(_most_of_nine_in_ten, counts)
            report.row(
                table=TABLE.name, objective=objective, method=method, median=median, p90=high,
                seeds=len(counts),
            )  # fmt: skip
            print(f"table, {objective}, {method}: median {median:g}, 90 % {high:g}", flush=True)
            if method != "ours":
                continue
            what = "the whole front" if objective == "pareto" else "the best"
            report.bar(
                f"table, {objective}: {what} found, median", median, "at most", most, "runs",
                interval=ends,
            )  # fmt: skip
            if most_90 is not None:
                report.bar(
                    f"table, {objective}: 90 % of seeds",
                    high,
                    "at most",
                    most_90,
                    "runs",
                    interval=high_ends,
                )


def on_emulated_phones(report: Report, pool: ProcessPoolExecutor) -> None:
    """Searches the full spaces of two profiles and of two phones of foreign physics."""
    for profile in (*PROFILES, *PHONES):
        few, many = (12, 14) if report.quick else (40, 40 if profile in PHONES else 80)
        most = report.options.foreign_seeds if profile in PHONES else report.options.seeds
        seeds = range(1, 2 if report.quick else 1 + most)
        at: dict[tuple[str, str, int], list[float]] = {}
        plan: list[tuple[str, Objective, int]] = [
            ("ours", "latency", few), ("ours", "energy", few), ("ours", "pareto", many),
            ("TPE", "latency", few), ("TPE", "energy", few), ("TPE", "pareto", many),
            ("random", "pareto", many),
        ]  # fmt: skip
        for method, objective, trials in plan:
            jobs = [(profile, method, objective, trials, seed) for seed in seeds]
            gaps = np.asarray(list(pool.map(emulated, jobs)))
            for count in sorted({few, many}) if objective == "pareto" else (few,):
                at[method, objective, count] = gaps[:, count - 1].tolist()
                median = float(np.median(gaps[:, count - 1]))
                report.row(
                    emulated=profile, objective=objective, method=method, measurements=count,
                    gap_median=median, gap_quartiles=np.quantile(gaps[:, count - 1], [0.25, 0.75]).tolist(),
                )  # fmt: skip
                print(f"{profile}, {objective}, {method}, {count}: gap {median:.2%}", flush=True)
        if profile in PHONES:
            continue
        name = f"emulated {profile}"
        for objective in ("latency", "energy"):
            gap, ends = resampled(np.median, [100 * one for one in at["ours", objective, few]])
            report.bar(
                f"{name}: {objective} after {few}",
                gap,
                "at most",
                3,
                "% from the best",
                interval=ends,
            )
        gap, ends = resampled(np.median, [100 * one for one in at["ours", "pareto", many]])
        report.bar(f"{name}: hypervolume after {many}", gap, "at most", 3, "% less", interval=ends)
        ratio, ends = resampled(
            _ratio_of_medians, at["TPE", "pareto", few], at["ours", "pareto", few]
        )
        report.bar(
            f"{name}: TPE's hypervolume gap to ours after {few}",
            ratio,
            "at least",
            2,
            "x",
            interval=ends,
        )


def measure(report: Report) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    parts: Sequence[Callable[[Report, ProcessPoolExecutor], None]] = (
        on_the_table,
        on_emulated_phones,
    )
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for part in parts:
            part(report, pool)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table-seeds", type=int, default=100, help="searches of the table")
    parser.add_argument("--seeds", type=int, default=50, help="searches of each emulated phone")
    parser.add_argument(
        "--foreign-seeds", type=int, default=10, help="searches of each foreign one"
    )


if __name__ == "__main__":
    raise SystemExit(run(__doc__ or "", measure, options))
