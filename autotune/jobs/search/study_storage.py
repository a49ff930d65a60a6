"""The place where a search stores its study, and the files that its options name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from optuna.storages import BaseStorage

from autotune.errors import UsageError
from autotune.jobs.device import lasting
from autotune.jobs.requests import DEFAULT_BATCH, SearchRequest
from autotune.records import RunFolder
from autotune.studies.run import (
    Study,
    StudyRequest,
    default_url,
    faults_told,
    hidden,
    is_of,
    open_storage,
    study_of,
    without_password,
)

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


def study_name(search: SearchRequest, device: str) -> str:
    """Returns the default name of a study: its command, its device and its workload.

    Processes with the same options, on devices of one model, find each other by this name.

    Args:
        search: The search's request.
        device: The device's system on chip.
    """
    step = search.step
    if step is not None:
        what = f"{Path(step.model).name} b{step.batch or DEFAULT_BATCH}"
    else:
        what = Path(search.command.split()[0]).name if search.command else "emulated"
    return f"{search.command_name} {device} {what}"


def shared_study(search: SearchRequest, request: StudyRequest) -> Study | None:
    """Returns the study in --storage; None if it is stored in the run's folder."""
    if search.storage is None:
        return None
    storage = open_storage(search.storage)
    with faults_told(f"see whether {hidden(search.storage)} answers"):
        return study_of(request, storage, search.study or _STUDY)


def with_study_name(search: SearchRequest, request: StudyRequest, device: str) -> SearchRequest:
    """Returns the options of a new search with its study's name, which its run keeps.

    If --storage has the same search under the name used by earlier versions, that study is continued.
    """
    if search.study is not None:
        return search
    name = study_name(search, device)
    if search.storage is not None:
        storage = open_storage(search.storage)
        with faults_told(f"see whether {hidden(search.storage)} answers"):
            if is_of(
                storage, _STUDY, request.space, request.objective, request.limits, request.workload
            ):
                name = _STUDY
    return replace(search, study=name)


def study_place(search: SearchRequest, folder: RunFolder) -> tuple[BaseStorage, str]:
    """Returns the storage of a study and its name. The storage is --storage or the run's folder."""
    return open_storage(search.storage or default_url(folder.path)), search.study or _STUDY


__all__ = [
    "same_storage",
    "shared_study",
    "study_place",
    "with_study_name",
]
