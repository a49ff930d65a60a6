"""`autotune rpc`: the device server, built for the device's platform."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.shared import write_json, write_next


def build(
    platform: Annotated[
        str,
        typer.Option("--for", metavar="PLATFORM", help="host, linux-aarch64 or android-arm64."),
    ],
    wheels: Annotated[
        Path | None,
        typer.Option(help="Folder with TVM's aarch64 wheels, instead of downloading them once."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Copy the server and its libraries into this folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Builds the device server, with everything that it needs.

    `autotune tracker up` does this automatically. Use this command to inspect the server, or to copy it by
    hand.

    \b
    Example:
      autotune rpc build --for linux-aarch64
      autotune rpc build --for android-arm64 --out server
    """
    import shutil

    from autotune.compiler.native import device_server
    from autotune.errors import UsageError

    folder = device_server.bundle(
        platform, lambda line: typer.echo(f"autotune: {line}", err=True), wheels=wheels
    )
    if out is not None:
        try:
            shutil.copytree(folder, out, dirs_exist_ok=True)
        except OSError as error:
            raise UsageError(f"{out} cannot be written: {error}") from error
        folder = out
    files = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    if json:
        write_json({"platform": platform, "folder": str(folder), "files": files})
        write_next("tracker", "up", "--server", folder)
        return
    for name, size in files.items():
        typer.echo(f"{folder / name}  {size / 1e6:.1f} MB")
    write_next("tracker", "up", "--server", folder)
