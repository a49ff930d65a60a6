"""`autotune tracker`: a TVM tracker that serves the connected devices."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.commands.devices import Json
from autotune.cli.options import Ssh, completion
from autotune.cli.shared import Column, number, with_wide, write_json, write_next, write_table
from autotune.jobs.device import restore_left_behind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotune.devices import DeviceInfo
    from autotune.tracker import Deployment, FleetState

_LOOPBACK = ("127.0.0.1", "localhost")
_READY_TIMEOUT_S = 180.0
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def up(
    device: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=completion.devices,
            metavar="SERIAL",
            help="A device, as `autotune devices` lists it; may be repeated. [default: all that are ready]",
        ),
    ] = None,
    ssh: Ssh = None,
    key: Annotated[
        str | None,
        typer.Option(help="Key of all devices. [default: the GPU's or the SoC's name]"),
    ] = None,
    per_cluster: Annotated[
        bool, typer.Option("--per-cluster", help="One more key for each cluster of cores.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the tracker.")] = 9190,
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address that the tracker listens on.")
    ] = "127.0.0.1",
    server: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="A server of your own: a folder from `autotune rpc build --out`, or a tvm_rpc program.",
        ),
    ] = None,
    allow_reboot: Annotated[
        bool, typer.Option("--allow-reboot", help="Restart a device when nothing else helps.")
    ] = False,
    json: Json = False,
) -> int:
    """Starts a tracker, and serves the connected devices on it.

    The device server is copied to each device over adb or ssh, watched, and restarted if it dies. `autotune
    tracker down` restores the devices. Anyone who can reach the tracker can run code on the devices. So it
    listens on this host only; use `ssh -L` from elsewhere.

    \b
    Example:
      autotune tracker up
      autotune tracker up --ssh pi@raspberrypi --per-cluster
      autotune kernels --target arm-cpu --model lenet --batch 4 --tracker 127.0.0.1:9190 --key sd855
    """
    from autotune.devices import discovery
    from autotune.errors import UsageError
    from autotune.jobs.device import boards
    from autotune.tracker import LOOPBACK, UpRequest, launch, public_address, refuse_taken, state

    running = state.read()
    if running is not None:
        raise launch.runs_already(running)
    if not 1 <= port <= 65534:
        raise UsageError(f"--port is {port}", hint="give a number from 1 to 65534")
    if key is not None and not _KEY.fullmatch(key):
        raise UsageError(
            f"--key '{key}' is not a valid key",
            hint="up to 64 letters, digits, dots, dashes and underscores",
        )
    public_address(listen)
    refuse_taken(LOOPBACK, port)
    if listen not in _LOOPBACK:
        typer.echo(
            f"autotune: warning: the tracker listens on {listen}: anybody who reaches it runs code on the "
            "devices. An ssh tunnel (ssh -L) is the safe way.",
            err=True,
        )
    restore_left_behind()
    chosen = discovery.choose(device or [], [*boards(), *(ssh or ())])
    deployments = _deployments(chosen, key, per_cluster, server, all_of_them=bool(device))
    log = launch.log_file()
    request = UpRequest(listen, port, tuple(deployments), allow_reboot, str(log))
    found = launch.start(request, timeout=_READY_TIMEOUT_S)
    _show(found, as_json=json)
    for served in (key.key for one in found.devices for key in one.keys):
        gpu = next((name for name in ("adreno", "mali") if served.startswith(name)), "arm-cpu")
        write_next(
            "kernels",
            "--target",
            gpu,
            "--model",
            "lenet",
            "--tracker",
            found.tracker,
            "--key",
            served,
        )
        break
    return 0 if all(one.state == "serving" for one in found.devices) else 3


def _deployments(
    chosen: Sequence[tuple[str, str]],
    key: str | None,
    per_cluster: bool,
    server: Path | None,
    *,
    all_of_them: bool,
) -> list[Deployment]:
    """Returns how to serve each device. Devices that cannot serve are left out, unless all must.

    Raises:
        DeviceError: A device cannot serve, and all must; or none can.
    """
    from autotune.errors import DeviceError

    found = []
    for serial, kind in chosen:
        try:
            found.append(_deployment(serial, kind, key, per_cluster, server))
        except DeviceError as error:
            if all_of_them:
                raise
            typer.echo(f"autotune: warning: {serial} is left out: {error}", err=True)
    if not found:
        raise DeviceError("no device can serve", hint="`autotune devices` lists them")
    return found


def _deployment(
    serial: str, kind: str, key: str | None, per_cluster: bool, server: Path | None
) -> Deployment:
    from autotune.compiler.native import device_server, platform_of
    from autotune.devices import cpu_list_text, discovery, probe
    from autotune.errors import UsageError
    from autotune.measurement import body_zone
    from autotune.tracker import Deployment, Service

    info = probe(discovery.reach(serial, kind))
    services = [Service(key or _key(info))]
    if per_cluster:
        services += [
            Service(f"{_slug(info.soc)}-{cluster.name}", cpu_list_text(cluster.cpus))
            for cluster in info.clusters
        ]
    if server is None:
        # An emulated phone runs programs that are linked against glibc, whatever it reports.
        android = info.sdk is not None and not info.emulated
        platform = platform_of(info.abi, android=android)
        folder = device_server.bundle(
            platform, lambda line: typer.echo(f"autotune: {line}", err=True)
        )
        program = device_server.PROGRAM
    else:
        folder, program = _own_server(server)
        if per_cluster and program != device_server.PROGRAM:
            raise UsageError(
                f"{program} cannot bind its threads to a cluster",
                hint="leave --per-cluster out, or --server, so that the project's own server is used",
            )
    zone = body_zone(info)
    return Deployment(
        serial=serial,
        kind=kind,
        services=tuple(services),
        bundle=folder,
        program=program,
        emulated=info.emulated,
        thermal_zone=f"{zone.path}/temp" if zone else "",
        android=info.sdk is not None,
    )


def _own_server(server: Path) -> tuple[Path, str]:
    """Returns a folder to push and the program in it: a folder of ours, or a new one with a user's TVM server."""
    import os
    import shutil

    from autotune.compiler.native import PROGRAM
    from autotune.errors import UsageError
    from autotune.tracker import state

    if (server / PROGRAM).is_file():
        return server, PROGRAM
    if not server.is_file() or not os.access(server, os.X_OK):
        raise UsageError(
            f"{server} is neither a program nor a folder with {PROGRAM}",
            hint="give TVM's tvm_rpc for the device, or a folder as `autotune rpc build --out` makes it",
        )
    folder = state.folder() / "own-server"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(server, folder / server.name)
    return folder, server.name


def _key(info: DeviceInfo) -> str:
    """Returns the key of the graphics processor if it can be used, otherwise of the chip: `adreno640`, `sd855`."""
    if info.kind == "local":
        return "local"
    return _slug(info.gpu.name if info.gpu and info.opencl else info.soc)


def _slug(name: str) -> str:
    short = name.lower().replace("(tm)", "").replace("snapdragon", "sd")
    # Qualcomm's driver appends a revision: Adreno640v2.
    short = re.sub(r"^(adreno\d+)v\d+$", r"\1", short)
    return re.sub(r"[^a-z0-9]", "", short) or "device"


@with_wide
def status(json: Json = False) -> int:
    """Shows the devices of the running tracker: queue, trials a minute, temperature.

    \b
    Example:
      autotune tracker status
    """
    answers = _show(_running(), as_json=json)
    write_next("tracker", "down")
    return 0 if answers else 3


def down(json: Json = False) -> int:
    """Stops the tracker and restores the devices.

    \b
    Example:
      autotune tracker down
    """
    from autotune.tracker import launch

    running = _running()
    clean = launch.stop(running)
    if json:
        write_json({"stopped": running.tracker, "clean": clean})
    else:
        typer.echo(f"the tracker at {running.tracker} has ended")
        if not clean:
            typer.echo("a device could not be restored: `autotune devices restore`", err=True)
    write_next("tracker", "up") if clean else write_next("devices", "restore")
    return 0 if clean else 3


def _running() -> FleetState:
    from autotune.errors import DeviceError
    from autotune.tracker import state

    found = state.read()
    if found is None:
        raise DeviceError("no tracker runs", hint="start one with `autotune tracker up`")
    return found


def _show(found: FleetState, *, as_json: bool) -> bool:
    """Prints the state of a tracker; returns whether it answers."""
    from autotune.errors import TransientDeviceError
    from autotune.tracker import TrackerLink

    queue: dict[str, tuple[int, int]] = {}
    silent = ""
    try:
        queue = TrackerLink.parse(found.tracker).queue()
    except TransientDeviceError as error:
        silent = error.message
    if as_json:
        queued = {k: list(v) for k, v in queue.items()}
        write_json({**found.to_json(), "queue": queued, "answers": not silent, "error": silent})
        return not silent
    typer.echo(f"tracker {found.tracker}, log {found.log}")
    write_table(
        (
            Column("serial", least=12),
            Column("key"),
            Column("cores"),
            Column("state", least=11, prose=True),
            number("free"),
            number("waiting", rank=3),
            number("sessions", rank=5),
            number("trials"),
            number("trials/min", rank=1),
            number("crashes", rank=4),
            number("C", rank=2),
            number("restarts", rank=6),
        ),
        [
            (
                device.serial,
                key.key,
                key.cpus or "all",
                device.state + (", busy" if key.busy else "") + (" (emulated)" if device.emulated else ""),
                str(queue.get(key.key, (0, 0))[0]),
                str(queue.get(key.key, (0, 0))[1]),
                str(key.sessions),
                str(key.candidates),
                f"{key.trials_per_minute:.0f}",
                str(key.crashes),
                "-" if key.celsius is None else f"{key.celsius:.0f}",
                str(device.restarts),
            )
            for device in found.devices
            for key in device.keys
        ],
    )  # fmt: skip
    for device in found.devices:
        if device.message:
            typer.echo(f"{device.serial}: {device.message}")
        if device.emulated:
            typer.echo(f"{device.serial}: {device.emulated}")
    if silent:
        typer.echo(f"autotune: error: {silent}; it is restarted if it died", err=True)
    return not silent
