"""`autotune runs`, and `latest` wherever a run is taken."""

import inspect
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.main import app, main
from autotune.cli.options.latest import run_path
from autotune.errors import UsageError

SAMPLE = Path(__file__).parents[2] / "logs" / "samples" / "cpu-matmul"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three runs: kernels, a search that did not end, and kernels before both."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    folder = tmp_path / "logs"
    for name in ("20260101T000000Z-cpu-matmul", "20260103T000000Z-cpu-matmul"):
        shutil.copytree(SAMPLE, folder / name)
    search = folder / "20260104T000000Z-joint-sm8150"
    search.mkdir()
    request = {"objective": "latency", "joint": True, "step": {"model": "lenet", "batch": 8}}
    about: dict[str, Any] = {"schema_version": 1, "request": request, "device": {"name": "a phone"}}
    (search / "run.json").write_text(
        json.dumps({**about, "command": "autotune joint --model lenet"})
    )
    (search / "events.jsonl").write_text("")
    (folder / "20260105T000000Z-broken").mkdir()
    (folder / "20260105T000000Z-broken" / "run.json").write_text("{")
    return folder


def test_runs_are_listed_the_newest_first(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"][:8] for one in found["runs"]] == ["20260104", "20260103", "20260101"]
    search, kernels, _ = found["runs"]
    assert (search["kind"], search["model"], search["batch"], search["ended"]) == (
        "joint",
        "lenet",
        8,
        False,
    )
    assert search["to_end"].endswith(f"autotune joint --resume logs/{search['name']}")
    assert search["command"] == "autotune joint --model lenet"
    assert (kernels["kind"], kernels["model"], kernels["ended"]) == ("kernels", "matmul", True)
    assert main(["runs"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split()[:4] == ["run", "command", "model", "batch"]
    assert "not ended" in shown[2]
    assert main(["runs", "elsewhere"]) == 2


def test_no_runs_are_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 0
    assert "no runs in logs" in capsys.readouterr().out
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []
    assert main(["report", "latest"]) == 2
    assert "`autotune runs` lists runs" in capsys.readouterr().err


def test_latest_is_the_newest_run_that_a_command_takes(logs: Path) -> None:
    newest, search = (
        logs / f"2026010{day}T000000Z-{what}"
        for day, what in ((3, "cpu-matmul"), (4, "joint-sm8150"))
    )
    relative = Path("logs")
    assert run_path("kernels")("latest") == relative / newest.name
    assert run_path()("latest") == relative / search.name
    assert (
        run_path("joint")("latest/plans/best.json")
        == relative / search.name / "plans" / "best.json"
    )
    moved = shutil.copytree(logs, logs.parent / "others")
    assert run_path("kernels")(f"{moved}/latest") == moved / newest.name
    with pytest.raises(UsageError, match="no run of profile in logs"):
        run_path("profile")("latest")
    # Of one second, the one whose folder was made last.
    twin = shutil.copytree(newest, logs / f"{newest.name}-2")
    os.utime(twin / "run.json", (2e9, 2e9))
    assert run_path("kernels")("latest") == relative / twin.name
    # A folder of that name counts.
    Path("latest").mkdir()
    assert run_path("kernels")("latest") == Path("latest")


def test_commands_take_latest(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["breakdown", "latest"],
        ["records", "show", "latest"],
        ["compare", "latest", "logs/20260101T000000Z-cpu-matmul"],
        ["report", "logs/latest"],
    ):
        # The newest of all is a search without a measurement, which has neither page nor comparison.
        expected = 0 if arguments[0] in ("breakdown", "records") else 2
        assert main(arguments) == expected
    assert "20260104T000000Z-joint-sm8150" in capsys.readouterr().err
    shutil.rmtree(logs / "20260104T000000Z-joint-sm8150")
    assert main(["report", "latest"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "logs/20260103T000000Z-cpu-matmul/report.html\n"
    assert shown.err.startswith("next: python -m webbrowser ")
    assert main(["-q", "report", "latest"]) == 0
    assert capsys.readouterr().err == ""


def test_every_option_and_argument_that_takes_a_run_takes_latest(logs: Path) -> None:
    names = {
        "run",
        "runs",
        "resume",
        "of",
        "first",
        "second",
        "plan",
        "start_from",
        "gpu_run",
        "records",
        "recorded",
    }
    groups = [
        app,
        *(group.typer_instance for group in app.registered_groups if group.typer_instance),
    ]
    callbacks = [one.callback for group in groups for one in group.registered_commands]
    callbacks += [
        group.registered_callback.callback for group in groups if group.registered_callback
    ]
    seen = set()
    for callback in filter(None, callbacks):
        parameters = inspect.signature(callback).parameters
        for name in names & parameters.keys():
            if callback.__module__.endswith("cpu_config_compare") and name != "run":
                continue  # Points of a run.
            (option,) = parameters[name].annotation.__metadata__
            found = (
                option.parser("latest/x")
                if "kernels" in str(option.parser.__closure__[0].cell_contents)
                else None
            )
            assert found is None or str(found).startswith("logs/2026"), (callback, name)
            seen.add((callback.__module__.rpartition(".")[2], name))
    assert {("kernels", "resume"), ("export", "runs"), ("profile", "of"), ("step", "plan")} <= seen
    assert len(seen) > 15
