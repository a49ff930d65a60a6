"""Temporary folders, and what is left of those whose process was killed."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autotune.scratch import Scratch, sweep

HOLDER = """
import sys
from pathlib import Path
from autotune.scratch import Scratch
beside = Path(sys.argv[1]) if len(sys.argv) > 1 else None
made = Scratch("export", beside)
(made.path / "file").touch()
print(made.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def holder(*arguments: str) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.parametrize("beside", [False, True])
def test_a_folder_lives_as_long_as_its_process(tmp_path: Path, beside: bool) -> None:
    process, folder = holder(*([str(tmp_path)] if beside else []))
    sweep("export", tmp_path)
    assert (folder / "file").exists()
    process.kill()
    process.communicate()
    assert folder.exists()
    with Scratch("export", tmp_path if beside else None):
        assert not folder.exists()


def test_a_folder_that_was_made_for_it_goes_with_it_if_it_is_empty(tmp_path: Path) -> None:
    with Scratch("export", tmp_path / "new" / "deep"):
        assert (tmp_path / "new" / "deep").exists()
    assert not (tmp_path / "new").exists()
    with Scratch("export", tmp_path / "new" / "deep"):
        (tmp_path / "new" / "kept").touch()
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["kept"]


def test_what_a_killed_process_left_beside_something_is_found_from_elsewhere(
    tmp_path: Path,
) -> None:
    process, folder = holder(str(tmp_path / "new" / "deep"))
    sweep()
    assert (folder / "file").exists()
    process.kill()
    process.communicate()
    assert folder.exists()
    sweep()
    assert not (tmp_path / "new").exists()
    assert not list((tmp_path / "state" / "autotune" / "scratch").iterdir())


def test_a_state_folder_that_cannot_be_written_hinders_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with Scratch("export", tmp_path / "new") as folder:
        assert folder.exists()
    assert not folder.exists()


def test_folders_of_others_stay(temporary: Path, tmp_path: Path) -> None:
    names = ("autotune-export-lenet_v2", "autotune-ssh-1000", "autotune-results")
    for name in names:
        (temporary / name).mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").touch()
    (temporary / "autotune-export-1234-abcdefgh").symlink_to(target)
    (temporary / "autotune-export-1234-file5678").touch()
    sweep()
    assert len(list(temporary.iterdir())) == len(names) + 2
    assert (target / "kept").exists()


def test_what_was_moved_away_stays(tmp_path: Path) -> None:
    with Scratch("new", tmp_path) as folder:
        (folder / "file").touch()
        folder.rename(tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["file"]
    assert not folder.exists()
