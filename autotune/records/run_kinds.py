"""Identifies the command of a run, and how to complete one that did not end."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

Kind = Literal["kernels", "joint", "cpu-config", "profile", "comparison"]


def kind_of(about: Mapping[str, Any]) -> Kind | None:
    """Returns the kind of a run, from its `run.json`; None if its command is unknown."""
    request = about.get("request")
    if not isinstance(request, Mapping):
        return None
    if request.get("kind") == "kernels":
        return "kernels"
    if "objective" in request:
        return "joint" if request.get("joint") else "cpu-config"
    if "profile" in request:
        return "profile"
    return "comparison" if {"run", "first", "second", "by"} <= request.keys() else None


def command_of(kind: Kind) -> str:
    """Returns the command that makes runs of a kind, without `autotune`."""
    return "cpu-config compare" if kind == "comparison" else kind


def work_of(about: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Returns the model and the batch size of a run, from its `run.json`.

    The model is named as the user named it: `lenet`, or `file.py:factory`. It is None for one operator and for
    another program. The batch size is None for these too, and if it was left to the default.
    """
    request = about.get("request")
    request = request if isinstance(request, Mapping) else {}
    found = (about.get("step"), request.get("step"), request.get("profile"))
    step = next((one for one in found if isinstance(one, Mapping)), {})
    batch = next((n for n in (step.get("batch"), request.get("batch")) if isinstance(n, int)), None)
    # Kernel runs of earlier versions have only the name of the step. An operator has no batch size.
    model = step.get("model") or (None if batch is None else request.get("workload"))
    return (model, batch) if isinstance(model, str) else (None, None)


def how_to_end(path: Path, about: Mapping[str, Any]) -> str:
    """Explains how to complete a run that did not end, with the command; empty if unknown.

    Args:
        path: Its folder.
        about: Content of its `run.json`.
    """
    kind = kind_of(about)
    if kind is None:
        return ""
    if kind == "profile":
        step = about["request"]["profile"]
        given = step if isinstance(step, Mapping) else {}
        options = [f"--{name} {given[name]}" for name in ("model", "batch") if given.get(name)]
        return f"profile again: autotune profile {' '.join(options) or '...'}"
    if kind == "comparison":
        asked = about["request"]
        words = [str(asked[name]) for name in ("run", "first", "second")]
        return f"compare again: autotune {command_of(kind)} {shlex.join(words)}"
    return f"continue with: autotune {kind} --resume {shlex.quote(str(path))}"


__all__ = ["Kind", "command_of", "how_to_end", "kind_of", "work_of"]
