"""`autotune kernels` end to end, on this CPU, on PoCL and under qemu-user."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import autotune, one_folder
from fleets import local_fleet
from opencl_drivers import driver

from autotune.records import read_run

MATMUL = "matmul:m=8,n=24,k=40"
RESULT_KEYS = {
    "schema_version",
    "target",
    "device",
    "stand_in",
    "trials",
    "wall_s",
    "step_ms",
    "drifts",
    "tasks",
    "records",
    "measured_step",
    "run_folder",
    "model",
    "batch",
    "command",
    "versions",
}
TASK_KEYS = {
    "name", "operator", "role", "count", "default_ms", "tuned_ms", "speedup", "ci", "gflops",
    "trials", "valid", "failures", "max_rel_error",
}  # fmt: skip


@pytest.mark.quick
def test_cpu_run_gives_right_kernels_and_the_documented_json(tmp_path: Path) -> None:
    done = autotune("kernels", "--op", MATMUL, "--trials", "14", "--logs", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result) == RESULT_KEYS
    assert (result["schema_version"], result["target"], result["stand_in"]) == (1, "cpu", False)
    assert result["trials"] == 14
    assert [task["role"] for task in result["tasks"]] == ["forward", "data_grad", "weight_grad"]
    for task in result["tasks"]:
        assert set(task) >= TASK_KEYS
        assert task["max_rel_error"] < 1e-4
        assert task["tuned_ms"] <= task["default_ms"]
        assert task["ci"][0] <= task["speedup"] <= task["ci"][1]
        assert task["trials"] == task["valid"] + sum(task["failures"].values())
    assert sum(task["trials"] for task in result["tasks"]) == 14
    step = result["step_ms"]
    assert step["tuned"] == pytest.approx(sum(t["count"] * t["tuned_ms"] for t in result["tasks"]))
    folder = one_folder(tmp_path)
    assert json.loads((folder / "result.json").read_text()) == result
    about = read_run(folder).about
    assert about["versions"]["apache-tvm"] == "0.27.0.post1"
    assert about["request"]["seed"] == 1


@pytest.mark.parametrize(
    "target",
    ["adreno", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("mali", "opencl"))],
)
def test_opencl_run_says_that_it_measured_a_stand_in(tmp_path: Path, target: str) -> None:
    done = autotune(
        "kernels", "--target", target, "--op", "matmul:m=96,n=128,k=96", "--role", "forward",
        "--trials", "12", "--logs", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"STAND-IN: no {target} device here" in done.stdout
    assert f"STAND-IN: no {target} device here" in done.stderr
    run = read_run(one_folder(tmp_path))
    trials = run.trials()
    assert len({event["digest"] for event in trials}) == 12
    assert all(event["stand_in"] and event["device"] for event in trials)
    rounds = [event for event in run.events if event["event"] == "round"]
    assert all(event["proposed"] > 0 for event in rounds)
    if target != "opencl":  # There the rule of products stands alone, and draws only what fits.
        assert sum(sum(event["rejected"].values()) for event in rounds) > 0
    assert {check for event in rounds for check in event["rejected"]} <= {
        "TraceReplay", "DisallowDynamicLoop", "RewriteCooperativeFetch", "RewriteUnboundBlock",
        "RewriteParallelVectorizeUnroll", "RewriteReductionBlock", "VerifyGPUCode",
    }  # fmt: skip


def test_tvm_reads_the_database_that_a_run_writes(matmul_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(matmul_run, folder)
    valid = sum(event["status"] == "ok" for event in read_run(folder).trials())
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    database = JSONDatabase(
        str(folder / "database_workload.json"), str(folder / "database_tuning_record.json")
    )
    assert len(database) == valid > 0


def test_a_kernel_that_no_tile_fits_is_searched_by_the_other_rules(tmp_path: Path) -> None:
    autotune(
        "kernels", "--target", "opencl", "--op", "matmul:m=4,n=10,k=84", "--role", "weight_grad",
        "--trials", "6", "--logs", tmp_path / "logs",
        AUTOTUNE_OPENCL_LIBRARY=str(driver(tmp_path)), OLD_GPU="1",
    )  # fmt: skip
    trials = read_run(one_folder(tmp_path / "logs")).trials()
    assert any(trial["status"] == "ok" for trial in trials)


def test_compiling_and_waiting_are_no_part_of_a_time_over_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver compiles at the first execution, and tells late that it has ended: each candidate seemed slow."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setenv("AUTOTUNE_OPENCL_LIBRARY", str(driver(tmp_path)))
    monkeypatch.setenv("WAIT_US", "1200")
    with local_fleet("gpu") as link:
        autotune(
            "kernels", "--target", "opencl", "--op", "matmul:m=32,n=32,k=32", "--role", "forward",
            "--trials", "10", "--tracker", f"{link.host}:{link.port}", "--key", "gpu",
            "--logs", tmp_path / "logs",
        )  # fmt: skip
    trials = read_run(one_folder(tmp_path / "logs")).trials()
    assert [trial["status"] for trial in trials] == ["ok"] * 10
    # Each sample would have waited; one would have compiled. Others at work make some of them longer.
    assert all(min(trial["samples_s"]) < 1e-3 for trial in trials), trials
    assert all(max(trial["samples_s"]) < 50e-3 for trial in trials), trials


def test_a_slow_default_is_timed_once_before_the_last_timing(tmp_path: Path) -> None:
    slow = "conv2d:n=4,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1"
    autotune("kernels", "--op", slow, "--role", "forward", "--trials", "4", "--logs", tmp_path)
    run = read_run(one_folder(tmp_path))
    (default,) = (event["samples_s"] for event in run.events if event["event"] == "default")
    assert len(default) == 1
    assert default[0] > 0.25
    assert any(len(trial["samples_s"]) == 3 for trial in run.trials() if trial["status"] == "ok")


def test_arm_run_is_checked_under_qemu_and_exports_an_aarch64_library(tmp_path: Path) -> None:
    spec = "conv2d:n=1,c=3,h=8,w=8,k=4,r=3,s=3,stride=1,pad=1"
    done = autotune(
        "kernels", "--target", "arm-cpu", "--op", spec, "--trials", "6", "--logs", tmp_path / "logs"
    )
    assert done.returncode == 0, done.stderr
    assert "qemu-user" in done.stdout
    folder, out = one_folder(tmp_path / "logs"), tmp_path / "out"
    refused = autotune("export", folder, "--out", out)
    assert refused.returncode == 2
    assert "stand-in" in refused.stderr
    assert "--allow-stand-in" in refused.stderr
    assert autotune("export", folder, "--out", out, "--allow-stand-in").returncode == 0
    elf = (out / "lib" / "arm_cpu.so").read_bytes()
    assert elf[:4] == b"\x7fELF"
    assert int.from_bytes(elf[18:20], "little") == 183  # EM_AARCH64
    example(out)


@pytest.mark.parametrize(
    ("target", "roles"), [("cpu", ["forward", "data_grad", "weight_grad"]), ("adreno", ["forward"])]
)
def test_an_exported_library_loads_and_its_example_checks_a_kernel(
    tmp_path: Path, target: str, roles: list[str]
) -> None:
    done = autotune(
        "kernels", "--target", target, "--op", MATMUL, "--role", ",".join(roles),
        "--trials", str(2 * len(roles)), "--logs", tmp_path / "logs",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    folder = one_folder(tmp_path / "logs")
    exported = autotune("export", folder, "--out", out, "--allow-stand-in", "--json")
    assert exported.returncode == 0, exported.stderr
    manifest = json.loads(exported.stdout)
    assert manifest.pop("command").startswith(f"autotune export {folder} ")
    assert manifest.pop("run_folder") == str(folder)
    assert manifest == json.loads((out / "manifest.json").read_text())
    assert [kernel["role"] for kernel in manifest["kernels"]] == roles
    import hashlib

    for name, digest in manifest["files"].items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    example(out)
    for entry in manifest["checks"]:
        expected = out / entry["expected"][0]
        expected.write_bytes(bytes(expected.stat().st_size))
    wrong = subprocess.run([sys.executable, out / "example" / "example.py"], check=False)
    assert wrong.returncode == 1


def test_defaults_that_were_kept_are_exported_next_to_tuned_kernels(tmp_path: Path) -> None:
    command = ("--op", MATMUL, "--trials", "36", "--logs", tmp_path / "logs")
    assert autotune("kernels", "--target", "cpu", *command).returncode == 0
    run = one_folder(tmp_path / "logs")
    result = json.loads((run / "result.json").read_text())
    for task, kept in zip(result["tasks"], (True, False, True), strict=True):
        trials = [t for t in read_run(run).trials() if t["task"] == task["name"]]
        best = min((t for t in trials if t["status"] == "ok"), key=lambda t: min(t["samples_s"]))
        won = {"digest": best["digest"], "formulation": best["formulation"]}
        task |= {"digest": "default", "formulation": "direct"} if kept else won
    (run / "result.json").write_text(json.dumps(result))
    exported = autotune("export", run, "--out", tmp_path / "out", "--json")
    assert exported.returncode == 0, exported.stderr
    code = (
        "import sys, json, numpy as np, tvm\n"
        "from pathlib import Path\n"
        "from autotune.workloads import Kernel, max_relative_error, parse_operator, random_inputs, reference\n"
        "library = tvm.runtime.load_module(sys.argv[1] + '/lib/cpu.so')\n"
        "for entry in json.loads(Path(sys.argv[1], 'manifest.json').read_text())['kernels']:\n"
        "    kernel = Kernel(parse_operator(entry['spec']), entry['role'])\n"
        "    inputs = random_inputs(kernel, 3)\n"
        "    (expected,) = reference(kernel, inputs)\n"
        "    tensors = [tvm.runtime.tensor(a) for a in (*inputs, np.zeros_like(expected, dtype='float32'))]\n"
        "    library[entry['name']](*tensors)\n"
        "    assert max_relative_error(tensors[-1].numpy(), expected) < 1e-4, entry\n"
        "    print('right:', entry['name'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("right:") == len(result["tasks"])


def example(out: Path) -> None:
    done = subprocess.run(
        [sys.executable, out / "example" / "example.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["status"] for line in done.stdout.splitlines()]


def test_a_run_in_which_nothing_compiles_ends_with_exit_code_five(tmp_path: Path) -> None:
    space = tmp_path / "hasty.toml"
    shipped = (Path(__file__).parents[3] / "search_spaces" / "host_cpu.toml").read_text()
    space.write_text(shipped.replace("build_timeout_s = 8.0", "build_timeout_s = 0.001"))
    done = autotune(
        "kernels", "--op", MATMUL, "--role", "forward", "--trials", "2", "--space", space,
        "--logs", tmp_path / "logs",
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "no kernel of this run has a valid time" in done.stderr
    run = read_run(one_folder(tmp_path / "logs"))
    assert [event["status"] for event in run.trials()] == ["timeout", "timeout"]
    assert run.result is not None
    (task,) = run.result["tasks"]
    assert (task["tuned_ms"], task["digest"], task["failures"]) == (None, "", {"timeout": 2})


def changed(matmul_run: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the run with every event changed."""
    folder = tmp_path / "changed"
    shutil.copytree(matmul_run, folder)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    for event in events:
        change(event)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def test_a_kernel_without_a_valid_time_does_not_cost_the_others_theirs(
    matmul_run: Path, tmp_path: Path
) -> None:
    def fail(event: dict[str, Any]) -> None:
        if event["event"] in ("trial", "default") and "weight_grad" in event["task"]:
            event |= {"status": "compile_error", "samples_s": [], "message": "none"}

    done = autotune("kernels", "--resume", changed(matmul_run, tmp_path, fail), "--json")
    assert done.returncode == 0, done.stderr
    tasks = {task["role"]: task for task in json.loads(done.stdout)["tasks"]}
    assert tasks["weight_grad"]["tuned_ms"] is None
    assert tasks["weight_grad"]["digest"] == ""
    assert tasks["forward"]["tuned_ms"] > 0
    assert json.loads(done.stdout)["step_ms"]["tuned"] is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trace": [[["Foo", [], [], []]], []]}, "autotune never makes such"),
        ({"task": "conv3d"}, "unknown task"),
        ({"formulation": "magic"}, "unknown formulation"),
        ({"status": "ok", "samples_s": []}, "is damaged"),
    ],
)
def test_a_damaged_trial_is_named(
    matmul_run: Path, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    def damage(event: dict[str, Any]) -> None:
        if event["event"] == "trial":
            event |= change

    done = autotune("kernels", "--resume", changed(matmul_run, tmp_path, damage))
    assert done.returncode == 1, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("device", {"name": "Snapdragon 855", "kind": "cpu"}, "was measured on Snapdragon 855"),
        ("versions", {"apache-tvm": "0.1"}, "was made with apache-tvm 0.1"),
    ],
)
def test_a_run_is_not_carried_on_under_other_conditions(
    matmul_run: Path, tmp_path: Path, key: str, value: dict[str, str], words: str
) -> None:
    folder = tmp_path / "foreign"
    shutil.copytree(matmul_run, folder)
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, key: value}))
    done = autotune("kernels", "--resume", folder)
    assert done.returncode == 2
    assert words in done.stderr


def test_the_seconds_of_all_parts_of_a_run_add_up(matmul_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    shutil.copytree(matmul_run, folder)
    before = json.loads((folder / "result.json").read_text())["wall_s"]
    done = autotune("kernels", "--resume", folder, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["wall_s"] > before


def test_without_a_linker_the_package_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    done = autotune("kernels", "--op", MATMUL, "--logs", tmp_path, PATH=str(tmp_path))
    assert done.returncode == 4
    assert "apt-get install g++" in done.stderr
    assert list(tmp_path.iterdir()) == []
