"""`autotune targets`: the targets that can be tuned for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.shared import Column, with_wide, write_json, write_next, write_table

if TYPE_CHECKING:
    from autotune.compiler.target import Limits, TargetSpec


@with_wide
def targets(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Lists the targets, their search spaces and their limits.

    A search space is a TOML file; copy one, change it and give it to `autotune kernels --space`.

    \b
    Example:
      autotune targets
      autotune targets --json
    """
    from autotune.compiler.runners import assumed
    from autotune.compiler.target import TARGETS, spaces

    described = [
        (target, limits and assumed(target).within(limits))
        for target in TARGETS
        for limits in [spaces.load(target.space_path()).limits]
    ]
    if json:
        write_json(
            {
                "targets": [
                    {
                        "name": target.name,
                        "family": target.family,
                        "description": target.description,
                        "space_file": target.space_file,
                        "space_path": str(target.space_path()),
                        "limits": limits.model_dump(mode="json") if limits else None,
                        "tvm": dict(target.tvm),
                    }
                    for target, limits in described
                ]
            }
        )
    else:
        _show(described)
    write_next("kernels", "--target", TARGETS[0].name, "--model", "lenet")


def _show(described: list[tuple[TargetSpec, Limits | None]]) -> None:
    from autotune.compiler.target import spaces

    write_table(
        (
            Column("target"),
            Column("family"),
            Column("description", least=56, named=True),
            Column("search space", rank=1),
            Column("limits", rank=2, least=30, named=True),
            Column("TVM target", rank=3),
        ),
        [
            (
                target.name,
                target.family,
                target.description,
                target.space_file,
                _limits_text(target, limits),
                " ".join(f"{key}={_value_text(value)}" for key, value in target.tvm),
            )
            for target, limits in described
        ],
    )
    print(f"\nsearch spaces: {spaces.folder()}")


def _limits_text(target: TargetSpec, limits: Limits | None) -> str:
    """Returns the limits of a work-group on a GPU, or a processor's number of cores."""
    if limits is None:
        cores = dict(target.tvm).get("num-cores")
        return f"{cores} cores" if cores else "this host's cores"
    local = f"{limits.max_local_memory_bytes / 1024:g} KiB local memory"
    return f"read from the device; without one {limits.max_threads_per_block} work-items, {local}"


def _value_text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
