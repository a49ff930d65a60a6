"""Profiles of a step by operator and role, as plain data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.measurement import CallProfile, StepProfile
from autotune.workloads import StepGraph, live_bytes
from autotune.workloads.operators import ROLES

_OUTSIDE = "program"


@dataclass(frozen=True)
class NamedCall:
    """A call of a step.

    Attributes:
        name: The layer, the operator and the role.
        operator: The operator.
        role: The part of the step that it belongs to.
        live_bytes: Planned memory of tensors that are live while it runs; None if unknown.
    """

    name: str
    operator: str
    role: str
    live_bytes: int | None = None


def named_calls(graph: StepGraph | None, profile: StepProfile) -> list[NamedCall]:
    """Returns the calls of a profile with names: from the graph for a step, as reported for another program.

    Raises:
        ValueError: The graph is of another step.
    """
    count = profile.calls.seconds.shape[1]
    if graph is None:
        names = profile.calls.names or tuple(f"call {number}" for number in range(count))
        # A name such as conv1.weight_grad contains its role.
        roles = [name.rpartition(".")[2] for name in names]
        return [
            NamedCall(name, _OUTSIDE, role if role in ROLES else _OUTSIDE)
            for name, role in zip(names, roles, strict=True)
        ]
    if count != len(graph.nodes):
        raise ValueError(f"{count} calls were reported for a step with {len(graph.nodes)}")
    return [
        NamedCall(
            f"{node.place} {node.kernel.operator.name} {node.kernel.role}",
            node.kernel.operator.name,
            node.kernel.role,
            live,
        )
        for node, live in zip(graph.nodes, live_bytes(graph), strict=True)
    ]


def operators(calls: Sequence[NamedCall], profile: StepProfile) -> list[dict[str, Any]]:
    """Returns each call of a step."""
    whole = profile.step.time_s
    return [
        {
            "name": call.name,
            "operator": call.operator,
            "role": call.role,
            **_figures(profile.of([number]), whole),
            "live_bytes": call.live_bytes,
        }
        for number, call in enumerate(calls)
    ]


def roles(calls: Sequence[NamedCall], profile: StepProfile) -> list[dict[str, Any]]:
    """Returns totals of calls with the same operator and role, the longest first."""
    together: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for number, call in enumerate(calls):
        together[call.operator, call.role].append(number)
    whole = profile.step.time_s
    found = [
        {
            "operator": operator,
            "role": role,
            "calls": len(numbers),
            **_figures(profile.of(numbers), whole),
            "live_bytes": max((calls[n].live_bytes or 0 for n in numbers), default=0) or None,
        }
        for (operator, role), numbers in together.items()
    ]
    return sorted(found, key=lambda row: -row["time_s"])


def _figures(found: CallProfile, whole_s: float) -> dict[str, Any]:
    watts = found.energy_j / found.time_s if found.energy_j is not None and found.time_s else None
    return {
        "time_s": found.time_s,
        "share": found.time_s / whole_s if whole_s else 0.0,
        "energy_j": found.energy_j,
        "deviation_j": found.deviation_j,
        "watts": watts,
        "apart": found.apart,
        "busy": {str(cpu): share for cpu, share in (found.busy or {}).items()},
        "khz": found.khz,
        "celsius": found.celsius,
        "rss_bytes": found.rss_bytes,
    }
