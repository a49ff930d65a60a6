"""`autotune joint`: on a model of a phone, and on this host with kernels that really run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import autotune, one_folder

LENET = ("--model", "lenet", "--batch", "8")


def kernels(logs: Path, *arguments: str) -> Path:
    done = autotune("kernels", *LENET, *arguments, "--logs", str(logs))
    assert done.returncode == 0, done.stderr
    return one_folder(logs)


def joint(*arguments: object, code: int = 0) -> dict[str, Any]:
    done = autotune("joint", *map(str, arguments), "--json")
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout)) if done.stdout else {}


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def test_a_joint_search_on_a_model_leaves_plans_and_goes_on(tmp_path: Path) -> None:
    runs = [
        kernels(tmp_path / c, "--emulate", "meizu-16t", "--cluster", c, "--trials", "32")
        for c in ("big", "little")
    ]
    common = ("--emulate", "meizu-16t", *LENET, "--run", runs[0], "--run", runs[1])
    found = joint(
        *common, "--objective", "pareto", "--trials", 9, "--blocks", 1, "--least-seconds", 1,
        "--logs", tmp_path / "joint",
    )  # fmt: skip
    assert found["emulated"]
    assert found["n_measured"] == 9
    run = one_folder(tmp_path / "joint")
    assert "-joint-" in run.name
    trials = [e for e in events(run) if e["event"] == "trial"]
    assert all(e["chosen"] and e["task_s"] for e in trials)
    # Not the same schedules for all: a big core's best are not a little one's.
    assert len({tuple(e["chosen"]) for e in trials}) > 1
    plans = {name: json.loads((run / file).read_text()) for name, file in found["plans"].items()}
    assert {"best", "fastest", "least_energy", "pareto-1"} <= set(plans)
    best = plans["best"]
    assert best["configuration"]["clusters"] == found["best"]["clusters"]
    assert best["measured"]["time_s"] == found["best"]["time_s"]
    known = [call for call in best["calls"] if call["schedule"]]
    assert len(known) == len(best["calls"]) == 25
    total = sum(call["predicted"]["time_s"] for call in known)
    assert best["predicted"]["time_s"] == pytest.approx(total)
    assert 0.5 < best["predicted"]["time_s"] / best["measured"]["time_s"] < 2
    assert best["memory"]["planned_bytes"] > 0
    more = joint("--resume", run, "--trials", 11)
    assert more["n_measured"] == 11
    refused = autotune("cpu-config", "--resume", str(run))
    assert (refused.returncode, "autotune joint --resume" in refused.stderr) == (2, True)
    replayed = autotune("report", str(run))
    assert replayed.returncode == 0, replayed.stderr


def test_a_joint_search_on_this_host_runs_the_schedules_it_chose(tmp_path: Path) -> None:
    run = kernels(tmp_path / "kernels", "--trials", "40")
    found = joint(
        "--device", "local", *LENET, "--run", run, "--meter", "none", "--trials", 2, "--blocks", 1,
        "--least-seconds", 0.2, "--start-temperature", 999, "--logs", tmp_path / "joint",
    )  # fmt: skip
    assert (found["n_failed"], found["emulated"]) == (0, False)
    tuned = json.loads((run / "result.json").read_text())["tasks"]
    sizes = {task["name"]: len(task["pool"]) for task in tuned}
    assert max(sizes.values()) > 2
    (folder,) = (tmp_path / "joint").iterdir()
    for event in events(folder):
        if event["event"] == "trial":
            assert len(event["chosen"]) == len(sizes)
            assert all(seconds > 0 for seconds in event["task_s"])
            assert sum(event["task_s"]) <= 1.2 * event["figures"]["time_s"]
    # The system's own choice has untuned kernels.
    assert found["best"]["time_s"] < found["default"]["time_s"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--emulate", "meizu-16t"], "--model and --run say which step"),
        (["--emulate", "meizu-16t", *LENET], "--model and --run say which step"),
        (["--emulate", "meizu-16t", *LENET, "--run", "/nowhere"], "no run at"),
        (["--resume", "/nowhere"], "no run at"),
        (["--emulate", "meizu-16t", *LENET, "--run", "{run}", "--batch", "4"], "no run knows a kernel"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_one_line(tmp_path: Path, arguments: list[str], text: str) -> None:
    if "{run}" in arguments:
        run = kernels(tmp_path / "kernels", "--emulate", "meizu-16t", "--trials", "1")
        arguments = [str(run) if word == "{run}" else word for word in arguments]
    if arguments[0] != "--resume":
        arguments = [*arguments, "--logs", str(tmp_path / "logs")]
    done = autotune("joint", *arguments)
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
