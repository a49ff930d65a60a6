"""The wheel: what is in it, and that the command runs from it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "unpacked")
    return folder / "unpacked"


def autotune(unpacked: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "autotune", *arguments],
        cwd=unpacked, env={**os.environ, "PYTHONPATH": str(unpacked)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_it_has_the_spaces_the_sources_and_no_phone_that_adb_sees(unpacked: Path) -> None:
    package = unpacked / "autotune"
    assert {path.name for path in (package / "emulator").iterdir() if path.is_dir()} == {
        "device", "kernel", "model", "profiles",
    }  # fmt: skip
    assert list((package / "_search_spaces").glob("*.toml"))
    assert list((package / "_rpc").rglob("*.cc"))
    assert (package / "py.typed").exists()


def test_the_command_runs_from_it_and_says_where_the_phone_is(unpacked: Path) -> None:
    listed = autotune(unpacked, "devices", "emulate", "--list")
    assert listed.returncode == 0
    assert "meizu-16t" in listed.stdout
    refused = autotune(unpacked, "devices", "emulate", "meizu-16t")
    assert refused.returncode == 4
    assert "the phone that adb sees is not in the wheel" in refused.stderr
    assert "Traceback" not in refused.stderr
