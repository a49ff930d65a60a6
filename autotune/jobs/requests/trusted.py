"""Things that a run or a plan may use: those that this user has used before or has allowed.

Runs and plans name the step's model, which may be a function in a file. A run also names the measured program,
boards, a tracker and a study's storage. Whatever the user gives on the command line is remembered. Anything else
that a file names is refused until it is allowed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.state import state_root


def outside(
    *,
    command: str | None = None,
    own: str | None = None,
    ssh: Iterable[str] = (),
    storage: str | None = None,
    tracker: str | None = None,
) -> list[str | None]:
    """Returns the names under which things from outside are allowed; None for one that is not given.

    Args:
        command: A measured program.
        own: The place of a kernel of the user's own.
        ssh: Boards.
        storage: A study's storage.
        tracker: The address of a tracker.
    """
    from autotune.studies.run import without_password

    return [
        command,
        model_code(own),
        *(f"ssh {board}" for board in ssh),
        f"storage {without_password(storage)}" if storage else None,
        f"tracker {tracker}" if tracker else None,
    ]


def outside_of_run(asked: Mapping[str, Any]) -> list[str | None]:
    """Returns what a run's request names from outside, as `outside` does.

    Args:
        asked: The request, as `read_run` has read it from `run.json`.
    """
    fleet = asked.get("fleet")
    return outside(
        command=asked.get("command"),
        own=asked.get("own"),
        ssh=asked.get("ssh") or (),
        storage=asked.get("storage"),
        tracker=fleet["tracker"] if fleet else None,
    )


def model_code(model: str | None) -> str | None:
    """Returns the code that a model's name stands for, with its place; None for a built-in model.

    Args:
        model: As `--model` takes it. `file.py:function` and `package.module:function` are code;
            models of Hugging Face are values and a configuration.

    Raises:
        UsageError: The file's name is impossible.
    """
    if model is None or ":" not in model:
        return None
    from autotune.workloads.capture import PREFIX as HUGGING_FACE

    if model.startswith(HUGGING_FACE):
        return None
    source, _, function = model.rpartition(":")
    if source.endswith(".py"):
        try:
            place = Path(source).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # A NUL, or links in a circle.
            raise UsageError(
                f"{source} is not a file: {error}", hint="give a Python file"
            ) from None
        return f"{place}:{function}"
    return f"{model} of {_package_place(source.partition('.')[0])}"


def _package_place(package: str) -> str:
    """Returns the place that a package would be imported from, without importing it.

    The working directory is searched too, as it is in the import.
    """
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.append(here)
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    finally:
        if added:
            sys.path.remove(here)
    if spec is None:
        return "nowhere"
    return str(spec.origin or list(spec.submodule_search_locations or ()))


def allow(names: Iterable[str | None]) -> None:
    """Remembers the names as allowed. If the file cannot be written, they have to be allowed again."""
    for name in names:
        if name is not None:
            with contextlib.suppress(OSError):
                _mark(name).parent.mkdir(parents=True, exist_ok=True)
                _mark(name).touch()


def check_allowed(holder: Path, names: Iterable[str | None]) -> None:
    """Refuses a file that names something that this user has neither used nor allowed.

    Args:
        holder: The run or the plan that names it.
        names: Models as `model_code` returns them, and results of `outside`.

    Raises:
        UsageError: A name is not allowed.
    """
    for name in names:
        if name is not None and not is_allowed(name):
            raise UsageError(
                f"{holder} uses {name}, which is not trusted on this machine",
                hint=f"look at it; to let it be used: autotune trust {holder}",
            )


def is_allowed(name: str) -> bool:
    """Returns whether this user has used or allowed a name; see `check_allowed`."""
    return _mark(name).exists()


def _mark(name: str) -> Path:
    return state_root() / "trusted" / hashlib.sha256(name.encode(errors="replace")).hexdigest()
