"""Each result names its run's folder, model, batch size and command, and the versions of the software."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.main import main
from autotune.records import work_of

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "logs" / "samples" / "cpu-matmul"
TABLE = ROOT / "tests" / "data" / "meizu16t_alexnet_b16.csv"
OTHER, RUN = "logs/20260101T000000Z-cpu-net", "logs/20260103T000000Z-cpu-net"
MODEL = "nets/net.py:make"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two kernel runs of a model, and a search of the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in (OTHER, RUN):
        shutil.copytree(SAMPLE, tmp_path / name)
        about = json.loads((tmp_path / name / "run.json").read_text())
        about["request"] |= {"workload": "make", "batch": 4}
        about["step"] = {"model": MODEL, "batch": None}
        (tmp_path / name / "run.json").write_text(json.dumps(about))
    search = tmp_path / "logs" / "20260102T000000Z-joint-sm8150"
    search.mkdir()
    request = {"objective": "latency", "joint": True, "step": {"model": MODEL, "batch": None}}
    (search / "run.json").write_text(json.dumps({"schema_version": 1, "request": request}))
    return tmp_path


def result_of(command: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main([*shlex.split(command), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("command", "run", "model"),
    [
        ("breakdown latest", RUN, MODEL),
        ("records show latest", RUN, MODEL),
        ("records show logs", None, "make"),
        (f"compare {OTHER} latest", None, MODEL),
        ("export latest --csv x.csv", RUN, MODEL),
    ],
)
def test_a_result_of_a_run_has_the_names_of_the_run(
    command: str, run: str | None, model: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = result_of(command, capsys)
    assert (found["run_folder"], found["model"], found["batch"]) == (run, model, 4)
    assert found["command"] == f"autotune {command} --json"
    assert found["versions"].keys() >= {"autotune", "python"}


@pytest.mark.parametrize(
    "command",
    [f"replay {TABLE} --objective energy --deadline 30s", "models", "runs", "report nowhere"],
)
def test_every_result_has_the_command_and_the_versions(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = result_of(command, capsys)
    assert found["command"] == f"autotune {command} --json"
    assert found["versions"].keys() >= {"autotune", "python"}


def test_a_table_of_one_s_own_names_no_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = result_of(f"replay {TABLE} --objective energy --deadline 30s", capsys)
    assert [found[name] for name in ("run_folder", "model", "batch")] == [None] * 3


def test_runs_of_every_kind_name_a_model_alike(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = result_of("runs", capsys)["runs"]
    assert [(one["kind"], one["model"], one["batch"]) for one in found] == [
        ("kernels", MODEL, 4), ("joint", MODEL, 4), ("kernels", MODEL, 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("about", "work"),
    [
        ({"request": {"profile": {"model": "lenet", "batch": 8}}}, ("lenet", 8)),
        ({"request": {"workload": "lenet", "batch": 2}}, ("lenet", 2)),
        ({"request": {"workload": "matmul", "batch": None}}, (None, None)),
        ({"request": {"step": None, "command": "train"}}, (None, None)),
        ({"request": 3}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_what_a_run_is_of(about: dict[str, Any], work: tuple[str | None, int | None]) -> None:
    assert work_of(about) == work
