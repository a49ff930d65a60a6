"""Splits the time of a tuned step into parts, from a run's result."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.records.result import Result

MOVEMENT = "data movement"


@dataclass(frozen=True)
class Share:
    """A part of a step's kernel time.

    Attributes:
        role: ``forward``, ``data_grad``, ``weight_grad``, ``update``; or ``data movement``.
        operator: The operator, such as ``conv2d``; for movement, the operator that needs it.
        ms: Milliseconds in a step.
    """

    role: str
    operator: str
    ms: float


def step_shares(result: Result) -> list[Share]:
    """Splits the tuned step by role and operator, with separate lines for data movement, largest first.

    Kernels without a valid time are left out. Unmeasured movement counts as zero.
    """
    sums: dict[tuple[str, str], float] = {}
    for task in result.tasks:
        if task.tuned_ms is None:
            continue
        moving = min(task.movement_ms or 0.0, task.tuned_ms)
        for role, ms in ((MOVEMENT, moving), (task.role, task.tuned_ms - moving)):
            if ms:
                key = (role, task.operator)
                sums[key] = sums.get(key, 0.0) + task.count * ms
    shares = [Share(role, operator, ms) for (role, operator), ms in sums.items()]
    return sorted(shares, key=lambda share: -share.ms)
