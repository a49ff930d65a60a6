"""What the documents tell people to type is understood, and what they point to is there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from autotune.cli.commands.kernels_table import show, show_measured
from autotune.cli.main import app, main
from autotune.cli.reference import commands
from autotune.errors import UsageError
from autotune.records import Drift, Result, read_run
from autotune.workloads import short_name, tasks
from autotune.workloads.fusion import fused
from autotune.workloads.models import build_model

ROOT = Path(__file__).parents[3]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
LAPTOP = ROOT / "docs" / "tutorials" / "laptop.md"
SAMPLE = ROOT / "logs" / "samples" / "cpu-matmul"
_ENDS = {"|", "||", "&&", "&", ";", ">", "2>", "<"}
"""Words of a shell line after which no more of the command comes."""


def code_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of code blocks with their numbers; a line that ends in a backslash goes on."""
    held, first = "", 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if held or line.startswith("    "):
            first = first if held else number
            held += line.strip().removesuffix("\\")
            if not line.endswith("\\"):
                yield first, held
                held = ""


def words_of(line: str) -> list[str] | None:
    """The arguments of an `autotune` line; None where it is something else."""
    if not line.startswith("autotune ") or "[OPTIONS]" in line:
        return None
    # Square brackets are round what may be left out, and dots are for more of the same.
    # A diagram goes on with an arrow.
    line = re.sub(r"(?<!\S)\[(.*?)\](?!\S)", r"\1", line.split(" --> ")[0])
    words = [word for word in shlex.split(line, comments=True)[1:] if word != "..."]
    return words[: next((n for n, word in enumerate(words) if word in _ENDS), None)]


@cache
def by_name() -> dict[str, TyperCommand | TyperGroup]:
    """Every command by its whole name; none of them does anything."""
    top = typer.main.get_command(app)
    assert isinstance(top, TyperGroup)
    found = dict(commands("autotune", top))
    for command in found.values():
        command.callback = lambda *_, **__: None
    return found


def complaint(words: list[str]) -> str:
    """What the command line says against these arguments; empty where it takes them."""
    try:
        by_name()["autotune"].main(words, prog_name="autotune", standalone_mode=False)
    except typer.TyperException as error:
        return error.format_message() or str(error)
    except UsageError as error:  # `latest`, which is understood where there are runs.
        return "" if re.search("no (finished )?run", error.message) else error.message
    return ""


def test_the_command_line_is_asked() -> None:
    assert complaint(["cpu-config", "--objective", "energy", "--emulate", "meizu-16t"]) == ""
    assert "No such option" in complaint(["kernels", "--no-such"])
    assert "No such command" in complaint(["trackers", "up"])
    assert "No such command" in complaint(["cpu-config", "apply-it", "RUN"])
    assert "Missing argument" in complaint(["verify"])
    assert "Invalid value" in complaint(["models", "--batch", "four"])
    assert words_of("autotune report RUN [--out FILE]   # a page") == [
        "report",
        "RUN",
        "--out",
        "FILE",
    ]
    assert words_of("autotune models | head") == ["models"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_that_is_shown_is_accepted(path: Path) -> None:
    wrong = [
        f"{path.name}:{number}: {line}: {said}"
        for number, line in code_lines(path)
        if (words := words_of(line)) is not None and (said := complaint(words))
    ]
    assert wrong == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_in_a_sentence_exists_with_its_options(path: Path) -> None:
    prose = "\n".join(
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.startswith("    ")
    )
    wrong = []
    for span in re.findall(r"`autotune ([^`]+)`", prose):
        words = span.replace("[", " ").replace("]", " ").split()
        name = "autotune"
        while words and f"{name} {words[0]}" in by_name():
            name = f"{name} {words.pop(0)}"
        context = typer.Context(by_name()[name])
        known = {
            option
            for parameter in by_name()[name].get_params(context)
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        options = {word.split("=")[0] for word in words if word.startswith("-")}
        named = name != "autotune" or not words or words[0] in ("COMMAND", "--help", "--version")
        if not named or options - known - {"--help"}:
            wrong.append(span)
    assert wrong == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_is_linked_and_named_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    missing = []
    for link in re.findall(r"\]\(([^)]+)\)", text):
        name, _, place = link.partition("#")
        target = path.parent / name if name else path
        if "://" not in link and not (target.exists() and (not place or place in places(target))):
            missing.append(link)
    named = re.findall(r"\b((?:benchmarks|docs|search_spaces|tests)/[\w/-]+\.\w+)", text)
    missing += [name for name in named if not (ROOT / name).exists()]
    assert missing == []


def places(path: Path) -> set[str]:
    """A document's headings, as links name them."""
    found = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_commands_on_a_model_of_a_phone_do_what_is_told(tmp_path: Path) -> None:
    """The laptop tutorial's section, line by line in a shell, as it stands there."""
    text = LAPTOP.read_text(encoding="utf-8")
    start = text.index("## On a model of a phone")
    begin, end = (text[:at].count("\n") for at in (start, text.index("\n## ", start)))
    lines = [line for number, line in code_lines(LAPTOP) if begin < number <= end]
    lines = [line for line in lines if words_of(line) is not None]
    assert len(lines) >= 6
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "autotune"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m autotune "$@"\n')
    program.chmod(0o755)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    printed: list[str] = []
    for line in lines:
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True,
            timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        printed += done.stdout.splitlines()
    check_shown(text[start : text.index("\n## ", start)], printed)
    (page,) = tmp_path.glob("logs/*-joint-*/report.html")
    assert "Plans" in page.read_text(encoding="utf-8")
    check_formats(tmp_path / "logs")


@pytest.mark.parametrize("path", [LAPTOP, LAPTOP.with_name("phone.md")], ids=lambda path: path.name)
def test_tables_of_verify_name_kernels_of_the_model(path: Path) -> None:
    names = {short_name(task.kernel.spec) for task in tasks(fused(build_model("lenet", 4)))}
    rows = [line for _, line in code_lines(path) if re.search(r" ok +\d", line)]
    assert len(rows) >= 3
    for row in rows:
        _, role, kernel = re.split(r"  +", row.strip())[:3]
        assert role in ("forward", "data_grad", "weight_grad")
        assert kernel in names


def check_shown(text: str, printed: Sequence[str]) -> None:
    """What a document shows is what its commands print, whatever its figures: headings, and how lines begin."""
    found = [shape(line) for line in printed]
    shown = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    shown = [line for line in shown if words_of(line) is None and line.strip("─.")]
    assert len(shown) > 20
    for line in shown:
        heading = not re.search(r"\d", line)
        own = shape(line)
        assert own in found if heading else any(own.split("0")[0] in one for one in found), line
        # A table fits; a sentence is wrapped by a terminal.
        assert len(line) <= 100 or "  " not in line, line


def shape(line: str) -> str:
    """A line without its figures and the width of its columns."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.,]*", "0", line)).strip()


@pytest.mark.parametrize("path", [LAPTOP, LAPTOP.with_name("phone.md")], ids=lambda path: path.name)
def test_tables_are_shown_as_they_are_printed(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Headings of tables of kernels and replays, in the order in which a pipe has them."""
    monkeypatch.delenv("COLUMNS", raising=False)
    main(["breakdown", str(SAMPLE)])
    shares = capsys.readouterr().out.splitlines()[2]
    main(
        [
            "replay",
            str(ROOT / "tests" / "data" / "meizu16t_alexnet_b16.csv"),
            "--objective",
            "energy",
        ]
    )
    replayed = capsys.readouterr().out.splitlines()[0]
    show(Result.from_json(read_run(SAMPLE).result or {}), None)
    kernels = capsys.readouterr().out.splitlines()[0].split()
    text = [line.split() for _, line in code_lines(path)]
    tables = [words for words in text if words[:2] == ["no.", "kernel"]]
    assert tables
    assert all(words == kernels[: len(words)] for words in tables)
    assert all(
        title in " ".join(tables[0]) for title in ("count", "untuned", "tuned", "speed-up (95 %)")
    )
    if path == LAPTOP:
        assert shares.split() in text
        assert replayed.split() in text
    # Tables of before: times in one unit for all.
    assert not [
        words
        for words in text
        if {"default", "tuned"} <= set(words) or words[:3] == ["s", "a", "step"]
    ]


KERNELS_END = ("predicted step", "geometric mean", "drift:", "measured step", "  measured")
"""How the last lines of `autotune kernels` begin."""


def test_what_kernels_ends_with_is_shown_word_by_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    found = Result.from_json(read_run(SAMPLE).result or {})
    show(replace(found, drifts=(Drift("", 60, 0.7, (0.39, 0.78)),)), None)
    one = {"ms": 1.0, "ci_ms": [0.9, 1.1], "tuned_is_faster": 2.0, "ci": [1.9, 2.1]}
    sides = dict.fromkeys(("untuned", "tuned", "pytorch"), one)
    show_measured({"threads": 2, "blocks": 12, "left_out": {}, **sides})
    printed = {words_in(line) for line in capsys.readouterr().out.splitlines()}
    text = LAPTOP.read_text(encoding="utf-8")
    shown = [line[4:] for line in text.splitlines() if line[4:].startswith(KERNELS_END)]
    assert [line for line in shown if words_in(line) not in printed] == []
    assert all(any(line.startswith(begin) for line in shown) for begin in KERNELS_END)


def words_in(line: str) -> str:
    """A line without its figures and their units."""
    return re.sub(r"\b0 (?:us|ms|s)\b", "0", re.sub(r"0-0", "0 0", shape(line)))


def check_formats(logs: Path) -> None:
    """The page of formats knows every event of these runs with its fields, and every key of their other files."""
    reported = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    more = [
        ROOT / "docs" / name for name in ("cpu-config.md", "joint.md", "reference/result-schema.md")
    ]
    results = reported + "".join(path.read_text(encoding="utf-8") for path in more)
    seen = set()
    for run in logs.iterdir():
        assert named(json.loads((run / "run.json").read_text()), reported) == set()
        assert named(json.loads((run / "result.json").read_text()), results) == set()
        for line in (run / "events.jsonl").read_text().splitlines():
            event = json.loads(line)
            seen.add(event["event"])
            assert f"`{event['event'].removeprefix('sequential_')}`" in reported
            assert named(event, reported) == set(), event["event"]
    assert {"trial", "final", "round", "sequential_trial", "beside", "run", "meter"} <= seen


def named(value: dict[str, object], text: str) -> set[str]:
    """The keys that a document does not have as code, or as those of its JSON."""
    return {key for key in value if not re.search(rf"[`\".]{key}[`\".]", text)}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_untuned_means_is_told_beside_each_ratio_to_it(path: Path) -> None:
    ratio = re.compile(r"as fast as untuned|untuned kernels over|untuned +tuned +speed-up")
    for section in re.split(r"(?m)^#+ ", path.read_text(encoding="utf-8")):
        if ratio.search(section):
            assert re.search(r"plain loop nest|dlight", section), section.splitlines()[0]
