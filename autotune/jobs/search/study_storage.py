"""The place where a search stores its study, and the files that its options name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from optuna.storages import BaseStorage

from autotune.errors import UsageError
from autotune.jobs.device import lasting, ranges
from autotune.jobs.requests import DEFAULT_BATCH, SearchRequest, StepRequest
from autotune.records import RunFolder
from autotune.studies.run import (
    Study,
    StudyRequest,
    default_url,
    explained_faults,
    hidden,
    identity_id,
    is_of,
    open_storage,
    study_of,
    without_password,
)

_LONGEST_NAME = 400
"""Longest name without the id, in characters. Databases keep 512."""
_STUDY = "cpu-config"
"""Name of unnamed studies in earlier versions, before studies were named after their search."""


def same_storage(before: str | None, given: str) -> str:
    """Returns the storage of a resumed run. It may be given again to supply its password."""
    known, again = (without_password(lasting(url) or "") for url in (before, given))
    if before is None or known != again:
        raise UsageError(
            f"the run's study is in {before or 'its own folder'}, not in {hidden(given)}",
            hint="with --resume, --storage only gives the password again",
        )
    return given


def study_name(search: SearchRequest, request: StudyRequest, soc: str) -> str:
    """Returns the default name of a study: command, objective, workload, device, other options, an id of the whole.

    Processes with the same options, on devices of one model, find each other by this name. Searches that could not
    share a study have different names, because their ids differ.

    Args:
        search: The search's request.
        request: The study's request.
        soc: The device's system on chip.
    """
    return _name(search, request, soc, [*_step_options(search.step), *_bounds(search, request)])


def _name(search: SearchRequest, request: StudyRequest, soc: str, options: Sequence[str]) -> str:
    device = search.emulate or soc
    whole = identity_id(request.space, request.objective, request.limits, request.workload)
    workload = _workload_name(search, "emulated step")
    sizes = ", ".join(
        [f"{search.command_name} {request.objective} {workload} on {device}", *options]
    )
    return f"{sizes[:_LONGEST_NAME]} {whole}"


def _step_options(step: StepRequest | None) -> Iterator[str]:
    """Yields options of a step that are not left at their defaults, without its model, batch size and runs."""
    form = {} if step is None else step.to_json()
    for name, value in form.items():
        if value and name not in ("model", "batch", "runs", "gpu_runs"):
            text = " ".join(value) if isinstance(value, list) else value
            yield f"{name.replace('_', '-')} {text}"


def _bounds(search: SearchRequest, request: StudyRequest) -> Iterator[str]:
    """Yields the space and the limits, if there are any. Limits are in one unit, however they were given."""
    if ranges(search.space) != ranges(None):
        yield f"space {Path(search.space or '').stem}"
    limits = request.limits
    for name, value, unit in (
        ("deadline", limits.time_s, "s"),
        ("energy", limits.energy_j, "J"),
        ("temperature", limits.celsius, "C"),
        ("memory", limits.memory_bytes and limits.memory_bytes / 1e9, "GB"),
    ):
        if value is not None:
            yield f"{name} {value:.9g}{unit}"


def _names_before(search: SearchRequest, request: StudyRequest, soc: str) -> tuple[str, ...]:
    """Returns the default names of the same study in earlier versions, the newest first."""
    without_options = _name(search, request, soc, ())
    return (
        without_options, f"{search.command_name} {soc} {_workload_name(search, 'emulated')}", _STUDY
    )  # fmt: skip


def _workload_name(search: SearchRequest, unnamed: str) -> str:
    step = search.step
    if step is not None:
        return f"{Path(step.model).name} b{step.batch or DEFAULT_BATCH}"
    return Path(search.command.split()[0]).name if search.command else unnamed


def shared_study(search: SearchRequest, request: StudyRequest) -> Study | None:
    """Returns the study in --storage; None if it is stored in the run's folder."""
    if search.storage is None:
        return None
    storage = open_storage(search.storage)
    with explained_faults(f"see whether {hidden(search.storage)} answers"):
        return study_of(request, storage, search.study or _STUDY)


def with_study_name(search: SearchRequest, request: StudyRequest, soc: str) -> SearchRequest:
    """Returns the options of a new search with its study's name, which its run keeps.

    If --storage has the same search under a name used by earlier versions, that study is continued.
    """
    if search.study is not None:
        return search
    names = [study_name(search, request, soc)]
    if search.storage is not None:
        storage = open_storage(search.storage)
        asked = (request.space, request.objective, request.limits, request.workload)
        with explained_faults(f"see whether {hidden(search.storage)} answers"):
            before = [n for n in _names_before(search, request, soc) if is_of(storage, n, *asked)]
            names = before + names
    return replace(search, study=names[0])


def study_place(search: SearchRequest, folder: RunFolder) -> tuple[BaseStorage, str]:
    """Returns the storage of a study and its name. The storage is --storage or the run's folder."""
    return open_storage(search.storage or default_url(folder.path)), search.study or _STUDY


__all__ = [
    "same_storage",
    "shared_study",
    "study_place",
    "with_study_name",
]
