"""`autotune doctor`: what this machine has, what is missing, and how to fix it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.shared import Column, with_wide, write_json, write_next, write_table
from autotune.errors import ToolchainError
from autotune.waits import waiting

if TYPE_CHECKING:
    from autotune.doctor import Check


@with_wide
def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Checks this machine, and names the command that fixes what is missing.

    The exit code is 4 if something is missing that tuning for this machine's processor needs.

    \b
    Example:
      autotune doctor
      autotune doctor --json
    """
    from autotune.doctor import is_ready, run_checks

    with waiting("the checks of this machine to end"):
        checks = run_checks()
    ready = is_ready(checks)
    if json:
        write_json({"ready": ready, "checks": [_plain(check) for check in checks]})
    else:
        write_report(checks, ready)
    if ready:
        write_next("kernels", "--model", "lenet")
    else:
        write_next("doctor")
        raise typer.Exit(ToolchainError.exit_code)


def _plain(check: Check) -> dict[str, Any]:
    found = asdict(check)
    fix = found.pop("fix")
    return {**found, "mend": fix}  # The field's name in version 1 of this output.


def write_report(checks: list[Check], ready: bool) -> None:
    """Prints the findings, and how to fix what is missing."""
    write_table(
        (
            Column("check"),
            Column("status"),
            Column("found", least=40),
            Column("needed for", rank=1, least=16, prose=True),
        ),
        [(check.name, check.status, check.found, check.needed_for) for check in checks],
    )
    for title, required in (("Required", True), ("Optional", False)):
        lacking = [x for x in checks if x.required is required and x.status != "ok"]
        if lacking:
            print(f"\n{title}, to fix:")
        for check in lacking:
            print(f"  {check.name} ({check.status}): {check.found}\n    {check.fix}")
    print(f"\n{'Ready' if ready else 'Not ready'} to tune for this machine's processor.")
