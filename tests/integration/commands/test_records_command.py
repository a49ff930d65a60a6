"""Records of runs: listed, merged, compared and pulled; and searches that begin with what they know."""

import gzip
import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from command import autotune, autotune_here, one_folder

from autotune.compiler.run.run_records import database_of_run
from autotune.records import read_run

SAMPLE = Path(__file__).parents[3] / "logs" / "samples" / "cpu-matmul"
MATMUL = "matmul:m=64,n=128,k=96"
LIKE_IT = "matmul:m=80,n=192,k=120"
RULE = "register_product"
MODEL = ("--role", "forward", "--emulate", "meizu-16t", "--cluster", "big")


def answered(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    done = autotune(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout)) if done.stdout else {}


def events_of(logs: Path, kind: str) -> list[dict[str, Any]]:
    events = (one_folder(logs) / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, events) if e["event"] == kind]


def trials_of(logs: Path) -> list[dict[str, Any]]:
    return events_of(logs, "trial")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one kernel on the model of a phone."""
    logs = tmp_path_factory.mktemp("first")
    answered("kernels", "--op", MATMUL, *MODEL, "--trials", "24", "--logs", logs)
    return one_folder(logs)


@pytest.fixture(scope="module")
def store(first: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has it."""
    folder = tmp_path_factory.mktemp("store") / "records"
    (pulled,) = answered("records", "pull", first.parent, "--store", folder)["databases"]
    assert (pulled["added"], pulled["trials"], pulled["tasks"]) == (24, 24, 1)
    return folder


def test_a_run_is_listed_and_shown_as_what_it_measured(first: Path, store: Path) -> None:
    result = json.loads((first / "result.json").read_text())["tasks"][0]
    for place in (first.parent, store):
        (listed,) = answered("records", "list", place)["databases"]
        (identity,) = listed["identities"]
        assert identity == {
            "device": "emulated meizu-16t",
            "kind": "model",
            "driver": "SoC model",
            "tvm": json.loads((first / "run.json").read_text())["versions"]["apache-tvm"],
            "target": "cpu aarch64-linux-gnu",
            "stand_in": True,
        }
        assert listed["sources"][0]["cores"].startswith("big")
        assert listed["sources"][0]["run"] == first.name
        shown = answered("records", "show", place)
        (kernel,) = shown["kernels"]
        assert (kernel["spec"], kernel["schedules"]) == (MATMUL, 24)
        assert kernel["best_ms"] == pytest.approx(min(one["ms"] for one in result["pool"]))
    assert autotune("records", "list", store).stdout.count("(stand-in)") == 1
    assert first.name in autotune("records", "show", store).stdout


def test_pulling_again_changes_nothing(first: Path, store: Path) -> None:
    before = {path: path.read_bytes() for path in store.iterdir()}
    (pulled,) = answered("records", "pull", first, "--store", store)["databases"]
    assert pulled["added"] == 0
    assert {path: path.read_bytes() for path in store.iterdir()} == before


def test_a_merge_keeps_what_is_there_twice_once(first: Path, store: Path, tmp_path: Path) -> None:
    done = autotune("records", "merge", first, store, "--out", tmp_path)
    assert (done.returncode, "24 duplicates removed" in done.stdout) == (0, True), done.stderr
    (path,) = tmp_path.iterdir()
    rows = answered("records", "diff", path, store)
    assert rows["same_device"]
    assert [(row["better"], row["alone"]) for row in rows["kernels"]] == [("equal", [0, 0])]
    again = autotune("records", "merge", first, "--out", tmp_path)
    assert (again.returncode, "exists" in again.stderr) == (2, True)
    assert autotune("records", "merge", first, path, "--out", tmp_path).returncode == 0


def test_a_merge_can_keep_the_fastest_alone(first: Path, tmp_path: Path) -> None:
    done = autotune("records", "merge", first, "--best", "3", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.iterdir()
    (shipped,), (whole,) = (answered("records", "show", one)["kernels"] for one in (path, first))
    assert shipped["best_ms"] == whole["best_ms"]
    assert shipped["schedules"] < whole["schedules"] == 24
    assert f"{24 - shipped['schedules']} slower ones left out" in done.stdout
    refused = autotune("records", "merge", first, "--best", "0", "--out", tmp_path / "none")
    assert (refused.returncode, "--best is 0" in refused.stderr) == (2, True)


def test_a_merge_can_leave_out_the_runs_of_a_model(tmp_path: Path) -> None:
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (path,) = (Path(__file__).parents[3] / "logs" / "samples" / "cpu-steps").glob(
        "amd-epyc-*.records.gz"
    )
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    # Of all runs, but one schedule of twenty: the whole takes long.
    schedules = [line for line in lines if "schedule" in json.loads(line)]
    dropped = set(schedules) - set(schedules[::20])
    few = b"".join(line for line in lines if line not in dropped)
    (shipped / path.name).write_bytes(gzip.compress(few))
    out = tmp_path / "out"
    common = ("records", "merge", shipped, "--out", out)
    done = autotune(*common, "--without", "googlenet", "--without", "alexnet")
    assert done.returncode == 0, done.stderr
    assert "of googlenet and alexnet left out" in done.stdout
    sources, kernels = (
        [answered("records", what, one) for one in (out, shipped)] for what in ("list", "show")
    )
    kept, all_of_them = (
        {source["workload"] for source in one["databases"][0]["sources"]} for one in sources
    )
    assert kept == all_of_them - {"googlenet", "alexnet"} != set()
    assert 0 < len(kernels[0]["kernels"]) < len(kernels[1]["kernels"])


def test_a_merge_leaves_something(first: Path, tmp_path: Path) -> None:
    common = ("records", "merge", first, "--out", tmp_path)
    for workload, text in (("lenet", "no run is of it"), ("matmul", "nothing is left")):
        done = autotune(*common, "--without", workload)
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_stand_ins_and_real_devices_are_mixed_only_where_the_user_says_so(
    first: Path, tmp_path: Path
) -> None:
    done = autotune("records", "merge", first, SAMPLE, "--out", tmp_path / "out")
    assert (done.returncode, "stand-in and of a real device" in done.stderr) == (2, True)
    assert not (tmp_path / "out").exists()
    (mixed,) = answered(*("records", "merge", first, SAMPLE, "--out", tmp_path / "out", "--mixed"))[
        "databases"
    ]
    assert [one["stand_in"] for one in mixed["identities"]] == [False, True]
    assert {one["run"] for one in mixed["sources"]} == {first.name, SAMPLE.name}
    rows = answered("records", "diff", mixed["path"], first)
    assert not rows["same_device"]
    # Those of the sample are in one of the two only: neither is better.
    assert [row["better"] for row in rows["kernels"]].count(None) == 2
    # A store takes such a database apart again.
    parts = answered("records", "pull", tmp_path / "out", "--store", tmp_path / "store")
    assert [len(one["identities"]) for one in parts["databases"]] == [1, 1]


def test_clusters_of_one_phone_are_told_apart(tmp_path: Path) -> None:
    runs = []
    for name in ("big", "little"):
        logs = tmp_path / name
        done = autotune(
            "kernels", "--op", MATMUL, *MODEL, "--cluster", name, "--trials", "4", "--logs", logs
        )
        assert done.returncode == 0, done.stderr
        runs.append(one_folder(logs))
    shown = autotune("records", "diff", *runs)
    assert "no kernel is in both: neither is better" in shown.stdout
    assert " A " not in shown.stdout.splitlines()[2]
    assert "of 0" not in shown.stdout
    assert "only common ones are compared" in shown.stdout
    best = [answered("records", "show", run)["kernels"][0] for run in runs]
    assert best[0]["best_ms"] < best[1]["best_ms"]
    (joined,) = answered("records", "merge", *runs, "--out", tmp_path / "both")["databases"]
    together = answered("records", "show", joined["path"])
    assert sorted(together["kernels"], key=lambda row: row["cores"]) == sorted(
        best, key=lambda row: row["cores"]
    )
    assert len({step["cores"] for step in together["steps"]}) == 2


@pytest.mark.quick
def test_a_known_kernel_is_not_searched_from_nothing(store: Path, tmp_path: Path) -> None:
    (kernel,) = answered("records", "show", store)["kernels"]
    common = ("kernels", "--op", MATMUL, *MODEL, "--logs", tmp_path, "--records", store)
    result = answered(*common, "--trials", "6", "--seed", "7")
    assert (result["records"]["equal"], result["records"]["similar"]) == (1, 0)
    tried = [event["digest"] for event in trials_of(tmp_path)]
    assert tried[0] == kernel["digest"]
    assert len(set(tried)) == 6
    # What is new is new: besides the best few, nothing that the records know is tried again.
    rows = answered("records", "diff", store, one_folder(tmp_path))["kernels"]
    assert rows[0]["alone"][1] >= 4
    run = one_folder(tmp_path)
    text = autotune("kernels", "--resume", run, "--trials", "10").stdout
    tried = [event["digest"] for event in trials_of(tmp_path)]
    assert len(set(tried)) == len(tried) == 10
    assert "records: 1 kernel known, 0 begun with similar ones, 0 new" in text


@pytest.mark.parametrize("command", ["pull", "merge"])
def test_the_command_that_is_told_knows_every_kernel(command: str, tmp_path: Path) -> None:
    step = ("--model", "lenet", "--batch", "2", "--classes", "7", "--optimizer", "momentum")
    run = ("--emulate", "meizu-16t", "--cluster", "big", "--trials", "24")
    answered("kernels", *step, *run, "--logs", tmp_path / "logs")
    to = "--store" if command == "pull" else "--out"
    reported = autotune("records", command, tmp_path / "logs", to, tmp_path / "records").stderr
    line = reported.splitlines()[-1]
    assert line.startswith(f"next: autotune kernels {' '.join(step)}")
    again = autotune(*shlex.split(line)[2:], "--trials", "4", "--logs", tmp_path / "again")
    (known,) = re.findall(r"(\d+) of \d+ kernels are known", again.stderr)
    (listed,) = answered("records", "list", tmp_path / "records")["databases"]
    assert int(known) == listed["tasks"] > 0


_END = "EnterPostproc"
"""Ends what MetaSchedule decides in a trace."""


def _names(trace: Any) -> list[str]:
    return [instruction[0] for instruction in trace[0]]


def test_a_similar_kernel_begins_with_schedules_that_were_made_to_fit(
    store: Path, first: Path, tmp_path: Path
) -> None:
    done = autotune(
        "kernels", "--op", LIKE_IT, *MODEL, "--logs", tmp_path, "--records", store,
        "--trials", "4", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "0 of 1 kernels are known, 1 are like known ones" in done.stderr
    result = json.loads(done.stdout)
    assert result["records"]["similar"] == 1
    # Schedules of the project's own rules may be among the best, and are made to fit in another way.
    event = next(e for e in trials_of(tmp_path) if _END in _names(e["trace"]))
    source = json.loads((first / "result.json").read_text())["tasks"][0]
    known = {e["digest"]: e["trace"] for e in trials_of(first.parent)}
    best = [known[one["digest"]] for one in source["pool"] if one["digest"] in known]

    def steps(trace: Any) -> list[str]:
        names = _names(trace)
        return names[: names.index(_END)]

    assert steps(event["trace"]) in [steps(trace) for trace in best if _END in _names(trace)]
    products = sorted(math.prod(value) for _, value in event["trace"][1] if isinstance(value, list))
    assert products == [80, 120, 192]
    # 4 trials with records are better than the untuned default by as much as 24 without were, or nearly so.
    (task,) = result["tasks"]
    assert task["default_ms"] / task["tuned_ms"] > 0.7 * source["speedup"]


def test_what_was_made_to_fit_computes_the_right_result(tmp_path: Path) -> None:
    spec = "conv2d:n=2,c=8,h={0},w={0},k={1},r=3,s=3,stride=1,pad=1,channels_last=1"
    common = ("kernels", "--target", "cpu", "--role", "weight_grad")
    answered(*common, "--op", spec.format(14, 32), "--trials", "24", "--logs", tmp_path / "first")
    result = answered(
        *common, "--op", spec.format(16, 12), "--trials", "2", "--logs", tmp_path / "second",
        "--records", tmp_path / "first",
    )  # fmt: skip
    assert (result["records"]["similar"], result["stand_in"]) == (1, False)
    outcomes = [(e["status"], e["max_rel_error"]) for e in trials_of(tmp_path / "second")]
    assert len(outcomes) == 2
    assert all(status == "ok" and error < 1e-4 for status, error in outcomes), outcomes


def test_a_schedule_whose_program_is_another_now_is_not_taken_for_known(
    store: Path, tmp_path: Path
) -> None:
    (path,) = store.glob("*.records.gz")
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    for line in lines:
        if "schedule" in line:
            line["schedule"]["digest"] = line["schedule"]["digest"][::-1]
    changed = tmp_path / path.name
    changed.write_bytes(gzip.compress("".join(json.dumps(one) + "\n" for one in lines).encode()))
    (kernel,) = answered("records", "show", store)["kernels"]
    common = ("kernels", "--op", MATMUL, *MODEL, "--trials", "2", "--seed", "9")
    done = autotune("-v", *common, "--records", changed, "--logs", tmp_path / "logs")
    assert done.returncode == 0, done.stderr
    assert "a known schedule does not fit any more" in done.stderr
    # One of 24 that are known is not what a search from nothing would begin with.
    assert kernel["digest"] not in [event["digest"] for event in trials_of(tmp_path / "logs")]


def test_records_of_another_device_are_left_out(store: Path, tmp_path: Path) -> None:
    done = autotune(
        "kernels", "--op", MATMUL, "--role", "forward", "--emulate", "three-cluster",
        "--trials", "2", "--records", store, "--logs", tmp_path, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "left out: 1 run of other devices" in done.stderr
    records = json.loads(done.stdout)["records"]
    assert (records["unknown"], records["equal"], records["similar"]) == (1, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["records", "list", "{0}/nothing"], "no records at"),
        (["records", "show", "{0}"], "no records at"),
        (["records", "diff", "{0}/nothing", "{0}"], "no records at"),
        (["records", "pull", "{0}/nothing"], "no records at"),
        (["records", "merge", "{1}", "--out", "{0}/file"], "is not a folder"),
        (["records", "pull", "{1}", "--store", "{0}/file"], "cannot be a store"),
        (["kernels", "--op", MATMUL, "--records", "{0}/nothing"], "no records at"),
        (["kernels", "--resume", "{1}", "--records", "{0}"], "--resume continues the run"),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path: Path, arguments: list[str], text: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    words = [word.format(tmp_path, SAMPLE) for word in arguments]
    done = autotune_here(*words)
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_damaged_database_is_told_and_never_half_read(store: Path, tmp_path: Path) -> None:
    (path,) = store.glob("*.records.gz")
    damaged = tmp_path / path.name
    damaged.write_bytes(path.read_bytes()[:-100])
    done = autotune("records", "pull", damaged, "--store", tmp_path / "store")
    assert (done.returncode, "is damaged" in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("command", ["list", "show", "merge", "diff", "pull"])
def test_help_has_an_example(command: str) -> None:
    done = autotune("records", command, "--help")
    assert f"autotune records {command} " in done.stdout or command == "list"
    assert "Example" in done.stdout


def test_tiles_are_learnt_from_other_kernels_that_the_same_rule_cuts(tmp_path: Path) -> None:
    """A product in another role is no similar kernel, but its tiles tell of this one's."""
    model = ("--emulate", "meizu-16t", "--cluster", "big", "--op", MATMUL)
    weights = ("kernels", *model, "--role", "weight_grad", "--trials", "24")
    answered(*weights, "--logs", tmp_path / "weights")
    reported = answered(
        *("kernels", *model, "--role", "data_grad", "--trials", "8", "--logs", tmp_path / "data"),
        *("--records", tmp_path / "weights"),
    )
    assert reported["records"]["unknown"] == 1
    tried = trials_of(tmp_path / "weights")
    valid = [one for one in tried if (one["formulation"], one["status"]) == (RULE, "ok")]
    (taught,) = events_of(tmp_path / "data", "taught")
    assert (taught["rule"], taught["schedules"]) == (RULE, len(valid))
    # A known kernel's own schedules are no lessons: they breed.
    answered(*weights, "--logs", tmp_path / "again", "--records", tmp_path / "weights")
    assert not events_of(tmp_path / "again", "taught")


def test_records_of_a_rule_that_a_space_has_not_are_no_use_and_no_harm(tmp_path: Path) -> None:
    shipped = (SAMPLE.parents[2] / "search_spaces" / "arm_cpu.toml").read_text()
    parts = re.split(r"(?=^\[\[rules\]\])", shipped, flags=re.MULTILINE)
    without = [part for part in parts if f'kind = "{RULE}"' not in part]
    assert len(without) == len(parts) - 1
    space = tmp_path / "without.toml"
    space.write_text("".join(without))
    model = ("--emulate", "meizu-16t", "--cluster", "big", "--role", "weight_grad", "--trials", "8")
    answered("kernels", *model, "--op", MATMUL, "--logs", tmp_path / "first")
    tried = trials_of(tmp_path / "first")
    assert RULE in {one["formulation"] for one in tried}
    reported = answered(
        *("kernels", *model, "--op", LIKE_IT, "--space", space, "--logs", tmp_path / "second"),
        *("--records", tmp_path / "first"),
    )
    assert reported["records"]["similar"] == 1
    assert RULE not in {one["formulation"] for one in trials_of(tmp_path / "second")}
    # A kernel that another rule cuts asks for lessons, of which there are none.
    reported = answered(
        *("kernels", *model, "--op", "bias:n=2,c=16,s=20,relu=1,channels_last=1", "--space", space),
        *("--logs", tmp_path / "third", "--records", tmp_path / "first"),
    )
    assert reported["records"]["unknown"] == 1
    assert "row_sums" in {one["formulation"] for one in trials_of(tmp_path / "third")}
    assert not events_of(tmp_path / "third", "taught")


def test_times_of_the_untuned_default_and_of_schedules_are_of_one_moment() -> None:
    """Both from the final benchmark: the default once kept its time from before the search."""
    run = read_run(SAMPLE)
    settled = {task.name: task.default_ms for task in run.kernel_result().tasks}
    early = {e["task"]: e["samples_s"] for e in run.events if e["event"] == "default"}
    (source,) = database_of_run(run).sources.values()
    for name, task in source.tasks.items():
        assert task.default_s == pytest.approx(settled[name] / 1e3)
        assert task.default_s not in early[name]
