"""Files from outside that are damaged or hostile: one line, exit code 1 or 2, whatever command reads them."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command import autotune_here

from autotune.cli.main import main

SAMPLE = Path(__file__).parents[3] / "logs" / "samples" / "cpu-matmul"
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "nan": b"NaN",
    "huge": b'{"kind": 1e400}',
    "digits": b'{"kind": ' + b"9" * 10_000 + b"}",
    "null": b"null",
    "list": b"[]",
    "text": b'"no such target"',
    "number": b"7",
    "object": b'{"a": 1}',
    "surrogate": b'{"kind": "\\ud800"}',
    "escape": b'{"kind": "\\u001b[2J", "schema_version": "\\u001b[2J"}',
    "bytes": bytes(range(256)),
    "utf-16": '{"kind": "llvm"}'.encode("utf-16"),
    "toml": b"a = [" + b"[" * 5_000,
}
KERNEL = ("kernels", "--op", "matmul:m=8,n=8,k=8", "--trials", 1)


def readers(file: Path, logs: Path) -> dict[str, tuple[object, ...]]:
    """Commands that read a file, by what they take it for."""
    device = ("--emulate", "meizu-16t", "--model", "lenet", "--objective", "time")
    return {
        "target": (*KERNEL, "--logs", logs, "--target-json", file),
        "space": (*KERNEL, "--logs", logs, "--space", file),
        "records": (*KERNEL, "--logs", logs, "--records", file),
        "from": (*KERNEL, "--logs", logs, "--from", file),
        "database": ("records", "show", file),
        "plan": ("step", "--plan", file),
        "ranges": ("cpu-config", *device, "--logs", logs, "--space", file),
        "table": ("replay", file),
        "data": ("step", "--model", "lenet", "--batch", 2, "--data", file),
    }


def refused(*arguments: object) -> None:
    done = autotune_here(*arguments)
    assert done.returncode in (1, 2), (done.returncode, done.stdout, done.stderr)
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("autotune: error: "))
    assert said.isprintable()
    assert "Traceback" not in done.stderr
    assert "bug:" not in done.stderr


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("reader", readers(Path(), Path()))
def test_a_file_that_is_none_is_one_line(tmp_path: Path, reader: str, content: str) -> None:
    names = {
        "records": "a.records.gz",
        "from": "a.records.gz",
        "plan": "plan.json",
        "data": "a.npz",
    }
    file = tmp_path / names.get(reader, "file")
    file.write_bytes(CONTENTS[content])
    refused(*readers(file, tmp_path / "logs")[reader])
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("reader", readers(Path(), Path()))
def test_a_device_or_a_pipe_is_not_waited_for(tmp_path: Path, reader: str) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for file in (Path("/dev/zero"), pipe):
        refused(*readers(file, tmp_path / "logs")[reader])


def _value(name: str, value: object) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        file = run / name
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        chosen = next(one for one in lines if one["event"] == "trial" and one["status"] == "ok")
        chosen["samples_s"] = value
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    return change


def _task(kind: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        file = run / "events.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        next(one for one in lines if one["event"] == kind)["task"] = "x"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    return change


@pytest.mark.parametrize("kind", ["trial", "default", "round", "final"])
@pytest.mark.parametrize("command", ["show", "diff", "pull", "resume", "from"])
def test_an_event_of_a_kernel_that_the_run_does_not_have_is_one_line(
    tmp_path: Path, command: str, kind: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(SAMPLE, run)
    _task(kind)(run)
    commands: dict[str, tuple[object, ...]] = {
        "show": ("records", "show", run),
        "diff": ("records", "diff", run, SAMPLE),
        "pull": ("records", "pull", run, "--store", tmp_path / "store"),
        "resume": ("kernels", "--resume", run),
        "from": (*KERNEL, "--logs", tmp_path / "logs", "--from", run),
    }
    assert main([str(word) for word in commands[command]]) == 1


def _content(name: str, content: str) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes(CONTENTS[content]) and None


BROKEN: dict[str, Callable[[Path], None]] = {
    **{
        f"{name} {content}": _content(name, content)
        for name in ("run.json", "result.json")
        for content in ("empty", "deep", "huge", "list", "object", "text", "bytes")
    },
    "events deep": lambda run: (run / "events.jsonl").write_text("[" * 10_000 + "\n") and None,
    "negative seconds": _value("events.jsonl", [-1.0]),
    "no seconds": _value("events.jsonl", []),
    "zero seconds": _value("events.jsonl", [0.0]),
    "text for seconds": _value("events.jsonl", ["1"]),
    "huge seconds": _value("events.jsonl", [1e99]),
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("command", ["report", "breakdown", "compare", "export", "pull", "from"])
def test_a_run_that_is_damaged_is_one_line(tmp_path: Path, command: str, broken: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(SAMPLE, run)
    BROKEN[broken](run)
    commands: dict[str, tuple[object, ...]] = {
        "report": ("report", run, "--out", tmp_path / "page.html"),
        "breakdown": ("breakdown", run),
        "compare": ("compare", run, SAMPLE),
        "export": ("export", run, "--format", "c", "--name", "a", "--out", tmp_path / "export"),
        "pull": ("records", "pull", run, "--store", tmp_path / "store"),
        "from": (*KERNEL, "--logs", tmp_path / "logs", "--from", run),
    }
    refused(*commands[command])


@pytest.mark.parametrize(
    "own", [5, True, ["a"], "a\0.py:f", "a\0:f", "..:f", ":f", "x" * 5000 + ".py:f"]
)
@pytest.mark.parametrize("command", ["trust", "kernels --resume", "export", "records show"])
def test_the_code_that_a_run_names_is_one_line(tmp_path: Path, command: str, own: object) -> None:
    run = tmp_path / "run"
    shutil.copytree(SAMPLE, run)
    about = json.loads((run / "run.json").read_text())
    about["request"]["own"] = own
    (run / "run.json").write_text(json.dumps(about))
    done = autotune_here(
        *command.split(), run, *(("--out", tmp_path / "out") if command == "export" else ())
    )
    assert "bug:" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 2) or command in ("trust", "records show")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logs = tmp_path_factory.mktemp("searched")
    done = autotune_here(
        "cpu-config", "--emulate", "meizu-16t", "--model", "lenet", "--trials", 3, "--logs", logs
    )
    assert done.returncode == 0, done.stderr
    (run,) = logs.iterdir()
    assert autotune_here("replay", run).returncode == 0
    return run


@pytest.mark.parametrize("value", ["", "x", "../../..", -1, [], {}, 1.5, "1800000"], ids=repr)
@pytest.mark.parametrize("field", ["khz", "cores", "threads", "time_s"])
@pytest.mark.parametrize("command", [("replay",), ("report", "--csv")], ids=" ".join)
def test_a_damaged_trial_of_a_search_is_one_line(
    tmp_path: Path, searched: Path, command: tuple[str, ...], field: str, value: object
) -> None:
    if field == "time_s" and value == 1.5:
        return
    run = tmp_path / "run"
    shutil.copytree(searched, run)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    trial = next(one for one in events if one["event"] == "trial")
    if field in ("khz", "cores"):
        next(iter(trial["configuration"]["clusters"].values()))[field] = value
    elif field == "threads":
        trial["configuration"]["threads"] = value
    else:
        trial["figures"]["time_s"] = value
    (run / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    name, *options = command
    refused(name, run, *options)
