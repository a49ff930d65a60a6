"""Kernels tuned for a cluster's cores: by a model, on this host, and behind a tracker; and the pools they leave."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from command import autotune, autotune_here, one_folder
from fleets import free_port
from small_phone import needs_phone, private_adb
from test_phone_end_to_end import phone

from autotune.workloads.schedule_traits import ScheduleTraits

MATMUL = "matmul:m=64,n=128,k=96"


def kernels(*arguments: str, code: int = 0, **environment: str) -> dict[str, Any]:
    done = autotune("kernels", *arguments, "--json", **environment)
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout)) if done.stdout else {}


def test_a_model_tells_the_times_of_a_cluster_and_says_so(tmp_path: Path) -> None:
    found = {
        cluster: kernels(
            "--op", MATMUL, "--role", "forward", "--emulate", "meizu-16t", "--cluster", cluster,
            "--trials", "16", "--logs", str(tmp_path / cluster),
        )
        for cluster in ("little", "big")
    }  # fmt: skip
    tuned = {}
    for cluster, result in found.items():
        assert result["stand_in"]
        assert result["device"]["kind"] == "model"
        assert result["device"]["details"]["cluster"] == cluster
        (task,) = result["tasks"]
        assert task["max_rel_error"] is None
        tuned[cluster] = task["tuned_ms"]
        pool = task["pool"]
        assert 4 <= len(pool) <= 8
        assert [one["ms"] for one in pool] == sorted(one["ms"] for one in pool)
        assert "default" in [one["digest"] for one in pool]
        assert len({one["digest"] for one in pool}) == len(pool)
        for one in pool:
            traits = ScheduleTraits.from_json(one["traits"])
            assert sum(nest.flops for nest in traits.nests) >= 2 * 64 * 128 * 96
    assert tuned["little"] > 2 * tuned["big"]
    run = one_folder(tmp_path / "big")
    assert "-arm-cpu-big-" in run.name
    done = autotune("kernels", "--resume", str(run), "--trials", "24", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == 24
    text = autotune("kernels", "--resume", str(run)).stdout
    assert "emulated meizu-16t predicted the times, and no kernel ran" in text
    refused = autotune("export", str(run), "--out", str(tmp_path / "out"))
    assert (refused.returncode, "stand-in" in refused.stderr) == (2, True)


def test_a_model_tells_a_candidate_the_same_times_again(tmp_path: Path) -> None:
    first, again = (
        kernels(
            "--op", MATMUL, "--role", "forward", "--emulate", "three-cluster", "--cluster", "prime",
            "--trials", "4", "--seed", "3", "--logs", str(tmp_path / str(turn)),
        )["tasks"][0]
        for turn in range(2)
    )  # fmt: skip
    assert first["default_ms"] == again["default_ms"]


def test_this_hosts_cores_are_a_cluster(tmp_path: Path) -> None:
    found = kernels(
        "--op", MATMUL, "--role", "forward", "--cluster", "hybrid", "--trials", "6",
        "--logs", str(tmp_path),
    )  # fmt: skip
    assert not found["stand_in"]
    assert found["device"]["details"]["threads"] == len(os.sched_getaffinity(0))
    (task,) = found["tasks"]
    assert task["max_rel_error"] < 1e-4
    assert all(one["traits"] for one in task["pool"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cluster", "nope"], "there is no cluster 'nope'"),
        (["--cluster", "nope", "--emulate", "three-cluster"], "little, big, prime, hybrid"),
        (["--emulate", "nothing"], "no emulated 'nothing'"),
        (["--emulate", "meizu-16t", "--target", "adreno"], "--emulate goes with a processor"),
        (["--emulate", "meizu-16t", "--target", "cpu"], "give --target arm-cpu"),
        (["--cluster", "big", "--target", "mali"], "--cluster goes with a processor"),
        (["--cluster", "big", "--target", "arm-cpu"], "has no clusters on this host"),
        (
            ["--emulate", "meizu-16t", "--tracker", "127.0.0.1:9", "--key", "k"],
            "exclude each other",
        ),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path: Path, arguments: list[str], text: str) -> None:
    done = autotune_here("kernels", "--op", MATMUL, *arguments, "--logs", str(tmp_path))
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr
    assert not list(tmp_path.iterdir())


@needs_phone
def test_a_phones_cluster_is_served_under_a_key_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    home = {"XDG_STATE_HOME": str(tmp_path / "state")}
    port = str(free_port())
    with private_adb(tmp_path / "home"), phone("meizu-16t") as (serial, _):
        up = autotune("tracker", "up", "--device", serial, "--port", port, "--per-cluster", **home)
        assert up.returncode == 0, up.stderr + up.stdout
        try:
            fleet = ("--tracker", f"127.0.0.1:{port}", "--key", "sm8150", "--target", "arm-cpu")
            common = ("--op", MATMUL, "--role", "forward", "--trials", "4", "--logs", str(tmp_path))
            found = kernels(*common, *fleet, "--cluster", "big", **home)
            assert found["device"]["name"] == "sm8150-big"
            assert found["tasks"][0]["max_rel_error"] < 1e-4
            (run,) = tmp_path.glob("*-arm-cpu-big-*")
            asked = json.loads((run / "run.json").read_text())["request"]
            assert asked["cores"] == {"cluster": "big", "cpus": [4, 5, 6, 7], "emulated": ""}
            assert asked["target"]["tvm"]["num-cores"] == 4
            done = autotune("kernels", *common, *fleet, "--cluster", "prime", **home)
            assert (done.returncode, "sm8150-prime" in done.stderr) == (3, True), done.stderr
        finally:
            autotune("tracker", "down", **home)


def trials_of(run: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == "trial"]


def test_a_run_tries_first_what_an_earlier_one_found_best(tmp_path: Path) -> None:
    common = ("--op", MATMUL, "--role", "forward", "--emulate", "meizu-16t")
    kernels(*common, "--cluster", "big", "--trials", "16", "--logs", str(tmp_path / "first"))
    first = one_folder(tmp_path / "first")
    pool = [
        one["digest"]
        for one in json.loads((first / "result.json").read_text())["tasks"][0]["pool"]
        if one["digest"] != "default"
    ]
    kernels(
        *common, "--cluster", "little", "--trials", str(len(pool) + 2), "--from", str(first),
        "--logs", str(tmp_path / "second"),
    )  # fmt: skip
    second = one_folder(tmp_path / "second")
    tried = [event["digest"] for event in trials_of(second)]
    assert sorted(tried[: len(pool)]) == sorted(pool)
    assert len(set(tried)) == len(pool) + 2
    # A run that goes on knows them, too, and tries none twice.
    more = autotune("kernels", "--resume", str(second), "--trials", str(len(pool) + 6), "--json")
    assert more.returncode == 0, more.stderr
    tried = [event["digest"] for event in trials_of(second)]
    assert len(set(tried)) == len(tried) == len(pool) + 6


def test_a_run_tries_first_what_records_of_another_device_know(tmp_path: Path) -> None:
    common = ("--op", MATMUL, "--role", "forward")
    kernels(*common, "--emulate", "meizu-16t", "--trials", "16", "--logs", str(tmp_path / "first"))
    first = one_folder(tmp_path / "first")
    made = autotune("records", "merge", str(first), "--out", str(tmp_path / "shipped"))
    assert made.returncode == 0, made.stderr
    (file,) = (tmp_path / "shipped").iterdir()
    times = {
        event["digest"]: sorted(event["samples_s"])[len(event["samples_s"]) // 2]
        for event in trials_of(first)
        if event["status"] == "ok"
    }
    best = min(times, key=lambda digest: times[digest])
    kernels(
        *common, "--emulate", "three-cluster", "--trials", "10", "--from", str(file),
        "--logs", str(tmp_path / "second"),
    )  # fmt: skip
    tried = [event["digest"] for event in trials_of(one_folder(tmp_path / "second"))]
    assert len([digest for digest in tried[:8] if digest in times]) == 8
    assert best in tried[:8]
    assert len(set(tried)) == 10


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--target", "adreno"], "whose schedules are none for adreno"),
        (["--target", "cpu"], "whose schedules are none for cpu"),
    ],
)
def test_schedules_of_another_kind_of_processor_are_refused(
    tmp_path: Path, arguments: list[str], text: str
) -> None:
    common = ("--op", "matmul:m=8,n=8,k=8", "--role", "forward", "--trials", "1")
    kernels(*common, "--emulate", "meizu-16t", "--logs", str(tmp_path / "first"))
    first = one_folder(tmp_path / "first")
    done = autotune(
        "kernels", *common, *arguments, "--from", str(first), "--logs", str(tmp_path / "second")
    )
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "second").exists()
    autotune("records", "merge", str(first), "--out", str(tmp_path / "shipped"))
    done = autotune(
        "kernels", *common, *arguments, "--from", str(tmp_path / "shipped"), "--logs", str(tmp_path / "second")
    )  # fmt: skip
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "second").exists()
