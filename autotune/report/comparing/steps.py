"""Comparison of two profiles."""

from __future__ import annotations

from typing import Any

from autotune.records import Run


def compared_profiles(first: Run, second: Run) -> dict[str, Any]:
    """Compares the step of both profiles, and each operator and role."""
    results = [run.result or {} for run in (first, second)]
    named = [{(row["operator"], row["role"]): row for row in r["roles"]} for r in results]
    rows = []
    for key in dict.fromkeys([*named[0], *named[1]]):
        one, other = (side.get(key, {}) for side in named)
        row: dict[str, Any] = {"operator": key[0], "role": key[1]}
        for name in ("time_s", "energy_j"):
            row[name] = _pair(one.get(name), other.get(name))
        rows.append(row)
    return {
        "step": {
            "time_s": _pair(results[0]["step_s"], results[1]["step_s"]),
            "energy_j": _pair(results[0]["energy_j"], results[1]["energy_j"]),
        },
        "roles": rows,
    }


def _pair(first: float | None, second: float | None) -> dict[str, float | None]:
    """Returns two figures and their ratio. Times of a profile have no interval."""
    known = first is not None and second is not None and first > 0 and second > 0
    return {
        "first": first,
        "second": second,
        "ratio": first / second if known and first and second else None,
    }
