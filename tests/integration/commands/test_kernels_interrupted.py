"""`autotune kernels` that ends before its end, or loses processes, disks and devices on its way."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from command import AUTOTUNE, autotune, one_folder
from fleets import local_fleet
from opencl_drivers import driver

from autotune.compiler.target import spaces
from autotune.records import read_run

MATMUL = "matmul:m=8,n=24,k=40"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run with a large budget that has measured a few trials."""
    process = subprocess.Popen(
        [*AUTOTUNE, "kernels", "--op", MATMUL, "--trials", "400", "--logs", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        folders = list(tmp_path.iterdir()) if tmp_path.exists() else []
        if (
            folders
            and (folders[0] / "run.json").exists()
            and len(read_run(folders[0]).trials()) >= 3
        ):
            break
        time.sleep(0.1)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def resumed(folder: Path, trials: int) -> None:
    """Carries the run on, and checks that nothing was lost and nothing measured twice."""
    before = [event["digest"] for event in read_run(folder).trials()]
    done = autotune("kernels", "--resume", folder, "--trials", str(trials), "--json")
    assert done.returncode == 0, done.stderr
    after = [event["digest"] for event in read_run(folder).trials()]
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == trials == json.loads(done.stdout)["trials"]
    defaults = [e["task"] for e in read_run(folder).events if e["event"] == "default"]
    assert len(defaults) == len(set(defaults)) == 3


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.quick), signal.SIGTERM, signal.SIGHUP],
)
def test_ctrl_c_keeps_every_trial_and_resume_goes_on(
    running: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    running.send_signal(number)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    folder = one_folder(tmp_path)
    assert f"--resume {folder}" in stderr
    assert len(read_run(folder).trials()) >= 3
    resumed(folder, len(read_run(folder).trials()) + 5)


@pytest.mark.quick
def test_kill_minus_nine_loses_nothing_and_leaves_no_process(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    children = child_processes(running.pid)
    assert children
    running.kill()
    running.communicate()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    folder = one_folder(tmp_path)
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"event":"trial","task":"cut sho')
    resumed(folder, len(read_run(folder).trials()) + 5)


def child_processes(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def test_a_second_run_on_the_same_folder_is_refused(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    done = autotune("kernels", "--resume", one_folder(tmp_path))
    assert done.returncode == 1
    assert "in use by another process" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_ends_the_run_with_a_clear_error_and_whole_records(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=True)
    try:
        done = autotune("kernels", "--op", MATMUL, "--trials", "200", "--logs", small)
        assert done.returncode == 1, done.stderr
        assert "the disk is full" in done.stderr
        run = read_run(one_folder(small))
        assert run.trials()
        digests = [event["digest"] for event in run.trials()]
        assert len(digests) == len(set(digests))
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize(
    "options", ["size=120k", pytest.param("size=8m,nr_inodes=24", marks=pytest.mark.exhaustive)]
)
def test_a_full_temporary_disk_ends_the_run_and_is_not_held_against_candidates(
    tmp_path: Path, options: str
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", small], check=True)
    run = ("--op", "matmul:m=64,n=64,k=64", "--role", "forward", "--trials", "16")
    try:
        done = autotune("kernels", *run, "--logs", tmp_path / "logs", TMPDIR=str(small))
    finally:
        subprocess.run(["umount", small], check=True)
    assert done.returncode == 1, done.stderr
    assert "is full" in done.stderr and "TMPDIR" in done.stderr
    folder = one_folder(tmp_path / "logs")
    assert all(trial["status"] == "ok" for trial in read_run(folder).trials())
    assert autotune("kernels", "--resume", folder).returncode == 0
    assert len(read_run(folder).trials()) == 16


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize(
    ("variable", "size"), [("POCL_CACHE_DIR", "64k"), ("XDG_CACHE_HOME", "100k")]
)
def test_a_full_cache_disk_is_named_and_not_held_against_candidates(
    tmp_path: Path, variable: str, size: str
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", small], check=True)
    run = ("--target", "opencl", "--op", "matmul:m=16,n=16,k=16", "--role", "forward")
    try:
        done = autotune(
            "kernels", *run, "--trials", "4", "--logs", tmp_path / "logs", **{variable: str(small)}
        )
    finally:
        subprocess.run(["umount", small], check=True)
    assert done.returncode == 1, done.stderr
    assert f"the disk of {small}" in done.stderr
    assert "is full" in done.stderr
    assert variable in done.stderr
    assert "compile:" not in done.stderr
    for folder in (tmp_path / "logs").glob("*"):
        assert not [e for e in read_run(folder).events if e["event"] in ("trial", "default")]


def test_a_candidate_whose_workers_were_killed_is_tried_again(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*AUTOTUNE, "kernels", "--op", MATMUL, "--trials", "24", "--logs", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    killed = 0
    while process.poll() is None and killed < 3:
        for pid in child_processes(process.pid):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"run_worker" in words and list(tmp_path.glob("*/events.jsonl")):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(1.5)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    run = read_run(one_folder(tmp_path))
    assert all(trial["status"] == "ok" for trial in run.trials())
    reported = [event["message"] for event in run.events if event["event"] == "worker_killed"]
    assert all("SIGKILL from outside; its candidate is tried again" in text for text in reported)
    assert all(text in output for text in reported)


@pytest.mark.parametrize("worker", ["build_worker", "run_worker"])
def test_candidates_whose_workers_are_always_killed_are_not_at_fault(
    tmp_path: Path, worker: str
) -> None:
    process = subprocess.Popen(
        [*AUTOTUNE, "kernels", "--op", MATMUL, "--role", "forward", "--trials", "4", "--logs", tmp_path],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    while process.poll() is None:
        with suppress(psutil.Error):
            for child in psutil.Process(process.pid).children(recursive=True):
                if any(word.endswith(worker) for word in child.cmdline()):
                    child.kill()
        time.sleep(0.05)
    output, _ = process.communicate(timeout=120)
    folder = one_folder(tmp_path)
    assert process.returncode == 5, output
    assert "the processes of 4 candidates were killed from outside" in output
    assert {trial["status"] for trial in read_run(folder).trials()} == {"killed"}
    assert read_run(folder).kernel_result().trials == 0
    again = autotune("kernels", "--resume", folder)
    assert again.returncode == 0, again.stderr
    assert read_run(folder).kernel_result().trials == 4
    assert [one["status"] for one in read_run(folder).trials()].count("ok") == 4


def test_killed_compiles_leave_no_files_behind(tmp_path: Path) -> None:
    space = (spaces.folder() / "host_cpu.toml").read_text()
    impatient = tmp_path / "impatient.toml"
    impatient.write_text(space.replace("build_timeout_s = 8.0", "build_timeout_s = 0.03"))
    (tmp_path / "temporary").mkdir()
    done = autotune(
        "kernels", "--op", MATMUL, "--role", "forward", "--trials", "4", "--space", impatient,
        "--logs", tmp_path / "logs", TMPDIR=str(tmp_path / "temporary"),
    )  # fmt: skip
    statuses = [event["status"] for event in read_run(one_folder(tmp_path / "logs")).trials()]
    assert "timeout" in statuses, (statuses, done.stderr)
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("lost", [pytest.param("all", marks=pytest.mark.exhaustive), "launches"])
def test_a_device_that_is_lost_is_opened_anew_for_the_next_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    if lost == "launches":
        monkeypatch.setenv("ONLY_LAUNCHES", "1")
    fault = tmp_path / "fault"
    fault.touch()
    autotune(
        "kernels", "--target", "opencl", "--op", "matmul:m=32,n=32,k=32", "--role", "forward",
        "--trials", "10", "--logs", tmp_path / "logs",
        AUTOTUNE_OPENCL_LIBRARY=str(driver(tmp_path)), FAULT=str(fault),
    )  # fmt: skip
    assert not fault.exists()
    run = read_run(one_folder(tmp_path / "logs"))
    measured = [event for event in run.events if "status" in event]
    (failed,) = (one for one in measured if one["status"] != "ok")
    assert failed["status"] == "run_error"
    assert "CL_OUT_OF_RESOURCES" in failed["message"]
    assert len(run.trials()) == 10


def test_a_device_that_is_lost_in_a_session_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial is made again, in another session: what went wrong may have been the device's own."""
    fault = tmp_path / "fault"
    fault.touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AUTOTUNE_OPENCL_LIBRARY", str(driver(tmp_path)))
    monkeypatch.setenv("ONLY_LAUNCHES", "1")
    monkeypatch.setenv("FAULT", str(fault))
    with local_fleet("gpu") as link:
        done = autotune(
            "kernels", "--target", "opencl", "--op", "matmul:m=32,n=32,k=32", "--role", "forward",
            "--trials", "10", "--tracker", f"{link.host}:{link.port}", "--key", "gpu",
            "--logs", tmp_path / "logs",
        )  # fmt: skip
    assert not fault.exists()
    assert "session lost, not by its candidate" in done.stderr
    run = read_run(one_folder(tmp_path / "logs"))
    assert [trial["status"] for trial in run.trials()] == ["ok"] * 10


@pytest.mark.parametrize(
    "delay", [0.0, 0.8, *(pytest.param(one, marks=pytest.mark.exhaustive) for one in (0.4, 1.2))]
)
def test_two_quick_presses_end_the_run_at_once_and_cleanly(tmp_path: Path, delay: float) -> None:
    process = subprocess.Popen(
        [*AUTOTUNE, "kernels", "--op", "conv2d:n=4,c=16,h=28,w=28,k=32,r=3,s=3,stride=1,pad=1",
         "--trials", "400", "--logs", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "search:" in line:
            break
    time.sleep(1.0 + delay)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert "Go on with: autotune kernels --resume" in errors
    assert "egfault" not in errors
    assert not list(Path(tempfile.gettempdir()).glob(f"autotune-run-{process.pid}-*"))


def test_an_unfinished_run_is_not_exported(running: subprocess.Popen[str], tmp_path: Path) -> None:
    running.kill()
    running.communicate()
    done = autotune("export", one_folder(tmp_path), "--out", tmp_path.parent / "out")
    assert done.returncode == 2
    assert "has not ended" in done.stderr
    assert "--resume" in done.stderr


def test_what_a_killed_run_left_behind_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / "autotune-run-999999999-abcdefgh"
    left.mkdir()
    done = autotune(
        "kernels",
        "--op",
        MATMUL,
        "--trials",
        "1",
        "--logs",
        tmp_path / "logs",
        TMPDIR=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("autotune-run-*"))
