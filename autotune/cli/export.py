"""`autotune export`: writes a run's tuned kernels as a library that can be loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="Folder to write; made if it is missing.")],
    allow_stand_in: Annotated[
        bool,
        typer.Option(help="Export although the kernels were measured on a stand-in."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Writes one loadable library of a run's kernels, a manifest and an example.

    \b
    Example:
      autotune export logs/20260102T030405Z-cpu-lenet --out build/lenet-kernels
    """
    import json as json_module

    from autotune.compiler.export import export_run

    manifest = export_run(run, out, allow_stand_in=allow_stand_in)
    if json:
        print(json_module.dumps(manifest, indent=2))
        return
    print(f"{len(manifest['kernels'])} kernels for {manifest['target']} in {out}")
    print(f"try it: python {out / 'example.py'}")
