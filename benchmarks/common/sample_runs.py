"""Small runs of every kind that has a page, made on the emulator's models of devices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

STEP = ("--model", "lenet", "--batch", "256")
PHONE, BOARD = "meizu-16t", "jetson-tx2"
_SHORT = ("--blocks", "1", "--least-seconds", "1")


def command(*words: str | Path) -> str:
    """Returns what an `autotune` command prints.

    Raises:
        RuntimeError: The command failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "autotune", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise RuntimeError(f"autotune {words[0]}: {done.stderr.strip()}")
    return done.stdout


def run(folder: Path, *words: str | Path) -> Path:
    """Returns the folder of the run that a command makes in an empty folder."""
    command(*words, "--logs", folder)
    (found,) = folder.iterdir()
    return found


def interrupted(whole: Path, events: int, folder: Path) -> Path:
    """Returns a copy of a run as it was after the given number of events."""
    folder.mkdir(parents=True)
    lines = (whole / "events.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(lines[:events]), encoding="utf-8")
    shutil.copy(whole / "run.json", folder)
    if (whole / "raw").is_dir():
        shutil.copytree(whole / "raw", folder / "raw")
    return folder


def sample_runs(folder: Path, trials: Sequence[int] = (48, 8)) -> dict[str, Path]:
    """Makes a run of each kind, and returns the folders by kind.

    Args:
        folder: Folder for the runs.
        trials: Trials of kernel runs, and of searches.
    """
    of_kernels, of_searches = map(str, trials)
    phone = ("--emulate", PHONE, *STEP)
    tuned = [
        run(folder / name, "kernels", *phone, "--cluster", name, "--trials", of_kernels)
        for name in ("big", "little")
    ]
    pools = [word for path in tuned for word in ("--run", path)]
    searches = ("--trials", of_searches, *_SHORT)
    joint = run(folder / "joint", "joint", *phone, *pools, "--objective", "pareto", *searches)
    cores = run(
        folder / "cpu-config", "cpu-config", "--emulate", BOARD, *STEP, "--objective", "edp",
        "--per-operator", *searches,
    )  # fmt: skip
    profile = run(folder / "profile", "profile", "--emulate", BOARD, *STEP, "--seconds", "5")
    before = set(cores.parent.iterdir())
    command("cpu-config", "compare", cores, "best", "default")
    (comparison,) = set(cores.parent.iterdir()) - before
    return {
        "kernels": tuned[0],
        "kernels of another cluster": tuned[1],
        "joint": joint,
        "cpu-config": cores,
        "profile": profile,
        "comparison": comparison,
        "kernels, interrupted": interrupted(tuned[0], 45, folder / "kernels-interrupted"),
        "joint, interrupted": interrupted(joint, 8, folder / "joint-interrupted"),
        "cpu-config, interrupted": interrupted(cores, 6, folder / "cpu-config-interrupted"),
    }
