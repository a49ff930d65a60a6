"""`autotune models`: the models that can be trained, and the cost of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.shared import Column, number, with_wide, write_json, write_next, write_table

if TYPE_CHECKING:
    from autotune.workloads import ModelInfo


@with_wide
def models(
    batch: Annotated[int, typer.Option(metavar="N", help="Samples in a step.")] = 4,
    classes: Annotated[int, typer.Option(metavar="N", help="Number of classes.")] = 10,
    operators: Annotated[
        bool,
        typer.Option(
            "--operators", help="List the operators that a PyTorch model may use instead."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Lists the models with the kernels of one training step: forward, backward and update.

    Two counts are shown: distinct kernels, each of which is tuned once, and kernel calls in a step. An update
    that is fused with a weight gradient is part of it.

    \b
    Example:
      autotune models
      autotune models --batch 32 --classes 1000 --json
      autotune models --operators
    """
    from autotune.workloads import MODELS

    if operators:
        _write_operators(as_json=json)
        return

    described = [_describe(model, batch, classes) for model in MODELS]
    if json:
        write_json({"batch": batch, "classes": classes, "models": described})
    else:
        _show(described, batch, classes)
    write_next("kernels", "--model", MODELS[0].name, "--batch", batch, "--classes", classes)


def _show(described: list[dict[str, Any]], batch: int, classes: int) -> None:
    print(f"One step with batch {batch} and {classes} classes; kernels: distinct/run.\n")
    write_table(
        (
            Column("model"),
            number("input"),
            number("parameters"),
            number("GFLOP"),
            number("kernels"),
            *(number(role, rank=1) for role in described[0]["kernels"]["by_role"]),
        ),
        [
            (
                model["name"],
                "x".join(map(str, model["input_shape"])),
                f"{model['parameters']:,}",
                f"{model['flops_per_step'] / 1e9:.3f}",
                _count_text(model["kernels"]),
                *map(_count_text, model["kernels"]["by_role"].values()),
            )
            for model in described
        ],
    )


def _write_operators(*, as_json: bool) -> None:
    """Prints the ATen operators that a captured step may have; PyTorch takes many others apart into these."""
    from autotune.workloads import aten_operators

    names = list(aten_operators())
    if as_json:
        write_json({"operators": names})
        return
    print("Operators of PyTorch steps; many others are taken apart into these.\n")
    by_name: dict[str, list[str]] = {}
    for name in names:
        operator, _, overload = name.removeprefix("aten.").partition(".")
        by_name.setdefault(operator, []).append(overload)
    write_table(
        (Column("operator"), Column("overloads")),
        [(operator, ", ".join(overloads)) for operator, overloads in by_name.items()],
    )


def _describe(model: ModelInfo, batch: int, classes: int) -> dict[str, Any]:
    from autotune.workloads import ROLES, StepForm, build_model, formed, tasks

    graph = formed(build_model(model.name, batch, classes), StepForm("channels_last"))
    counts = {role: {"distinct": 0, "total": 0} for role in ROLES}
    for task in tasks(graph):
        counts[task.kernel.role]["distinct"] += 1
        counts[task.kernel.role]["total"] += task.count
    return {
        "name": model.name,
        "description": model.description,
        "input_shape": list(model.input_shape),
        "parameters": graph.parameter_count,
        "kernels": {
            "distinct": sum(count["distinct"] for count in counts.values()),
            "total": sum(count["total"] for count in counts.values()),
            "by_role": counts,
        },
        "flops_per_step": graph.flops,
    }


def _count_text(count: dict[str, Any]) -> str:
    return f"{count['distinct']}/{count['total']}"
