"""Records that carry code: refused by every command that reads them, before anything of them is compiled or run."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import autotune_here

SAMPLE = Path(__file__).parents[3] / "logs" / "samples" / "cpu-matmul"
MATMUL = "matmul:m=8,n=24,k=40"

IR = """
%entry = type {{ i32, ptr, ptr }}
@llvm.global_ctors = appending global [1 x %entry] [%entry {{ i32 1, ptr @attack, ptr null }}]
@name = private constant [{size} x i8] c"{name}\\00"
declare i32 @creat(ptr, i32)
define void @attack() {{
  %opened = call i32 @creat(ptr @name, i32 420)
  ret void
}}
"""
C = 'void attack(void) __attribute__((constructor)); void attack(void) {{ creat("{name}", 420); }}'


def annotated(key: str, code: str) -> Callable[[Any], Any]:
    """A change of a trace: one annotation more, on its first block."""

    def change(trace: Any) -> Any:
        instructions, decisions = trace
        place = next(n for n, one in enumerate(instructions) if one[0] == "GetSBlock") + 1
        annotate = ["Annotate", [instructions[place - 1][3][0], json.dumps(code)], [key], []]
        return [
            [*instructions[:place], annotate, *instructions[place:]],
            [[at + (at >= place), decision] for at, decision in decisions],
        ]

    return change


@pytest.fixture(params=["pragma_import_llvm", "pragma_import_c"])
def attack(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, Path]:
    """The annotation's key, a run that has it in every schedule, and the file that its code would make."""
    mark = tmp_path / "attacked"
    name = str(mark)
    code = IR if request.param == "pragma_import_llvm" else C
    change = annotated(request.param, code.format(name=name, size=len(name) + 1))
    run = tmp_path / "run"
    shutil.copytree(SAMPLE, run)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    for event in events:
        if event["event"] == "trial":
            event["trace"] = change(event["trace"])
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return request.param, run, mark


def refused(key: str, *arguments: object) -> None:
    done = autotune_here(*arguments)
    assert done.returncode == 1, done.stderr
    assert f"autotune never makes the annotation '{key}'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["--from", "--records", "--resume", "export", "pull", "report"])
def test_a_run_that_carries_code_is_refused(
    attack: tuple[str, Path, Path], command: str, tmp_path: Path
) -> None:
    key, run, mark = attack
    tune = ("kernels", "--op", MATMUL, "--trials", 2, "--logs", tmp_path / "logs")
    arguments: dict[str, tuple[object, ...]] = {
        "--from": (*tune, "--from", run),
        "--records": (*tune, "--records", run),
        "--resume": ("kernels", "--resume", run),
        "export": ("export", run, "--format", "c", "--name", "a", "--out", tmp_path / "export"),
        "pull": ("records", "pull", run, "--store", tmp_path / "store"),
        "report": ("report", run),
    }
    refused(key, *arguments[command])
    assert not mark.exists()


@pytest.mark.parametrize("command", ["--from", "--records", "show", "merge"])
def test_a_database_that_carries_code_is_refused(
    attack: tuple[str, Path, Path], command: str, tmp_path: Path
) -> None:
    key, run, mark = attack
    store = tmp_path / "store"
    assert autotune_here("records", "pull", SAMPLE, "--store", store).returncode == 0
    (records,) = store.glob("*.records.gz")
    traces = {
        event["digest"]: event["trace"]
        for event in map(json.loads, (run / "events.jsonl").read_text().splitlines())
        if event["event"] == "trial"
    }
    lines = [json.loads(line) for line in gzip.decompress(records.read_bytes()).splitlines()]
    for line in lines:
        if "schedule" in line:
            line["schedule"]["trace"] = traces[line["schedule"]["digest"]]
    records.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    tune = ("kernels", "--op", MATMUL, "--trials", 2, "--logs", tmp_path / "logs")
    arguments: dict[str, tuple[object, ...]] = {
        "--from": (*tune, "--from", records),
        "--records": (*tune, "--records", store),
        "show": ("records", "show", records),
        "merge": ("records", "merge", records, records, "--out", tmp_path / "out"),
    }
    refused(key, *arguments[command])
    assert not mark.exists()
