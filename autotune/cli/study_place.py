"""Where a search keeps its study, and the files that its options name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage

from autotune.cli.workload import DEFAULT_BATCH
from autotune.errors import UsageError
from autotune.records import RunFolder
from autotune.studies.run import (
    JOURNAL_PREFIX,
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
            hint="beside --resume, --storage only tells the password again",
        )
    return given


def lasting_space(space: str | None) -> str | None:
    """A --space as a run keeps it: a file is found from any working directory."""
    return str(Path(space).absolute()) if space and Path(space).is_file() else space


def lasting(url: str | None) -> str | None:
    """A --storage as a run keeps it: a journal is found from any working directory.

    Raises:
        UsageError: It is what `autotune kernels` takes as --precision.
    """
    if url in ("fp16", "fp32"):
        raise UsageError(
            f"--storage {url}: --storage says where a study is kept",
            hint=f"`autotune kernels --precision {url}` tunes kernels for it",
        )
    if url is None or not url.startswith(JOURNAL_PREFIX):
        return url
    return f"{JOURNAL_PREFIX}{Path(url.removeprefix(JOURNAL_PREFIX)).absolute()}"


def study_name(asked: dict[str, Any], device: str) -> str:
    """What a study is called that nobody has named: its command, its device, and what is measured.

    Processes that are given the same options on devices of one model find each other by it.

    Args:
        asked: The search's options.
        device: The device's system on chip.
    """
    step = asked.get("step")
    if step is not None:
        what = f"{Path(step['model']).name} b{step.get('batch') or DEFAULT_BATCH}"
    else:
        what = Path(asked["command"].split()[0]).name if asked["command"] else "emulated"
    return f"{'joint' if asked.get('joint') else 'cpu-config'} {device} {what}"


def shared_study(asked: dict[str, Any], request: StudyRequest) -> Study | None:
    """The study in --storage; None where it is kept in the run's folder."""
    if asked["storage"] is None:
        return None
    storage = open_storage(asked["storage"])
    with faults_told(f"see whether {hidden(asked['storage'])} answers"):
        return study_of(request, storage, asked["study"] or _STUDY)


def with_study_name(asked: dict[str, Any], request: StudyRequest, device: str) -> dict[str, Any]:
    """The options of a new search with the name of its study, which its run keeps.

    Where the same search is in --storage under the name that an earlier version gave it, that one goes on.
    """
    if asked["study"] is not None:
        return asked
    name = study_name(asked, device)
    if asked["storage"] is not None:
        storage = open_storage(asked["storage"])
        with faults_told(f"see whether {hidden(asked['storage'])} answers"):
            if is_of(
                storage, _STUDY, request.space, request.objective, request.limits, request.workload
            ):
                name = _STUDY
    return {**asked, "study": name}


def study_place(asked: dict[str, Any], folder: RunFolder) -> tuple[BaseStorage, str]:
    """Where a study is kept, and its name: in --storage, or in the run's folder."""
    return open_storage(asked["storage"] or default_url(folder.path)), asked["study"] or _STUDY


__all__ = [
    "lasting",
    "lasting_space",
    "same_storage",
    "shared_study",
    "study_place",
    "with_study_name",
]
