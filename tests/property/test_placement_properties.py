"""Placements by a minimum cut, against all placements of small steps."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.studies.joint.placement import Crossing, cost, placed

COSTS = st.floats(0.0, 10.0)


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[float], list[float], list[Crossing]]:
    count = draw(st.integers(1, 7))
    cpu = draw(st.lists(COSTS, min_size=count, max_size=count))
    gpu = draw(st.lists(st.one_of(COSTS, st.just(float("inf"))), min_size=count, max_size=count))
    call = st.one_of(st.none(), st.integers(0, count - 1))
    crossings = draw(
        st.lists(
            st.builds(
                Crossing,
                call,
                st.lists(call, min_size=1, max_size=3).map(tuple),
                COSTS,
                COSTS,
            ),
            max_size=6,
        )
    )
    return cpu, gpu, crossings


@settings(max_examples=300, deadline=None)
@given(steps())
def test_no_other_placement_costs_less(
    step: tuple[list[float], list[float], list[Crossing]],
) -> None:
    cpu, gpu, crossings = np.asarray(step[0]), np.asarray(step[1]), step[2]
    found = placed(cpu, gpu, crossings)
    assert not any(there and not np.isfinite(g) for there, g in zip(found, gpu, strict=True))
    best = min(cost(one, cpu, gpu, crossings) for one in product((False, True), repeat=len(cpu)))
    assert cost(found, cpu, gpu, crossings) <= best + 1e-5


def test_a_tensor_that_several_calls_read_crosses_once() -> None:
    cpu, gpu = np.asarray([1.0, 5.0, 5.0]), np.asarray([9.0, 1.0, 1.0])
    crossing = Crossing(0, (1, 2), to_gpu=6.0, to_cpu=0.0)
    assert placed(cpu, gpu, [crossing]) == (False, True, True)
    assert cost((False, True, True), cpu, gpu, [crossing]) == pytest.approx(9.0)


def test_a_step_stays_where_crossings_cost_more_than_they_save() -> None:
    cpu, gpu = np.asarray([1.0, 2.0, 1.0]), np.asarray([np.inf, 1.5, np.inf])
    crossings = [Crossing(0, (1,), 0.3, 0.3), Crossing(1, (2,), 0.3, 0.3)]
    assert placed(cpu, gpu, crossings) == (False, False, False)
    cheap = [Crossing(0, (1,), 0.2, 0.2), Crossing(1, (2,), 0.2, 0.2)]
    assert placed(cpu, gpu, cheap) == (False, True, False)
