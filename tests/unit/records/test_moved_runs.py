"""What runs and plans name is found from any working directory, and what did not end says how to end it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.jobs.requests import allow, model_code
from autotune.jobs.requests.points import point_of
from autotune.jobs.requests.step import StepRequest, requested_step
from autotune.records import read_run
from autotune.records.run_paths import is_run, place_of

POINT = {"clusters": {"big": {"cores": 4, "khz": 2419200}}, "threads": 4}


def run_in(folder: Path, request: dict[str, Any] | None = None, result: Any = None) -> Path:
    folder.mkdir(parents=True)
    about = {"schema_version": 1, "request": request or {"kind": "kernels"}}
    (folder / "run.json").write_text(json.dumps(about))
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_a_run_is_found_beside_the_one_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = run_in(tmp_path / "project" / "logs" / "kernels")
    joint = run_in(tmp_path / "project" / "logs" / "joint")
    monkeypatch.chdir("/")
    assert place_of("logs/kernels", joint) == kernels
    assert place_of(str(kernels), joint) == kernels
    assert place_of("logs/others", joint) is None
    # A whole folder that went elsewhere.
    moved = tmp_path / "elsewhere"
    (tmp_path / "project").rename(moved)
    plan = moved / "logs" / "joint" / "plans" / "best.json"
    assert place_of(str(kernels), plan) == moved / "logs" / "kernels"
    # One that has more of the path goes before one that only has the name.
    nearer = run_in(moved / "logs" / "joint" / "kernels")
    assert place_of("logs/kernels", plan) == moved / "logs" / "kernels"
    assert place_of("others/kernels", plan) == nearer


def test_a_name_that_no_folder_above_has_is_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_in(tmp_path / "here" / "logs" / "kernels")
    joint = run_in(tmp_path / "there" / "joint")
    monkeypatch.chdir(tmp_path / "here")
    assert is_run(Path("logs/kernels"))
    assert place_of("logs/kernels", joint) == Path("logs/kernels")


def test_options_keep_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    step = requested_step(StepRequest("lenet", runs=("logs/kernels",)))
    assert step is not None
    assert step.runs == (str(tmp_path / "logs" / "kernels"),)


def test_runs_that_are_named_anew_stand_for_those_that_are_gone(tmp_path: Path) -> None:
    here, renamed = run_in(tmp_path / "logs" / "a"), run_in(tmp_path / "away" / "renamed")
    plan = run_in(tmp_path / "logs" / "joint") / "plans" / "best.json"
    step = StepRequest("lenet", runs=("logs/a", "logs/b"), gpu_runs=("logs/c",))
    gpu = run_in(tmp_path / "away" / "c")
    with pytest.raises(
        UsageError, match="takes its kernels from logs/b, which is not there"
    ) as raised:
        step.placed(plan, "put it back")
    assert raised.value.hint == "put it back"
    with pytest.raises(UsageError, match="from logs/c"):
        step.placed(plan, "put it back", [renamed])
    found = step.placed(plan, "", [renamed, gpu])
    assert (set(found.runs), found.gpu_runs) == ({str(renamed), str(here)}, (str(gpu),))
    # By its name one takes the place of just that run.
    again, other = run_in(tmp_path / "away" / "a"), run_in(tmp_path / "away" / "b")
    assert step.placed(plan, "", [other, again, gpu]).runs == (str(again), str(other))


def test_a_model_in_a_file_is_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joint = run_in(tmp_path / "logs" / "joint")
    (tmp_path / "net.py").write_text("")
    monkeypatch.chdir("/")
    allow(
        model_code(one)
        for one in (f"{tmp_path / 'net.py'}:make", "package.net:make", "/other.py:make")
    )
    assert StepRequest("net.py:make").placed(joint, "").model == f"{tmp_path / 'net.py'}:make"
    for model in ("lenet", "package.net:make", "other.py:make"):
        assert StepRequest(model).placed(joint, "").model == model


@pytest.mark.parametrize(
    ("request_", "command"),
    [
        ({"kind": "kernels"}, "autotune kernels --resume "),
        ({"objective": "edp", "joint": True}, "autotune joint --resume "),
        ({"objective": "edp"}, "autotune cpu-config --resume "),
        ({"profile": {"model": "lenet", "batch": 8}}, "autotune profile --model lenet --batch 8"),
        (
            {"run": "logs/x", "first": "best", "second": "default", "by": "time"},
            "autotune cpu-config compare logs/x best default",
        ),
    ],
)
def test_what_did_not_end_says_how_to_end_it(
    tmp_path: Path, request_: dict[str, Any], command: str
) -> None:
    path = run_in(tmp_path / "run", request_)
    with pytest.raises(UsageError, match="run has not ended") as raised:
        read_run(path).ended()
    assert command in raised.value.hint
    assert ("--resume" in command) == (str(path) in raised.value.hint)


def test_points_of_a_search_are_those_that_have_plans(tmp_path: Path) -> None:
    front = [{**POINT, "threads": 1}, {**POINT, "threads": 2}]
    result = {
        "best": POINT, "default": {"clusters": None}, "points": {"least_energy": POINT},
        "pareto": front, "sequential": {"best": {**POINT, "threads": 3}},
    }  # fmt: skip
    run = read_run(run_in(tmp_path / "a", {"objective": "pareto", "joint": True}, result))
    assert point_of(run, "least-energy") == point_of(run, "least_energy") == POINT
    assert point_of(run, "pareto-2") == front[1]
    assert point_of(run, "sequential")["threads"] == 3
    with pytest.raises(UsageError, match="no point 'pareto-3'") as raised:
        point_of(run, "pareto-3")
    assert "pareto-1 to pareto-2" in raised.value.hint
    with pytest.raises(UsageError, match="not a run of cpu-config or joint"):
        point_of(read_run(run_in(tmp_path / "b")), "best")
    unfinished = read_run(run_in(tmp_path / "c", {"objective": "edp", "joint": True}))
    with pytest.raises(UsageError, match="has not ended") as raised:
        point_of(unfinished, "best")
    assert f"autotune joint --resume {unfinished.path}" in raised.value.hint
