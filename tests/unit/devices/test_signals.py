"""Signals that end a command, as processes receive them."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Changes something, and puts it back slowly, as with a device's clocks.
PROGRAM = """
import sys, time
from pathlib import Path
from autotune.console.signals import ended_by_signals

changed = Path(sys.argv[1])
with ended_by_signals():
    try:
        changed.touch()
        time.sleep(60)
    except KeyboardInterrupt:
        print("undoing", flush=True)
        time.sleep(0.5)
        print("undone", flush=True)
        changed.unlink()
"""


def changing(changed: Path, *before: str) -> subprocess.Popen[str]:
    """A process that has made its change."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", PROGRAM, str(changed)], stdout=subprocess.PIPE, text=True
    )
    while not changed.exists():
        assert process.poll() is None
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_again_does_not_interrupt_the_undoing(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = changing(tmp_path / "changed")
    for _ in range(3):
        process.send_signal(number)
        time.sleep(0.1)
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert not (tmp_path / "changed").exists()


TRIALS = """
import sys, time
from pathlib import Path
from autotune.console.signals import stop_on_interrupt

with stop_on_interrupt("resume it") as stopped:
    Path(sys.argv[1]).touch()
    while not stopped():
        time.sleep(0.02)
    time.sleep(0.5)
    print("the result", flush=True)
"""


def test_a_sigterm_that_comes_twice_at_once_keeps_the_result_and_a_later_one_stops(
    tmp_path: Path,
) -> None:
    for pause, printed, code in ((0.1, "the result\n", 0), (1.2, "", 130)):
        ready = tmp_path / f"ready-{pause}"
        program = TRIALS.replace("0.5", "3" if pause > 1 else "0.5")
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(ready)], stdout=subprocess.PIPE, text=True
        )
        while not ready.exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        time.sleep(pause)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20)[0] == printed
        assert process.returncode == code


def test_a_hangup_that_was_ignored_at_the_start_stays_ignored(tmp_path: Path) -> None:
    process = changing(tmp_path / "changed", "sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert not (tmp_path / "changed").exists()


def test_a_closed_terminal_ends_a_command_which_then_writes_to_nowhere(tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM, str(changed)])
    while not changed.exists():
        time.sleep(0.02)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not changed.exists()
