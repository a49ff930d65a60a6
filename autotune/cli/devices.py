"""`autotune devices`: phones, boards and this host; what can be tuned on them; what was left changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.output import write_json, write_table

if TYPE_CHECKING:
    from autotune.devices.discovery import Listed
    from autotune.devices.info import DeviceInfo

Ssh = Annotated[
    list[str] | None,
    typer.Option("--ssh", metavar="USER@HOST", help="A board reached by ssh; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def list_unless_subcommand(context: typer.Context, ssh: Ssh = None, json: Json = False) -> None:
    """Lists adb phones, ssh boards and this host.

    Boards are also taken from `autotune.toml`: [devices] ssh = ["pi@raspberrypi"].

    \b
    Example:
      autotune devices
      autotune devices --ssh pi@raspberrypi --json
    """
    from autotune.cli.settings import boards
    from autotune.devices import discovery

    if context.invoked_subcommand is not None:
        return
    found, notices = discovery.known([*boards(), *(ssh or ())])
    listed = [discovery.look(serial, kind, state) for serial, kind, state in found]
    _say(notices)
    if json:
        write_json({"devices": [_as_json(one) for one in listed], "notices": notices})
        return
    write_table(
        (
            "serial", "by", "state", "model", "SoC", "ABI", "clusters", "GPU", "root", "meters",
            "zones", "OpenCL",
        ),
        [_row(one) for one in listed],
        whole=True,
    )  # fmt: skip
    for one in listed:
        if one.reason:
            typer.echo(f"{one.serial}: {one.reason}")
        if one.info and one.info.emulated:
            typer.echo(f"{one.serial}: {one.info.emulated}")
    _left_behind()


def _row(one: Listed) -> tuple[str, ...]:
    info = one.info
    if info is None:
        return (one.serial, one.kind, one.state, *[""] * 9)
    return (
        one.serial,
        one.kind,
        "ready, emulated" if info.emulated else one.state,
        info.model,
        info.soc,
        info.abi,
        _clusters(info),
        info.gpu.name if info.gpu else "-",
        "yes" if info.rooted else "no",
        ", ".join(sorted({m.kind for m in info.meters})) or "-",
        str(len(info.thermal_zones)),
        info.opencl or "-",
    )


def _clusters(info: DeviceInfo) -> str:
    from autotune.devices.topology import cpu_list_text

    return "; ".join(
        f"{c.name} {cpu_list_text(c.cpus)}"
        + (f" {c.min_khz / 1e6:.1f}-{c.max_khz / 1e6:.1f} GHz" if c.min_khz and c.max_khz else "")
        for c in info.clusters
    )


def _as_json(one: Listed) -> dict[str, object]:
    return {
        "serial": one.serial,
        "kind": one.kind,
        "state": one.state,
        "reason": one.reason,
        "info": one.info.to_json() if one.info else None,
    }


def show(
    serial: Annotated[str, typer.Argument(help="Serial, as `autotune devices` lists it.")],
    ssh: Ssh = None,
    json: Json = False,
) -> None:
    """Shows what can be tuned on a device, what is only observed, and why.

    \b
    Example:
      autotune devices show local
      autotune devices show 9WV4C18B11001234 --json
    """
    from dataclasses import asdict

    from autotune.cli.settings import boards
    from autotune.devices import discovery
    from autotune.devices.capabilities import capabilities
    from autotune.devices.info import probe

    ((serial, kind),) = discovery.choose([serial], [*boards(), *(ssh or ())])
    info = probe(discovery.reach(serial, kind))
    matrix = capabilities(info)
    if json:
        write_json(
            {"device": info.to_json(), "capabilities": [asdict(one) for one in matrix]},
        )
        return
    typer.echo(f"{info.model} ({info.soc}), {info.system}, {info.abi}, by {info.kind}")
    if info.emulated:
        typer.echo(info.emulated)
    write_table(
        ("what", "can be", "now", "why"),
        [(one.name, one.status, one.value, one.reason) for one in matrix],
        whole=True,
    )


def restore(json: Json = False) -> int:
    """Undoes what a run that died has left changed on devices.

    Every change of a device is written to a journal first, and crossed out when it is undone.

    \b
    Example:
      autotune devices restore
    """
    from autotune.devices import discovery, journal

    outcomes = list(journal.restore(journal.left_behind(), discovery.reach))
    if json:
        write_json(
            {
                "restored": [
                    {"serial": left.serial, "changes": len(left.changes), "failures": failures}
                    for left, failures in outcomes
                ]
            }
        )
    else:
        for left, failures in outcomes:
            done = len(left.changes) - len(failures)
            typer.echo(f"{left.serial}: {done} of {len(left.changes)} changes undone")
            for failure in failures:
                typer.echo(f"  not undone: {failure}")
        if not outcomes:
            typer.echo("nothing was left changed")
    return 3 if any(failures for _, failures in outcomes) else 0


def _say(notices: list[str]) -> None:
    from autotune.cli.verbosity import LOGGER

    for notice in notices:
        LOGGER.warning("%s", notice)


def _left_behind() -> None:
    from autotune.devices import journal

    for left in journal.left_behind():
        if left.changes:
            typer.echo(
                f"{left.serial}: a run that died left {len(left.changes)} changes; "
                "`autotune devices restore` undoes them",
                err=True,
            )


__all__ = ["list_unless_subcommand", "restore", "show"]
