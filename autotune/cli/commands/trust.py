"""`autotune trust`: allows the resources that a run or a plan names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import run_path
from autotune.cli.shared import write_json, write_next
from autotune.errors import printable
from autotune.jobs.requests import allow


def _nameable(path: Path, *_: object) -> None:
    """Refuses a run in which the names cannot be read."""
    _names(path)


def trust(
    path: Annotated[
        Path,
        typer.Argument(
            parser=run_path("joint", "cpu-config", "kernels", ended=False, check=_nameable),
            metavar="RUN|PLAN",
            help="A run's folder, or a plan.",
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Allows the code and the other resources that somebody else's run or plan names.

    A run may name a program to measure, boards, a tracker, a study's storage, or a model in a Python file.
    These are used only if you have used them on this machine before, or allow them with this command.

    \b
    Examples:
      autotune trust logs/20260102T030405Z-cpu-config-sm8150
      autotune trust their-plan.json
    """
    names = [name for name in _names(path) if name is not None]
    allow(names)
    if json:
        write_json({"path": str(path), "allowed": names})
        _tell_next(path)
        return
    if not names:
        print(f"{path} names no code, and nothing else outside of it")
    for name in names:
        print(f"allowed from now on: {printable(name)}")
    _tell_next(path)


def _tell_next(path: Path) -> None:
    """Prints the command that carries out a plan, or shows a run."""
    if path.is_dir():
        write_next("report", path)
    else:
        write_next("step", "--plan", path)


def _names(path: Path) -> list[str | None]:
    from autotune.errors import UsageError
    from autotune.jobs.requests import StepRequest, model_code, outside_of_run
    from autotune.records import read_run
    from autotune.studies.plans import read_plan

    if not path.exists():
        raise UsageError(
            f"no run and no plan at {path}", hint="`autotune runs` lists the runs in logs/"
        )
    if not path.is_dir():
        return [model_code(StepRequest.from_json(read_plan(path).step).with_model(path).model)]
    about = read_run(path).about
    asked = about.get("request", {})
    step = about.get("step") or asked.get("step")
    model = StepRequest.from_json(step).with_model(path).model if step else None
    return [model_code(model), *outside_of_run(asked)]
