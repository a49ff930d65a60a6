"""A small recorded run is read back, and its result is shown as it always was."""

import os
import re
import time
from pathlib import Path

import pytest

from autotune import waits
from autotune.cli.commands.kernels_table import show
from autotune.console import LiveProgress
from autotune.records import Result, read_run
from autotune.waits import lasting, waiting

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "logs" / "samples" / "cpu-matmul"
GOLDEN = ROOT / "tests" / "golden" / "kernels_table.txt"


def test_the_sample_run_reads_back_whole() -> None:
    run = read_run(SAMPLE)
    trials = run.trials()
    assert run.result is not None
    result = Result.from_json(run.result)
    assert len(trials) == result.trials == 9
    for task in result.tasks:
        own = [event for event in trials if event["task"] == task.name]
        assert task.trials == len(own)
        assert task.valid == sum(event["status"] == "ok" for event in own)
        assert task.digest in {"default", *(event["digest"] for event in own)}


def test_every_ok_trial_has_samples_and_a_schedule() -> None:
    for event in read_run(SAMPLE).trials():
        assert bool(event["samples_s"]) == (event["status"] == "ok")
        assert event["device"]
        assert event["trace"]


def test_the_result_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    content = read_run(SAMPLE).result
    assert content is not None
    show(Result.from_json(content), "STAND-IN: measured on something else")
    shown = capsys.readouterr().out
    if os.environ.get("AUTOTUNE_UPDATE_GOLDEN"):
        GOLDEN.write_text(shown, encoding="utf-8")
    assert shown == GOLDEN.read_text(encoding="utf-8")


def test_a_narrow_terminal_loses_no_column_that_counts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    content = read_run(SAMPLE).result
    assert content is not None
    show(Result.from_json(content), "STAND-IN: measured on something else")
    head, _, row, *_ = capsys.readouterr().out.splitlines()
    assert head.split()[:7] == ["no.", "kernel", "role", "count", "untuned", "tuned", "speed-up"]
    assert "29.3x (11.5-31.2)" in row
    assert len(row) <= 80


def test_progress_without_a_terminal_begins_at_nothing_done_and_is_a_line_each_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("autotune.console.progress.time.monotonic", lambda: now)
    with LiveProgress() as progress:
        progress.phase("best again", 21)
        for done in range(1, 8):
            now += 4.0
            progress.step(done, "")
    assert capsys.readouterr().err.splitlines() == [
        "best again: 0/21", "best again: 3/21, about 72 s left", "best again: 6/21, about 60 s left",
    ]  # fmt: skip


@pytest.mark.parametrize("before", [0, 40])
def test_what_comes_before_the_first_result_is_not_the_time_of_one(
    before: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("autotune.console.progress.time.monotonic", lambda: now)
    with LiveProgress() as progress:
        progress.phase("search", before + 32)
        progress.step(before, "")
        now += 18.0  # Sketches, and the cost model.
        for done in range(1, 13):
            progress.step(before + done, "")
            now += 1.0
    total = before + 32
    assert capsys.readouterr().err.splitlines() == [
        f"search: 0/{total}",
        f"search: {before + 1}/{total}",
        f"search: {before + 11}/{total}, about 21 s left",
    ]


def test_a_long_step_is_no_silence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.console.progress.AGAIN_S", 0.2)
    with LiveProgress() as progress:
        progress.phase("steps", 4)
        time.sleep(0.7)
        for done in (1, 2):
            progress.step(done, "")
            time.sleep(0.3)
        progress.step(4, "")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "steps: 0/4"
    assert (
        2
        <= sum(line.startswith("steps: 0/4, ") and line.endswith(" s so far") for line in lines)
        <= 3
    )
    assert any(re.fullmatch(r"steps: 2/4, about \d s left", line) for line in lines), lines
    assert not any("4/4" in line and "left" in line for line in lines)


def test_a_wait_is_reported_rather_than_the_phase_that_waits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("autotune.console.progress", "autotune.waits"):
        monkeypatch.setattr(f"{module}.AGAIN_S", 0.2)
    monkeypatch.setattr(waits, "FIRST_S", 0.05)
    with LiveProgress() as progress:
        progress.phase("steps", 4)
        with waiting("the phone to rest"):
            time.sleep(0.9)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "steps: 0/4"
    assert {line.partition(":")[0] for line in lines[1:]} == {"autotune"}
    assert 2 <= len(lines) <= 5


def test_waits_are_told_beside_progress_and_of_many_one_in_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "FIRST_S", 0.05)
    monkeypatch.setattr("autotune.console.progress.AGAIN_S", 0.5)
    began = time.monotonic()
    with LiveProgress():
        while time.monotonic() - began < 1.4:
            with waiting("the phone to rest", lasting(0.1)):
                time.sleep(0.1)
    reported = capsys.readouterr().err.splitlines()
    assert 2 <= len(reported) <= 3
    assert all(
        line.startswith("autotune: waiting: the phone to rest: 0 s so far") for line in reported
    )
    assert "% done, about" in reported[0]
