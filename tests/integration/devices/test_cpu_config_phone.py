"""`autotune cpu-config` on an emulated phone behind the real adb."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from command import AUTOTUNE, autotune, autotune_here
from small_phone import needs_phone, private_adb
from test_cpu_config_command import run_of, search
from test_phone_end_to_end import phone

from autotune.measurement.step_run import Protocol

POLICIES = "/sys/devices/system/cpu/cpufreq"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An adb server and a state folder of the test's own."""
    (tmp_path / "home").mkdir()
    with private_adb(tmp_path / "home"):
        yield {"XDG_STATE_HOME": str(tmp_path / "state")}


@needs_phone
def test_four_clocks_are_set_on_a_phone_and_set_back(home: dict[str, str], tmp_path: Path) -> None:
    space = tmp_path / "space.toml"
    space.write_text(
        'together = "never"\n[clusters.mid]\ncores = [1, 2]\nlevels = 2\n[others]\ncores = [0]\n'
    )
    with phone("four-cluster") as (serial, _):
        before = limits(serial)
        found = search(
            "--device", serial, "--objective", "latency", *TRAIN, "--space", space, "--trials", 2,
            "--blocks", 0, "--least-seconds", 1, "--start-temperature", 80, "--meter", "none",
            "--logs", tmp_path, **home,
        )  # fmt: skip
        assert found["n_failed"] == 0
        assert limits(serial) == before
        done = autotune("cpu-config", "apply", run_of(tmp_path), "--json", **home)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["cpus"] in ("5-6", "6", "5")
        assert limits(serial) != before
        assert autotune("devices", "restore", **home).returncode == 0
        assert limits(serial) == before


def limits(serial: str) -> str:
    script = f"cat {POLICIES}/policy*/scaling_m*_freq; ls -A /data/local/tmp"
    return subprocess.run(
        ["adb", "-s", serial, "shell", script], capture_output=True, text=True
    ).stdout


TRAIN = ("--command", "emulated_train --threads {threads} --scale 0.01", "--steps-from", "^step")


@needs_phone
def test_search_apply_verify_restore_over_adb(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = tmp_path / "space.toml"
    space.write_text(
        'together = "never"\n[clusters.big]\ncores = [1, 4]\nlevels = 2\n[clusters.little]\ncores = [0]\n'
    )
    # In this process, whose idle windows are short: no joules are asked for.
    monkeypatch.setenv("XDG_STATE_HOME", home["XDG_STATE_HOME"])
    short = partial(Protocol, idle_s=1.0, settle_s=0.3)
    monkeypatch.setattr("autotune.jobs.steps.step_records.Protocol", short)
    with phone("meizu-16t") as (serial, _):
        before = limits(serial)
        done = autotune_here(
            "cpu-config", "--device", serial, "--objective", "latency", *TRAIN, "--space", space,
            "--trials", 2, "--blocks", 0, "--least-seconds", 1, "--start-temperature", 80,
            "--logs", tmp_path, "--json",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["emulated"]
        assert found["n_measured"] == 2
        assert found["best"]["clusters"]["big"] == {"cores": 4, "khz": 2419200}
        assert limits(serial) == before
        run = run_of(tmp_path)
        slow = autotune("cpu-config", "apply", run, "--point", "fastest", "--json", **home)
        assert slow.returncode == 0, slow.stderr
        assert json.loads(slow.stdout)["cpus"] == "4-7"
        assert limits(serial).count("2419200") == 2
        restored = autotune("devices", "restore", **home)
        assert restored.returncode == 0, restored.stdout
        assert limits(serial) == before


@needs_phone
def test_a_models_step_runs_on_a_phone(home: dict[str, str], tmp_path: Path) -> None:
    """Code for ARM that was compiled here, brought over adb, and run under QEMU: its times are this machine's."""
    space = tmp_path / "space.toml"
    space.write_text(
        'together = "never"\n[clusters.big]\ncores = [2]\nlevels = 1\n[clusters.little]\ncores = [0]\n'
    )
    with phone("meizu-16t") as (serial, _):
        before = limits(serial)
        found = search(
            "--device", serial, "--model", "lenet", "--batch", 2, "--meter", "none", "--space", space,
            "--trials", 1, "--blocks", 0, "--least-seconds", 0.5, "--start-temperature", 80,
            "--logs", tmp_path, **home,
        )  # fmt: skip
        assert found["n_failed"] == 0
        assert found["best"]["threads"] == 2
        assert limits(serial) == before


@needs_phone
def test_a_search_that_is_killed_is_undone_at_the_next_start(
    home: dict[str, str],
    tmp_path: Path,
) -> None:
    with phone("meizu-16t") as (serial, _):
        before = limits(serial)
        process = subprocess.Popen(
            [
                *AUTOTUNE, "cpu-config", "--device", serial, *TRAIN, "--meter", "none",
                "--least-seconds", "1", "--logs", str(tmp_path),
            ],
            stderr=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **home},
        )  # fmt: skip
        deadline = time.monotonic() + 120
        while limits(serial) == before or "autotune-observe" not in limits(serial):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.2)
        while limits(serial).splitlines()[:4] == before.splitlines()[:4]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert limits(serial) != before
        run = run_of(tmp_path)
        again = search("--resume", run, "--trials", 1, **home)
        assert again["n_measured"] == 1
        assert limits(serial) == before


@needs_phone
def test_a_search_goes_on_when_its_phone_restarts_and_no_second_one_begins(
    home: dict[str, str], tmp_path: Path
) -> None:
    with phone("meizu-16t") as (serial, _):
        before = limits(serial)
        process = subprocess.Popen(
            [
                *AUTOTUNE, "cpu-config", "--device", serial, "--meter", "none", "--trials", "1", "--blocks", "0",
                "--command", "sh -c 'while true; do echo step; sleep 0.5; done'", "--steps-from", "^step",
                "--least-seconds", "12", "--logs", str(tmp_path),
            ],
            stderr=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **home},
        )  # fmt: skip
        deadline = time.monotonic() + 120
        while limits(serial).splitlines()[:4] == before.splitlines()[:4]:
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.2)
        second = autotune("cpu-config", "--device", serial, *TRAIN, "--logs", tmp_path, **home)
        assert second.returncode == 3, second.stderr
        assert f"is held by another run of autotune (pid {process.pid})" in second.stderr
        subprocess.run(["adb", "-s", serial, "reboot"], check=True)
        _, said = process.communicate(timeout=150)
        assert process.returncode == 0, said
        assert limits(serial) == before
    run = run_of(tmp_path)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    (trial,) = (event for event in events if event["event"] == "trial")
    (broken,) = trial["rejected"]
    assert "restarted while a command ran" in broken["message"]
    assert (run / "raw" / broken["raw"]).stat().st_size
