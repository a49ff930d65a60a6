"""Waits of more than two seconds say what they wait for."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from autotune import waits
from autotune.cli.main import main
from autotune.compiler.native.native_build import NativePart, build_in
from autotune.compiler.run import run_records
from autotune.console import set_verbosity, stderr_log
from autotune.devices.info import probe
from autotune.emulator.device.device import EmulatedDevice
from autotune.errors import ToolchainError
from autotune.measurement.conditions import body_zone, read_celsius, wait_until_cool
from autotune.records import Database, read_database, write_database
from autotune.waits import nothing_awaited, telling, waiting
from autotune.workloads import training_step
from autotune.workloads.capture.captured import Captured
from autotune.workloads.capture.messages import quiet
from autotune.workloads.models import build_model
from autotune.workloads.training_step import TrainingStep

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "FIRST_S", 0.1)
    monkeypatch.setattr(waits, "AGAIN_S", 0.2)


def test_a_long_wait_is_told_again_and_again_and_a_short_one_never() -> None:
    messages: list[str] = []
    with telling(messages.append):
        with waiting("nothing"):
            pass
        assert messages == []
        with waiting("the kettle", lambda: 0.25):
            time.sleep(0.7)
    assert 2 <= len(messages) <= 4
    assert all(
        line.startswith("the kettle: ") and ", 25% done, about " in line for line in messages
    )
    with waiting("nobody listens"):
        time.sleep(0.2)


def test_of_waits_within_each_other_the_innermost_is_told() -> None:
    messages: list[str] = []
    with telling(messages.append), waiting("the kitchen"):
        with waiting("the kettle"):
            time.sleep(0.5)
            inner = len(messages)
        time.sleep(0.5)
    # On a busy machine the kitchen may be told before the kettle is there, and never after that.
    begun = next(at for at, line in enumerate(messages) if line.startswith("the kettle: "))
    assert all(line.startswith("the kettle: ") for line in messages[begun:inner])
    outer = [line.startswith("the kitchen: ") for line in messages[inner:]]
    assert outer[-1]
    assert (
        sum(not one for one in outer) <= 1
    )  # The kettle may be told once more while its wait ends.


def test_the_first_word_does_not_come_later_because_a_wait_within_began_late() -> None:
    messages: list[str] = []
    with telling(messages.append), waiting("the kitchen"):
        time.sleep(0.05)
        with waiting("the kettle"):
            time.sleep(0.1)
            assert [line.partition(":")[0] for line in messages] == ["the kettle"]
            time.sleep(0.08)
            assert len(messages) == 1  # Its own first report is no second one.


def test_of_what_serves_until_it_is_ended_no_wait_is_told() -> None:
    messages: list[str] = []
    with telling(messages.append), waiting("the kitchen"), nothing_awaited():
        time.sleep(0.3)
        assert messages == []
        with waiting("the kettle"):
            time.sleep(0.15)
        assert [line.partition(":")[0] for line in messages] == ["the kettle"]


def test_who_listens_later_shows_something_else_than_earlier_waits() -> None:
    messages: list[str] = []
    with telling(messages.append), waiting("the kitchen"), telling(messages.append):
        pass
    later: list[str] = []
    with telling(messages.append), waiting("the kitchen"), telling(later.append):
        time.sleep(0.3)
        assert messages == later == []


def test_a_command_that_computes_in_silence_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.cli.commands.models.write_table", lambda *_: time.sleep(0.3))
    main(["models"])
    reported = capsys.readouterr()
    assert "autotune: waiting: the result of models: 0 s so far" in reported.err
    assert "waiting" not in reported.out


def test_the_command_line_tells_on_stderr_unless_it_is_quiet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with stderr_log():
        with waiting("the kettle"):
            time.sleep(0.2)
        assert "autotune: waiting: the kettle: 0 s so far\n" in capsys.readouterr().err
        set_verbosity(verbose=False, quiet=True)
        with waiting("the kettle"):
            time.sleep(0.2)
    assert capsys.readouterr() == ("", "")


def test_capturing_a_module_is_told_and_a_built_in_model_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slowly(*_: object, **__: object) -> Captured:
        time.sleep(0.3)
        return Captured(build_model("lenet", 4), {})

    monkeypatch.setattr(training_step, "capture", slowly)
    monkeypatch.setattr(training_step, "capture_module", slowly)
    messages: list[str] = []
    with telling(messages.append):
        TrainingStep("lenet", 4).plain()
        assert messages == []
        for step in (TrainingStep("net.py:make", 4), TrainingStep("Net", 4, module=object())):
            step.plain()
    assert any(line.startswith("PyTorch to capture net.py:make: ") for line in messages)
    assert any(line.startswith("PyTorch to capture Net: ") for line in messages)


def test_a_wait_is_told_while_torch_is_kept_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with stderr_log(), quiet(), waiting("the kettle"):
        print("of torch", file=sys.stderr)
        time.sleep(0.25)
    reported = capsys.readouterr().err
    assert "waiting: the kettle" in reported
    assert "of torch" not in reported


@pytest.fixture(scope="module")
def one_kernel() -> Database:
    path = next((ROOT / "logs" / "samples" / "cpu-steps").glob("intel*.records.gz"))
    return read_database(path).fastest(1)


@pytest.mark.parametrize(
    "words",
    [["merge", "{0}", "{0}", "--out", "{1}"], ["list", "{0}"], ["show", "{0}"], ["diff", "{0}", "{0}"],
     ["pull", "{0}", "--store", "{1}"]],
)  # fmt: skip
def test_reading_records_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    one_kernel: Database,
    words: list[str],
) -> None:
    def slowly(path: Path) -> Database:
        time.sleep(0.3)
        return read_database(path)

    write_database(tmp_path / "a.records.gz", one_kernel)
    monkeypatch.setattr(run_records, "read_database", slowly)
    assert (
        main(["records", *(word.format(tmp_path / "a.records.gz", tmp_path) for word in words)])
        == 0
    )
    reported = capsys.readouterr()
    assert "autotune: waiting: records to be read: 0 s so far" in reported.err
    assert "waiting" not in reported.out


def test_the_checks_of_a_machine_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.doctor.run_checks", lambda: time.sleep(0.3) or [])
    main(["doctor", "--json"])
    reported = capsys.readouterr()
    assert "autotune: waiting: the checks of this machine to end: 0 s so far" in reported.err
    assert "waiting" not in reported.out


def test_compiling_is_told_with_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a cmake that takes its time, as the compiler does."""
    tool = tmp_path / "bin" / "cmake"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho '[2/4] one'\nsleep 0.5\n[ \"$1\" != --build ]\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    messages: list[str] = []
    (tmp_path / "build").mkdir()
    with telling(messages.append), pytest.raises(ToolchainError, match="does not compile"):
        build_in(NativePart("part", "thing", "thing", ()), tmp_path / "build")
    assert any(line.startswith("compiling thing (usually under a minute): ") for line in messages)
    assert any("25% done" in line for line in messages)


def test_cooling_is_told_with_how_far_it_is() -> None:
    device = EmulatedDevice("meizu-16t")
    zone = body_zone(probe(device))
    assert zone is not None
    device.soc.set_celsius(50.0)
    first = read_celsius(device, zone)
    messages: list[str] = []

    def rest(seconds: float) -> None:
        time.sleep(0.15)
        device.soc.set_celsius(device.soc.celsius() - 4.0)

    with telling(messages.append):
        wait_until_cool(device, zone, first - 14.0, limit_s=900, sleep=rest)
    assert any("to cool: " in line and "% done, about " in line for line in messages)
