"""Each command ends with the next command to type: the last line, and one that the command line takes."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli.main import app, main

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "logs" / "samples" / "cpu-matmul"
TABLE = ROOT / "tests" / "data" / "meizu16t_alexnet_b16.csv"
RUN = "logs/20260103T000000Z-cpu-matmul"
TUNE = "--op matmul:m=8,n=24,k=40 --role forward,data_grad,weight_grad --records"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("20260101T000000Z-cpu-matmul", "20260103T000000Z-cpu-matmul"):
        shutil.copytree(SAMPLE, tmp_path / "logs" / name)
    return tmp_path


CSV = (
    "export latest --csv x.csv", "export latest --format c --csv x.csv", f"export {RUN} --csv x.csv",
)  # fmt: skip


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("runs", "report latest"),
        ("runs logs/../logs", "report logs/../logs/latest"),
        ("models --batch 2", "kernels --model lenet --batch 2 --classes 10"),
        ("targets", "kernels --target cpu --model lenet"),
        ("devices", "devices show local"),
        ("devices show local", "kernels --model lenet"),
        ("devices restore", "devices"),
        ("breakdown latest", f"report {RUN}"),
        ("records list latest", f"records show {RUN}"),
        ("records show latest", f"kernels {TUNE} {RUN}"),
        (f"records diff latest {RUN}", f"records show {RUN}"),
        (f"compare latest {RUN}", f"compare {RUN} {RUN} --html compare.html"),
        ("trust latest", f"report {RUN}"),
        *((command, f"report {RUN}") for command in CSV),
        (
            f"replay {TABLE} --objective energy --deadline 30s",
            "cpu-config --objective energy --emulate meizu-16t --model lenet",
        ),
    ],
)
def test_a_command_ends_with_the_next_one(
    command: str, expected: str, more: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*shlex.split(command), *more]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"next: autotune {expected}"
    # The command line takes it.
    words = shlex.split(expected)
    assert not main([*(words[:2] if words[0] in ("devices", "records") else words[:1]), "--help"])
    assert main(["-q", *shlex.split(command), *more]) == 0
    assert "next:" not in capsys.readouterr().err


def test_other_outputs_end_with_the_next_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("export latest --csv x.csv", "report latest --csv x.csv"):
        assert main(shlex.split(command)) == 0
        assert capsys.readouterr().err.splitlines()[-1] == f"next: autotune report {RUN}"
    assert main(shlex.split(f"compare latest {RUN} --html both.html")) == 0
    assert "next: python -m webbrowser" in capsys.readouterr().err.splitlines()[-1]
    assert main(["devices", "emulate", "--list"]) == 0
    assert "next: autotune devices emulate " in capsys.readouterr().err.splitlines()[-1]


def test_without_a_run_that_has_ended_a_run_is_made_next(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest, other = sorted((folder / "logs").iterdir(), reverse=True)
    (newest / "result.json").unlink()
    assert main(["runs"]) == 0
    assert capsys.readouterr().err == f"next: autotune report logs/{other.name}\n"
    (other / "result.json").unlink()
    assert main(["runs"]) == 0
    assert capsys.readouterr().err == "next: autotune kernels --model lenet\n"
    assert main(["runs", "--logs", "state"]) == 2


def test_it_comes_last_where_both_streams_go_to_one_file(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "autotune", "runs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "next: autotune report latest"


def test_every_command_that_ends_writes_one() -> None:
    """Except for the script of a shell, which is read by the shell."""
    groups = [app, *(one.typer_instance for one in app.registered_groups if one.typer_instance)]
    callbacks = [one.callback for group in groups for one in group.registered_commands]
    assert len(callbacks) > 25
    for callback in filter(None, callbacks):
        name = callback.__module__
        assert name.endswith(".completion") or _writes_next(name), name


def _writes_next(module: str) -> bool:
    text = Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8")
    return any(word in text for word in ("write_next", "say_next", "carry_out"))


@pytest.mark.parametrize("command", CSV)
def test_json_names_the_table_that_was_written(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["csv"], found["run_folder"]) == ("x.csv", RUN)
    assert (folder / found["csv"]).is_file()


def test_json_stays_alone_on_stdout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 2
