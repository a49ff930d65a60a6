"""`autotune joint`: on a model of a phone, and on this host with kernels that really run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import autotune, autotune_here, one_folder

LENET = ("--model", "lenet", "--batch", "8")
# The model of a phone works for each call of a step: of long steps there are fewer in a second of its time.
PHONE = ("--emulate", "meizu-16t", "--model", "lenet", "--batch", "64")


def kernels(logs: Path, *arguments: str) -> Path:
    done = autotune("kernels", *arguments, "--no-step", "--logs", str(logs))
    assert done.returncode == 0, done.stderr
    return one_folder(logs)


def joint(*arguments: object, code: int = 0) -> dict[str, Any]:
    done = autotune("joint", *map(str, arguments), "--json")
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout)) if done.stdout else {}


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def test_a_joint_search_on_a_model_leaves_plans_and_goes_on(tmp_path: Path) -> None:
    # All cores are more than one cluster's: runs for unlike numbers of cores go together.
    runs = [
        kernels(tmp_path / c, *PHONE, "--cluster", c, "--trials", "16")
        for c in ("big", "little", "hybrid")
    ]
    common = (*PHONE, *(word for run in runs for word in ("--run", run)))
    found = joint(
        *common, "--objective", "pareto", "--trials", 9, "--blocks", 1, "--least-seconds", 0.4,
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
    assert best["memory"]["planned_bytes"] > max(best["memory"]["offsets"].values())
    other = found["sequential"]
    assert other["measured"] == 9
    assert other["time_s"]["ratio"] > 0
    assert 0 <= other["front"]["dominated"] <= 1
    assert len([e for e in events(run) if e["event"] == "sequential_trial"]) == 9
    # With kernels first, all configurations that train on the same clusters have the same schedules.
    kept: dict[tuple[str, ...], set[tuple[int, ...]]] = {}
    for e in events(run):
        if e["event"].startswith("sequential_") and e["chosen"]:
            clusters = e["configuration"]["clusters"] if e["configuration"] else {}
            trains = tuple(sorted(name for name, one in clusters.items() if one["cores"]))
            kept.setdefault(trains, set()).add(tuple(e["chosen"]))
    assert kept
    assert all(len(chosen) == 1 for chosen in kept.values())
    more = joint("--resume", run, "--trials", 11)
    assert (more["n_measured"], more["sequential"]["measured"]) == (11, 11)
    check_consumers(run, json.loads((run / "plans" / "fastest.json").read_text()), tmp_path)
    refused = autotune_here("cpu-config", "--resume", str(run))
    assert (refused.returncode, "autotune joint --resume" in refused.stderr) == (2, True)
    replayed = autotune_here("report", str(run))
    assert replayed.returncode == 0, replayed.stderr


def test_without_a_run_the_kernels_are_tuned_first(tmp_path: Path) -> None:
    found = joint(
        *PHONE, "--kernel-trials", 20, "--objective", "energy", "--trials", 2,
        "--blocks", 1, "--least-seconds", 1, "--no-sequential", "--per-operator", "--logs", tmp_path,
    )  # fmt: skip
    assert found["n_measured"] == 2
    assert len(found["per_operator"]["configurations"]) == 2
    kernel_run, joint_run = sorted(tmp_path.iterdir(), key=lambda path: "-joint-" in path.name)
    assert json.loads((kernel_run / "result.json").read_text())["trials"] == 20
    plan = json.loads((joint_run / "plans" / "best.json").read_text())
    assert plan["step"]["runs"] == [str(kernel_run)]
    assert all(
        (call["measured"]["ci"]["time_s"] is None) == (call["measured"]["measurements"] == 1)
        for call in plan["calls"]
    )
    check_changes(plan, tmp_path)
    # What is said of a damaged plan holds: the run makes it again.
    file = joint_run / "plans" / "best.json"
    file.write_text(json.dumps({**plan, "memory": None}))
    refused = autotune_here("step", "--plan", file)
    assert f"make it again: autotune joint --resume {joint_run}" in refused.stderr
    done = autotune("joint", "--resume", joint_run)
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text())["memory"] == plan["memory"]


def check_changes(plan: dict[str, Any], folder: Path) -> None:
    """A plan whose backward pass has one slow core: the step takes longer, and is measured; nothing can be held."""
    slow = {
        "clusters": {"little": {"cores": 1, "khz": 300000}, "big": {"cores": 0, "khz": None}},
        "threads": 1,
    }
    fast = {
        "clusters": {"little": {"cores": 0, "khz": None}, "big": {"cores": 4, "khz": 2419200}},
        "threads": 4,
    }
    seconds = []
    for settings in ([fast], [fast, slow]):
        calls = [
            {**call, "setting": min(len(settings) - 1, int(call["role"] != "forward"))}
            for call in plan["calls"]
        ]
        file = folder / f"{len(settings)}.json"
        file.write_text(json.dumps({**plan, "settings": settings, "calls": calls}))
        done = autotune_here("step", "--plan", file, "--least-seconds", "0.5", "--json")
        assert done.returncode == 0, done.stderr
        reported = json.loads(done.stdout)
        seconds.append(reported["measured"]["time_s"])
    assert reported["changes"] >= 2
    assert seconds[1] > 3 * seconds[0]
    refused = autotune_here("cpu-config", "apply", folder / "2.json")
    assert (refused.returncode, "goes through 2 configurations" in refused.stderr) == (2, True)


def check_consumers(run: Path, plan: dict[str, Any], folder: Path) -> None:
    """A plan of a model is measured on it; it is exported only as what it is, and never set."""
    file = str(run / "plans" / "fastest.json")
    done = autotune_here("step", "--plan", file, "--least-seconds", "1", "--json")
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert "meizu-16t" in measured["emulated"]
    assert measured["measured"]["time_s"] == pytest.approx(plan["measured"]["time_s"], rel=0.05)
    assert measured["settings"] == [plan["configuration"]] == plan["settings"]
    for command in (["cpu-config", "apply", file], ["export", file, "--out", str(folder / "out")]):
        refused = autotune_here(*command)
        assert (refused.returncode, "model" in refused.stderr or "stand-in" in refused.stderr) == (
            2,
            True,
        )
    out = folder / "out"
    done = autotune_here("export", file, "--format", "tvm", "--allow-stand-in", "--out", str(out))
    assert done.returncode == 0, done.stderr
    manifest = json.loads((out / "manifest.json").read_text())
    (variant,) = [one for one in manifest["variants"] if one["name"] != "default"]
    assert variant["stand_in"]
    reported = {
        f["schedule"]
        for k in manifest["kernels"]
        for n, f in k["figures"].items()
        if n != "default"
    }
    assert reported == {call["schedule"]["digest"] for call in plan["calls"]}
    check_figures(manifest, plan)
    done = autotune_here(
        "export", run, "--format", "tvm", "--allow-stand-in", "--out", folder / "run"
    )
    assert done.returncode == 0, done.stderr  # The run's best plan.
    manifest = json.loads((folder / "run" / "manifest.json").read_text())
    assert manifest["variants"][0]["source"].endswith("/best.json")
    check_damage(run, plan, folder)


def check_figures(manifest: dict[str, Any], plan: dict[str, Any]) -> None:
    """Times and joules are those under the plan's cores and clocks, not those of the kernel runs."""
    (variant,) = manifest["variants"]
    clusters = plan["configuration"]["clusters"]
    assert variant["khz"] == {name: c["khz"] for name, c in clusters.items() if c["cores"]}
    assert variant["threads"] == plan["configuration"]["threads"]
    for kernel in manifest["kernels"]:
        calls = [call for call in plan["calls"] if call["kernel"] == kernel["name"]]
        figures = kernel["figures"][variant["name"]]
        seconds = [(call["measured"] or call["predicted"])["time_s"] for call in calls]
        assert figures["tuned_ms"] == pytest.approx(1e3 * sum(seconds) / len(seconds))
        joules = [call["predicted"]["energy_j"] for call in calls]
        assert figures["energy_mj"] == pytest.approx(1e3 * sum(joules) / len(joules))
        assert figures["default_ms"] is None


def check_damage(run: Path, plan: dict[str, Any], folder: Path) -> None:
    """What does not fit the step or the device is refused before anything is measured."""
    settings = json.loads(json.dumps(plan["settings"]))
    next(c for c in settings[0]["clusters"].values() if c["cores"])["khz"] = 123
    other = [{**settings[0], "clusters": {"huge": {"cores": 1, "khz": None}}}]
    for change, text in (
        ({"calls": plan["calls"][:5]}, "does not have the calls"),
        ({"settings": settings}, "123 kHz, which it does not have"),
        ({"settings": other}, "is for clusters huge"),
    ):
        file = folder / "changed.json"
        file.write_text(json.dumps({**plan, **change}))
        done = autotune_here("step", "--plan", file, "--least-seconds", "0.2")
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr
    # What is not known is passed over.
    file.write_text(json.dumps({**plan, "step": {**plan["step"], "mood": "good"}, "new": 1}))
    done = autotune_here("step", "--plan", file, "--least-seconds", "0.2")
    assert done.returncode == 0, done.stderr


def test_a_memory_limit_brings_forms_that_save_memory(tmp_path: Path) -> None:
    large = ("--emulate", "meizu-16t", "--model", "lenet", "--batch", "32")
    runs = [
        kernels(tmp_path / f"k{number}", *large, "--trials", "1", *more)
        for number, more in enumerate([(), ("--micro-batch", "2")])
    ]
    common = (
        *large, "--run", runs[0], "--run", runs[1], "--trials", 3, "--blocks", 1,
        "--least-seconds", 0.2, "--no-sequential", "--start-temperature", 99,
    )  # fmt: skip
    plain = joint(*common, "--logs", tmp_path / "plain")
    assert plain["sequential"] is None
    plan = json.loads((one_folder(tmp_path / "plain") / plain["plans"]["best"]).read_text())
    assert (plan["step"]["micro_batch"], plan["step"]["recompute"]) == (None, None)
    size = plan["memory"]["planned_bytes"]
    limited = joint(
        *common, "--memory-limit", f"{int(0.9 * size)}B", "--logs", tmp_path / "limited"
    )
    plan = json.loads((one_folder(tmp_path / "limited") / limited["plans"]["best"]).read_text())
    assert plan["memory"]["planned_bytes"] <= 0.9 * size
    assert plan["step"]["micro_batch"] == 2 or plan["step"]["recompute"]
    refused = autotune(
        "joint", *map(str, common), "--memory-limit", "10KB", "--logs", str(tmp_path / "none")
    )
    assert (refused.returncode, "keeps --memory-limit" in refused.stderr) == (2, True), (
        refused.stderr
    )


def test_a_joint_search_on_this_host_runs_the_schedules_it_chose(tmp_path: Path) -> None:
    run = kernels(tmp_path / "kernels", *LENET, "--trials", "48")
    found = joint(
        "--device", "local", *LENET, "--run", run, "--meter", "none", "--trials", 4, "--blocks", 2,
        "--least-seconds", 0.2, "--start-temperature", 999, "--space", space(tmp_path),
        "--logs", tmp_path / "joint",
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
    # The default has untuned kernels.
    assert found["best"]["time_s"] < found["default"]["time_s"]
    # A space of one configuration is measured once; the rest of the budget tries other schedules.
    rounds = [e for e in events(folder) if e["event"] == "round"]
    assert (found["n_measured"], len(rounds)) == (1, 3)
    assert len({tuple(e["chosen"]) for e in rounds}) > 1
    assert found["sequential"]["time_s"]["ci"]
    plan = folder / found["plans"]["best"]
    done = autotune("step", "--plan", plan, "--least-seconds", "0.2", "--json")
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert not reported["emulated"]
    assert 0.3 < reported["measured"]["time_s"] / found["best"]["time_s"] < 3
    check_export(plan, tmp_path / "out")
    (tmp_path / "kernels").rename(tmp_path / "moved")
    missing = autotune("step", "--plan", plan)
    assert (missing.returncode, "--run" in missing.stderr) == (2, True)
    moved = autotune(
        "step", "--plan", plan, "--run", one_folder(tmp_path / "moved"), "--least-seconds", "0.2"
    )
    assert moved.returncode == 0, moved.stderr


def space(folder: Path) -> Path:
    """One core of this host, its clock left alone."""
    path = folder / "space.toml"
    path.write_text("threads_per_core = [1]\n[others]\ncores = [1]\nlevels = 1\n")
    return path


def check_export(plan: Path, out: Path) -> None:
    done = autotune("export", plan, "--format", "tvm", "--out", out)
    assert done.returncode == 0, done.stderr
    checked = autotune("verify", out)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--emulate", "meizu-16t"], "--model says which step"),
        (["--device", "nowhere", *LENET], "nowhere"),
        (["--emulate", "meizu-16t", *LENET, "--objective", "speed"], "--objective 'speed'"),
        (["--emulate", "meizu-16t", *LENET, "--storage", "journal:/tmp/x"], "choose from the same runs"),
        (["--emulate", "meizu-16t", *LENET, "--kernel-trials", "0"], "--kernel-trials is 0"),
        (["--emulate", "meizu-16t", *LENET, "--run", "x", "--kernel-trials", "9"], "leave --run out"),
        (["--emulate", "meizu-16t", *LENET, "--run", "/nowhere"], "no run at"),
        (["--resume", "/nowhere"], "no run at"),
        (["--emulate", "meizu-16t", *LENET, "--run", "{run}", "--batch", "4"], "no run knows a kernel"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_one_line(tmp_path: Path, arguments: list[str], text: str) -> None:
    if "{run}" in arguments:
        run = kernels(tmp_path / "kernels", "--emulate", "meizu-16t", *LENET, "--trials", "1")
        arguments = [str(run) if word == "{run}" else word for word in arguments]
    if arguments[0] != "--resume":
        arguments = [*arguments, "--logs", str(tmp_path / "logs")]
    done = autotune_here("joint", *arguments)
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
