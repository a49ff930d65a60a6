"""The end of `autotune kernels --model`: the step measured beside what was predicted of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import AUTOTUNE, autotune, one_folder

from autotune.cli.commands.kernels_table import show_measured
from autotune.compiler.step import measure_step, step_runs
from autotune.compiler.step.measured_step import MeasuredStep, _in_turns
from autotune.workloads import StepForm, TrainingStep

pytest.importorskip("torch")

NET = """
import torch

class Net(torch.nn.Module):
    input_shape = (1, 4, 4)

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.head(x.flatten(1))

make = Net
"""


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[str, ...]:
    """Options of a short run of a tiny net."""
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    step = ("--model", f"{tmp_path / 'net.py'}:make", "--batch", "4", "--optimizer", "momentum")
    return (*step, "--trials", "6", "--logs", str(tmp_path / "logs"))


def test_the_step_is_measured_untuned_tuned_and_in_pytorch(
    tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    done = autotune("kernels", *tiny, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert json.loads((one_folder(tmp_path / "logs") / "result.json").read_text()) == result
    measured = result["measured_step"]
    assert measured["left_out"] == {}
    assert measured["blocks"] >= 2
    for side in ("untuned", "tuned", "pytorch"):
        found = measured[side]
        assert 0 < found["ci_ms"][0] <= found["ms"] <= found["ci_ms"][1] < 1000
        assert found["ci"][0] <= found["tuned_is_faster"] <= found["ci"][1]
    assert measured["tuned"]["tuned_is_faster"] == 1
    assert measured["pytorch"]["tuned_is_faster"] == pytest.approx(
        measured["pytorch"]["ms"] / measured["tuned"]["ms"], rel=0.5
    )
    text = autotune("report", one_folder(tmp_path / "logs"))
    assert text.returncode == 0, text.stderr


def test_ctrl_c_while_the_step_is_measured_keeps_the_result(
    tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    process = subprocess.Popen(
        [*AUTOTUNE, "kernels", *tiny, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("compiling the tuned step"):
            break
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    result = json.loads(out)
    assert result["measured_step"] is None
    assert result["step_ms"]["tuned"] > 0
    assert json.loads((one_folder(tmp_path / "logs") / "result.json").read_text()) == result
    assert "bug" not in errors


def test_what_is_predicted_only_says_so_and_why(tmp_path: Path, tiny: tuple[str, ...]) -> None:
    few = (*tiny, "--trials", "1")
    emulated = autotune("kernels", *few, "--emulate", "meizu-16t", "--cluster", "big")
    assert emulated.returncode == 0, emulated.stderr
    assert "the step is predicted only, and not measured: emulated meizu-16t" in emulated.stdout
    again = autotune("kernels", "--resume", one_folder(tmp_path / "logs"))
    assert "the step is predicted only, and not measured: emulated meizu-16t" in again.stdout
    without = autotune("kernels", *few, "--no-step")
    assert without.returncode == 0, without.stderr
    assert "the step is predicted only, and not measured: --no-step" in without.stdout
    assert "compiling" not in without.stderr


def resumed(run: Path, **environment: str) -> tuple[dict[str, Any], str]:
    """The result of a resumed run, and what was said."""
    done = autotune("kernels", "--resume", run, "--json", "-v", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_resumed_run_measures_its_step_and_keeps_its_command(
    tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    first = autotune("kernels", *tiny, "--trials", "1", "--no-step", "--json")
    assert first.returncode == 0, first.stderr
    before = json.loads(first.stdout)
    assert before["measured_step"] is None
    run = one_folder(tmp_path / "logs")
    found, reported = resumed(run)
    assert found["measured_step"]["tuned"]["ms"] > 0
    assert f"next: autotune step {' '.join(tiny[:6])} --run {run}" in reported
    for name in ("run_folder", "model", "batch", "command"):
        assert found[name] == before[name]
    assert found["resume_command"] == f"autotune kernels --resume {run} --json -v"
    assert json.loads((run / "result.json").read_text()) == found
    # A run of an earlier version has no step.
    about = json.loads((run / "run.json").read_text())
    del about["step"]
    (run / "run.json").write_text(json.dumps(about))
    found, reported = resumed(run)
    assert found["measured_step"] is None
    assert "an earlier version, which did not record its step" in reported


def test_a_resumed_run_of_one_s_own_model_measures_it_where_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    net = tmp_path / "net.py"
    net.write_text(
        "import torch.nn as nn\n"
        "def make():\n"
        "    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))\n"
        "    net.input_shape = (1, 8, 8)\n"
        "    return net\n"
    )
    own = ("--model", "net.py:make", "--batch", "2", "--trials", "1")
    state = str(tmp_path / "state")
    done = autotune("kernels", *own, "--no-step", XDG_STATE_HOME=state)
    assert done.returncode == 0, done.stderr
    run = one_folder(tmp_path / "logs")
    found, reported = resumed(run, XDG_STATE_HOME=state)
    assert found["measured_step"]["tuned"]["ms"] > 0
    assert found["model"] == "net.py:make"
    assert f"next: autotune step --model net.py:make --batch 2 --run {run}" in reported
    elsewhere = str(tmp_path / "elsewhere")
    found, reported = resumed(run, XDG_STATE_HOME=elsewhere)
    assert found["measured_step"] is None
    assert f"uses {net}:make, which is not trusted on this machine" in reported
    assert f"autotune trust {run}" in reported
    assert f"next: autotune report {run}" in reported
    assert autotune("trust", run, XDG_STATE_HOME=elsewhere).returncode == 0
    assert resumed(run, XDG_STATE_HOME=elsewhere)[0]["measured_step"] is not None
    # Another step under the same name is not what was tuned.
    net.write_text(net.read_text().replace("64, 3", "64, 5"))
    found, reported = resumed(run, XDG_STATE_HOME=state)
    assert found["measured_step"] is None
    assert "no longer the step that the run was made for" in reported
    net.unlink()
    found, reported = resumed(run, XDG_STATE_HOME=state)
    assert (found["measured_step"], found["model"]) == (None, "net.py:make")
    assert f"next: autotune report {run}" in reported


def test_an_untuned_step_of_unknown_length_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It once took 191 s where a kernel's untuned default had no valid time."""
    wanted = TrainingStep("lenet", 1)
    graph = wanted.graph(StepForm("channels_last"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = measure_step(wanted, graph, step_runs([]), None)
    assert set(found.seconds) == {"tuned"}
    assert "not known" in found.left_out["untuned"]


def test_a_side_whose_first_step_finds_sleeping_threads_is_timed_by_the_others() -> None:
    def side(steps: int) -> list[float]:
        return [0.15, *[0.002] * (steps - 1)]

    sides = {"pytorch": side, "tuned": lambda steps: [0.001] * steps}
    found, _ = _in_turns(sides, lambda *_: None)
    assert max(found["pytorch"]) == 0.002
    assert max(found["tuned"]) == 0.001


def test_a_busy_machine_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """PyTorch's step of LeNet once "took" 379 ms beside other programs, without a word."""
    sides = {"tuned": lambda steps: [0.001] * steps}
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        seconds, others_used = _in_turns(sides, lambda *_: None)
    finally:
        for one in spinning:
            one.kill()
            one.wait()
    assert others_used > 0.5
    for used, warns in ((others_used, True), (0.1, False)):
        show_measured(MeasuredStep(seconds, {}, used).to_json())
        reported = capsys.readouterr().out
        assert ("other programs used" in reported) == warns
