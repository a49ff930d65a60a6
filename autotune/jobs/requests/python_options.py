"""Options of the Python API by name and type. They become fields of the requests, which describe them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from autotune.jobs.requests.kernels import Precision

Paths = str | Path | Sequence[str | Path]
"""One path or several."""


class StepOptions(TypedDict, total=False):
    """Further options of a training step; see `StepRequest`."""

    classes: int | None
    micro_batch: int | None
    recompute: int | None
    layout: Literal["channels-first", "channels-last"] | None
    train: str | Sequence[str] | None


class KernelsOptions(StepOptions, total=False):
    """Further options of `autotune.tune_kernels`; see `KernelsRequest`."""

    role: str | None
    target_json: str | Path | None
    seed: int | None
    space: str | Path | None
    precision: Precision | None
    tracker: str | None
    key: str | None
    cluster: str | None
    emulate: str | None
    start_from: Paths
    records: Paths


class SearchOptions(StepOptions, total=False):
    """Further options of `autotune.cpu_config` and `autotune.joint`; see `SearchRequest`."""

    optimizer: str | None
    input_shape: Sequence[int] | None
    command: str | None
    steps_from: str | None
    device: str | None
    ssh: str | Sequence[str]
    emulate: str | None
    deadline: str | None
    energy_budget: str | None
    max_temperature: float | None
    memory_limit: str | None
    sampler: str | None
    model_start: bool | None
    space: str | Path | None
    meter: str | None
    blocks: int | None
    start_temperature: float | None
    least_seconds: float | None
    storage: str | None
    study: str | None
    seed: int | None
    per_operator: bool | None
    exhaustive: bool | None
    reference_every: int | None
    sequential: bool | None
    kernel_trials: int | None


class ExportOptions(TypedDict, total=False):
    """Further options of `KernelsResult.export`; see `ExportRequest`."""

    name: str | None
    platform: str | None
    socs: str | Sequence[str]
    allow_stand_in: bool
    check_all: bool
