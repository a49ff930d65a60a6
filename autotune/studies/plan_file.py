"""A plan as a file, for those who carry it out; docs/joint.md has its schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import UsageError

PLAN_SCHEMA_VERSION = 1
KIND = "plan"


@dataclass(frozen=True)
class StepPlan:
    """How a step is carried out.

    Attributes:
        path: The file.
        device: What it was measured on, as in the result of a search.
        emulated: The profile of the model that it was measured on; empty for a real device.
        step: The options that mean the step, the runs with its kernels among them.
        configuration: Cores and clock of each cluster, and threads.
        digests: The schedule of each kernel, by its name; those that no run knows are missing.
        measured: `time_s`, `energy_j`, `memory_bytes`, `celsius`, and `ci`.
    """

    path: Path
    device: Mapping[str, Any]
    emulated: str
    step: dict[str, Any]
    configuration: dict[str, Any]
    digests: Mapping[str, str]
    measured: Mapping[str, Any]


def is_plan(path: Path) -> bool:
    """Whether a path that may be a run's folder is a plan instead."""
    return path.suffix == ".json" and not path.is_dir()


def read_plan(path: Path) -> StepPlan:
    """Reads a plan.

    Raises:
        UsageError: There is none, it is of another version, or it is damaged.
    """
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder, and a plan is a file",
            hint=f"such as {path / 'plans' / 'best.json'}, which `autotune joint` writes",
        )
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["kind"] != KIND:
            raise UsageError(f"{path} is no plan", hint="`autotune joint` writes plans")
        if told["schema_version"] != PLAN_SCHEMA_VERSION:
            raise UsageError(
                f"{path} is a plan of version {told['schema_version']}, and this autotune reads "
                f"{PLAN_SCHEMA_VERSION}",
                hint="search again with this version of autotune",
            )
        digests = {
            str(call["kernel"]): str(call["schedule"]["digest"])
            for call in told["calls"]
            if call["schedule"] is not None
        }
        step = dict(told["step"])
        if not isinstance(step["model"], str) or not isinstance(step["runs"], list):
            raise TypeError("step")
        return StepPlan(
            path,
            dict(told["device"]),
            str(told["profile"] or ""),
            step,
            dict(told["configuration"]),
            digests,
            dict(told["measured"]),
        )
    except OSError as error:
        raise UsageError(f"no plan at {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is no plan, or a damaged one: {error!r}") from error
