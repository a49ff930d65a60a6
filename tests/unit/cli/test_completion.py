"""What shells offer, near matches of names, and help in groups at the terminal's width."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
import typer.main
from interactive_shells import interactive
from typer.core import TyperGroup

from autotune.cli.main import app, main
from autotune.cli.options import completion
from autotune.cli.reference import commands
from autotune.cli.shared.help import group_of
from autotune.devices import adb
from autotune.devices.topology import CLUSTER_NAMES
from autotune.errors import choices
from autotune.jobs.device import HYBRID, check_meter
from autotune.studies.run import SAMPLERS

SAMPLE = Path(__file__).parents[3] / "logs" / "samples" / "cpu-matmul"


def offered(line: str, folder: Path, adb_port: int = 1) -> list[str]:
    """The words that a shell is told for a line that ends at the cursor."""
    environment = {
        **os.environ, "_AUTOTUNE_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args", "ANDROID_ADB_SERVER_PORT": str(adb_port),
    }  # fmt: skip
    code = (
        "import sys; from autotune.cli.main import main\n"
        "try: main()\n"
        "finally: print([x for x in ('tvm', 'torch', 'optuna') if x in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True, timeout=60
    )  # fmt: skip
    assert done.stderr.strip() == "[]"
    return [reported.partition("\t")[0] for reported in done.stdout.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(SAMPLE, tmp_path / "logs" / "20260101T000000Z-cpu-matmul")
    for name in ("my.toml", "mine/other.toml", "mine/other.txt", "records/a.records.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("autotune k", ["kernels"]),
        ("autotune cpu-config a", ["apply"]),
        ("autotune kernels --prec", ["--precision"]),
        ("autotune kernels --target a", ["arm-cpu", "adreno"]),
        ("autotune joint --model squeezenet1_1 --emulate mei", ["meizu-16t"]),
        (
            "autotune step --model lenet --run l",
            ["latest", "logs/20260101T000000Z-cpu-matmul", "logs/"],
        ),
        ("autotune records show rec", ["records/"]),
        ("autotune records show records/", ["records/a.records.gz"]),
        ("autotune kernels --op mat", ["matmul:m=,n=,k="]),
        ("autotune kernels --role f", ["forward"]),
        ("autotune kernels --role forward,w", ["forward,weight_grad"]),
        ("autotune kernels --space m", ["mine/", "my.toml"]),
        ("autotune kernels --space mine/", ["mine/other.toml"]),
        ("autotune cpu-config --space m", ["mine/", "my.toml"]),
        ("autotune joint --space p", ["phone"]),
        ("autotune cpu-config --sampler ", ["tpe", "nsga2", "random", "grid"]),
        ("autotune replay x.csv --sampler r", ["random"]),
        ("autotune replay x.csv --objective e", ["energy", "edp"]),
        ("autotune kernels --layout channels-f", ["channels-first"]),
        ("autotune kernels --target=ad", ["adreno"]),
        ("autotune kernels --target=", ["cpu", "arm-cpu", "adreno", "mali", "opencl"]),
        ("autotune kernels --optimizer mom", ["momentum"]),
        (
            "autotune kernels --optimizer adagrad:",
            [
                f"adagrad:{key}="
                for key in ("learning_rate", "epsilon", "weight_decay", "clip_value", "clip_norm")
            ],
        ),
        (
            "autotune step --optimizer momentum:momentum=0.8,l",
            ["momentum:momentum=0.8,learning_rate="],
        ),
        ("autotune kernels --cluster ", ["little", "mid", "big", "prime", "hybrid"]),
        ("autotune cpu-config --meter c", ["csv:"]),
        ("autotune profile --meter ra", ["rapl"]),
        ("autotune kernels --train l", ["last:1"]),
        ("autotune devices emulate mei", ["meizu-16t"]),
        ("autotune export --format ", ["tvm", "c", "opencl"]),
        ("autotune export latest --for an", ["android-arm64"]),
    ],
)
def test_a_shell_is_told_what_may_be_typed_next(line: str, found: list[str], folder: Path) -> None:
    assert offered(line, folder) == found


@contextmanager
def adb_server(answer: bytes) -> Iterator[int]:
    """Listens as an adb server with one answer to all, and yields its port. An empty answer never comes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with ExitStack() as kept, suppress(OSError):
                while True:
                    connection = kept.enter_context(listening.accept()[0])
                    if answer and connection.recv(100):
                        connection.sendall(answer)

        serving = Thread(target=serve)
        serving.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        serving.join()


def test_devices_that_are_ready_are_completed(folder: Path) -> None:
    (folder / "autotune.toml").write_text('[devices]\nssh = ["pi@board"]\n')
    phones = b"0A1B\tdevice\nother\toffline\n"
    with adb_server(b"OKAY%04x%s" % (len(phones), phones)) as port:
        ready = ["pi@board", "local", "0A1B"]
        for line in (
            "autotune devices show ",
            "autotune cpu-config --device ",
            "autotune cpu-config apply --device ",
            "autotune profile --device ",
            "autotune step --device ",
            "autotune tracker up --device ",
        ):
            assert offered(line, folder, port) == ready
        assert offered("autotune verify x --device ", folder, port) == ["host", "qemu", *ready]


def test_no_adb_server_is_started_or_waited_for_to_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def started() -> None:
        raise AssertionError("nobody asked for a phone")

    monkeypatch.setattr(adb, "start_server", started)
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "1")
    assert completion.devices("") == ["local"]
    with adb_server(b"") as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        began = time.monotonic()
        assert completion.devices("lo") == ["local"]
        assert time.monotonic() - began < 1.5


def test_every_device_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "1")
    top = typer.main.get_command(app)
    assert isinstance(top, TyperGroup)
    offers = {
        f"{path} {one.name}": {item.value for item in one.shell_complete(context, "")}
        for path, command in commands("autotune", top)
        for context in [typer.Context(command)]
        for one in command.params
        if one.name in ("serial", "device")
    }
    assert len(offers) > 6
    assert [name for name, offer in offers.items() if "local" not in offer] == []


def test_latest_needs_no_run_for_the_rest_to_be_completed(tmp_path: Path) -> None:
    assert offered("autotune export latest --for an", tmp_path) == ["android-arm64"]
    assert offered("autotune step --plan latest --lay", tmp_path) == ["--layout"]


def test_only_runs_with_plans_are_completed_as_plans(folder: Path) -> None:
    best = folder / "logs" / "20260102T000000Z-joint-lenet" / "plans" / "best.json"
    best.parent.mkdir(parents=True)
    best.touch()
    for command in ("step", "export"):
        offer = offered(f"autotune {command} --plan l", folder)
        assert offer == ["latest", "logs/20260102T000000Z-joint-lenet", "logs/"]


def test_the_samplers_that_are_offered_are_those_there_are() -> None:
    assert tuple(completion.samplers("")) == SAMPLERS


def test_the_meters_and_clusters_that_are_offered_are_those_there_are() -> None:
    for meter in completion.meters("")[:-1]:
        check_meter(meter, needed=False)
    names = {name for some in CLUSTER_NAMES.values() for name in some}
    assert set(completion.clusters("")) == names - {"all"} | {HYBRID}


PWNED = "$(touch PWNED)"
TYPED = {
    "autotune kernels --target adr\t": "autotune kernels --target adreno ",
    "autotune kernels --target=adr\t": "autotune kernels --target=adreno ",
    "autotune rec\t": "autotune records ",
    "autotune report mi\t": "autotune report mine/",
    "autotune report sp\t": "autotune report sp\\ ace/",
    "autotune report sp\tin\t": "autotune report sp\\ ace/in\\ ner/",
    "autotune report ~/sp\tin\t": "autotune report ~/sp\\ ace/in\\ ner/",
    "autotune records show sp\tmy\t": "autotune records show sp\\ ace/my\\ a.records.gz ",
    "autotune report one\t": "autotune report one\\$\\(touch\\ PWNED\\)/",
}

IN_BASH = {
    "autotune report a:\t": "autotune report a:b/",
    "autotune report a:b\t": "autotune report a:b/",
    "autotune report a:b/\t": "autotune report a:b/c/",
    "autotune report a\\:\t": "autotune report a\\:b/",
    "autotune report co\t": "autotune report co\\ l\\:on/",
    "autotune report co\\ l:\t": "autotune report co\\ l:on/",
    "autotune report it\\'s:\t": "autotune report it\\'s:x/",
    "autotune report k=\t": "autotune report k=v/",
    "autotune kernels --space=a:\t": "autotune kernels --space=a:b/",
    "autotune kernels --op matmul:\t": "autotune kernels --op matmul:m=,n=,k= ",
    "autotune profile --device pi@\t": "autotune profile --device pi@board ",
    "autotune kernels --model net.py:\t": "autotune kernels --model net.py:",
    'autotune report "sp\t': 'autotune report "sp ace/',
    'autotune report "sp\tin\t': 'autotune report "sp ace/in ner/',
    "autotune report 'sp\t": "autotune report 'sp ace/",
    'autotune report "a:\t': 'autotune report "a:b/',
    'autotune records show "sp ace/my\t': 'autotune records show "sp ace/my a.records.gz" ',
    'autotune report "one\t': 'autotune report "one\\$(touch PWNED)/',
    "autotune report 'one\t": "autotune report 'one$(touch PWNED)/",
}
"""Bash cuts words at signs such as a colon, and leaves quotes open."""


@pytest.fixture
def starter(folder: Path) -> Path:
    """The folder, with folders and files of odd names and the program in `bin`."""
    for name in ("sp ace/in ner/x", "sp ace/my a.records.gz", f"one{PWNED}/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    program = folder / "bin" / "autotune"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m autotune "$@"\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    "shell", ["bash", *(pytest.param(name, marks=pytest.mark.slow) for name in ("zsh", "fish"))]
)
def test_shells_complete(shell: str, folder: Path, starter: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}: apt-get install {shell}")
    script = subprocess.run(
        [starter, "completion", shell], capture_output=True, text=True, check=True
    ).stdout
    (folder / "script").write_text(script)
    before = ["autoload -U compinit", "compinit -u -D"] if shell == "zsh" else []
    with interactive(shell, folder, [*before, "source ./script"]) as terminal:
        assert {keys: terminal.line(keys) for keys in TYPED} == TYPED
    assert not (folder / "PWNED").exists()


@pytest.mark.slow
def test_bash_completes_cut_words_and_open_quotes(
    folder: Path, starter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a:b/c/x", "co l:on/x", "it's:x/x", "k=v/x"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    (folder / "autotune.toml").write_text('[devices]\nssh = ["pi@board"]\n')
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "1")
    with interactive("bash", folder, ['eval "$(autotune completion bash)"']) as terminal:
        assert {keys: terminal.line(keys) for keys in IN_BASH} == IN_BASH
    assert not (folder / "PWNED").exists()


def test_zsh_completes_from_its_first_start_on(folder: Path, starter: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh: apt-get install zsh")
    environment = {**os.environ, "HOME": str(folder)}
    subprocess.run([starter, "completion", "zsh", "--install"], env=environment, check=True)
    with interactive("zsh", folder, [". ~/.zshrc"]) as terminal:
        assert terminal.line("autotune kern\t") == "autotune kernels "


def test_completion_is_installed_where_a_shell_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bashrc").write_text("alias ll='ls -l'\n")
    assert main(["completion", "bash", "--install"]) == 0
    path = Path(capsys.readouterr().out.split(":")[0])
    assert "complete -o default -F _autotune_completion autotune" in path.read_text()
    text = (tmp_path / ".bashrc").read_text()
    assert text.startswith("alias ll")
    assert str(path) in text
    monkeypatch.setenv("HOME", "/proc/nowhere")
    assert main(["completion", "fish", "--install"]) == 2
    assert main(["completion", "tcsh"]) == 2


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["kernels", "--target", "adrno", "--model", "lenet"], "adreno"),
        (["kernels", "--target", "ARM_CPU", "--model", "lenet"], "arm-cpu"),
        (["kernels", "--model", "squeezenet"], "squeezenet1_"),
        (["step", "--model", "mobilenetv2"], "mobilenet_v2"),
        (["profile", "--model", "lenet", "--emulate", "meizu16t"], "meizu-16t"),
        (["devices", "emulate", "jetson-tx"], "jetson-tx2"),
        (["kernels", "--model", "lenet", "--space", "adrenoo.toml"], "adreno.toml"),
        (["cpu-config", "--emulate", "meizu-16t", "--space", "phnoe"], "phone"),
        (["kernels", "--op", "matmull:m=1,n=1,k=1"], "matmul"),
        (["step", "--model", "lenet", "--optimizer", "adm"], "adam"),
        (["export", "x", "--out", "y", "--format", "opencl1"], "opencl"),
        (["report", "latst"], "latest"),
        (["kernals"], "kernels"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else value,
)
def test_the_name_that_was_meant_is_told(
    arguments: list[str],
    meant: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "export" in arguments:
        arguments[1] = str(SAMPLE)
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert re.search(f"did you mean '{meant}", capsys.readouterr().err, re.IGNORECASE)


def test_a_name_that_is_like_none_has_a_list_alone() -> None:
    assert choices("zzz", ("lenet", "alexnet"), "models:") == "models: lenet, alexnet"
    assert choices("LeNet5", ("lenet", "alexnet")) == "did you mean 'lenet'? one of lenet, alexnet"


def test_storage_is_where_a_study_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "--model", "lenet", "--storage", "fp16"]) == 2
    assert "hint: --precision fp16" in capsys.readouterr().err
    assert main(["kernels", "--help"]) == 0
    assert "--storage" not in capsys.readouterr().out
    assert main(["cpu-config", "--emulate", "meizu-16t", "--storage", "fp16"]) == 2
    assert "`autotune kernels --precision fp16`" in capsys.readouterr().err


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_is_as_wide_as_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for command in ("kernels", "joint", "cpu-config"):
        assert main([command, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        # The specification of an operator is one word.
        assert max(len(line) for line in lines if "--op conv2d:" not in line) <= width
        reported = [
            line for line in lines if not line.lstrip().startswith(("autotune ", "--op conv2d:"))
        ]
        assert max(map(len, reported)) <= width
        if width == 120:
            assert max(map(len, reported)) > 90
        titles = [line.removesuffix(":") for line in lines if re.fullmatch(r"[A-Z]\w+:", line)]
        wanted = ["Model", "Budget", "Device", "Advanced", "Output"]
        assert [title for title in titles if title in wanted] == wanted


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", ["kernels", "joint", "export", "compare", "cpu-config"])
def test_examples_of_help_are_commands_at_any_width(
    command: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def examples(columns: int) -> list[list[str]]:
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main([command, "--help"]) == 0
        reported = capsys.readouterr().out.partition("Examples:\n")[2].partition("\n\n")[0]
        return [shlex.split(line) for line in reported.replace("\\\n", "").splitlines()]

    assert examples(width) == examples(160)
    assert len(examples(width)) > 1


def test_options_that_say_what_is_tuned_are_not_among_the_advanced() -> None:
    top = typer.main.get_command(app)
    assert isinstance(top, TyperGroup)
    names = {p.name or "" for _, c in commands("autotune", top) for p in c.params}
    assert {"model", "batch", "run"} <= {name for name in names if group_of(name) == "Model"}
    assert {"seed", "space", "storage"} <= {name for name in names if group_of(name) == "Advanced"}
