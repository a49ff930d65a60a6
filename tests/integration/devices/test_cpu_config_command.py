"""`autotune cpu-config` on models and on this host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from command import AUTOTUNE, autotune, autotune_here

from autotune.studies.run import open_storage


def search(*arguments: object, code: int = 0, **environment: str) -> dict[str, Any]:
    done = autotune("cpu-config", *arguments, "--json", **environment)
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout)) if done.stdout else {}


def run_of(folder: Path) -> Path:
    (found,) = folder.glob("*-cpu-config-*")
    return found


def test_a_search_on_a_model_finds_and_reports(tmp_path: Path) -> None:
    found = search(
        "--emulate", "meizu-16t", "--objective", "pareto", "--trials", 11, "--blocks", 1,
        "--logs", tmp_path,
    )  # fmt: skip
    assert found["emulated"]
    assert found["n_measured"] == 11
    assert found["best"]["ci"]["blocks"] == 1
    assert set(found["best"]["clusters"]) == {"little", "big"}
    times = [point["time_s"] for point in found["pareto"]]
    joules = [point["energy_j"] for point in found["pareto"]]
    assert times == sorted(times)
    assert joules == sorted(joules, reverse=True)
    assert found["points"]["fastest"]["time_s"] < found["default"]["time_s"]
    assert 0 < found["model_error"]["left_out"]["time"] < 0.5
    run = run_of(tmp_path)
    assert json.loads((run / "result.json").read_text()) == found
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    trials = [event for event in events if event["event"] == "trial"]
    assert len(trials) == 11
    # The reference is no trial: twice after the third one, to begin with, and again eight later.
    assert [event["event"] for event in events].count("reference") >= 2
    assert [check["after"] for check in found["reference"]] == [11]
    assert 0.9 < found["reference"][0]["time_s"]["ratio"] < 1.1
    assert all((run / "raw" / event["raw"]).stat().st_size for event in trials)
    again = autotune("replay", run, "--objective", "latency", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["configurations"] == 11
    page = autotune("report", run)
    assert page.returncode == 0, page.stderr
    text = (run / "report.html").read_text()
    assert "times and joules are predicted by a model, not measured" in text
    assert text.count("<svg") >= 3
    more = search("--resume", run, "--trials", 12)
    assert more["n_measured"] == 12
    assert more["command"] == found["command"]
    assert more["resume_command"] == f"autotune cpu-config --resume {run} --trials 12 --json"
    text = (run / "events.jsonl").read_text()
    assert text.count('"start_temperature"') == 1
    refused = autotune("cpu-config", "apply", run)
    assert (refused.returncode, "model in the process" in refused.stderr) == (2, True)


def test_the_rails_of_a_board_are_shown_and_not_added(tmp_path: Path) -> None:
    done = autotune(
        "cpu-config", "--emulate", "jetson-tx2", "--objective", "energy", "--trials", 2,
        "--blocks", 1, "--logs", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "J a step of the best, by rail: VDD_SYS_GPU" in done.stdout
    best = json.loads((run_of(tmp_path) / "result.json").read_text())["best"]
    assert set(best["rails"]) == {"VDD_SYS_GPU", "VDD_SYS_SOC", "VDD_SYS_CPU", "VDD_SYS_DDR"}
    assert best["rails"]["VDD_SYS_CPU"] == pytest.approx(0.65 * best["energy_j"], rel=0.1)


def test_two_points_of_a_run_are_compared(tmp_path: Path) -> None:
    search(
        "--emulate", "meizu-16t", "--objective", "latency", "--meter", "none", "--trials", 3,
        "--blocks", 1, "--command", "emulated_train --threads {threads} --scale 0.05 --noise 0.05",
        "--steps-from", "^step", "--logs", tmp_path,
    )  # fmt: skip
    run = run_of(tmp_path)
    done = autotune("cpu-config", "compare", run, "best", "default", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["blocks"]) == ("first", 12)
    assert found["ratio"] < 0.9
    (folder,) = tmp_path.glob("*-compare")
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert sum(event["event"] == "run" for event in events) == 24
    same = autotune("cpu-config", "compare", run, "best", "best")
    assert (same.returncode, "the same configuration" in same.stderr) == (2, True)


def test_a_comparison_is_listed_with_its_command_its_model_and_the_device_of_kernel_runs(
    tmp_path: Path,
) -> None:
    search(
        "--emulate", "meizu-16t", "--objective", "latency", "--meter", "none", "--trials", 2,
        "--blocks", 1, "--model", "lenet", "--batch", 8, "--logs", tmp_path,
    )  # fmt: skip
    done = autotune("cpu-config", "compare", run_of(tmp_path), "fastest", "default")
    assert done.returncode == 0, done.stderr
    done = autotune("runs", tmp_path, "--json")
    (newest, searched) = json.loads(done.stdout)["runs"]
    for run in (newest, searched):
        assert (run["model"], run["batch"]) == ("lenet", 8)
        assert run["device"] == "emulated meizu-16t"
    first = autotune("runs", tmp_path, "--wide").stdout.splitlines()[2]
    assert first.split()[1:5] == ["cpu-config", "compare", "lenet", "8"]


def test_a_search_without_root_leaves_clocks_alone(tmp_path: Path) -> None:
    found = search(
        "--emulate", "three-cluster", "--trials", 12, "--blocks", 0, "--logs", tmp_path,
    )  # fmt: skip
    assert found["space"] == 39
    assert all(c["khz"] is None for c in found["best"]["clusters"].values())
    points = [found["best"], *found["points"].values(), *found["pareto"]]
    assert all(set(point["seen_khz"]) == {"little", "big", "prime"} for point in points)
    assert all(khz > 1e5 for point in points for khz in point["seen_khz"].values())
    page = autotune("report", run_of(tmp_path))
    assert page.returncode == 0, page.stderr
    assert "MHz seen)" in (run_of(tmp_path) / "report.html").read_text()


def test_four_clusters_are_searched_and_applied_by_their_names(tmp_path: Path) -> None:
    found = search(
        "--emulate", "four-cluster", "--objective", "pareto", "--trials", 14, "--blocks", 1,
        "--logs", tmp_path,
    )  # fmt: skip
    names = ["little", "mid", "big", "prime"]
    assert found["space"] > 1_000_000
    points = [found["best"], *found["points"].values(), *found["pareto"]]
    assert all(list(point["clusters"]) == names for point in points)
    assert set(found["default"]["seen_khz"]) == set(names)
    assert len({tuple(c["cores"] > 0 for c in p["clusters"].values()) for p in points}) >= 3
    events = (run_of(tmp_path) / "events.jsonl").read_text().splitlines()
    trials = [e for e in map(json.loads, events) if e["event"] == "trial"]
    assert len(trials) == 14
    assert all(t["figures"] for t in trials)
    page = autotune("report", run_of(tmp_path))
    assert page.returncode == 0, page.stderr
    text = (run_of(tmp_path) / "report.html").read_text()
    assert all(name in text for name in names)


def test_a_models_step_is_searched_on_a_model_of_a_phone(tmp_path: Path) -> None:
    found = search(
        "--emulate", "meizu-16t", "--model", "lenet", "--batch", 64, "--objective", "energy",
        "--trials", 4, "--blocks", 0, "--least-seconds", 1, "--logs", tmp_path,
    )  # fmt: skip
    assert found["points"]["fastest"]["time_s"] < found["points"]["least_energy"]["time_s"]


def test_a_models_step_is_searched_on_this_host(tmp_path: Path) -> None:
    own = tmp_path / "tmp"
    own.mkdir()
    found = search(
        "--device", "local", "--model", "lenet", "--batch", 2, "--meter", "none", "--trials", 1,
        "--blocks", 0, "--least-seconds", 0.2, "--start-temperature", 999, "--logs", tmp_path,
        TMPDIR=str(own),
    )  # fmt: skip
    assert (found["n_failed"], found["emulated"]) == (0, False)
    assert not list(own.iterdir())


def test_a_study_of_something_else_is_refused(tmp_path: Path) -> None:
    shared = (
        "--emulate",
        "meizu-16t",
        "--storage",
        f"journal:{tmp_path / 'journal'}",
        "--study",
        "shared",
        "--blocks",
        0,
        "--trials",
        1,
    )
    command = ("--command", "emulated_train --threads {threads}", "--steps-from", "step")
    search(*shared, *command, "--objective", "latency", "--logs", tmp_path)
    other = ("--command", "emulated_train --threads {threads} --scale 0.1", "--steps-from", "step")
    for more, text in (
        ((*other, "--objective", "latency"), "another workload"),
        ((*command, "--objective", "energy"), "another objective"),
        ((*command, "--objective", "latency", "--deadline", "9s"), "another limit"),
    ):
        done = autotune("cpu-config", *shared, *more, "--logs", tmp_path)
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr


def test_a_small_space_is_measured_whole_to_tell_how_good_the_search_was(tmp_path: Path) -> None:
    space = tmp_path / "space.toml"
    space.write_text(
        'together = "never"\n[clusters.big]\nlevels = 2\n[clusters.little]\nlevels = 2\n'
    )
    found = search(
        "--emulate", "meizu-16t", "--objective", "latency", "--trials", 4, "--blocks", 0,
        "--space", space, "--exhaustive", "--logs", tmp_path,
    )  # fmt: skip
    assert found["space"] == found["n_measured"] == 16
    whole = found["exhaustive"]
    assert whole["searched"] == 4
    # In the model, a cluster whose cores are all at work is slowed by what else the system does.
    assert whole["optimum"]["clusters"]["big"] == {"cores": 3, "khz": 2419200}
    assert whole["found_after"] > 4
    assert whole["gap"] == pytest.approx(0.22, abs=0.05)


def test_a_plan_per_operator_is_made_and_measured(tmp_path: Path) -> None:
    found = search(
        "--emulate", "jetson-tx2", "--model", "squeezenet1_1", "--batch", 4, "--objective", "edp",
        "--trials", 8, "--blocks", 3, "--per-operator", "--logs", tmp_path,
    )  # fmt: skip
    plan = found["per_operator"]
    count = len(plan["configurations"])
    assert 2 <= count <= 6
    assert [len(row) for row in plan["switch_s"]] == [count] * count
    assert plan["operators"]["foretold_gain"] >= plan["phases"]["foretold_gain"] >= 1
    changes = plan["operators"]["changes"]
    assert all(0 <= change["call"] < 145 and change["to"] < count for change in changes)
    if changes:
        assert plan["measured"]["blocks"] == 3
        assert plan["measured"]["verdict"] in ("better", "tie", "worse")
    events = [
        json.loads(line) for line in (run_of(tmp_path) / "events.jsonl").read_text().splitlines()
    ]
    profiles = [event for event in events if event["event"] == "profile"]
    assert len(profiles) >= count
    # The plan is held against the run's best, and calls add up to the step that was profiled.
    single = plan["single"]
    assert plan["configurations"][single["number"]]["clusters"] == found["best"]["clusters"]
    assert profiles[0]["configuration"]["clusters"] == found["best"]["clusters"]
    for name in ("time_s", "energy_j"):
        assert single[name] == pytest.approx(profiles[0]["figures"][name])


def test_a_plan_on_this_host_goes_through_its_settings(tmp_path: Path) -> None:
    found = search(
        "--device", "local", "--model", "lenet", "--batch", 2, "--meter", "none", "--trials", 2,
        "--blocks", 1, "--per-operator", "--least-seconds", 0.2, "--start-temperature", 999,
        "--logs", tmp_path,
    )  # fmt: skip
    plan = found["per_operator"]
    assert len(plan["configurations"]) == 2
    assert all(seconds >= 0 for row in plan["switch_s"] for seconds in row)
    assert plan["operators"]["time_s"] <= plan["single"]["time_s"]


def test_a_profile_joins_calls_and_samples(tmp_path: Path) -> None:
    done = autotune(
        "profile", "--model", "lenet", "--batch", 64, "--emulate", "jetson-tx2", "--cpus", "2-5",
        "--seconds", 5, "--logs", tmp_path, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["kind"], found["cpus"], found["threads"]) == ("profile", [2, 3, 4, 5], 4)
    assert len(found["operators"]) == 25
    assert sum(row["share"] for row in found["roles"]) == pytest.approx(1, rel=0.05)
    joules = sum(row["energy_j"] for row in found["roles"])
    assert joules == pytest.approx(found["energy_j"], rel=0.1)
    assert all(row["live_bytes"] for row in found["operators"])


def test_a_profile_of_a_program_that_tells_its_calls(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import time\nprint('names load.forward compute.forward', flush=True)\n"
        "for n in range(9999):\n"
        "    t = time.clock_gettime(time.CLOCK_MONOTONIC); time.sleep(0.02)\n"
        "    m = time.clock_gettime(time.CLOCK_MONOTONIC)\n"
        "    while time.clock_gettime(time.CLOCK_MONOTONIC) < m + 0.04: pass\n"
        "    e = time.clock_gettime(time.CLOCK_MONOTONIC)\n"
        "    print(f'calls {t:.6f} {1e6 * (m - t):.1f} {1e6 * (e - m):.1f}')\n"
        "    print('step', n, flush=True)\n"
    )
    done = autotune(
        "profile", "--device", "local", "--command", f"{sys.executable} {program}",
        "--steps-from", "^step", "--seconds", 2, "--meter", "none", "--start-temperature", 999,
        "--logs", tmp_path, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    load, compute = json.loads(done.stdout)["operators"]
    assert (load["name"], load["role"]) == ("load.forward", "forward")
    assert load["time_s"] == pytest.approx(0.02, rel=0.2)
    assert compute["time_s"] == pytest.approx(0.04, rel=0.2)
    assert load["energy_j"] is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "--model, or --command"),
        (["--model", "lenet", "--emulate", "jetson-tx2", "--cpus", "9"], "has cores"),
        (["--model", "lenet", "--emulate", "jetson-tx2", "--cpus", "x"], "not a list of cores"),
        (["--model", "lenet", "--emulate", "jetson-tx2", "--seconds", "0"], "--seconds 0"),
        (["--model", "lenet", "--emulate", "jetson-tx2", "--seconds", "inf"], "--seconds is inf"),
        (["--model", "lenet", "--emulate", "jetson-tx2", "--interval-ms", "nan"], "--interval-ms"),
        (
            ["--model", "lenet", "--emulate", "jetson-tx2", "--start-temperature", "nan"],
            "--start-temperature is nan",
        ),
        (["--model", "lenet", "--emulate", "jetson-tx2", "--of", "/nowhere"], "no run at"),
    ],
)
def test_a_mistake_of_a_profile_is_told_in_one_line(
    tmp_path: Path, arguments: list[str], text: str
) -> None:
    done = autotune_here("profile", *arguments, "--logs", tmp_path)
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr


def test_this_host_is_searched(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import time\nfor n in range(9999): time.sleep(0.1); print('step', n, flush=True)\n"
    )
    found = search(
        "--device", "local", "--command", f"{sys.executable} {program} {{threads}}",
        "--steps-from", "^step", "--trials", 2, "--blocks", 1, "--logs", tmp_path,
        "--start-temperature", 999, "--least-seconds", 1, "--meter", "none",
    )  # fmt: skip
    assert not found["emulated"]
    assert found["best"]["time_s"] == pytest.approx(0.1, rel=0.2)
    if any(c["khz"] for c in found["best"]["clusters"].values()):
        return  # Here the search could set clocks.
    applied = autotune("cpu-config", "apply", run_of(tmp_path))
    assert applied.returncode == 0, applied.stderr
    assert "train on cores" in applied.stdout
    assert "no clock was set" in applied.stdout
    assert "restore" not in applied.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--emulate", "nothing"], 2, "no emulated 'nothing'"),
        (["--emulate", "meizu-16t", "--objective", "speed"], 2, "'speed' is not known"),
        (["--emulate", "meizu-16t", "--deadline", "soon"], 2, "'soon' is not a quantity"),
        (["--emulate", "meizu-16t", "--trials", "0"], 2, "--trials is 0"),
        (["--emulate", "meizu-16t", "--reference-every", "-1"], 2, "--reference-every is -1"),
        (["--emulate", "meizu-16t", "--meter", "sundial"], 2, "no meter 'sundial'"),
        (["--emulate", "meizu-16t", "--meter", "csv:/nowhere"], 2, "no file /nowhere"),
        (["--emulate", "meizu-16t", "--meter", "csv:/etc/hosts"], 2, "a clock of its own"),
        (["--emulate", "meizu-16t", "--space", "/nowhere.toml"], 2, "is not a file"),
        (["--emulate", "meizu-16t", "--steps-from", "("], 2, "not a regular expression"),
        (["--emulate", "meizu-16t", "--steps-from", ""], 2, "--steps-from is empty"),
        (["--emulate", "meizu-16t", "--command", " "], 2, "--command is empty"),
        (["--emulate", "meizu-16t", "--command", "no_trainer"], 5, "does not run: "),
        (["--emulate", "meizu-16t", "--storage", "nonsense"], 2, "cannot be opened"),
        (["--emulate", "meizu-16t", "--storage", "journal:/tmp"], 2, "is not a regular file"),
        (["--emulate", "meizu-16t", "--storage", "journal:/etc/hosts"], 2, "/etc/hosts"),
        (["--emulate", "meizu-16t", "--study", " "], 2, "--study is empty"),
        (["--emulate", "meizu-16t", "--max-temperature", "nan"], 2, "--max-temperature is nan"),
        (["--emulate", "meizu-16t", "--max-temperature", "inf"], 2, "--max-temperature is inf"),
        (["--emulate", "meizu-16t", "--start-temperature", "nan"], 2, "--start-temperature is nan"),
        (["--emulate", "meizu-16t", "--least-seconds", "nan"], 2, "--least-seconds is nan"),
        (["--emulate", "meizu-16t", "--least-seconds", "-3"], 2, "--least-seconds is -3"),
        (["--emulate", "meizu-16t", "--blocks", "-3"], 2, "--blocks is -3"),
        (["--emulate", "meizu-16t", "--seed", "-3"], 2, "--seed is -3"),
        (["--emulate", "meizu-16t", "--seed", str(2**32)], 2, f"up to {2**32 - 1}"),
        (["--emulate", "raspberry-pi-3b-plus", "--objective", "energy"], 3, "no meter"),
        (["--emulate", "meizu-16t", "--energy-budget", "5J", "--meter", "none"], 2, "--meter none"),
        (["--device", "local", "--command", "./nosuch", "--steps-from", "x", "--meter", "none"], 5,
         "the command does not run: "),
        (["--device", "local"], 2, "--command and --steps-from"),
        (["--emulate", "meizu-16t", "--exhaustive"], 2, "500 are measured at most"),
        (["--emulate", "meizu-16t", "--per-operator"], 2, "--per-operator needs --model"),
        (["--device", "local", "--batch", "4"], 2, "go with --model"),
        (["--emulate", "meizu-16t", "--model", "lenet", "--command", "x"], 2, "exclude each other"),
        (["--emulate", "meizu-16t", "--model", "nonet"], 2, "unknown model"),
        (["--device", "nobody", "--command", "x", "--steps-from", "y"], 2, "no device 'nobody'"),
        (["--resume", "/nowhere"], 2, "no run at"),
        (["apply", "/nowhere"], 2, "no run at"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_one_line(
    tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    if arguments[0] not in ("apply", "--resume"):
        arguments = [*arguments, "--logs", str(tmp_path)]
    done = autotune_here("cpu-config", *arguments)
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
    if {"--storage", "--seed", "--study"} & set(arguments):
        assert not list(tmp_path.iterdir()), "a run folder was made"


def test_a_file_of_ranges_that_do_not_fit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[clusters.big]\ncores = [9]\n")
    done = autotune("cpu-config", "--emulate", "meizu-16t", "--space", path, "--logs", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"--space {path}: cluster 'big' has 4 cores, not 9" in done.stderr


def test_searches_of_several_kinds_share_a_storage(tmp_path: Path) -> None:
    url = f"journal:{tmp_path}/study"
    for objective, profile in (
        ("energy", "meizu-16t"), ("energy", "three-cluster"), ("latency", "meizu-16t"),
    ):  # fmt: skip
        search(
            "--objective", objective, "--emulate", profile, "--trials", 1, "--blocks", 0,
            "--storage", url, "--logs", tmp_path / "logs",
        )  # fmt: skip
    names = optuna.get_all_study_names(open_storage(url))
    assert [name.rpartition(" ")[0] for name in names] == [
        "cpu-config energy emulated step on meizu-16t",
        "cpu-config energy emulated step on three-cluster",
        "cpu-config latency emulated step on meizu-16t",
    ]


def test_a_shared_study_of_another_objective_is_refused_first(tmp_path: Path) -> None:
    common = (
        "--emulate", "meizu-16t", "--storage", f"journal:{tmp_path}/study", "--study", "shared",
        "--trials", 1,
    )  # fmt: skip
    search(*common, "--blocks", 0, "--logs", tmp_path / "one")
    done = autotune("cpu-config", *common, "--objective", "pareto", "--logs", tmp_path / "two")
    assert (done.returncode, "--study" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize("cells", ["nan,5", "-3,5", "inf,5", "0,5", "3,nan", "3,-5"])
def test_a_table_with_what_is_no_measurement_is_refused(tmp_path: Path, cells: str) -> None:
    table = tmp_path / "table.csv"
    table.write_text(
        "cluster,cores,big_freq_ghz,small_freq_ghz,time_s,energy_j\n"
        f"big,4,2.4,0,3,5\nbig,2,2.4,0,{cells}\nsmall,4,0,1.8,9,4\n"
    )
    done = autotune("replay", table)
    assert (done.returncode, "line 3 is not a configuration" in done.stderr) == (2, True), (
        done.stderr
    )


def test_nothing_valid_is_an_exit_code_of_its_own(tmp_path: Path) -> None:
    done = autotune(
        "cpu-config", "--emulate", "meizu-16t", "--command", "nonsense", "--steps-from", "x",
        "--meter", "none", "--trials", "2", "--logs", tmp_path,
    )  # fmt: skip
    assert (done.returncode, "No such file" in done.stderr) == (5, True), done.stderr


def test_limits_that_nothing_keeps_are_told_with_what_came_nearest(tmp_path: Path) -> None:
    done = autotune(
        "cpu-config", "--emulate", "meizu-16t", "--deadline", "1ms", "--meter", "none",
        "--trials", "2", "--logs", tmp_path,
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "none of 2 configurations meets the limits: the nearest, " in done.stderr
    assert "where the limit is 0.001 s" in done.stderr
    assert "best again" not in done.stderr


def test_a_search_on_a_model_that_is_killed_leaves_nothing_to_undo(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    command = [*AUTOTUNE, "cpu-config", "--emulate", "meizu-16t", "--trials", "5000", "--logs"]
    process = subprocess.Popen(
        [*command, str(tmp_path / "logs")], stderr=subprocess.DEVNULL, env={**os.environ, **state}
    )
    deadline = time.monotonic() + 60
    while not [p for p in tmp_path.glob("logs/*/events.jsonl") if '"trial"' in p.read_text()]:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.kill()
    process.wait()
    done = autotune("devices", "restore", **state)
    assert done.returncode == 0, done.stderr
    assert "emulated" not in done.stdout + done.stderr
