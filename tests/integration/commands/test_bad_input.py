"""Bad input gives one clear line on stderr, nothing on stdout, and the right exit code."""

import shutil
from pathlib import Path

import pytest
from command import autotune, autotune_here

from autotune.compiler.target.targets import find

OP = ("--op", "matmul:m=2,n=2,k=2")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("kernels", "--model", "lenett"), 2, "lenett"),
        (("kernels",), 2, "--model or --op"),
        (("kernels", "--model", "lenet", *OP), 2, "--model or --op"),
        (("kernels", "--model", "lenet", "--target", "cuda"), 2, "unknown target"),
        (("kernels", "--model", "lenet", "--trials", "-5"), 2, "--trials is -5"),
        (("kernels", "--model", "lenet", "--trials", "many"), 2, "--trials"),
        (("kernels", "--model", "lenet", "--batch", "0"), 2, "batch"),
        (("kernels", "--model", "lenet", "--seed", "0"), 2, "--seed is 0"),
        (("kernels", "--model", "lenet", "--role", "forward"), 2, "--role goes with --op"),
        (("kernels", *OP, "--batch", "2"), 2, "--batch"),
        (("kernels", *OP, "--role", "backward"), 2, "backward"),
        (("kernels", *OP, "--role", "update"), 2, "update"),
        (
            ("kernels", "--op", "conv2d:n=1,c=1,h=4,w=4,k=1,r=7,s=7,stride=1,pad=1"),
            2,
            "kernel",
        ),
        (("kernels", "--op", "conv2d:n=1"), 2, "missing"),
        (("kernels", "--op", "conv3d:n=1"), 2, "conv3d"),
        (("kernels", *OP, "--space", "nowhere.toml"), 2, "nowhere.toml"),
        (
            ("kernels", *OP, "--precision", "fp16"),
            2,
            "--precision fp16 goes with the targets opencl",
        ),
        (("kernels", *OP, "--storage", "fp16"), 2, "--precision fp16"),
        (
            ("kernels", "--target", "mali", "--op", "relu:size=8", "--precision", "fp16"),
            2,
            "--precision fp16 would change nothing",
        ),
        (("kernels", *OP, "--logs", "/proc/none"), 2, "cannot make a run folder"),
        (("kernels", "--resume", "nowhere"), 2, "no run at nowhere"),
        (("kernels", "--resume", "nowhere", "--target", "cpu"), 2, "--resume"),
        (("export", "nowhere", "--out", "x"), 2, "no run at nowhere"),
        (("frobnicate",), 2, "frobnicate"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], code: int, words: str) -> None:
    done = autotune_here(*arguments)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("autotune: waiting")]
    assert lines[0].startswith("autotune: error: ")
    assert words in done.stderr
    assert len(lines) <= 2
    assert "Traceback" not in done.stderr


def test_malformed_toml(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("family = ")
    done = autotune("kernels", *OP, "--space", path)
    assert done.returncode == 2
    assert f"search space {path}: not valid TOML" in done.stderr


def test_a_space_of_another_family(tmp_path: Path) -> None:
    done = autotune("kernels", *OP, "--space", find("mali").space_path())
    assert done.returncode == 2
    assert "does not fit target cpu" in done.stderr


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("search.outlook", "outlook = { nhwc", "outlook = { nhcw"),
        ("formulations.matmul.forward", "[search]", '[formulations]\n"matmul.forward" = ["nhcw"]\n[search]'),
    ],
)  # fmt: skip
def test_a_space_names_formulations_that_there_are(
    key: str, before: str, after: str, tmp_path: Path
) -> None:
    text = find("cpu").space_path().read_text()
    assert before in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(before, after))
    done = autotune_here("kernels", *OP, "--space", path)
    assert done.returncode == 2
    assert f"search space {path}: key {key}: no formulation 'nhcw'" in done.stderr


def test_a_damaged_record_line(matmul_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(matmul_run, folder)
    lines = (folder / "events.jsonl").read_text().splitlines()
    lines[1] = lines[1][:20]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    done = autotune("kernels", "--resume", folder)
    assert done.returncode == 1
    assert "events.jsonl: line 2 is damaged" in done.stderr
    assert "delete line 2" in done.stderr


def test_a_damaged_request(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text('{"schema_version": 1, "request": {"kind": "kernels"}}')
    done = autotune("kernels", "--resume", folder)
    assert done.returncode == 1
    assert "damaged" in done.stderr
    (folder / "run.json").write_text("{")
    done = autotune("kernels", "--resume", folder)
    assert done.returncode == 1
    assert "damaged" in done.stderr


def test_an_export_folder_that_cannot_be_written(matmul_run: Path) -> None:
    done = autotune("export", matmul_run, "--out", "/proc/none")
    assert done.returncode == 2
    assert "cannot write to /proc/none" in done.stderr


def test_no_opencl_names_the_package(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.so")
    done = autotune(
        "kernels", *OP, "--target", "adreno", "--logs", tmp_path, AUTOTUNE_OPENCL_LIBRARY=missing
    )
    assert done.returncode == 4
    assert "pocl-opencl-icd" in done.stderr
    assert list(tmp_path.iterdir()) == []
