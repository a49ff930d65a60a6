"""`autotune trust`, and what a run or a plan may use: what this user has used before, or has allowed.

Both name the step's model, which may be a function in a file. A run names the program that is measured, boards, a
tracker and a study's storage. What the user gives on the command line is remembered; what else a file names is
refused until it is allowed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli.output import write_json
from autotune.cli.runs import run_path
from autotune.devices import state_root
from autotune.errors import UsageError, printable


def trust(
    path: Annotated[
        Path,
        typer.Argument(
            parser=run_path("joint", "cpu-config", "kernels"),
            metavar="RUN|PLAN",
            help="A run's folder, or a plan.",
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Lets the code run that a run or a plan from somebody else names, and lets its other names be used.

    A run names the program that it measures, boards, a tracker and a study's storage. A run or a plan may name a
    model that is a function in a file. Each is used where you have used it on this machine before, or allow it.

    \b
    Examples:
      autotune trust logs/20260102T030405Z-cpu-config-sm8150
      autotune trust their-plan.json
    """
    names = [name for name in _names(path) if name is not None]
    allow(names)
    if json:
        write_json({"path": str(path), "allowed": names})
        return
    if not names:
        print(f"{path} names no code, and nothing else outside of it")
    for name in names:
        print(f"allowed from now on: {printable(name)}")


def _names(path: Path) -> list[str | None]:
    from autotune.cli.step_options import StepOptions
    from autotune.records import read_run
    from autotune.studies.plans import read_plan

    if not path.is_dir():
        return [model_code(StepOptions.from_json(read_plan(path).step).with_model(path).model)]
    asked = read_run(path).about.get("request", {})
    step = asked.get("step")
    model = StepOptions.from_json(step).with_model(path).model if step else None
    return [model_code(model), *outside(asked)]


def outside(asked: Mapping[str, Any]) -> list[str | None]:
    """What a run's request names outside of its folder: a program, a board, a study's storage, a tracker.

    Args:
        asked: The request, as `run.json` has it.
    """
    from autotune.studies.run import without_password

    storage, fleet = asked.get("storage"), asked.get("fleet")
    return [
        asked.get("command"),
        *(f"ssh {board}" for board in asked.get("ssh") or ()),
        f"storage {without_password(storage)}" if storage else None,
        f"tracker {fleet['tracker']}" if fleet else None,
    ]


def model_code(model: str | None) -> str | None:
    """The code that a model's name stands for, with the place where it is; None for one of the built-in models.

    Args:
        model: As `--model` takes it: `file.py:function` and `package.module:function` are code.
    """
    if model is None or ":" not in model:
        return None
    source, _, function = model.rpartition(":")
    if source.endswith(".py"):
        return f"{Path(source).resolve()}:{function}"
    return f"{model} of {_package_place(source.partition('.')[0])}"


def _package_place(package: str) -> str:
    """Where a package would be imported from, which is not done; the working directory counts as it does then."""
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
    """Remembers what the user has asked for; where nothing can be written, it has to be allowed again."""
    for name in names:
        if name is not None:
            with contextlib.suppress(OSError):
                _mark(name).parent.mkdir(parents=True, exist_ok=True)
                _mark(name).touch()


def check_allowed(holder: Path, names: Iterable[str | None]) -> None:
    """Refuses a file that names what this user has neither used nor allowed.

    Args:
        holder: The run or the plan that names it.
        names: Models as `model_code` has them, and what `outside` finds.

    Raises:
        UsageError: It names such a thing.
    """
    for name in names:
        if name is not None and not _mark(name).exists():
            raise UsageError(
                f"{holder} names what was not used on this machine before: {name}",
                hint=f"look at it; to let it be used: autotune trust {holder}",
            )


def _mark(name: str) -> Path:
    return state_root() / "trusted" / hashlib.sha256(name.encode(errors="replace")).hexdigest()
