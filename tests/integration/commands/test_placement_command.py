"""`autotune joint --gpu-run` on this host, whose OpenCL device is the processor itself, and its plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import autotune, one_folder
from opencl_drivers import driver

LENET = ("--model", "lenet", "--batch", "8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Kernels for the processor, and for its OpenCL."""
    found = []
    for target in ("cpu", "opencl"):
        logs = tmp_path_factory.mktemp(target)
        done = autotune(
            "kernels", "--target", target, *LENET, "--trials", "4", "--no-step", "--logs", str(logs)
        )
        assert done.returncode == 0, done.stderr
        found.append(one_folder(logs))
    return found[0], found[1]


@pytest.fixture(scope="module")
def searched(runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a joint search."""
    logs = tmp_path_factory.mktemp("joint")
    done = autotune(
        "joint", *LENET, "--run", runs[0], "--gpu-run", runs[1], "--device", "local", "--meter", "none",
        "--trials", "2", "--blocks", "1", "--least-seconds", "0.2", "--start-temperature", "999",
        "--no-sequential", "--logs", logs,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "STAND-IN: OpenCL's device here is not a GPU" in done.stdout
    return one_folder(logs)


def test_the_step_is_measured_on_both_and_crossings_are_told(searched: Path) -> None:
    found = json.loads((searched / "result.json").read_text())["placement"]
    assert (found["calls"], found["able"], found["stand_in"]) == (25, 25, True)
    for name in ("cpu", "gpu"):
        assert found["places"][name]["time_s"] > 0
    assert found["places"]["gpu"]["gpu_calls"] == 25
    moving = found["places"]["gpu"]["data_movement"]
    assert set(moving) == {"copies", "maps", "layout changes"}
    assert 0 < sum(moving.values()) < 1
    assert found["memory"] in ("copy", "map")
    kinds = {one["reordered"] for one in found["crossings"]}
    assert kinds == {True, False}  # The GPU's kernels have their channels first.
    for one in found["crossings"]:
        for memory in ("copy", "map"):
            assert one[memory]["to_gpu"] > 0
            assert one[memory]["to_host"] > 0
    events = [json.loads(line) for line in (searched / "events.jsonl").read_text().splitlines()]
    (probe,) = [event for event in events if event["event"] == "gpu_probe"]
    assert [call for call, _ in probe["gpu_s"]] == list(range(25))
    assert sum(seconds for _, seconds in probe["gpu_s"]) <= 1.5 * probe["figures"]["time_s"]
    page = autotune("report", searched)
    assert page.returncode == 0, page.stderr
    assert "CPU or GPU" in (searched / "report.html").read_text()


def test_gpu_memory_wants_a_gpu(runs: tuple[Path, Path]) -> None:
    done = autotune("joint", *LENET, "--run", runs[0], "--gpu-memory", "map", "--device", "local")
    assert done.returncode == 2
    assert "--gpu-memory goes with --gpu-run" in done.stderr


def with_gpu(searched: Path, runs: tuple[Path, Path], folder: Path) -> Path:
    """The best plan with every other call on the GPU."""
    plan: dict[str, Any] = json.loads((searched / "plans" / "best.json").read_text())
    assert {call["device"] for call in plan["calls"]} <= {"cpu", "gpu"}
    tuned = json.loads((runs[1] / "result.json").read_text())["tasks"]
    events = json.loads((searched / "run.json").read_text())
    assert events["request"]["step"]["gpu_runs"] == [str(runs[1])]
    names = {task["name"]: task for task in tuned}
    moved = 0
    for call in plan["calls"]:
        # Kernels without a layout have one name wherever they run.
        task = names.get(call["kernel"])
        if task is not None and task["tuned_ms"] is not None:
            moved += 1
            call |= {"device": "gpu", "gpu_kernel": task["name"]}
            call["schedule"] = {"digest": task["digest"], "formulation": task["formulation"]}
    assert moved > 3
    plan["gpu"] = {"device": "", "memory": "map"}
    file = folder / "mixed.json"
    file.write_text(json.dumps(plan))
    return file


def without_gpu(file: Path) -> Path:
    """A plan with its calls on the GPU brought back, untuned."""
    plan: dict[str, Any] = json.loads(file.read_text())
    for call in plan["calls"]:
        if call["device"] == "gpu":
            call |= {"device": "cpu", "gpu_kernel": None}
            call["schedule"] = {"digest": "default", "formulation": "direct"}
    back = file.with_name("back.json")
    back.write_text(json.dumps({**plan, "gpu": None}))
    return back


def test_a_plan_with_calls_on_the_gpu_is_carried_out_and_exported(
    searched: Path, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    file = with_gpu(searched, runs, tmp_path)
    done = autotune("step", "--plan", file, "--least-seconds", "0.2", "--json")
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    calls = json.loads(file.read_text())["calls"]
    assert reported["gpu_calls"] == sum(call["device"] == "gpu" for call in calls) > 3
    assert reported["measured"]["time_s"] > 0
    assert reported["data_movement"].keys() == {"copies", "maps", "layout changes"}
    assert 0 < sum(reported["data_movement"].values()) < 1
    out = tmp_path / "gpu"
    stand_in = ("--allow-stand-in", "--out", out)
    done = autotune("export", file, "--format", "opencl", *stand_in)
    assert done.returncode == 0, done.stderr
    exported = {one["name"] for one in json.loads((out / "manifest.json").read_text())["kernels"]}
    assert exported == {call["gpu_kernel"] for call in calls if call["device"] == "gpu"}
    verified = autotune("verify", out)
    assert verified.returncode == 0, verified.stderr + verified.stdout
    out = tmp_path / "cpu"
    done = autotune("export", file, "--format", "c", *stand_in[:-1], out)
    assert done.returncode == 0, done.stderr
    assert "export them with --format opencl" in done.stderr
    exported = {one["name"] for one in json.loads((out / "manifest.json").read_text())["kernels"]}
    assert exported == {call["kernel"] for call in calls if call["device"] == "cpu"}
    refused = autotune("export", without_gpu(file), "--format", "opencl", *stand_in)
    assert (refused.returncode, "all calls on the CPU" in refused.stderr) == (2, True), (
        refused.stderr
    )


def test_a_plan_keeps_its_times_where_the_traced_step_fails(
    searched: Path, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    """The step that tells of data movement comes last, and needs a queue that tells times."""
    file = with_gpu(searched, runs, tmp_path)
    done = autotune(
        "step", "--plan", file, "--least-seconds", "0.2", "--json",
        AUTOTUNE_OPENCL_LIBRARY=str(driver(tmp_path)), NO_TIMES="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert reported["measured"]["time_s"] > 0
    assert reported["data_movement"] is None
    assert "what tensors take to the GPU and back is not known" in done.stderr
    assert "clCreateCommandQueue" in done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--emulate", "meizu-16t"), "the models of phones have no GPU"),
        (("--device", "local", "--gpu-run", "nowhere"), "/nowhere: it has no file run.json"),
    ],
)
def test_a_gpu_that_makes_no_sense_is_one_line(
    runs: tuple[Path, Path], tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    done = autotune(
        "joint", *LENET, "--run", runs[0], "--gpu-run", runs[1], *words, "--meter", "none",
        "--logs", tmp_path,
    )  # fmt: skip
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr
    assert list(tmp_path.iterdir()) == []  # No folder of a run that never began.


@pytest.mark.parametrize(
    ("batch", "run", "text"),
    [("4", None, "/nowhere: it has no file run.json"), ("3", 1, "no run knows a kernel of lenet")],
)
def test_runs_of_a_gpu_are_checked_before_kernels_are_tuned_for_them(
    runs: tuple[Path, Path], tmp_path: Path, batch: str, run: int | None, text: str
) -> None:
    on_gpu = "nowhere" if run is None else runs[run]
    done = autotune(
        "joint", "--model", "lenet", "--batch", batch, "--gpu-run", on_gpu, "--device", "local",
        "--meter", "none", "--logs", tmp_path,
    )  # fmt: skip
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_runs_for_a_processor_are_no_gpu_s(runs: tuple[Path, Path], tmp_path: Path) -> None:
    done = autotune(
        "joint", *LENET, "--run", runs[0], "--gpu-run", runs[0], "--device", "local", "--meter", "none",
        "--logs", tmp_path,
    )  # fmt: skip
    assert (done.returncode, "not an OpenCL target" in done.stderr) == (2, True), done.stderr
    assert "--format" not in done.stderr
