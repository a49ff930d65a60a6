"""The end of `autotune kernels --model`: the step measured beside what was predicted of it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from command import AUTOTUNE, autotune, one_folder

from autotune.compiler.step import measure_step, step_runs
from autotune.compiler.step.measured_step import _in_turns
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
    assert "the step is predicted only, and not measured: " in again.stdout
    without = autotune("kernels", *few, "--no-step")
    assert without.returncode == 0, without.stderr
    assert "the step is predicted only, and not measured: --no-step" in without.stdout
    assert "compiling" not in without.stderr


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

    found = _in_turns({"pytorch": side, "tuned": lambda steps: [0.001] * steps}, lambda *_: None)
    assert max(found["pytorch"]) == 0.002
    assert max(found["tuned"]) == 0.001
