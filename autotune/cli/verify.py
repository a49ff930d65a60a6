"""`autotune verify`: checks an exported library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def verify(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of an export.", show_default=False)
    ],
    device: Annotated[
        str | None,
        typer.Option(
            metavar="host|qemu",
            help="Where to run its kernels; qemu emulates aarch64 here. [default: what fits]",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> int:
    """Checks an export: that its files are as they were written, and what its kernels compute on this device.

    It compares every file with its SHA-256, builds the export's example and runs it: one kernel of each role of
    each variant, compared with stored float64 results. Nothing is run where a file has changed. Exit code 0 where
    all is right, 1 where something is wrong, 2 where there is no export or it cannot run there, 4 where a tool is
    missing.

    \b
    Examples:
      autotune verify build/lenet-c
      autotune verify build/lenet-arm --device qemu --json
    """
    from autotune.cli.output import write_json, write_table
    from autotune.compiler.export.verify import WHERE
    from autotune.compiler.export.verify import verify as verify_export
    from autotune.errors import UsageError

    where = next((one for one in WHERE if one == device), None)
    if device is not None and where is None:
        raise UsageError(f"unknown device {device!r}", hint=f"one of {', '.join(WHERE)}")
    verdict = verify_export(folder, where)
    if json:
        write_json(verdict.to_json())
        return 0 if verdict.ok else 1
    for found in verdict.files:
        print(f"{found.file}: {found.status}")
    if verdict.results:
        write_table(
            ("variant", "role", "kernel", "result", "largest error", "reason"),
            [
                (
                    one.variant,
                    one.role or "",
                    one.kernel or "",
                    one.status,
                    "" if one.max_rel_error is None else f"{one.max_rel_error:.1e}",
                    one.reason,
                )
                for one in verdict.results
            ],
            numbers=("largest error",),
        )
    elif not verdict.ok:
        print("files have changed: nothing of it was run", file=sys.stderr)
    print(f"{folder}: {'right' if verdict.ok else 'WRONG'}, {verdict.checked_files} files")
    return 0 if verdict.ok else 1
