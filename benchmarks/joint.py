"""Gain of a joint search of schedules, cores and clocks over tuning kernels first and cores afterwards.

On emulated phones: MobileNetV2 at batch 8. One run has tuned its kernels for all cores on the model (`autotune
kernels --model mobilenet_v2 --batch 8 --emulate PROFILE --trials 800`; its pools are in
`logs/samples/mobilenet-v2-b8-pools/`). The sequential search takes, for each configuration, the schedules of these
pools that are fastest on all cores of its clusters, and searches cores and clocks. The joint search takes the pools
themselves, and measures as many whole steps. The model of how schedules, clusters and
clocks interact is described in docs/emulator.md; it was frozen before the search was written.

On this host: LeNet's kernels are tuned on all cores. `autotune joint` then measures real steps with one core and
with two, and compares with the result of tuning kernels first, in interleaved blocks.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

# One thread per process, set before numpy is imported: two searches run side by side.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import optuna
from common.bars import QUICK_TRIALS, Report, resampled, run

from autotune.devices.topology import CLUSTER_NAMES, Cluster
from autotune.emulator.model.profile import load
from autotune.emulator.model.step_model import schedule_estimate
from autotune.studies.evaluators.evaluator import Measured
from autotune.studies.joint.joint import Choice, JointEvaluator
from autotune.studies.joint.joint_run import KeptSchedules
from autotune.studies.models.schedule_pools import HYBRID, TaskPool, pools
from autotune.studies.run.study import StudyRequest, study_of
from autotune.studies.space.configuration import ClusterSetting, CpuConfiguration
from autotune.studies.space.objective import NO_LIMITS, Figures
from autotune.studies.space.pareto import front, gain
from autotune.studies.space.ranges import CpuRanges
from autotune.studies.space.space import CpuSpace

POOLS = Path(__file__).parents[1] / "logs" / "samples" / "mobilenet-v2-b8-pools"
PROFILES = ("meizu-16t", "three-cluster")
NOISE, CALL_NOISE = 0.02, 0.02
"""Relative standard deviations: of a measured step's watts and seconds, and additionally of a call's seconds."""


@cache
def clusters_of(profile: str) -> tuple[Cluster, ...]:
    found = load(profile).clusters
    return tuple(
        Cluster(name, c.cpus, c.capacity, c.frequencies_khz[0], c.frequencies_khz[-1],
                c.frequencies_khz, c.governors, ())
        for name, c in zip(CLUSTER_NAMES[len(found)], found, strict=True)
    )  # fmt: skip


@cache
def recorded(profile: str) -> dict[str, Any]:
    """Returns the result of a phone's run."""
    with gzip.open(POOLS / f"{profile}.json.gz", "rt", encoding="utf-8") as file:
        return dict(json.load(file))


@cache
def joint_tasks(profile: str) -> tuple[TaskPool, ...]:
    return pools([(HYBRID, recorded(profile))])


class ModelSteps:
    """Whole steps of the emulator's model, with noise on the readings.

    Args:
        profile: The phone.
        tasks: Tasks of a step.
        seed: Seed of the noise.
    """

    def __init__(self, profile: str, tasks: tuple[TaskPool, ...], seed: int) -> None:
        self.clusters = clusters_of(profile)
        self.device: dict[str, Any] = {"emulated": profile}
        self._profile, self._tasks = load(profile), tasks
        self._count = np.asarray([task.count for task in tasks], np.float64)
        self._rng = np.random.default_rng([seed, 55])

    def exact(self, configuration: CpuConfiguration, choice: Choice) -> tuple[Any, Any]:
        """Returns the seconds and joules of one call of each task."""
        khz = [
            s.khz or c.frequencies_khz[0]
            for s, c in zip(configuration.clusters, self.clusters, strict=True)
        ]
        found = np.asarray(
            [
                schedule_estimate(
                    self._profile, task.schedules[int(i)].traits, configuration.cpus(self.clusters),
                    khz, threads=configuration.threads,
                )
                for task, i in zip(self._tasks, choice.schedules, strict=True)
            ]
        )  # fmt: skip
        return found[:, 0], found[:, 1]

    def step(self, configuration: CpuConfiguration, choice: Choice) -> tuple[float, float]:
        """Returns the exact seconds and joules of a step."""
        seconds, joules = self.exact(configuration, choice)
        return float((self._count * seconds).sum()), float((self._count * joules).sum())

    def measure(self, configuration: CpuConfiguration | None, choice: Choice) -> Measured:
        """See `StepSource.measure`."""
        assert configuration is not None
        seconds, joules = self.exact(configuration, choice)
        slow, hungry = np.exp(self._rng.normal(0.0, NOISE, 2))
        calls = seconds * slow * np.exp(self._rng.normal(0.0, CALL_NOISE, len(seconds)))
        figures = Figures(
            float((self._count * seconds).sum() * slow),
            float((self._count * joules).sum() * slow * hungry),
        )
        return Measured("ok", figures=figures, raw={"task_s": calls.tolist()})


@cache
def tuned_for(profile: str, trains: tuple[bool, ...]) -> Choice:
    """Returns what tuning kernels first finds: the fastest of each pool on all cores of the clusters that train."""
    tasks = joint_tasks(profile)
    steps = ModelSteps(profile, tasks, 0)
    setting = CpuConfiguration(
        tuple(
            ClusterSetting(len(c.cpus), c.frequencies_khz[-1]) if used else ClusterSetting(0, None)
            for c, used in zip(steps.clusters, trains, strict=True)
        ),
        sum(len(c.cpus) for c, used in zip(steps.clusters, trains, strict=True) if used),
    )
    largest = max(len(task.schedules) for task in tasks)
    seconds = np.full((largest, len(tasks)), np.inf)
    for number in range(largest):
        choice = Choice(tuple(min(number, len(task.schedules) - 1) for task in tasks))
        seconds[number] = steps.exact(setting, choice)[0]
    return Choice(
        tuple(int(seconds[: len(task.schedules), at].argmin()) for at, task in enumerate(tasks))
    )


def kernels_first(profile: str, configuration: CpuConfiguration | None) -> Choice:
    """Returns the schedules that were tuned for the clusters of a configuration."""
    assert configuration is not None
    return tuned_for(profile, tuple(one.cores > 0 for one in configuration.clusters))


def searched(job: tuple[str, str, int, int]) -> list[tuple[float, float]]:
    """Searches, and returns the exact figures of the points that are on the front by what was measured."""
    profile, method, trials, seed = job
    tasks = joint_tasks(profile)
    steps = ModelSteps(profile, tasks, seed)
    joint = JointEvaluator(steps, tasks, "pareto", seed)
    bench = joint if method == "joint" else KeptSchedules(joint, partial(kernels_first, profile))
    space = CpuSpace.of(steps.clusters, CpuRanges(), clocks=True)
    request = StudyRequest(space, "pareto", NO_LIMITS, trials, "tpe", model=True, seed=seed)
    found: list[tuple[Figures, CpuConfiguration, Choice]] = []

    def on_measured(trial: Any, measured: Measured) -> None:
        assert measured.figures is not None
        choice = Choice.of_event(measured.raw or {})
        assert choice is not None
        found.append((measured.figures, trial.configuration, choice))

    study_of(request, optuna.storages.InMemoryStorage(), "joint").run(bench, on_measured)
    points: list[Any] = [(f.time_s, f.energy_j) for f, _, _ in found]
    return [steps.step(found[i][1], found[i][2]) for i in front(points)]


def on_emulated_phones(report: Report, pool: ProcessPoolExecutor) -> None:
    seeds = range(1, 2 if report.quick else 1 + report.options.seeds)
    trials = 12 if report.quick else 150
    for profile in PROFILES[:1] if report.quick else PROFILES:
        jobs = [
            (profile, method, trials, seed) for seed in seeds for method in ("joint", "sequential")
        ]
        fronts = list(pool.map(searched, jobs))
        figures = [gain(a, b) for a, b in zip(fronts[::2], fronts[1::2], strict=True)]
        for seed, (beaten, more), a, b in zip(
            seeds, figures, fronts[::2], fronts[1::2], strict=True
        ):
            report.row(
                emulated=profile, seed=seed, dominated=beaten, gain=more, joint=a, sequential=b
            )
        beaten, of_beaten = resampled(np.median, [100 * share for share, _ in figures])
        more, of_more = resampled(np.median, [100 * one for _, one in figures if one is not None])
        name = f"emulated {profile}, {trials} steps measured"
        report.bar(
            f"{name}: of the sequential front, the joint one dominates",
            beaten,
            "at least",
            95,
            "%",
            interval=of_beaten,
        )
        report.bar(f"{name}: gain of hypervolume", more, "at least", 10, "%", interval=of_more)


def command(*words: str | Path) -> str:
    """Returns what an `autotune` command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "autotune", *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def on_this_host(report: Report, folder: Path) -> None:
    """Compares the step of a joint search with that of kernels first, with one thread and with two."""
    step = ("--model", "lenet", "--batch", "16")
    trials, steps, blocks, seconds = (
        (str(QUICK_TRIALS), "2", "2", "0.2") if report.quick else ("300", "12", "16", "1")
    )
    logs = folder / "kernels"
    command("kernels", *step, "--no-step", "--target", "cpu", "--trials", trials, "--logs", logs)
    (tuned,) = logs.iterdir()
    for threads in (1,) if report.quick else (1, 2):
        space = folder / f"space-{threads}.toml"
        space.write_text(f"threads_per_core = [1]\n[others]\ncores = [{threads}]\nlevels = 1\n")
        found = json.loads(
            command(
                "joint", *step, "--run", tuned, "--device", "local", "--objective", "latency", "--meter", "none",
                "--space", space, "--trials", steps, "--blocks", blocks, "--least-seconds", seconds,
                "--start-temperature", "999", "--logs", folder / f"joint-{threads}", "--json",
            )
        )  # fmt: skip
        ratio = found["sequential"]["time_s"]
        report.row(
            host=True, threads=threads, ratio=ratio, untuned=found["against_default"].get("time_s")
        )
        report.bar(
            f"this host, threads {threads}: time of kernels first over joint, upper end of the interval "
            f"(ratio {ratio['ratio']:.3f})",
            ratio["ci"][1],
            "at least",
            1,
            "x",
        )


def measure(report: Report) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="autotune-joint-") as made:
        on_this_host(report, Path(made))
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        on_emulated_phones(report, pool)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=20, help="searches of each emulated phone")


if __name__ == "__main__":
    raise SystemExit(run(__doc__ or "", measure, options))
