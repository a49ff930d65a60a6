"""Identity of a study. Processes that share a study have to agree on it."""

from __future__ import annotations

import hashlib
import json

import optuna
from optuna.storages import BaseStorage

from autotune.errors import UsageError
from autotune.studies.run.storage import explained_damage
from autotune.studies.space import CpuSpace, Limits, Objective
from autotune.waits import waiting


def space_id(space: CpuSpace) -> str:
    """Returns a text that is equal for equal spaces of devices of one model."""
    parts = [
        [c.name, list(c.cpus), [[s.cores, s.khz] for s in row]]
        for c, row in zip(space.clusters, space.settings, strict=True)
    ]
    whole = [parts, space.threads_per_core, space.together, space.only]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:16]


def _identity(
    space: CpuSpace, objective: Objective, limits: Limits, workload: str
) -> dict[str, str]:
    return {
        "device or space": space_id(space),
        "objective": objective,
        "limit": json.dumps(limits.to_json(), sort_keys=True),
        "workload": workload,
    }


def identity_id(space: CpuSpace, objective: Objective, limits: Limits, workload: str) -> str:
    """Returns six hexadecimal digits that are equal for equal identities; see `claim`."""
    whole = json.dumps(_identity(space, objective, limits, workload))
    return hashlib.sha256(whole.encode()).hexdigest()[:6]


@waiting("the study to be read")
def is_of(
    storage: BaseStorage,
    name: str,
    space: CpuSpace,
    objective: Objective,
    limits: Limits,
    workload: str,
) -> bool:
    """Returns whether a storage has a study of that name with exactly this identity; see `claim`."""
    with explained_damage(name):
        if name not in optuna.get_all_study_names(storage):
            return False
        known = optuna.load_study(study_name=name, storage=storage).user_attrs
    mine = _identity(space, objective, limits, workload)
    return {what: known.get(what) for what in mine} == mine


def claim(
    study: optuna.Study, space: CpuSpace, objective: Objective, limits: Limits, workload: str
) -> None:
    """Records a new study's identity in it, and refuses a study with another identity.

    Args:
        study: Optuna's study.
        space: Configurations that may be chosen.
        objective: The figure to minimise.
        limits: Limits to keep.
        workload: The workload, as a text.

    Raises:
        UsageError: The study has another device or space, objective, limits or workload.
    """
    mine = _identity(space, objective, limits, workload)
    known = study.user_attrs
    for what, value in mine.items():
        if known.get(what, value) != value:
            raise UsageError(
                f"the study '{study.study_name}' is of another {what}",
                hint="processes share a study on devices of one model with the same options; --study names another",
            )
        if what not in known:
            study.set_user_attr(what, value)
