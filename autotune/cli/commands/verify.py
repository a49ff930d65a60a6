"""`autotune verify`: checks an exported library."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import Ssh, completion
from autotune.cli.shared import (
    Column,
    name_of,
    number,
    roles,
    say_next,
    with_wide,
    write_json,
    write_next,
    write_table,
)
from autotune.errors import UsageError, counted
from autotune.jobs.device import restore_left_behind

if TYPE_CHECKING:
    from autotune.compiler.export import Remote, Verdict


@with_wide
def verify(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of an export.", show_default=False)
    ],
    device: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.places,
            metavar="host|qemu|SERIAL",
            help="Where to run its kernels; qemu emulates aarch64 here, a serial is one that `autotune devices` "
            "lists. [default: this host]",
        ),
    ] = None,
    ssh: Ssh = None,
    sample: Annotated[
        int | None,
        typer.Option(metavar="N", help="Check this many kernels only. [default: all]"),
    ] = None,
    check_all: Annotated[
        bool, typer.Option("--check-all", help="Check every kernel, which is the default.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> int:
    """Checks an export: its files, and the results of its kernels on this device.

    First, every file is compared with its SHA-256. If a file has changed, is missing or is not listed,
    nothing is run. Then the export's example is built, and every kernel of each variant is compared with
    float64 results; results that the export does not store are computed here. Exit codes: 0 all correct, 1
    something is wrong, 2 no export or it cannot run there, 4 a tool is missing.

    \b
    Examples:
      autotune verify build/lenet-c
      autotune verify build/resnet18-c --sample 5
      autotune verify build/lenet-arm --device qemu --json
      autotune verify build/lenet-arm --ssh pi@raspberrypi --device pi@raspberrypi
    """
    from autotune.compiler.export import WHERE
    from autotune.compiler.export import verify as verify_export
    from autotune.console import LiveProgress
    from autotune.jobs.provenance import Work

    if sample is not None and sample < 1:
        raise UsageError(f"--sample is {sample}", hint="give a number from 1 on")
    if sample is not None and check_all:
        raise UsageError("--sample checks some kernels and --check-all all", hint="give one")
    where = next((one for one in WHERE if one == device), None)
    remote = None if device is None or where is not None else _remote(device, ssh or ())
    with LiveProgress() as progress:
        verdict = verify_export(folder, where, remote, sample=sample, report=progress.at)
    if json:
        write_json(verdict.to_json(), Work())
    else:
        _show(folder, verdict)
    if verdict.ok:
        say_next("less", folder / "README.md")
        return 0
    write_next("runs")  # It shows what can be exported again.
    return 1


def _show(folder: Path, verdict: Verdict) -> None:
    from autotune.workloads import short_name

    for found in verdict.files:
        print(f"{found.file}: {found.status}")
    if verdict.results:
        write_table(
            (
                Column("variant"),
                roles(),
                name_of("kernel"),
                Column("kernel", whole=True),
                Column("result"),
                number("largest error"),
                Column("reason", least=16, prose=True),
            ),
            [
                (
                    one.variant,
                    one.role or "",
                    short_name(verdict.specs.get(one.kernel or "", "")) or one.kernel or "",
                    verdict.specs.get(one.kernel or "", one.kernel or ""),
                    one.status,
                    "" if one.max_rel_error is None else f"{one.max_rel_error:.1e}",
                    one.reason,
                )
                for one in verdict.results
            ],
        )
    elif not verdict.ok:
        print("files differ from those that were exported: nothing was run", file=sys.stderr)
    print(
        f"{folder}: {'right' if verdict.ok else 'WRONG'}, "
        f"{counted(verdict.checked_files, 'file')}, "
        f"{verdict.checked_kernels} of {counted(verdict.kernels, 'kernel')} checked"
    )


def _remote(serial: str, ssh: Sequence[str]) -> Remote:
    """Returns the device with this serial, and its platform."""
    from autotune.compiler.export import Remote
    from autotune.compiler.native import platform_of
    from autotune.devices import choose, probe, reach

    restore_left_behind()
    ((name, kind),) = choose([serial], ssh)
    device = reach(name, kind)
    info = probe(device)
    # An emulated phone has Debian's C library.
    platform = platform_of(info.abi, android=info.sdk is not None and not info.emulated)
    folder = "/tmp" if info.sdk is None else "/data/local/tmp"
    return Remote(device, platform, PurePosixPath(folder))
