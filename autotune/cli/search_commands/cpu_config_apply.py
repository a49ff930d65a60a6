"""`autotune cpu-config apply`: applies the configuration that a search has found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.options import completion, run_path
from autotune.cli.shared import write_json, write_next

if TYPE_CHECKING:
    from autotune.devices import DeviceInfo


def _applicable(run: Path, _: str, options: Mapping[str, Any]) -> None:
    """Refuses a run or a plan whose configuration cannot be set on a device."""
    _chosen(run, options["point"])


def apply(
    run: Annotated[
        Path,
        typer.Argument(
            parser=run_path("cpu-config", "joint", check=_applicable),
            autocompletion=completion.runs,
            metavar="RUN",
            help="Folder of a run of cpu-config or joint that has ended; or a plan of `autotune joint`.",
        ),
    ],
    point: Annotated[
        str | None,
        typer.Option(
            help="best, or a named point: fastest, least_energy, least_edp, knee, pareto-1, ... [default: best]"
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            autocompletion=completion.devices,
            metavar="SERIAL",
            help="[default: the one it was measured on]",
        ),
    ] = None,
    ssh: Annotated[
        list[str] | None,
        typer.Option("--ssh", metavar="USER@HOST", help="A board reached by ssh; may be repeated."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Sets the clocks that a search has found on the device, and prints which cores to train on.

    A run without root leaves clocks to the system, so it has none to set. The previous settings are kept in
    the restore journal; `autotune devices restore` or the next search restores them.

    \b
    Example:
      autotune cpu-config apply logs/20260102T030405Z-cpu-config-sm8150 --point knee
      autotune cpu-config apply logs/20260102T030405Z-joint-sm8150/plans/least_energy.json
      autotune devices restore
    """
    from autotune.devices import cpu_list_text
    from autotune.jobs.device import choose
    from autotune.studies.space import CpuConfiguration
    from autotune.studies.space import apply as set_on

    chosen, point, before = _chosen(run, point)
    ready = choose(device or before["serial"], ssh or (), None)
    _same_kind(before, ready.info)
    configuration = CpuConfiguration.from_json(chosen, [c.name for c in ready.info.clusters])
    said = set_on(ready.device, ready.info, configuration)
    cpus = cpu_list_text(configuration.cpus(ready.info.clusters))
    if json:
        write_json(
            {
                "serial": ready.info.serial, "point": point, "set": said, "cpus": cpus,
                "threads": configuration.threads,
            }
        )  # fmt: skip
        write_next("devices", "restore")
        return 0
    for line in said:
        typer.echo(line)
    mask = sum(1 << cpu for cpu in configuration.cpus(ready.info.clusters))
    typer.echo(
        f"train on cores {cpus} with {configuration.threads} threads: taskset {mask:x} COMMAND"
    )
    if said:
        typer.echo("`autotune devices restore` puts the clocks back")
    else:
        typer.echo("no clock was set: the search left them to the system")
    write_next("devices", "restore")
    return 0


def _chosen(run: Path, point: str | None) -> tuple[dict[str, Any], str | None, dict[str, Any]]:
    """Returns the configuration to set, the name of its point, and the device that it was measured on.

    Args:
        run: A run, or a plan.
        point: Name of a point of a run; None for the best.

    Raises:
        UsageError: There is nothing to set, or only a model of a device was measured.
    """
    from autotune.errors import UsageError
    from autotune.jobs.requests import point_of
    from autotune.records import read_run
    from autotune.studies.plans import is_plan, read_plan

    if is_plan(run):
        if point is not None:
            raise UsageError("a plan is one point", hint="leave --point out")
        plan = read_plan(run)
        if len(plan.settings) > 1:
            raise UsageError(
                f"{run} goes through {len(plan.settings)} configurations in a step, and one can be held",
                hint=f"apply {run.with_name('best.json')}",
            )
        chosen, before, emulate = plan.settings[0], dict(plan.device), plan.emulated
    else:
        found = read_run(run)
        point = point or "best"
        chosen = point_of(found, point)
        before, emulate = found.about["device"], found.about.get("request", {}).get("emulate")
    if chosen.get("clusters") is None:
        raise UsageError(f"'{point}' is the default: there is nothing to set")
    if emulate:
        raise UsageError(
            f"{run} was measured on a model in the process that searched, which is gone",
            hint="apply needs a device: search with --device",
        )
    return chosen, point, before


def _same_kind(before: dict[str, Any], info: DeviceInfo) -> None:
    from autotune.errors import UsageError

    if before.get("soc") != info.soc:
        raise UsageError(
            f"the run was measured on {before.get('soc')}, and {info.serial} is {info.soc}",
            hint="search on this device first",
        )


__all__ = ["apply"]
