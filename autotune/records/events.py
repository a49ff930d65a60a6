"""What the events of a run may hold, checked once when a run is read, so that no reader meets a wrong type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from autotune.reading import Count, Number, Seconds, Unreadable, typed
from autotune.records.result import Drift
from autotune.records.trace_grammar import check_kinds

Status = Literal[
    "ok",
    "compile_error",
    "run_error",
    "wrong_result",
    "timeout",
    "throttled",
    "unstable",
]


@dataclass
class _Event:
    event: str
    time: Number


@dataclass
class _Outcome:
    """Of `default`, `reference` and `trial`."""

    task: str
    status: Status
    samples_s: list[Seconds]
    message: str = ""
    max_rel_error: Number | None = None
    serial: str = ""
    conditions: list[dict[str, Any]] | None = None
    rejected: list[dict[str, Any]] | None = None


@dataclass
class _Trial(_Outcome):
    formulation: Annotated[str, Field(max_length=200)] = ""
    digest: Annotated[str, Field(max_length=200)] = ""
    trace: Any = None


@dataclass
class _Drift:
    drift: Drift


@dataclass
class _Round:
    task: str
    formulation: str
    asked: Count
    proposed: Count


@dataclass
class _Final:
    task: str
    winner: str | None
    samples: dict[str, list[Seconds]]


_OF_KERNELS = {
    "default": _Outcome,
    "reference": _Outcome,
    "trial": _Trial,
    "drift": _Drift,
    "round": _Round,
    "final": _Final,
}


def check_event(event: Any, command: str) -> None:
    """Refuses an event that no run writes.

    Args:
        event: A line of `events.jsonl`.
        command: The kind of run, as its request names it; the events of `kernels` are checked in full.

    Raises:
        Unreadable: A field is missing or of a wrong type.
        RecordError: Its schedule has what no search of ours makes.
    """
    kind = typed(_Event, event).event
    if command != "kernels":
        return
    if kind in _OF_KERNELS:
        found: object = typed(_OF_KERNELS[kind], event)
        if isinstance(found, _Outcome) and (found.status == "ok") != bool(found.samples_s):
            raise Unreadable("it has samples where its status is not ok, or none where it is")
    if kind == "trial":
        if not event.get("digest") or not event.get("formulation"):
            raise Unreadable("a trial without a digest or a formulation")
        check_kinds(event.get("trace"))
