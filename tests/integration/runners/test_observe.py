"""`autotune_observe` itself, run on this host: programs that print more than a record can hold."""

import json
import platform
import subprocess
import time
from pathlib import Path

import pytest

from autotune.compiler.native import observe_program
from autotune.measurement.observation import Observation, parse

WATCHED = "/proc/loadavg"


@pytest.fixture(scope="module")
def program() -> Path:
    return observe_program.ensure(platform.machine())


def observed(program: Path, folder: Path, *words: str) -> tuple[Observation, float]:
    """The record, and the seconds that it took."""
    record = folder / "record.jsonl"
    options = ["--out", record, "--interval-ms", "100", "--watch", WATCHED]
    began = time.monotonic()
    subprocess.run([program, *options, *words], check=False, timeout=60)
    seconds = time.monotonic() - began
    assert record.stat().st_size < 16e6
    for line in record.read_text().splitlines():
        json.loads(line)
    return parse(record.read_text()), seconds


def test_a_command_that_prints_without_end_is_sampled_and_ended_as_any_other(
    program: Path, tmp_path: Path
) -> None:
    command = ("sh", "-c", "seq 1 20; exec yes")
    found, seconds = observed(program, tmp_path, "--limit-s", "2", "--", *command)
    assert seconds < 4
    assert found.why == "limit"
    assert len(found.samples) >= 12
    assert [line.text for line in found.lines[:21]] == [*map(str, range(1, 21)), "y"]
    assert "it prints more than can be recorded" in found.errors[0].text
    assert "lines were left out" in found.errors[-1].text
    # Once something is missing nothing follows: two steps would look like one.
    assert found.lines[-1].time_s <= found.errors[0].time_s


def test_a_meter_that_prints_without_end_loses_lines_and_says_so(
    program: Path, tmp_path: Path
) -> None:
    options = ("--limit-s", "3", "--meter-command", "yes", "--meter-command", "5.0")
    found, seconds = observed(program, tmp_path, *options, "--", "sleep", "2")
    assert seconds < 4
    assert (found.exit_code, found.why) == (0, "")
    assert len(found.samples) >= 12
    assert {line.text for line in found.meter} == {"5.0"}
    assert "it prints more than can be recorded" in found.meter_errors[0].text
    assert found.meter[-1].time_s > found.meter_errors[0].time_s
    assert len(found.meter_errors) < 12


def test_all_lines_of_a_command_that_prints_much_and_ends_are_there(
    program: Path, tmp_path: Path
) -> None:
    found, _ = observed(program, tmp_path, "--limit-s", "20", "--", "seq", "1", "40000")
    assert [line.text for line in found.lines] == [str(n) for n in range(1, 40001)]
    assert found.errors == ()
