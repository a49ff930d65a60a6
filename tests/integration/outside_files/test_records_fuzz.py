"""Changed records are valid schedules or one line; and what watches the fuzzer's child sees what it must see."""

import subprocess
import sys
from pathlib import Path

import pytest
import records_fuzz

from autotune.errors import RecordError, UsageError

pytestmark = pytest.mark.skipif(
    subprocess.run(["which", "strace"], capture_output=True, check=False).returncode != 0,
    reason="needs strace",
)


def test_mutants_are_refused_in_one_line_or_make_a_valid_schedule(tmp_path: Path) -> None:
    outcomes, offences = records_fuzz.batch(tmp_path, 20_000, 20_080)
    assert offences == []
    assert len(outcomes) == 80
    assert set(outcomes.values()) <= {"same", "other program", "refused"}
    assert {"same", "refused"} <= set(outcomes.values())


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("import os; os.system('true')", "execve"),
        ("open('{elsewhere}', 'w')", "elsewhere"),
        ("import os; os.unlink('{other}')", "unlink"),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "socket"),
        ("import threading; threading.Thread(target=print).start(); open('{own}', 'w')", ""),
    ],
)
def test_what_reading_has_no_business_with_is_seen(tmp_path: Path, code: str, seen: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    other = tmp_path / "other"
    other.touch()
    names = {"elsewhere": tmp_path / "elsewhere", "other": other, "own": folder / "own"}
    program = f"open('{folder / 'fuzzing-begins-here'}', 'w')\n" + code.format(**names)
    log = tmp_path / "calls"
    subprocess.run(
        [*records_fuzz.traced(log), sys.executable, "-c", program], capture_output=True, check=False
    )
    found = records_fuzz.offences(log, folder)
    assert bool(found) == bool(seen)
    assert any(seen in call for call in found) or not seen


def test_the_commands_that_show_records_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotune.cli.commands import records, trust

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    called = set()
    for module, name in (
        (records, "show"), (records, "list_databases"), (records, "diff"), (records, "merge"),
        (records, "pull"), (trust, "trust"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, lambda *_, _name=name, **__: called.add(_name))
    mutants = records_fuzz.Mutants(tmp_path)
    for seed in range(60):
        mutants.read(seed)
    assert called == {"show", "list_databases", "diff", "merge", "pull", "trust"}


def test_what_is_no_line_of_ours_is_a_fault() -> None:
    def fails(error: Exception) -> str:
        def read() -> str:
            raise error

        return records_fuzz.judged(read)

    assert fails(RecordError("one line")) == "refused"
    assert fails(UsageError("two\nlines")) != "refused"
    assert fails(UsageError("x" * 2000)) != "refused"
    assert fails(KeyError("a")).startswith("KeyError")
