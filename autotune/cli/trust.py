"""`autotune trust`, and which code a run or a plan may have run: what this user has run before, or has allowed.

Both name the step's model, which may be a function in a file, and a run the program that is measured. What the user
gives on the command line is remembered; what a file names besides is refused until it is allowed.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.output import write_json
from autotune.cli.runs import run_path
from autotune.devices.journal import state_root
from autotune.errors import UsageError, printable


def trust(
    path: Annotated[
        Path,
        typer.Argument(
            parser=run_path("joint", "cpu-config"),
            metavar="RUN|PLAN",
            help="A run's folder, or a plan.",
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Lets the code run that a run or a plan from somebody else names.

    A run names the program that it measures, and a run or a plan may name a model that is a function in a file.
    That code runs where you have run it on this machine before, or allow it.

    \b
    Examples:
      autotune trust logs/20260102T030405Z-cpu-config-sm8150
      autotune trust their-plan.json
    """
    codes = [code for code in _codes(path) if code is not None]
    allow(codes)
    if json:
        write_json({"path": str(path), "allowed": codes})
        return
    if not codes:
        print(f"{path} names no code")
    for code in codes:
        print(f"may run from now on: {printable(code)}")


def _codes(path: Path) -> list[str | None]:
    from autotune.cli.step_options import StepOptions
    from autotune.records.folder import read_run
    from autotune.studies.plan_file import read_plan

    if not path.is_dir():
        return [model_code(StepOptions.from_json(read_plan(path).step).with_model(path).model)]
    asked = read_run(path).about.get("request", {})
    step = asked.get("step")
    model = StepOptions.from_json(step).with_model(path).model if step else None
    return [asked.get("command"), model_code(model)]


def model_code(model: str | None) -> str | None:
    """The code that a model's name stands for; None for one of the built-in models.

    Args:
        model: As `--model` takes it: `file.py:function` and `package.module:function` are code.
    """
    if model is None or ":" not in model:
        return None
    source, _, function = model.rpartition(":")
    return f"{Path(source).resolve()}:{function}" if source.endswith(".py") else model


def allow(codes: Iterable[str | None]) -> None:
    """Remembers code that the user has asked for; where nothing can be written, it has to be allowed again."""
    for code in codes:
        if code is not None:
            with contextlib.suppress(OSError):
                _mark(code).parent.mkdir(parents=True, exist_ok=True)
                _mark(code).touch()


def check_allowed(holder: Path, codes: Iterable[str | None]) -> None:
    """Refuses a file that names code which this user has neither run nor allowed.

    Args:
        holder: The run or the plan that names it.
        codes: Programs, and models as `model_code` has them.

    Raises:
        UsageError: It names such code.
    """
    for code in codes:
        if code is not None and not _mark(code).exists():
            raise UsageError(
                f"{holder} runs code that was not run on this machine before: {code}",
                hint=f"look at it; to let it run: autotune trust {holder}",
            )


def _mark(code: str) -> Path:
    return state_root() / "trusted" / hashlib.sha256(code.encode(errors="replace")).hexdigest()
