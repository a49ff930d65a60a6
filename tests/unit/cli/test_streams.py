"""Stdout holds the result alone: not what models print, nor what native code and child processes do."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.main import main
from autotune.cli.shared.output import command_of
from autotune.cli.shared.streams import wants_json
from autotune.errors import UsageError
from autotune.jobs.provenance import about_run, command_line
from autotune.workloads import StepForm, TrainingStep

NET = """
import atexit, ctypes, os, sys
import torch.nn as nn
print("PRINTED on import")
libc = ctypes.CDLL(None)
libc.printf(b"PRINTED by native code\\n")
atexit.register(print, "PRINTED at exit")
class Net(nn.Module):
    input_shape = (1, 8, 8)
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    def forward(self, x):
        print("PRINTED forward")
        libc.puts(b"PRINTED by native code, forward")
        return self.layers(x)
def make():
    print("PRINTED factory")
    os.system("echo PRINTED by a child")
    os.write(1, b"PRINTED raw\\n")
    print("PRINTED to the process's own stdout", file=sys.__stdout__)
    return Net()
"""
PROGRAM = (sys.executable, "-m", "autotune")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    made = tmp_path_factory.mktemp("printing")
    (made / "net.py").write_text(NET)
    return made


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )


STEP = ("step", "--model", "net.py:make", "--batch", "2", "--steps", "4")


@pytest.mark.slow
def test_what_a_model_prints_is_not_in_json_and_it_is_made_once(folder: Path) -> None:
    arguments = ("kernels", "--model", "net.py:make", "--batch", "2", "--trials", "2")
    done = run(folder, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "PRINTED" not in done.stdout
    for what in (
        "on import",
        "by native code",
        "by a child",
        "raw",
        "forward",
        "at exit",
        "to the process",
    ):
        assert f"PRINTED {what}" in done.stderr, what
    assert done.stderr.count("PRINTED factory") == done.stderr.count("PRINTED on import") == 1
    assert found["command"] == f"autotune {' '.join(arguments)} --json"
    assert (found["model"].rpartition(":")[2], found["batch"]) == ("make", 2)
    assert found["versions"].keys() >= {"autotune", "apache-tvm", "python", "numpy"}
    assert (folder / found["run_folder"] / "run.json").is_file()
    about = json.loads((folder / found["run_folder"] / "run.json").read_text())
    assert about["command"] == found["command"]
    reported = f"next: autotune step --model net.py:make --batch 2 --run {found['run_folder']}\n"
    assert reported in done.stderr


def test_what_a_model_prints_is_not_in_a_table(folder: Path) -> None:
    done = run(folder, *STEP)
    assert done.returncode == 0, done.stderr
    assert "PRINTED" not in done.stdout
    assert "time a step" in done.stdout


def test_the_seed_of_a_step_is_that_of_its_module(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "seeded.py").write_text(
        "import torch.nn as nn\nmade = []\n"
        "def make():\n    made.append(1)\n"
        "    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))\n    net.input_shape = (1, 2, 2)\n    return net\n"
    )
    steps = [TrainingStep(f"{tmp_path}/seeded.py:make", 4, seed=seed) for seed in (3, 4, 3)]
    first, other, again = (
        step.values(step.graph(StepForm()), step.seed)["1.weight"] for step in steps
    )
    assert (first == again).all()
    assert (first != other).any()
    assert len(sys.modules["autotune_own_seeded"].made) == 2
    # A file that has changed is imported again.
    (tmp_path / "seeded.py").write_text("def make():\n    return 3\n")
    with pytest.raises(UsageError, match="returned int"):
        steps[0].graph(StepForm())


@pytest.mark.parametrize(
    ("arguments", "code", "kind", "message"),
    [
        (["kernels", "--nope"], 2, "usage", "No such option"),
        (["models", "--batch", "x"], 2, "usage", "Invalid value for"),
        (["nothing"], 2, "usage", "No such command"),
        (["export"], 2, "usage", "nothing says where to write"),
        (["models", "--batch", "0"], 2, "usage", "too small"),
        (["breakdown", "nowhere"], 2, "usage", "no run at nowhere"),
        (["tracker", "status"], 3, "device", "no tracker runs"),
        (["step", "--model", "lenet", "--data", "missing"], 2, "usage", "no such file"),
    ],
)
def test_errors_are_json_where_json_is_asked_for(
    arguments: list[str],
    code: int,
    kind: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main([*arguments, "--json"]) == code
    shown = capsys.readouterr()
    error = json.loads(shown.out)["error"]
    assert error.keys() == {"message", "hint", "kind"}
    assert error["kind"] == kind
    assert message in error["message"]
    assert shown.err.startswith("autotune: error: ")
    assert main(arguments) == code
    assert capsys.readouterr().out == ""


def test_damaged_records_are_an_error_of_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text("{")
    assert main(["breakdown", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "record"


def test_faults_and_interrupts_are_errors_of_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import autotune.workloads

    for raised, code, kind in (
        (ValueError("boom"), 1, "bug"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ):

        def build(*_: object, error: BaseException = raised) -> Any:
            raise error

        monkeypatch.setattr(autotune.workloads, "build_model", build)
        assert main(["models", "--json"]) == code
        assert json.loads(capsys.readouterr().out)["error"]["kind"] == kind


def test_help_is_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json", "--help"]) == 0
    assert "Usage" in capsys.readouterr().out
    assert wants_json(["kernels", "--json"])
    assert not wants_json(["kernels", "--", "--json"])


def test_a_command_keeps_no_password() -> None:
    url = "postgresql+psycopg://me:secret@host/db"
    with command_of(["cpu-config", "--storage", url, "a b"]):
        assert about_run({}, {})["command"] == command_line()
        assert command_line().endswith("me:***@host/db' 'a b'") or "secret" not in command_line()
        assert "secret" not in command_line()
    assert command_line() == ""


def test_a_process_whose_stdout_is_closed_ends_as_usual() -> None:
    command = " ".join([*PROGRAM, "models", "--json", ">&-"])
    done = subprocess.run(
        ["bash", "-c", command],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert "Traceback" not in done.stderr
