"""A study's default name tells what is searched on what, and only searches that can share a study have the same."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import optuna
import pytest

from autotune.jobs.device import choose
from autotune.jobs.requests import SearchRequest
from autotune.jobs.requests.step import StepRequest
from autotune.jobs.search.study_storage import with_study_name
from autotune.studies.run import open_storage, study_of

PLAIN = SearchRequest(objective="energy", emulate="meizu-16t", trials=1)
LENET = StepRequest("lenet", 4)
OTHERS = (
    replace(PLAIN, emulate="three-cluster"),
    replace(PLAIN, objective="latency"),
    replace(PLAIN, deadline="9s"),
    replace(PLAIN, space="coarse"),
    replace(PLAIN, step=LENET),
    replace(PLAIN, step=replace(LENET, batch=8)),
    replace(PLAIN, step=replace(LENET, optimizer="adam")),
    replace(PLAIN, step=LENET, joint=True),
    replace(PLAIN, command="train --scale 1", steps_from="step"),
    replace(PLAIN, command="train --scale 2", steps_from="step"),
)


def name_of(search: SearchRequest) -> str:
    chosen = choose(None, (), search.emulate)
    found = with_study_name(search, search.study_request(chosen), chosen.info.soc).study
    assert found is not None
    return found


def test_a_name_tells_command_objective_workload_and_device() -> None:
    assert name_of(PLAIN).startswith("cpu-config energy emulated step on meizu-16t ")
    joint = replace(PLAIN, step=replace(LENET, model="nets/mine.py:make"), joint=True)
    assert name_of(joint).startswith("joint energy mine.py:make b4 on meizu-16t ")


def test_what_cannot_share_a_study_has_another_name(tmp_path: Path) -> None:
    asked = [replace(one, storage=f"journal:{tmp_path}/study") for one in (PLAIN, *OTHERS)]
    names = [name_of(one) for one in asked]
    assert len(set(names)) == len(names)
    for one, name in zip(asked, names, strict=True):
        study_of(
            one.study_request(choose(None, (), one.emulate)), open_storage(str(one.storage)), name
        )


@pytest.mark.parametrize("one", [PLAIN, *OTHERS])
def test_the_name_is_the_same_in_every_process_that_may_take_part(one: SearchRequest) -> None:
    assert name_of(one) == name_of(replace(one, trials=50, seed=7, blocks=0))


def test_a_name_tells_what_is_not_left_at_its_default() -> None:
    step = replace(LENET, optimizer="adam", micro_batch=2, classes=7)
    assert re.fullmatch(
        "cpu-config energy lenet b4 on meizu-16t, classes 7, optimizer adam, micro-batch 2, space coarse, "
        "deadline 0.5s, memory 1GB [0-9a-f]{6}",
        name_of(replace(PLAIN, step=step, space="coarse", deadline="500ms", memory_limit="1GB")),
    )
    assert re.fullmatch(r"cpu-config energy lenet b4 on meizu-16t [0-9a-f]{6}", name_of(
        replace(PLAIN, step=LENET, space="every")
    ))  # fmt: skip


def test_searches_that_can_share_a_study_have_one_name() -> None:
    one = replace(PLAIN, step=LENET, memory_limit="1GB", deadline="500ms")
    for other in (
        replace(one, memory_limit="1000MB"),
        replace(one, deadline="0.5s", space="every"),
    ):
        assert name_of(other) == name_of(one)


@pytest.mark.parametrize("before", ["cpu-config SM8150 emulated", "cpu-config", None])
def test_a_study_under_the_name_of_an_earlier_version_goes_on(
    tmp_path: Path, before: str | None
) -> None:
    url = f"journal:{tmp_path}/study"
    search = replace(PLAIN, storage=url)
    if before is None:
        search = replace(search, space="coarse")
        before = name_of(search).replace(", space coarse", "")
    study_of(search.study_request(choose(None, (), "meizu-16t")), open_storage(url), before)
    assert name_of(search) == before
    # Another search, which was refused under that name, begins a study of its own.
    assert name_of(replace(search, objective="latency")) not in optuna.get_all_study_names(
        open_storage(url)
    )
