"""Runs beside a study's trials: drift is told and noise is not, challengers win only where they are better."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from autotune.devices.topology import Cluster
from autotune.studies.evaluators.evaluator import Measured
from autotune.studies.run.repeats import CHALLENGE_SHARE, Repeats
from autotune.studies.run.study import StudyRequest, StudyTrial
from autotune.studies.space.configuration import ClusterSetting, CpuConfiguration
from autotune.studies.space.objective import NO_LIMITS, Figures, Objective
from autotune.studies.space.ranges import CpuRanges
from autotune.studies.space.space import CpuSpace

CLOCKS = tuple(range(100_000, 4_100_000, 100_000))
ONE = Cluster("all", (0,), 1024, CLOCKS[0], CLOCKS[-1], CLOCKS, (), ())
TRIALS = 40


def at(khz: int) -> CpuConfiguration:
    return CpuConfiguration((ClusterSetting(1, khz),), 1)


class Noisy:
    """A device whose runs are off by chance, and that changes with the number of runs.

    A clock stands for the seconds of a step: 1 s and a millionth for each kHz.
    """

    def __init__(self, noise: float, drift: Callable[[int], float], seed: int) -> None:
        self.clusters, self.device = (ONE,), {}
        self._noise, self._drift, self._random = noise, drift, random.Random(seed)
        self.runs = 0

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        assert configuration is not None
        khz = configuration.clusters[0].khz
        assert khz is not None
        self.runs += 1
        factor = self._drift(self.runs) * self._random.lognormvariate(0.0, self._noise)
        seconds = (1 + khz * 1e-6) * factor
        return Measured("ok", figures=Figures(seconds, 3.0 * seconds))


class Told:
    """What repeats record."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.notices: list[str] = []

    def record(self, kind: str, what: dict[str, Any], measured: Measured | None) -> None:
        figures = measured.figures if measured else None
        shown = {"figures": vars(figures) if figures else None} if measured else {}
        self.events.append({"event": kind, **what, **shown})

    def kinds(self) -> list[str]:
        return [event["event"] for event in self.events]


def study(
    bench: Noisy,
    order: list[int],
    reported: Told,
    *,
    objective: Objective = "latency",
    every: int = 8,
    challenges: bool = True,
    earlier: list[dict[str, Any]] | None = None,
) -> Repeats:
    space = CpuSpace.of((ONE,), CpuRanges(), clocks=True)
    request = StudyRequest(space, objective, NO_LIMITS, TRIALS)
    repeats = Repeats(
        bench, request, reported.record, reported.notices.append, every=every, challenges=challenges
    )
    repeats.recall(earlier or [])
    for number, khz in enumerate(order):
        measured = bench.measure(at(khz))
        reported.record("trial", {"configuration": at(khz).to_json(["all"])}, measured)
        repeats.after(StudyTrial(number, at(khz), "ok", measured.figures, "", "probe", None))
    return repeats


def rising(count: int) -> list[int]:
    """Configurations of which none looks better than the first."""
    return [100_000 * (1 + n) for n in range(count)]


@pytest.mark.parametrize(("noise", "most"), [(0.002, 0), (0.02, 2), (0.04, 6)])
def test_a_steady_device_s_noise_is_no_drift(noise: float, most: int) -> None:
    falsely = 0
    for seed in range(60):
        reported = Told()
        found = study(Noisy(noise, lambda _: 1.0, seed), rising(TRIALS), reported, challenges=False)
        assert len(found.references) == (TRIALS - 3) // 8
        falsely += bool(found.marks())
    assert falsely <= most


def test_a_device_that_drifts_is_told_and_nothing_is_corrected() -> None:
    found_times = 0
    for seed in range(40):
        reported = Told()
        bench = Noisy(0.01, lambda run: 1.0 if run < 14 else 1.15, seed)
        found = study(bench, rising(TRIALS), reported, challenges=False)
        assert not found.references[0].drifted
        marks = found.marks()
        if not marks:
            continue
        found_times += 1
        assert "of what it was; no figure is corrected for it" in marks[0]
        last = found.references[-1].ratios["time_s"]
        assert last.low < 1.15 < last.high
        assert "drift" in reported.kinds()
        assert reported.notices[0].startswith("the device drifts: after ")
        # It seemed so, and was measured at once again.
        assert reported.kinds().count("reference") > len(found.references)
    assert found_times >= 38


@pytest.mark.parametrize("objective", ["latency", "energy", "edp"])
def test_equal_challengers_are_a_tie_and_better_ones_win(objective: Objective) -> None:
    wins = {"equal": 0, "better": 0}
    for seed in range(60):
        reported = Told()
        # 1.1 s, and one that is drawn so: a challenge follows where it happens to look better.
        order = [100_000] * 10
        repeats = study(Noisy(0.02, lambda _: 1.0, seed), order, reported, objective=objective)
        wins["equal"] += sum(v["verdict"] == "better" for v in repeats.verdicts)
        reported = Told()
        order = [200_000, 160_000]
        repeats = study(Noisy(0.004, lambda _: 1.0, seed), order, reported, objective=objective)
        wins["better"] += repeats.incumbent == at(160_000)
    assert wins["equal"] <= 9
    assert wins["better"] >= 55


def test_one_that_is_far_better_needs_one_block_that_agrees() -> None:
    reported = Told()
    repeats = study(Noisy(0.01, lambda _: 1.0, 1), [2_000_000, 100_000], reported)
    assert reported.kinds() == ["trial", "trial", "challenge", "challenge", "verdict"]
    assert (repeats.verdicts[0]["verdict"], repeats.incumbent) == ("better", at(100_000))


def test_the_reference_is_the_fastest_of_the_first_three() -> None:
    reported = Told()
    order = [900_000, 300_000, 500_000, *rising(9)]
    study(Noisy(0.01, lambda _: 1.0, 1), order, reported, challenges=False)
    assert reported.kinds()[3] == "reference"
    runs = [e["configuration"] for e in reported.events if e["event"] == "reference"]
    assert runs == [at(300_000).to_json(["all"])] * 2


def test_challenges_keep_to_their_share() -> None:
    for seed in range(10):
        reported = Told()
        falling = rising(TRIALS)[::-1]
        bench = Noisy(0.02, lambda _: 1.0, seed)
        study(bench, falling, reported, every=0)
        assert reported.kinds().count("challenge") <= CHALLENGE_SHARE * TRIALS
        assert bench.runs <= (1 + CHALLENGE_SHARE) * TRIALS


def test_a_pareto_study_has_references_only_and_both_can_be_left_out() -> None:
    reported = Told()
    falling = rising(20)[::-1]
    study(Noisy(0.01, lambda _: 1.0, 1), falling, reported, objective="pareto")
    assert set(reported.kinds()) == {"trial", "reference"}
    bench = Noisy(0.01, lambda _: 1.0, 1)
    study(bench, falling, Told(), every=0, challenges=False)
    assert bench.runs == 20


def test_a_run_that_goes_on_knows_what_went_before() -> None:
    reported = Told()
    order = [900_000, 100_000, *rising(30)]
    whole = study(Noisy(0.01, lambda run: 1.0 if run < 20 else 1.2, 3), order, reported)
    again = Told()
    recalled = study(Noisy(0.01, lambda _: 1.2, 3), [], again, earlier=reported.events)
    assert again.events == []
    assert recalled.incumbent == whole.incumbent
    assert recalled.references == whole.references
    assert recalled.verdicts == whole.verdicts
    assert recalled.marks() == whole.marks() != []
