"""A joint run and its plans, used from another folder, and after all of it was moved."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import one_folder

from autotune.cli.main import main

# The model of a phone works for each call of a step: of long steps there are fewer in a second of its time.
LENET = ("--model", "lenet", "--batch", "64")
SHORT = ("--blocks", "1", "--least-seconds", "0.2", "--no-sequential")


def done(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `logs/kernels/RUN` and `logs/joint/RUN`, made by relative paths from within."""
    project = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        emulated = ("--emulate", "meizu-16t", *LENET)
        assert done("kernels", *emulated, "--trials", 1, "--logs", "logs/kernels") == 0
        run = one_folder(Path("logs/kernels"))
        joint = ("joint", *emulated, "--run", run, "--trials", 2, *SHORT, "--logs", "logs/joint")
        assert done(*joint) == 0
    return project


@pytest.fixture
def project(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it on another machine, as it were, seen from the root."""
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    monkeypatch.chdir("/")
    return copy


def joint_run(project: Path) -> Path:
    return one_folder(project / "logs" / "joint")


def exported(project: Path, *arguments: object) -> int:
    out = project / "out"
    return done("export", *arguments, "--allow-stand-in", "--out", out)


def as_before(project: Path, run: Path) -> None:
    """What versions that kept paths as they were typed have left."""
    for file in (joint_run(project) / "run.json", joint_run(project) / "plans" / "best.json"):
        reported = json.loads(file.read_text())
        step = reported["request"]["step"] if "request" in reported else reported["step"]
        step["runs"] = [str(run)]
        file.write_text(json.dumps(reported))


def test_a_plan_and_its_run_are_used_from_anywhere(
    made: Path, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = one_folder(project / "logs" / "kernels").relative_to(project)
    gone = made.with_name("gone")
    made.rename(gone)  # So that nothing is found where it was made.
    try:
        for before in (False, True):
            if before:
                as_before(project, typed)
            plan = joint_run(project) / "plans" / "best.json"
            assert done("step", "--plan", plan, "--least-seconds", 0.2) == 0
            assert exported(project, "--plan", plan) == 0
            assert done("joint", "--resume", joint_run(project), "--trials", 3 + before) == 0
    finally:
        gone.rename(made)
    runs = json.loads(plan.read_text())["step"]["runs"]
    assert runs == [str(project / typed)]


def test_runs_that_were_moved_apart_are_named(
    made: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = joint_run(project) / "plans" / "best.json"
    as_before(project, Path("nowhere/run"))
    moved = one_folder(project / "logs" / "kernels").rename(project / "moved")
    for command in (("step", "--plan", plan), ("export", plan, "--out", project / "out")):
        assert done(*command) == 2
        reported = capsys.readouterr().err
        assert "takes its kernels from nowhere/run" in reported
        assert "--run" in reported
    assert done("joint", "--resume", joint_run(project)) == 2
    assert "put it back there" in capsys.readouterr().err
    assert done("step", "--plan", plan, "--run", moved, "--least-seconds", 0.2) == 0
    assert exported(project, plan, "--run", moved) == 0
    content = json.loads(plan.read_text())
    next(call for call in content["calls"] if call["schedule"])["schedule"]["digest"] = "beef"
    plan.write_text(json.dumps(content))
    capsys.readouterr()
    assert exported(project, plan, "--run", moved) == 2
    reported = capsys.readouterr().err
    assert "no run has schedule beef" in reported
    assert "--run" in reported


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "either runs and plans, or plans with --plan"),
        (("{plan}", "--plan", "{plan}"), "either runs and plans, or plans with --plan"),
        (("--plan", "{kernels}"), "a plan is a file"),
        (("{kernels}", "--run", "{kernels}"), "there is no plan"),
    ],
)
def test_what_is_exported_is_said_once(
    project: Path, arguments: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = one_folder(project / "logs" / "kernels")
    places = {"{plan}": joint_run(project) / "plans" / "best.json", "{kernels}": kernels}
    assert exported(project, *(places.get(word, word) for word in arguments)) == 2
    reported = capsys.readouterr().err
    assert text in reported
    assert reported.count("\n") <= 2


def test_the_folder_of_a_run_is_no_place_for_an_export(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = one_folder(project / "logs" / "kernels")
    before = sorted(run.iterdir())
    assert done("export", run, "--allow-stand-in", "--out", run) == 2
    assert "is the folder of a run" in capsys.readouterr().err
    assert sorted(run.iterdir()) == before


def test_an_interrupted_joint_run_says_how_to_end_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = joint_run(project)
    (run / "result.json").unlink()
    shutil.rmtree(run / "plans")
    for command in (("export", run, "--out", project / "out"), ("cpu-config", "apply", run)):
        assert done(*command) == 2
        assert f"autotune joint --resume {run}" in capsys.readouterr().err


def test_kernels_of_another_device_are_told(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = one_folder(project / "logs" / "kernels")
    assert json.loads((joint_run(project) / "result.json").read_text())["warnings"] == []
    logs = project / "other"
    common = (*LENET, "--run", kernels, "--trials", 1, *SHORT, "--logs", logs)
    assert done("joint", "--emulate", "three-cluster", *common, "--json") == 0
    shown = capsys.readouterr()
    result: dict[str, Any] = json.loads(shown.out)
    (reported,) = result["warnings"]
    assert "emulated meizu-16t" in reported
    assert "emulated three-cluster" in reported
    assert "warning: the kernels of --run were tuned on" in shown.err
    assert done("report", one_folder(logs)) == 0
    assert reported in (one_folder(logs) / "report.html").read_text()
