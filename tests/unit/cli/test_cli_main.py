"""The command line: speed, exit codes, error lines, and the listings against golden files."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import autotune
import autotune.workloads
from autotune.cli.main import main
from autotune.compiler.target import spaces
from autotune.errors import (
    AutotuneError,
    DeviceError,
    NothingMeasuredError,
    RecordError,
    ToolchainError,
    UsageError,
)
from autotune.jobs.device.chosen_device import ranges

GOLDEN = Path(__file__).parents[2] / "golden"
COMMANDS = ("kernels", "export", "verify", "targets", "models", "doctor")
HEAVY = ("tvm", "tvm_ffi", "numpy", "pydantic", "optuna", "rich", "psutil", "xgboost")
PROGRAM = (sys.executable, "-m", "autotune")
HELP_LIMIT = 5.0
"""Times what Python and typer alone take to start: machines differ, and others may be at work."""


def run_autotune(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [*PROGRAM, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Makes `autotune models` end with an error."""

    def build(*_: object) -> None:
        raise error

    monkeypatch.setattr(autotune.workloads, "build_model", build)


def check_golden(name: str, text: str) -> None:
    """Compares with a golden file, or writes it where AUTOTUNE_UPDATE_GOLDEN is set."""
    path = GOLDEN / name
    text = text.replace(str(spaces.folder()), "SPACES")
    if os.environ.get("AUTOTUNE_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "AUTOTUNE_UPDATE_GOLDEN=1 writes it anew"


def test_help_is_fast() -> None:
    def seconds(*command: str) -> float:
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, timeout=60, check=True)
        return time.perf_counter() - start

    bare = (sys.executable, "-c", "import typer")
    pairs = [(seconds(*PROGRAM, "--help"), seconds(*bare)) for _ in range(5)]
    reported, alone = map(min, zip(*pairs, strict=True))
    assert reported < HELP_LIMIT * alone


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    code = (
        "import sys; from autotune.cli.main import main; code = main(sys.argv[2:]);"
        "print([x for x in sys.argv[1].split() if x in sys.modules], file=sys.stderr);"
        "sys.exit(code)"
    )
    argv = [sys.executable, "-c", code, " ".join(HEAVY), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"


def test_a_completion_whose_reader_is_gone_is_no_bug() -> None:
    asked = {
        "_AUTOTUNE_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": "autotune kernels --layout c",
    }
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        PROGRAM, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, env=os.environ | asked,
    )  # fmt: skip
    os.close(writer)
    assert done.stderr == ""


def test_listings_do_not_import_tvm() -> None:
    code = (
        "import sys; from autotune.cli.main import main;"
        "codes = [main([x, '--json']) for x in ('targets', 'models')];"
        "sys.exit('tvm' in sys.modules or any(codes))"
    )
    argv = [sys.executable, "-c", code]
    assert subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == 0


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"autotune {autotune.__version__}\n"
    assert main(["--help"]) == 0
    shown = capsys.readouterr()
    assert main([]) == 0
    assert capsys.readouterr() == shown
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", shown.out, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"^ +Examples?:\n +autotune {command}", shown, re.MULTILINE)
    assert "-v, --verbose" in shown
    assert "-q, --quiet" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["--nothing"],
        ["targets", "--nothing"],
        ["models", "--batch", "x"],
        ["models", "--batch", "0"],
        ["export"],
        ["-v", "-q"],
        ["targets", "-v", "-q"],
    ],
)
def test_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    first, second = shown.err.splitlines()
    assert first.startswith("autotune: error: ")
    assert second.startswith("  hint: ")


def test_usage_error_in_a_process() -> None:
    done = run_autotune("nothing")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == "autotune: error: No such command 'nothing'."


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (AutotuneError, 1),
        (RecordError, 1),
        (UsageError, 2),
        (DeviceError, 3),
        (ToolchainError, 4),
        (NothingMeasuredError, 5),
    ],
)
def test_exit_codes_of_errors(
    kind: type[AutotuneError],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    raising(monkeypatch, kind("it broke", hint="fix it"))
    assert main(["models"]) == code
    assert capsys.readouterr() == ("", "autotune: error: it broke\n  hint: fix it\n")
    raising(monkeypatch, kind("no linker:\nld: not found"))
    assert main(["models"]) == code
    assert capsys.readouterr().err == "autotune: error: no linker:\n  ld: not found\n"


def test_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    assert main(["models"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["models"], ["models", "-v"], ["-v", "models"]])
def test_bug(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, ValueError("boom"))
    assert main(arguments) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "autotune: bug: unexpected ValueError: boom\n" in shown.err
    assert ("Traceback" in shown.err) == ("-v" in arguments)
    assert ("hint: run it again with -v" in shown.err) == ("-v" not in arguments)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 447. GiB for an array"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: 9"
        ),
    ],
)
def test_too_little_memory_is_no_bug(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, error)
    assert main(["models"]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith(
        f"autotune: error: there is not enough memory: {error}\n  hint: use a smaller batch"
    )


@pytest.mark.parametrize(
    ("arguments", "levels"),
    [
        (["models"], ["warning", "error"]),
        (["-v", "models"], ["info", "warning", "error"]),
        (["models", "--verbose"], ["info", "warning", "error"]),
        (["models", "-q"], ["error"]),
        (["--quiet", "models"], ["error"]),
        (["-q", "models", "-v"], ["info", "warning", "error"]),
    ],
)
def test_log_goes_to_stderr(
    arguments: list[str],
    levels: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("autotune.tests")
    build = autotune.workloads.build_model

    def logging_build(name: str, batch: int, classes: int) -> autotune.workloads.StepGraph:
        if name == "lenet":
            logger.debug("said")
            logger.info("said")
            logger.warning("said")
            logger.warning("said")  # shown once
            logger.error("said")
        return build(name, batch, classes)

    monkeypatch.setattr(autotune.workloads, "build_model", logging_build)
    assert main([*arguments, "--json"]) == 0
    shown = capsys.readouterr()
    reported = [line for line in shown.err.splitlines() if not line.startswith("next: ")]
    assert reported == [f"autotune: {level}: said" for level in levels]
    assert json.loads(shown.out)["schema_version"] == 1
    assert logging.getLogger("autotune").handlers == []


@pytest.mark.parametrize("command", ["targets", "models", "--help"])
def test_reader_that_went_away(command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        argv = [*PROGRAM, command]
        done = subprocess.run(
            argv, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        os.close(writing)
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["targets", "models"])
def test_listing(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    assert main([command]) == 0
    check_golden(f"{command}.txt", capsys.readouterr().out)


@pytest.mark.parametrize("command", ["targets", "models"])
def test_listing_as_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema_version"] == 1
    assert found.pop("command") == f"autotune {command} --json"
    assert found.pop("versions")
    check_golden(f"{command}.json", json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def test_narrow_terminal_keeps_names_and_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert "squeezenet1_1" in shown
    assert "727,626" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_models_takes_batch_and_classes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--batch", "8", "--classes", "100", "--json"]) == 0
    wide = json.loads(capsys.readouterr().out)
    assert (wide["batch"], wide["classes"]) == (8, 100)
    lenet = next(model for model in wide["models"] if model["name"] == "lenet")
    assert lenet["parameters"] == 61706 + 90 * 85  # fc3 has 84 weights and a bias for each class
    assert lenet["kernels"]["total"] == sum(
        count["total"] for count in lenet["kernels"]["by_role"].values()
    )


def test_a_space_is_given_by_its_shipped_name_or_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ranges("phone").together == "whole"
    assert ranges(None).together == "any"
    (tmp_path / "phone").write_text('together = "never"\n')
    assert ranges("phone").together == "never"
    with pytest.raises(UsageError, match="--space 'tablet' is not a file") as caught:
        ranges("tablet")
    assert "phone, unrooted" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["kernels", "--model", "lenet", "--layout", "channel-last"], "channels-last"),
        (["completion", "bsh"], "bash"),
        (["kernels", "--model", "lenet", "--precision", "fp61"], "fp16"),
    ],
)
def test_a_choice_that_was_probably_meant_is_named(
    arguments: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    reported = capsys.readouterr().err
    assert f"hint: did you mean '{near}'?" in reported
    assert "Value error" not in reported
