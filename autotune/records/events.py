"""Allowed content of a run's `run.json` and events.

It is checked once when a run is read, so that readers can rely on the types.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from autotune.reading import Count, Name, Number, Seconds, Unreadable, typed
from autotune.records.database import Form
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
    "killed",
]


@dataclass
class _Event:
    event: str
    time: Number


@dataclass
class _Outcome:
    """Outcome of a `default`, `reference` or `trial` event."""

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


@dataclass
class _Cluster:
    cores: Count
    khz: Count | None


@dataclass
class _Configuration:
    clusters: dict[str, _Cluster]
    threads: Count


@dataclass
class _Foretold:
    time_s: Number | None = None
    energy_j: Number | None = None


@dataclass
class _Figures:
    __pydantic_config__ = ConfigDict(extra="forbid")
    time_s: Seconds
    energy_j: Number | None = None
    celsius: Number | None = None
    memory_bytes: Number | None = None
    deviation_j: Number | None = None


@dataclass
class _Energy:
    joules: Number
    deviation: Number | None
    seconds: Number
    updates: Number | None = None


@dataclass
class _Measurement:
    """A measurement of a step, in searches, comparisons, profiles and plans."""

    status: Literal["ok", "invalid", "failed"]
    figures: _Figures | None
    configuration: _Configuration | None = None
    number: Count | None = None
    message: str = ""
    reason: str = ""
    belief: dict[str, Any] | None = None
    step_s: list[Annotated[Number, Field(ge=0)]] | None = None  # 0 if a clock is coarse.
    energy: _Energy | None = None
    marks: list[str] | None = None
    rails: dict[str, Number | None] | None = None
    khz: dict[str, Number | None] | None = None
    raw: Annotated[str, Field(pattern=r"^[\w-]+\.jsonl$")] | None = None
    task_s: list[Number | None] | None = None
    chosen: list[Count] | None = None
    form: Count | None = None
    foretold: _Foretold | None = None
    foretold_s: list[Number | None] | None = None
    rejected: list[Any] | None = None


@dataclass
class _Temperatures:
    low_c: Number
    high_c: Number


@dataclass
class _Calibration:
    why: str
    scale: Number | None


@dataclass(frozen=True, kw_only=True)
class _Step(Form):
    """The training step of a request."""

    model: Name
    batch: Count | None = None
    gpu_memory: Name | None = None
    runs: list[Name] = field(default_factory=list)
    gpu_runs: list[Name] = field(default_factory=list)
    train: list[Name] = field(default_factory=list)


@dataclass
class _Fleet:
    tracker: Name
    key: Name


@dataclass
class _Named:
    """Things outside of a run's folder that the request of any command may name."""

    command: Name | None = None
    ssh: list[Name] | None = None
    storage: Name | None = None
    fleet: _Fleet | None = None
    own: Name | None = None
    step: _Step | None = None


@dataclass
class _Request(_Named):
    """The request of a command other than `kernels`: its options, of which only the types are checked here."""

    objective: Name | None = None
    joint: bool | None = None
    profile: dict[str, Any] | Name | None = None
    steps_from: Name | None = None
    device: Name | None = None
    emulate: Name | None = None
    deadline: Name | None = None
    energy_budget: Name | None = None
    max_temperature: Number | Name | None = None
    memory_limit: Name | None = None
    sampler: Name | None = None
    model: bool | None = None
    space: Name | None = None
    meter: Name | None = None
    blocks: int | None = None
    start_temperature: Number | None = None
    least_seconds: Number | None = None
    study: Name | None = None
    seed: int | None = None
    per_operator: bool | None = None
    exhaustive: bool | None = None
    reference_every: int | None = None
    sequential: bool | None = None
    kernel_trials: int | None = None
    trials: Count | None = None


@dataclass
class _Device:
    name: Name | None = None
    model: Name | None = None
    kind: Name | None = None
    driver: Name | None = None
    serial: Name | None = None
    emulated: Name | None = None
    details: dict[str, Any] | None = None
    stand_in: bool | None = None


@dataclass
class _About:
    """The content of a `run.json`."""

    request: dict[str, Any] = field(default_factory=dict)
    command: str | None = None
    versions: dict[Name, Name] | None = None
    device: _Device | None = None
    git: Name | None = None
    step: _Step | None = None


_OF_KERNELS = {
    "default": _Outcome,
    "reference": _Outcome,
    "trial": _Trial,
    "drift": _Drift,
    "round": _Round,
    "final": _Final,
}
_OF_SEARCHES: dict[str, type[Any]] = {
    "start_temperature": _Temperatures,
    "calibration": _Calibration,
}


def check_about(about: Any) -> None:
    """Refuses a `run.json` that no command writes. A request of `kernels` is checked completely when it is read.

    Args:
        about: Its content.

    Raises:
        Unreadable: A field has a wrong type.
    """
    request = typed(_About, about).request
    typed(_Named if request.get("kind") == "kernels" else _Request, request)


def check_event(event: Any, command: str) -> None:
    """Refuses an event that no run writes.

    Args:
        event: A line of `events.jsonl`.
        command: The kind of run, as its request names it.

    Raises:
        Unreadable: A field is missing or of a wrong type.
        RecordError: Its schedule contains something that our searches never make.
    """
    kind = typed(_Event, event).event
    if command != "kernels":
        form = _Measurement if "figures" in event else _OF_SEARCHES.get(kind)
        if form is not None:
            typed(form, event)
        return
    if kind in _OF_KERNELS:
        found: object = typed(_OF_KERNELS[kind], event)
        if isinstance(found, _Outcome) and (found.status == "ok") != bool(found.samples_s):
            raise Unreadable("it has samples where its status is not ok, or none where it is")
    if kind == "trial":
        if not event.get("digest") or not event.get("formulation"):
            raise Unreadable("a trial without a digest or a formulation")
        check_kinds(event.get("trace"))
