"""`autotune devices`: phones, boards and this host; what can be tuned on them; changes that were left."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import Ssh, completion
from autotune.cli.shared import Column, number, with_wide, write_json, write_next, write_table
from autotune.errors import counted
from autotune.waits import nothing_awaited

if TYPE_CHECKING:
    from autotune.devices import Capability, DeviceInfo, Listed
    from autotune.emulator.phone import EmulatedPhone, ModelPhone

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@with_wide
def list_unless_subcommand(context: typer.Context, ssh: Ssh = None, json: Json = False) -> None:
    """Lists adb phones, ssh boards and this host.

    Boards are also taken from `autotune.toml`: [devices] ssh = ["pi@raspberrypi"].

    \b
    Example:
      autotune devices
      autotune devices --ssh pi@raspberrypi --json
    """
    from autotune.devices import discovery
    from autotune.jobs.device import boards

    if context.invoked_subcommand is not None:
        return
    found, notices = discovery.known([*boards(), *(ssh or ())])
    listed = [discovery.look(serial, kind, state) for serial, kind, state in found]
    _say(notices)
    if json:
        write_json({"devices": [_as_json(one) for one in listed], "notices": notices})
    else:
        _show_list(listed)
        _left_behind()
    ready = [one.serial for one in listed if one.info is not None]
    if ready:
        write_next("devices", "show", ready[0])


def _show_list(listed: list[Listed]) -> None:
    write_table(
        (
            Column("serial"),
            Column("by"),
            Column("state"),
            Column("model", least=14),
            Column("SoC", rank=2, least=14),
            Column("ABI", rank=6),
            Column("clusters", rank=3, least=20, prose=True),
            Column("GPU", rank=5, least=10),
            Column("root", rank=1),
            Column("meters", rank=4),
            number("zones", rank=8),
            Column("OpenCL", rank=7, least=24),
        ),
        [_row(one) for one in listed],
    )
    for one in listed:
        if one.reason:
            typer.echo(f"{one.serial}: {one.reason}")
        if one.info and one.info.emulated:
            typer.echo(f"{one.serial}: {one.info.emulated}")


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
    from autotune.devices import cpu_list_text

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


@with_wide
def show(
    serial: Annotated[
        str,
        typer.Argument(
            autocompletion=completion.devices, help="Serial, as `autotune devices` lists it."
        ),
    ],
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

    from autotune.devices import capabilities, discovery, probe
    from autotune.jobs.device import boards

    ((serial, kind),) = discovery.choose([serial], [*boards(), *(ssh or ())])
    info = probe(discovery.reach(serial, kind))
    matrix = capabilities(info)
    if json:
        write_json(
            {"device": info.to_json(), "capabilities": [asdict(one) for one in matrix]},
        )
    else:
        _show_device(info, matrix)
    if serial == "local":
        write_next("kernels", "--model", "lenet")
    else:
        write_next("tracker", "up", "--device", serial)


def _show_device(info: DeviceInfo, matrix: Sequence[Capability]) -> None:
    typer.echo(f"{info.model} ({info.soc}), {info.system}, {info.abi}, by {info.kind}")
    if info.emulated:
        typer.echo(info.emulated)
    write_table(
        (
            Column("what", least=18),
            Column("can be"),
            Column("now", least=12, prose=True),
            Column("why", least=20, prose=True),
        ),
        [(one.name, one.status, one.value, one.reason) for one in matrix],
    )


def emulate(
    profile: Annotated[
        str | None,
        typer.Argument(
            autocompletion=completion.profiles,
            help="Profile, such as meizu-16t; --list shows them.",
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the profiles.")] = False,
    port: Annotated[
        int, typer.Option(help="Port of its adb daemon on this host's loopback; 0 takes any.")
    ] = 0,
    rooted: Annotated[
        bool | None, typer.Option("--rooted/--unrooted", help="[default: as the profile says]")
    ] = None,
    connect: Annotated[
        bool, typer.Option("--connect/--no-connect", help="Have the adb server connect to it.")
    ] = True,
) -> None:
    """Runs an emulated phone that adb sees, until Ctrl-C. Linux and root only.

    A model provides its kernel files, clocks, temperature and battery. ARM programs run under qemu-user, so
    their times are not a phone's. Type a fault while it runs: drop, hang 5, offline
    10, slow 100000, garbage, unauthorised, reboot, throttle 2, deny, stuck, saturate 2.35, clear.

    \b
    Example:
      autotune devices emulate meizu-16t
      autotune devices emulate --list
    """
    from autotune.emulator.model import profile as profiles
    from autotune.errors import ToolchainError, UsageError

    if not 0 <= port <= 65535:
        raise UsageError(f"--port is {port}", hint="give a number from 0 to 65535")
    if listed:
        every = [(name, profiles.load(name)) for name in profiles.names()]
        write_table(
            (Column("profile"), Column("device", least=12), Column("SoC", least=8), Column("kind")),
            [
                (
                    name,
                    p.title if p.title.startswith(p.maker) else f"{p.maker} {p.title}",
                    p.soc,
                    "adb phone" if p.android else "board, in process",
                )
                for name, p in every
            ],
        )
        write_next("devices", "emulate", every[0][0])
        return
    if profile is None:
        raise UsageError("a profile is missing", hint=f"one of {', '.join(profiles.names())}")
    if find_spec("autotune.emulator.phone") is None:
        raise ToolchainError(
            "the phone that adb sees is not in the wheel",
            hint="in a clone of the sources: pip install -e .; --emulate works without it",
        )
    from autotune.emulator.phone import model_phone, serve, userland

    phone = model_phone.model_phone(profile, port=port, rooted=rooted)
    missing = userland.missing_parts()
    if missing:
        raise ToolchainError(
            f"an emulated phone needs {'; '.join(missing)}",
            hint="the model alone runs in process without them; see docs/emulator.md",
        )

    def ready(_: EmulatedPhone) -> None:
        if connect:
            phone.connect()
        typer.echo(phone.serial)
        typer.echo(f"emulated {profile} runs; Ctrl-C ends it", err=True)
        write_next("devices", "show", phone.serial)
        Thread(target=_faults_from_stdin, args=(phone,), daemon=True).start()

    with nothing_awaited():
        serve(phone, ready)


def _faults_from_stdin(phone: ModelPhone) -> None:
    from autotune.emulator.phone import model_phone
    from autotune.errors import UsageError

    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            model_phone.do(phone, line)
        except UsageError as error:
            typer.echo(f"autotune: {error}", err=True)
        else:
            typer.echo(f"done: {line.strip()}", err=True)


def restore(
    forget: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.left_behind,
            metavar="SERIAL",
            help="Forget a device that will not come back.",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Undoes changes that a crashed run left on devices.

    Every change to a device is written to a journal first, and removed from it when it is undone.

    \b
    Example:
      autotune devices restore
      autotune devices restore --forget 9WV4C18B11001234
    """
    from autotune.devices import discovery, journal
    from autotune.errors import UsageError

    if forget is not None:
        dropped = [left for left in journal.left_behind() if left.serial == forget]
        if not dropped:
            raise UsageError(f"nothing is left of '{forget}'", hint="`autotune devices` shows it")
        for left in dropped:
            left.path.unlink(missing_ok=True)
            typer.echo(f"{forget}: {counted(len(left.changes), 'change')} given up", err=True)
    from autotune.jobs.device import still_there

    outcomes = list(journal.restore(still_there(), discovery.reach))
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
            typer.echo(f"{left.serial}: {done} of {counted(len(left.changes), 'change')} undone")
            for failure in failures:
                typer.echo(f"  not undone: {failure}")
        if not outcomes:
            typer.echo("nothing was left changed")
    write_next("devices")
    return 3 if any(failures for _, failures in outcomes) else 0


def _say(notices: list[str]) -> None:
    from autotune.console import LOGGER

    for notice in notices:
        LOGGER.warning("%s", notice)


def _left_behind() -> None:
    from autotune.jobs.device import still_there

    for left in still_there():
        if left.changes:
            typer.echo(
                f"{left.serial}: a run that died left {counted(len(left.changes), 'change')}; "
                "`autotune devices restore` undoes what is left",
                err=True,
            )


__all__ = ["emulate", "list_unless_subcommand", "restore", "show"]
