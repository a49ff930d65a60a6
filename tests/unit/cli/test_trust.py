"""Code that a run or a plan names runs only where this user has run it before, or allows it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from autotune.cli.main import main
from autotune.errors import RecordError, UsageError
from autotune.jobs.requests.step import StepRequest, requested_step
from autotune.records import read_run

SAMPLE = Path(__file__).parents[3] / "logs" / "samples" / "cpu-matmul"
COMMAND = "emulated_train --threads {threads} --noise 0.02"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A search of two configurations on a model of a phone, with a program of the user's."""
    code = main(
        [
            "cpu-config", "--emulate", "meizu-16t", "--trials", "2", "--command", COMMAND, "--steps-from", "^step",
            "--logs", str(tmp_path / "logs"), "--quiet",
        ]
    )  # fmt: skip
    assert code == 0
    (found,) = (tmp_path / "logs").iterdir()
    return found


def test_a_run_from_elsewhere_does_not_run_its_command_until_it_is_allowed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Who made it may continue it.
    assert main(["cpu-config", "--resume", str(run), "--trials", "3", "--quiet"]) == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody-else"))
    events = (run / "events.jsonl").read_bytes()
    capsys.readouterr()
    for words in (
        ["cpu-config", "--resume", str(run), "--trials", "4"],
        ["cpu-config", "compare", str(run), "best", "default"],
    ):
        assert main(words) == 2
        reported = capsys.readouterr().err
        assert f"uses {COMMAND}, which is not trusted on this machine" in reported
        assert f"autotune trust {run}" in reported
    assert (run / "events.jsonl").read_bytes() == events
    assert main(["trust", str(run)]) == 0
    assert COMMAND in capsys.readouterr().out
    assert main(["cpu-config", "--resume", str(run), "--trials", "4", "--quiet"]) == 0


def test_what_was_changed_in_a_run_is_not_what_was_allowed(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = json.loads((run / "run.json").read_text())
    about["request"]["command"] = "touch /tmp/x; \x1b[2J"
    (run / "run.json").write_text(json.dumps(about))
    assert main(["cpu-config", "--resume", str(run), "--trials", "3"]) == 2
    assert "uses touch /tmp/x; " in capsys.readouterr().err
    assert main(["trust", str(run)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_model_in_a_file_is_allowed_by_its_place(tmp_path: Path) -> None:
    plan = tmp_path / "theirs" / "plan.json"
    plan.parent.mkdir()
    for folder in (tmp_path, plan.parent):
        (folder / "net.py").write_text("")
    mine = f"{tmp_path / 'net.py'}:make"
    requested_step(StepRequest(mine))
    assert StepRequest(mine).placed(plan, "").model == mine
    for model in (f"{plan.parent / 'net.py'}:make", f"{tmp_path / 'net.py'}:other", "os:getcwd"):
        with pytest.raises(UsageError, match="which is not trusted on this machine") as caught:
            StepRequest(model).placed(plan, "")
        assert caught.value.hint.endswith(f"autotune trust {plan}")
    assert StepRequest("lenet").placed(plan, "").model == "lenet"


def test_a_run_of_built_in_models_names_no_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text(
        json.dumps(
            {
                "schema_version": 1,
                "request": {"objective": "latency", "command": None, "step": {"model": "lenet"}},
            }
        )
    )
    assert main(["trust", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["allowed"] == []


@pytest.mark.parametrize("kind", ["kernels", None])
@pytest.mark.parametrize(
    "change",
    [
        {"step": {"model": []}},
        {"step": {"model": "lenet", "runs": 5}},
        {"step": {"model": "lenet", "train": [{}]}},
        {"step": {"model": "lenet", "batch": "4"}},
        {"step": ["lenet"]},
        {"fleet": ["192.0.2.1:9190"]},
        {"fleet": {"tracker": {}, "key": ""}},
        {"storage": ["sqlite:///a"]},
        {"ssh": "root@192.0.2.1"},
        {"ssh": [{}]},
        {"command": {}},
    ],
)
def test_a_request_with_values_of_other_types_is_damage(
    tmp_path: Path, change: dict[str, object], kind: str | None
) -> None:
    request = {"kind": kind, "objective": "latency", **change}
    (tmp_path / "run.json").write_text(json.dumps({"schema_version": 1, "request": request}))
    assert main(["trust", str(tmp_path)]) == 1
    with pytest.raises(RecordError, match=r"run\.json is damaged: "):
        read_run(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"device": []},
        {"device": {"name": {}}},
        {"device": {"name": "a" * 5000}},
        {"device": {"details": 1}},
        {"versions": [{}]},
        {"versions": {"apache-tvm": 1}},
        {"git": {}},
        {"step": {"model": 1}},
        {"request": []},
    ],
)
def test_a_run_with_values_of_other_types_is_damage(
    tmp_path: Path, change: dict[str, object]
) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"schema_version": 1, **change}))
    with pytest.raises(RecordError, match=r"run\.json is damaged: "):
        read_run(tmp_path)


def test_a_package_is_allowed_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tmp_path / "plan.json"
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "nets_of_this_test.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path / "mine")
    model = "nets_of_this_test:make"
    requested_step(StepRequest(model))
    assert StepRequest(model).placed(plan, "").model == model
    monkeypatch.chdir(tmp_path / "theirs")
    with pytest.raises(UsageError, match="which is not trusted on this machine"):
        StepRequest(model).placed(plan, "")


@pytest.mark.parametrize(
    "named",
    [
        {"ssh": ["root@192.0.2.1"]},
        {"storage": "sqlite:////tmp/somebody/elses.db"},
        {"storage": "journal:///home/me/.profile"},
    ],
)
def test_boards_and_storages_that_a_run_names_are_not_used_either(
    named: dict[str, object], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = json.loads((run / "run.json").read_text())
    about["request"] |= named
    (run / "run.json").write_text(json.dumps(about))
    assert main(["cpu-config", "--resume", str(run), "--trials", "3"]) == 2
    assert "which is not trusted on this machine" in capsys.readouterr().err


def test_a_tracker_that_a_run_names_is_not_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(SAMPLE, tmp_path / "run"))
    about = json.loads((run / "run.json").read_text())
    about["request"]["fleet"] = {"tracker": "192.0.2.1:9190", "key": "phone"}
    (run / "run.json").write_text(json.dumps(about))
    assert main(["kernels", "--resume", str(run)]) == 2
    assert "uses tracker 192.0.2.1:9190, which is not trusted" in capsys.readouterr().err
