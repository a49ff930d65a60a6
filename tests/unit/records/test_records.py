"""Run folders: appended, locked, repaired after a kill, and clear when damaged or when the disk is full."""

import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.cli.shared.output import write_json as print_json
from autotune.errors import RecordError, UsageError
from autotune.records import (
    MOVEMENT,
    Result,
    RunFolder,
    TaskResult,
    read_run,
    step_shares,
)
from autotune.records.folder import read_json
from autotune.records.lines import LineFile, cut_torn_line, disk_error, read_lines
from autotune.records.result import StepSpeedup
from autotune.report.pages.html_page import download


def make(parent: Path) -> RunFolder:
    return RunFolder.create(parent, "cpu-test", {"request": {"kind": "cpu-config"}})


def test_events_are_readable_while_the_run_is_open(tmp_path: Path) -> None:
    with make(tmp_path) as folder:
        folder.event("trial", digest="a", status="ok")
        run = read_run(folder.path)
    assert [event["digest"] for event in run.trials()] == ["a"]
    assert run.result is None
    assert run.about["request"] == {"kind": "cpu-config"}


@pytest.mark.parametrize("version", [True, 1.0, "1", 2, None])
def test_a_run_of_another_version_is_refused(tmp_path: Path, version: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"schema_version": version}))
    with pytest.raises(RecordError, match="is not a run of schema version 1"):
        read_run(tmp_path)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_that_json_does_not_have_gets_into_no_file_and_no_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: float
) -> None:
    value = {"sequential": {"fronts": [{"gain": 1.0}, {"gain": number}]}}
    said = r"'sequential\.fronts\[1\]\.gain' is (inf|-inf|nan), and JSON has no such number"
    with make(tmp_path) as folder:
        writers: list[Callable[[], None]] = [
            lambda: folder.event("trial", **value),
            lambda: folder.result(value),
            lambda: print_json(value),
            lambda: print(download("a.json", value)),
        ]
        for write in writers:
            with pytest.raises(RecordError, match=said):
                write()
        folder.event("trial", gain=None)
    run = read_run(folder.path)
    assert [event["event"] for event in run.events] == ["trial"]
    assert run.result is None
    assert capsys.readouterr().out == ""


def test_a_result_of_an_earlier_version_with_infinity_is_read_as_unknown(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"gain": Infinity, "lost": NaN, "time_s": 1.5}')
    assert read_json(path) == {"gain": None, "lost": None, "time_s": 1.5}


def test_the_step_of_one_kernel_has_that_kernel_s_speed_up() -> None:
    alone = task_result(count=3, default_ms=41.4, tuned_ms=1.0, speedup=27.27, ci=(20.0, 30.0))
    assert step_of(alone) == StepSpeedup(pytest.approx(27.27), pytest.approx((20.0, 30.0)))


def test_the_speed_up_of_a_step_weighs_kernels_by_their_part_of_the_tuned_step() -> None:
    fast = task_result(count=1, default_ms=9.0, tuned_ms=1.0, speedup=10.0, ci=(7.0, 13.0))
    kept = task_result(count=3, default_ms=1.0, tuned_ms=1.0, speedup=1.0, ci=None)
    found = step_of(fast, kept)
    assert found == StepSpeedup(pytest.approx(13 / 4), pytest.approx((10 / 4, 16 / 4)))
    # Independent errors of four equal kernels: half of one kernel's.
    assert step_of(fast, fast, fast, fast) == StepSpeedup(
        pytest.approx(10.0), pytest.approx((8.5, 11.5))
    )
    unknown = step_of(
        fast, task_result(count=1, default_ms=2.0, tuned_ms=1.0, speedup=None, ci=None)
    )
    assert unknown == StepSpeedup(pytest.approx(6.0), None)
    assert step_of(fast, task_result(default_ms=None)) is None


def step_of(*tasks: TaskResult) -> StepSpeedup | None:
    return Result("cpu", {"name": "a device"}, False, 1, 1.0, tasks).step_speedup()


def test_two_runs_of_one_second_get_two_folders(tmp_path: Path) -> None:
    with make(tmp_path) as first, make(tmp_path) as second:
        assert first.path != second.path


def test_a_second_process_is_refused_and_the_lock_ends_with_the_run(tmp_path: Path) -> None:
    with make(tmp_path) as folder, pytest.raises(RecordError, match="in use by another process"):
        RunFolder.reopen(folder.path)
    with RunFolder.reopen(folder.path):
        pass


def test_a_line_cut_short_by_a_kill_is_left_out_and_then_removed(tmp_path: Path) -> None:
    with make(tmp_path) as folder:
        folder.event("trial", digest="a")
    events = folder.path / "events.jsonl"
    with events.open("a") as file:
        file.write('{"event":"trial","dig')
    assert len(read_run(folder.path).events) == 1
    with RunFolder.reopen(folder.path) as again:
        again.event("trial", digest="b")
    assert [event["digest"] for event in read_run(folder.path).trials()] == ["a", "b"]


@pytest.mark.parametrize("line", ["{oops", "[1]", '{"no": "event"}'])
def test_a_damaged_line_is_named_by_file_and_number(tmp_path: Path, line: str) -> None:
    with make(tmp_path) as folder:
        folder.event("trial", digest="a")
    with (folder.path / "events.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RecordError, match=r"events\.jsonl: line 2 is damaged"):
        read_run(folder.path)


def test_no_run_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run at"):
        read_run(tmp_path / "nothing")


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    with pytest.raises(UsageError, match="cannot make a run folder"):
        make(blocker)


def test_a_torn_line_is_cut_only_if_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    assert not cut_torn_line(path)
    path.write_bytes(b"1\n2")
    assert cut_torn_line(path)
    assert path.read_bytes() == b"1\n"
    assert not cut_torn_line(path)


FILL = """
import resource, sys
from pathlib import Path
from autotune.errors import RecordError
from autotune.records.lines import LineFile
file = LineFile(Path(sys.argv[1]))
file.append({"n": 0})
resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))
try:
    for n in range(1, 100):
        file.append({"n": n, "pad": "x" * 20})
except RecordError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def test_a_full_disk_ends_with_a_clear_error_and_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    (tmp_path / "run.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, "-B", "-c", FILL, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "the disk is full" in done.stdout
    assert "--resume" in done.stdout
    lines = read_lines(path)
    assert [line["n"] for line in lines] == list(range(len(lines)))
    assert path.read_bytes().endswith(b"\n")


def test_a_json_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))"
    code = f"""{limit}
import sys
from pathlib import Path
from autotune.errors import RecordError
from autotune.records.folder import write_json
try:
    write_json(Path(sys.argv[1]), "x" * 100)
except RecordError as error:
    sys.exit(str(error))
"""
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, str(tmp_path / "result.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "the disk is full" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_append_writes_whole_lines(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "x.jsonl")
    file.append({"a": [1, 2]})
    file.append("text")
    file.close()
    assert read_lines(tmp_path / "x.jsonl") == [{"a": [1, 2]}, "text"]


def test_a_run_that_a_full_disk_kept_from_beginning_is_not_promised_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("autotune.records.folder.tempfile.mkstemp", full)
    with pytest.raises(RecordError, match=r"run\.json: the disk is full") as refused:
        make(tmp_path)
    assert "--resume" not in refused.value.hint
    assert "same command again" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_during_a_run_says_how_to_go_on(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, "No space left on device")
    with make(tmp_path) as folder:
        for name in ("events.jsonl", "result.json", "raw"):
            assert f"--resume {folder.path}" in disk_error(folder.path / name, error).hint
    assert "--resume" not in disk_error(tmp_path / "page.html", error).hint


def task_result(**changes: object) -> TaskResult:
    fields: dict[str, object] = {
        "name": "matmul_forward_m1n1k1", "operator": "matmul", "role": "forward",
        "spec": "matmul:m=1,n=1,k=1", "count": 2, "default_ms": 4.0, "tuned_ms": 1.0,
        "speedup": 4.0, "ci": (3.5, 4.5), "gflops": 1.0, "trials": 3, "valid": 2,
        "failures": {"timeout": 1}, "max_rel_error": 1e-7, "formulation": "direct", "digest": "ab",
    }  # fmt: skip
    return TaskResult(**{**fields, **changes})  # type: ignore[arg-type]  # fields by name


def test_a_result_survives_its_json_form() -> None:
    result = Result("cpu", {"name": "x"}, False, 3, 1.5, (task_result(), task_result(ci=None)))
    again = Result.from_json(json.loads(json.dumps(result.to_json())))
    assert again == result


def test_the_step_is_the_sum_of_count_times_time() -> None:
    result = Result("cpu", {}, False, 3, 1.5, (task_result(), task_result(count=1, tuned_ms=0.5)))
    assert result.step_ms(tuned=False) == 12.0
    assert result.step_ms(tuned=True) == 2.5
    untimed = Result("cpu", {}, False, 3, 1.5, (task_result(tuned_ms=None),))
    assert untimed.step_ms(tuned=True) is None


def test_the_mean_speedup_is_geometric_and_only_of_the_named_operators() -> None:
    tasks = (task_result(speedup=2.0), task_result(speedup=8.0), task_result(operator="sgd"))
    result = Result("cpu", {}, False, 3, 1.5, tasks)
    assert result.geometric_mean_speedup(("matmul",)) == pytest.approx(4.0)
    assert result.geometric_mean_speedup(("conv2d",)) is None


def test_shares_of_a_step_take_data_movement_out_of_its_role() -> None:
    def task(
        role: str, operator: str, count: int, tuned: float | None, moving: float | None
    ) -> TaskResult:
        rest = (None, None, None, 0, 0, {}, None, "direct", "default", moving)
        return TaskResult("k", operator, role, "spec", count, None, tuned, *rest)

    result = Result(
        "cpu", {}, False, 0, 1.0,
        (
            task("forward", "conv2d", 2, 3.0, 1.0),
            task("forward", "concat", 1, 0.5, 0.5),
            task("data_grad", "conv2d", 1, 2.0, None),
            task("update", "sgd", 1, None, None),
        ),
    )  # fmt: skip
    shares = {(s.role, s.operator): s.ms for s in step_shares(result)}
    assert shares == {
        ("forward", "conv2d"): 4.0,
        (MOVEMENT, "conv2d"): 2.0,
        ("data_grad", "conv2d"): 2.0,
        (MOVEMENT, "concat"): 0.5,
    }


@pytest.mark.parametrize(
    "name", ["events.jsonl", "database_workload.json", "database_tuning_record.json", "run.lock", "raw", "study.db"]
)  # fmt: skip
@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_a_run_that_leads_elsewhere_is_not_gone_on_with(
    tmp_path: Path, name: str, kind: str
) -> None:
    with RunFolder.create(tmp_path, "one", {"request": {}}) as made:
        made.event("start")
    victim = tmp_path / "victim"
    if kind != "dangling":
        victim.write_text("mine")
    file = made.path / name
    file.unlink(missing_ok=True)
    os.mkfifo(file) if kind == "pipe" else file.symlink_to(victim)
    with pytest.raises(UsageError, match=f"{name} is a link, a pipe or a device"):
        RunFolder.reopen(made.path)
    assert victim.exists() == (kind != "dangling")
    if kind != "dangling":
        assert victim.read_text() == "mine"
