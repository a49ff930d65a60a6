"""Bringing records into a run tells how far it is: every step that it announces, once and in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.compiler.run.experience import experiences
from autotune.compiler.run.warm_start import WarmStart
from autotune.records.database import About, Database, Identity, Schedule, SearchedTask, Source
from autotune.workloads import parse_kernel

GPU = Identity("A GPU", "opencl", "1", "0.27.0", "opencl", stand_in=False)


class _Searcher:
    formulation = SimpleNamespace(name="gemm", rule="implicit_gemm")

    def lesson(self, known: Any) -> Any:
        return SimpleNamespace(seconds=[1.0] * len(known))

    def teach(self, lessons: Any) -> None: ...

    def recall(self, known: Any, *, learn: bool = True) -> Any:
        return []


@pytest.mark.parametrize("kernels", [0, 3])
def test_steps_are_told_one_by_one_up_to_the_last(kernels: int) -> None:
    known = [parse_kernel(f"matmul:m=8,n={n},k=8", "forward") for n in (8, 16, 24, 32)]
    tasks = {one.name: SearchedTask(one.spec, one.role, 1, 9.0, 1, ()) for one in known}
    source = Source("run", GPU, "all", About("run", 0.0, "matmul", None), len(known), tasks)
    found = [Schedule.of(one.name, "gemm", one.name, [], {source.id: 1.0}) for one in known]
    reported = experiences([], Database.of([source], found))
    entries: Any = [
        SimpleNamespace(
            task=SimpleNamespace(kernel=SimpleNamespace(name=f"own {number}")),
            searchers=SimpleNamespace(searchers=[_Searcher()], weight=1, default_s=1.0),
        )
        for number in range(kernels)
    ]
    made: Any = _Searcher()
    warm = WarmStart(reported, lambda kernel, formulation: made)
    steps: list[int] = []
    warm.begin(entries, lambda done, name: steps.append(done), lambda: False)
    assert steps == list(range(1, warm.steps(entries) + 1))
    assert warm.taught == ({"implicit_gemm": len(known)} if kernels else {})
