"""`autotune step` and `autotune breakdown` as a user runs them."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import autotune, autotune_here, one_folder

from autotune.errors import UsageError
from autotune.jobs.device import parse_size

NET = """
import torch

class Net(torch.nn.Module):
    input_shape = (3, 8, 8)

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.head = torch.nn.Linear(4 * 8 * 8, 5)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).flatten(1))

def make():
    torch.manual_seed(0)
    return Net()
"""


def tuned(logs: Path, *extra: str) -> Path:
    """A short run of LeNet at batch 2."""
    done = autotune(
        "kernels", "--model", "lenet", "--batch", "2", "--trials", "8", "--logs", logs, "--no-step", *extra,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return one_folder(logs)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def reported(run: Path) -> dict[str, Any]:
    """What `--json` has of eight steps."""
    done = autotune(
        "step", "--model", "lenet", "--batch", "2", "--run", run, "--steps", "8", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == f"next: autotune breakdown {run}"
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_tuned_step_reports_loss_time_and_memory(reported: dict[str, Any]) -> None:
    assert reported["schema_version"] == 1
    assert len(reported["losses"]) == len(reported["seconds"]) == 8
    assert all(np.isfinite(reported["losses"]))
    assert reported["step_ms"] == pytest.approx(1e3 * np.median(reported["seconds"][3:]))
    assert reported["peak_bytes"] == pytest.approx(reported["predicted_peak_bytes"], rel=0.1)
    assert reported["peak_bytes"] <= reported["predicted_peak_bytes"]
    assert reported["never_tuned_kernels"] == []
    assert reported["samples_per_s"] == pytest.approx(2e3 / reported["step_ms"])


def test_the_same_seed_gives_the_same_losses_tuned_or_not(reported: dict[str, Any]) -> None:
    losses = [reported["losses"][:6]]
    for extra in ((), ("--micro-batch", "1"), ("--recompute", "2")):
        done = autotune(
            "step", "--model", "lenet", "--batch", "2", "--steps", "6", "--json", *extra
        )
        # Nothing is tuned yet.
        assert done.stderr.splitlines()[-1].startswith(
            "next: autotune kernels --model lenet --batch 2"
        )
        losses.append(json.loads(done.stdout)["losses"])
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=1e-4)


def test_the_layout_is_the_faster_one_that_the_runs_know(run: Path, tmp_path: Path) -> None:
    first = tuned(tmp_path, "--layout", "channels-first")
    tasks: dict[Path, dict[str, float]] = {
        folder: {
            task["name"]: task["count"] * task["tuned_ms"]
            for task in json.loads((folder / "result.json").read_text("utf-8"))["tasks"]
        }
        for folder in (first, run)
    }
    best = {
        name: min(t[name] for t in tasks.values() if name in t)
        for t in tasks.values()
        for name in t
    }
    seconds = {folder: sum(best[name] for name in tasks[folder]) for folder in tasks}
    fastest = min(seconds, key=lambda folder: seconds[folder])
    names = {first: "channels_first", run: "channels_last"}
    for runs, layout in (((first,), "channels_first"), ((run, first), names[fastest])):
        options = [part for folder in runs for part in ("--run", str(folder))]
        done = autotune(
            "step", "--model", "lenet", "--batch", "2", "--steps", "4", "--json", *options
        )
        assert json.loads(done.stdout)["layout"] == layout
        assert json.loads(done.stdout)["never_tuned_kernels"] == []


def test_the_report_says_what_was_done(run: Path) -> None:
    done = autotune(
        "step", "--model", "lenet", "--batch", "2", "--run", run, "--steps", "4",
        "--optimizer", "momentum:learning_rate=0.05",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f" kernels of this step are not in run {run} (lenet, batch 2)" in done.stderr
    assert "momentum" in done.stdout
    assert "never tuned" in done.stdout  # the updates of another optimiser
    for word in ("loss", "time a step", "samples/s", "peak memory", "predicted"):
        assert word in done.stdout


def test_data_comes_from_files(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    np.savez(
        tmp_path / "digits.npz",
        images=generator.integers(0, 255, (40, 28, 28, 1), np.uint8),
        labels=generator.integers(0, 10, 40),
    )
    done = autotune(
        "step", "--model", "lenet", "--steps", "4", "--data", tmp_path / "digits.npz", "--json"
    )
    assert done.returncode == 0, done.stderr
    other = autotune("step", "--model", "lenet", "--steps", "4", "--json")
    assert json.loads(done.stdout)["losses"] != json.loads(other.stdout)["losses"]


def test_a_users_own_module_is_tuned_and_trained(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    model = f"{tmp_path / 'net.py'}:make"
    logs = tmp_path / "logs"
    done = autotune(
        "kernels", "--model", model, "--batch", "2", "--trials", "12", "--logs", logs, "--no-step",
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found,) = logs.iterdir()
    step = autotune(
        "step", "--model", model, "--batch", "2", "--steps", "5", "--run", found, "--json"
    )
    assert step.returncode == 0, step.stderr
    assert json.loads(step.stdout)["model"] == model


@pytest.mark.quick
def test_ctrl_c_keeps_the_steps_that_are_done() -> None:
    command = [sys.executable, "-m", "autotune", "step", "--model", "lenet", "--steps", "1000000"]
    process = subprocess.Popen(
        [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("steps: 0/1000000"):
            break
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert 0 < len(json.loads(out)["losses"]) < 1000000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--model", "lenet", "--steps", "3"), "the first 3 are not timed"),
        (("--model", "lenet", "--batch", "4", "--micro-batch", "3"), "it may be 1, 2, 4"),
        (("--model", "lenet", "--recompute", "0"), "give 1 or more segments"),
        (("--model", "lenet", "--memory-limit", "lots"), "is not a size"),
        (("--model", "lenet", "--memory-limit", "1GB", "--recompute", "2"), "leave them out"),
        (("--model", "lenet", "--memory-limit", "1KB"), "the smallest needs"),
        (("--model", "lenet", "--run", "nowhere"), "nowhere"),
        (("--model", "lenet", "--data", "nowhere"), "nowhere"),
        (("--model", "lenet", "--optimizer", "sgdd"), "sgdd"),
        (("--model", "lenet", "--input-shape", "3x3x3"), "defines its own input"),
        (("--model", "net.py:make", "--classes", "4"), "a PyTorch module has its own"),
        (("--model", "net.py:make", "--input-shape", "3x"), "3x32x32"),
        (("--model", "net.py:make", "--input-shape", "3x3"), "there is no file net.py"),
        (("--model", "lenet", "--seed", "-1"), "from 0 to"),
        (("--model", "lenet", "--seed", "18446744073709551616"), "from 0 to"),
        (("--model", "lenet", "--batch", "0"), "batch starts at 1"),
        (("--model", "lenet.py"), "lenet.py:make"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], text: str) -> None:
    done = autotune_here("step", *arguments)
    assert done.returncode == 2, done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_breakdown_adds_up_and_shows_data_movement(run: Path) -> None:
    done = autotune("breakdown", run, "--json")
    content = json.loads(done.stdout)
    assert sum(share["share"] for share in content["shares"]) == pytest.approx(1)
    assert sum(share["ms"] for share in content["shares"]) == pytest.approx(content["step_ms"])
    table = autotune("breakdown", run).stdout
    assert "data movement" in table
    assert "█" in table


def test_breakdown_of_no_run_is_refused(tmp_path: Path) -> None:
    done = autotune("breakdown", tmp_path)
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GB", 10**9), ("512MiB", 512 * 2**20), ("1.5 K", 1500), ("300000", 300000), ("2kib", 2048)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "1XB", "-1GB", "0", "1e9", "9" * 400])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)
