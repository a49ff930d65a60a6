"""What a benchmark writes when it ends, in whatever way."""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from common import bars

from autotune.errors import INTERRUPTED, StableDeviceError, UsageError
from autotune.measurement import Interval

HALF_WAY = """
import sys, time
from common.bars import run

def measure(report):
    report.row(side="ours", seconds=[1.0, 2.0])
    report.bar("ours over theirs", 2.0, "at least", 3, "x")
    print("half way", flush=True)
    time.sleep(60)
    report.row(side="theirs", seconds=[])

sys.exit(run("Half of it.", measure))
"""


def ended(
    monkeypatch: pytest.MonkeyPatch, file: Path, error: Exception, *, rows: int
) -> tuple[int, Any]:
    def measure(report: bars.Report) -> None:
        for number in range(rows):
            report.row(number=number)
        raise error

    monkeypatch.setattr(sys, "argv", ["benchmark", "--json", str(file)])
    code = bars.run("It fails.", measure)
    return code, json.loads(file.read_text()) if file.exists() else None


def test_ctrl_c_keeps_what_a_benchmark_has_measured(tmp_path: Path) -> None:
    program, file = tmp_path / "half_way.py", tmp_path / "made" / "rows.json"
    program.write_text(HALF_WAY)
    with subprocess.Popen(
        [sys.executable, str(program), "--json", str(file)],
        env={**os.environ, "PYTHONPATH": str(Path(bars.__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stderr
        while process.stdout.readline() != "half way\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == INTERRUPTED
        assert process.stderr.read() == "half_way.py: interrupted\n"
    content = json.loads(file.read_text())
    assert content["ended_early"] == "interrupted"
    assert content["rows"] == [{"side": "ours", "seconds": [1.0, 2.0]}]
    (bar,) = content["bars"]
    assert (bar["value"], bar["ok"]) == (2.0, False)


def test_a_fault_loses_no_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, content = ended(monkeypatch, tmp_path / "a.json", StableDeviceError("it fell"), rows=2)
    assert code == 3
    assert content["ended_early"] == "it fell"
    assert content["rows"] == [{"number": 0}, {"number": 1}]


def test_a_file_of_before_stays_when_nothing_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "a.json"
    assert ended(monkeypatch, file, UsageError("no such run"), rows=0) == (2, None)
    file.write_text('"before"')
    assert ended(monkeypatch, file, UsageError("no such run"), rows=0) == (2, "before")


def test_a_whole_run_does_not_say_that_it_ended_early(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "a.json"
    monkeypatch.setattr(sys, "argv", ["benchmark", "--json", str(file)])
    met = bars.run("One.", lambda report: report.bar("one", 1.0, "at least", 1, "x"))
    assert (met, json.loads(file.read_text()).get("ended_early")) == (0, None)
    missed = bars.run("One.", lambda report: report.bar("one", 0.5, "at least", 1, "x"))
    assert missed == 1


def test_a_missing_run_is_told_before_anything_is_timed(tmp_path: Path) -> None:
    """And rows of before stay."""
    pytest.importorskip("torch")
    file = tmp_path / "rows.json"
    file.write_text('"before"')
    program = Path(bars.__file__).parents[1] / "training_step.py"
    done = subprocess.run(
        [sys.executable, program, "--speed", "--runs", tmp_path, "--models", "lenet", "--json", file],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "has no run of lenet, batch 4" in done.stderr
    assert json.loads(file.read_text()) == "before"


def test_speed_is_measured_with_the_shipped_records_and_few_trials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So that the command of a figure makes that figure, and in its time."""
    pytest.importorskip("torch")
    training_step = importlib.import_module("training_step")
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    monkeypatch.setattr(training_step, "finished", lambda *_: [tmp_path] if commands else [])
    options = argparse.Namespace(runs=None, speed=True)
    training_step.run_of("lenet", bars.Report(quick=False, options=options), tmp_path, 16)
    (command,) = commands
    assert int(command[command.index("--trials") + 1]) <= 200
    folder = Path(command[command.index("--records") + 1])
    assert list(folder.glob("*.records.gz"))


@pytest.mark.parametrize(
    ("kind", "value", "interval", "ok", "word"),
    [
        ("at least", 1.2, None, True, "met"),
        ("at least", 1.2, (1.05, 1.4), True, "met"),
        ("at least", 1.2, (0.9, 1.5), False, "MISSED: met by the estimate only"),
        ("at least", 0.8, (0.7, 1.5), False, "MISSED"),
        ("at most", 0.9, (0.5, 1.0), True, "met"),
        ("at most", 0.9, (0.5, 1.1), False, "MISSED: met by the estimate only"),
    ],
)
def test_a_bar_is_met_by_the_end_of_its_interval_that_is_nearer_to_the_goal(
    capsys: pytest.CaptureFixture[str],
    kind: Any,
    value: float,
    interval: tuple[float, float] | None,
    ok: bool,
    word: str,
) -> None:
    report = bars.Report(quick=False)
    report.bar("ratio", value, kind, 1, "x", interval=interval)
    (bar,) = report.bars
    assert (bar.ok, bar.interval) == (ok, interval)
    assert capsys.readouterr().out.rstrip().endswith(f": {word})")


def test_the_mean_of_ratios_has_an_interval_that_narrows_with_their_number() -> None:
    one = Interval(2.0, 1.0, 4.0)
    mean, (low, high) = bars.mean_ratio([one])
    assert (mean, low, high) == pytest.approx((2.0, 1.0, 4.0))
    mean, (low, high) = bars.mean_ratio([one, Interval(0.5, 0.25, 1.0)])
    assert (mean, low, high) == pytest.approx((1.0, 2 ** -(0.5**0.5), 2**0.5**0.5))
    assert bars.mean_ratio([one] * 100)[1] == pytest.approx((2 * 2**-0.1, 2 * 2**0.1))
