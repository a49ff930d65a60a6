"""Named points of a finished search."""

from __future__ import annotations

from typing import Any

from autotune.errors import UsageError, choices
from autotune.reading import reading
from autotune.records import Run, kind_of


def point_of(run: Run, name: str) -> dict[str, Any]:
    """Returns a named point of a finished search.

    Raises:
        UsageError: The search has not finished, or has no such point.
        RecordError: Its result is damaged.
    """
    if kind_of(run.about) not in ("cpu-config", "joint"):
        raise UsageError(
            f"{run.path} is not a run of cpu-config or joint",
            hint="`autotune cpu-config` finds configurations",
        )
    result = run.ended()
    with reading(run.path / "result.json"):
        known: dict[str, Any] = {
            "best": result["best"],
            "default": result["default"],
            **result["points"],
            "sequential": (result.get("sequential") or {}).get("best"),
        }
        front = {f"pareto_{number}": one for number, one in enumerate(result["pareto"], start=1)}
        point = {**known, **front}.get(name.replace("-", "_"))
    if point is None:
        raise UsageError(
            f"the run has no point '{name}'",
            hint=choices(name, (n for n, p in known.items() if p))
            + (f", or pareto-1 to pareto-{len(front)}" if front else ""),
        )
    return dict(point)
