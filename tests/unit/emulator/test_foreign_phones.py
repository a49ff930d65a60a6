"""Phones of foreign physics are foreign, and give a benchmark what it needs."""

import ast
import math
from pathlib import Path

import cpu_config
import numpy as np
import pytest
from common import foreign_phones
from common.foreign_phones import PHONES, ForeignBench

from autotune.studies.space.configuration import ClusterSetting, CpuConfiguration
from autotune.studies.space.ranges import CpuRanges
from autotune.studies.space.space import CpuSpace


def space_of(name: str) -> CpuSpace:
    return CpuSpace.of(PHONES[name].clusters, CpuRanges(), clocks=True)


def test_they_share_no_code_with_the_emulator_or_the_search_s_models() -> None:
    tree = ast.parse(Path(foreign_phones.__file__).read_text(encoding="utf-8"))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    ours = {name for name in imported if name.startswith("autotune")}
    assert ours == {
        "autotune.devices.topology",
        "autotune.studies.evaluators.evaluator",
        "autotune.studies.space.configuration",
        "autotune.studies.space.objective",
    }


@pytest.mark.parametrize("name", PHONES)
def test_every_configuration_has_figures(name: str) -> None:
    space = space_of(name)
    numbers = space.numbers(np.random.default_rng(0), 10**6)
    assert len(numbers) > 2000
    for number in numbers:
        figures = PHONES[name].exact(space.at(int(number)))
        assert all(math.isfinite(value) and value > 0 for value in figures)


def test_above_its_budget_of_power_a_higher_clock_is_slower_and_nobody_is_told() -> None:
    phone = PHONES["shared-bus"]
    _, big, prime = (cluster.frequencies_khz for cluster in phone.clusters)

    def at(step: int) -> CpuConfiguration:
        settings = (ClusterSetting(0), ClusterSetting(2, big[-1]), ClusterSetting(1, prime[step]))
        return CpuConfiguration(settings, 3)

    assert phone.exact(at(1))[0] < phone.exact(at(0))[0]
    assert phone.exact(at(-1))[0] > phone.exact(at(-3))[0]
    measured = ForeignBench("shared-bus", 1).measure(at(-1))
    assert (measured.status, measured.message, measured.seen_khz) == ("ok", "", {})


@pytest.mark.parametrize("name", PHONES)
def test_measurements_lie_about_the_exact_figures_and_some_are_far_off(name: str) -> None:
    bench, space = ForeignBench(name, 3), space_of(name)
    configuration = space.at(int(space.numbers(np.random.default_rng(1), 10)[0]))
    exact = PHONES[name].exact(configuration)[0]
    found = [bench.measure(configuration).figures for _ in range(600)]
    ratios = np.array([f.time_s for f in found if f is not None]) / exact
    assert len(ratios) == 600
    assert np.median(ratios) == pytest.approx(1.0, abs=0.02)
    assert 0.01 < np.mean(ratios > 1.15) < 0.1


@pytest.mark.parametrize("name", PHONES)
def test_the_benchmark_tells_how_far_a_search_of_them_is_from_the_best(name: str) -> None:
    gaps = cpu_config.emulated((name, "random", "latency", 6, 1))
    assert len(gaps) == 6
    assert all(math.isfinite(gap) and gap >= 0 for gap in gaps)
