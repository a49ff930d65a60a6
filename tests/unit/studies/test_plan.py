"""Plans with a setting for each call, against all that there are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.devices.topology import Cluster
from autotune.measurement.statistics import Interval
from autotune.studies.plans.per_operator import candidates, shared_out
from autotune.studies.plans.plan import CallCosts, best_plan, figures_of, singles
from autotune.studies.run.cpu_config import Outcome
from autotune.studies.run.finals import Final
from autotune.studies.run.results import found_of
from autotune.studies.run.study import StudyRequest, StudyTrial
from autotune.studies.space.configuration import ClusterSetting, CpuConfiguration
from autotune.studies.space.objective import Figures, Limits, Objective, best
from autotune.studies.space.ranges import CpuRanges
from autotune.studies.space.space import CpuSpace


def drawn(seed: int, calls: int, settings: int, switch: float) -> CallCosts:
    rng = np.random.default_rng(seed)
    time_s = rng.uniform(0.5, 2, (calls, settings))
    switch_s = switch * rng.uniform(0.5, 2, (settings, settings))
    np.fill_diagonal(switch_s, 0)
    return CallCosts(time_s, time_s * rng.uniform(0.5, 4, (calls, settings)), switch_s)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.1, 1.0, 100.0]))
def test_the_least_time_and_the_least_energy_are_found(seed: int, switch: float) -> None:
    costs = drawn(seed, 4, 3, switch)
    every = [figures_of(costs, p) for p in itertools.product(range(3), repeat=4)]
    fastest, frugal = (best_plan(costs, o, Limits()) for o in ("latency", "energy"))
    assert fastest is not None
    assert frugal is not None
    assert fastest.figures.time_s == pytest.approx(min(f.time_s for f in every))
    assert frugal.figures.energy_j == pytest.approx(min(f.energy_j or 0 for f in every))


@given(st.integers(0, 10_000), st.sampled_from(["edp", "energy"]))
def test_a_plan_is_never_worse_than_a_single_setting_and_keeps_the_limits(
    seed: int, objective: Objective
) -> None:
    costs = drawn(seed, 5, 3, 0.05)
    one = [plan.figures for plan in singles(costs)]
    limits = Limits(time_s=float(np.median([f.time_s for f in one])))
    plan = best_plan(costs, objective, limits)
    alone = best(objective, limits, one)
    assert plan is not None
    assert alone is not None
    assert limits.kept(plan.figures)
    both = best(objective, limits, [plan.figures, one[alone]])
    assert both == 0


def test_costly_changes_leave_the_best_single_setting() -> None:
    costs = drawn(3, 6, 3, 1e6)
    plan = best_plan(costs, "latency", Limits())
    assert plan is not None
    assert plan.changes == ()
    assert len(set(plan.settings)) == 1


def test_changes_are_told_with_the_call_that_they_precede() -> None:
    time_s = np.asarray([[1.0, 3.0], [3.0, 1.0], [3.0, 1.0]])
    costs = CallCosts(time_s, None, np.asarray([[0.0, 0.25], [0.5, 0.0]]))
    plan = best_plan(costs, "latency", Limits())
    assert plan is not None
    assert plan.settings == (0, 1, 1)
    assert plan.changes == ((0, 0), (1, 1))
    assert plan.figures.time_s == pytest.approx(3.75)
    phases = best_plan(costs.together([0, 1]), "latency", Limits())
    assert phases is not None
    assert phases.settings == (0, 1)


def test_nothing_keeps_an_impossible_limit() -> None:
    assert best_plan(drawn(1, 3, 2, 0.1), "energy", Limits(time_s=1e-9)) is None


CLOCKS = (1_000_000, 2_000_000, 3_000_000)
ONE = Cluster("all", (0,), 1024, CLOCKS[0], CLOCKS[-1], CLOCKS, (), ())


def at(khz: int) -> CpuConfiguration:
    return CpuConfiguration((ClusterSetting(1, khz),), 1)


def test_a_plan_goes_through_the_best_by_what_was_measured_again() -> None:
    request = StudyRequest(CpuSpace.of([ONE], CpuRanges(), clocks=True), "edp", Limits(), 3)
    # The first was lucky once; measured again, the second is the best. The first is not even on the front.
    trials = tuple(
        StudyTrial(n, at(khz), "ok", Figures(seconds, joules), "", "probe", None)
        for n, (khz, seconds, joules) in enumerate(
            zip(CLOCKS, (1.0, 1.1, 1.4), (1.0, 2.0, 1.9), strict=True)
        )
    )
    finals = tuple(
        Final(
            at(khz),
            Figures(seconds, joules),
            Interval(seconds, seconds, seconds),
            None,
            {0: Figures(seconds, joules)},
        )
        for khz, seconds, joules in ((CLOCKS[0], 1.2, 2.1), (CLOCKS[1], 1.1, 2.0))
    )
    found = found_of(request, Outcome(trials, finals))
    assert candidates(found) == [at(CLOCKS[1]), at(CLOCKS[2])]
    unkept = StudyRequest(request.space, "edp", Limits(time_s=0.1), 3)
    assert candidates(found_of(unkept, Outcome(trials, finals))) == []


def test_calls_add_up_to_the_step() -> None:
    assert shared_out(np.asarray([1.0, 3.0]), 2.0).tolist() == [0.5, 1.5]
    assert shared_out(np.asarray([1.0, -3.0]), 2.0).tolist() == [1.0, 1.0]
