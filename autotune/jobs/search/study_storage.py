"""Where a search keeps its study, and the files that its options name."""

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
"""What a study was called that nobody had named, until studies had names of their own."""


def same_storage(before: str | None, given: str) -> str:
    """The storage of a run that goes on, which may be given again for its password."""
    known, again = (without_password(lasting(url) or "") for url in (before, given))
    if before is None or known != again:
        raise UsageError(
            f"the run's study is in {before or 'its own folder'}, not in {hidden(given)}",
            hint="with --resume, --storage only gives the password again",
        )
    return given


def study_name(search: SearchRequest, device: str) -> str:
    """What a study is called that nobody has named: its command, its device, and what is measured.

    Processes that are given the same options on devices of one model find each other by it.

    Args:
        search: What is searched.
        device: The device's system on chip.
    """
    step = search.step
    if step is not None:
        what = f"{Path(step.model).name} b{step.batch or DEFAULT_BATCH}"
    else:
        what = Path(search.command.split()[0]).name if search.command else "emulated"
    return f"{search.command_name} {device} {what}"


def shared_study(search: SearchRequest, request: StudyRequest) -> Study | None:
    """The study in --storage; None where it is kept in the run's folder."""
    if search.storage is None:
        return None
    storage = open_storage(search.storage)
    with faults_told(f"see whether {hidden(search.storage)} answers"):
        return study_of(request, storage, search.study or _STUDY)


def with_study_name(search: SearchRequest, request: StudyRequest, device: str) -> SearchRequest:
    """The options of a new search with the name of its study, which its run keeps.

    Where the same search is in --storage under the name that an earlier version gave it, that one goes on.
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
    """Where a study is kept, and its name: in --storage, or in the run's folder."""
    return open_storage(search.storage or default_url(folder.path)), search.study or _STUDY


__all__ = [
    "same_storage",
    "shared_study",
    "study_place",
    "with_study_name",
]
