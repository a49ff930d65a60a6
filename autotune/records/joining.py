"""Several databases joined into one, with the options of `autotune records merge`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import UsageError, choices
from autotune.records.database import Database, merged, refuse_mixture
from autotune.records.database_file import file_name


@dataclass(frozen=True)
class Joined:
    """Joined databases.

    Attributes:
        database: The result.
        duplicates: Number of schedules that several databases had.
        others: Number of schedules left out with their workload.
        slower: Number of schedules left out because others are faster.
    """

    database: Database
    duplicates: int
    others: int
    slower: int


def joined(
    parts: Sequence[Database], *, mixed: bool, without: Sequence[str] = (), best: int | None = None
) -> Joined:
    """Joins databases. Each time keeps its run, device, driver and versions.

    Args:
        parts: The databases.
        mixed: Whether they may be of different devices, drivers, TVM versions or targets.
        without: Workloads whose runs are left out.
        best: Number of schedules to keep of each kernel and formulation on each device, fastest first; None keeps
            all.

    Raises:
        UsageError: They are of different devices; no run is of a workload; or nothing is left.
    """
    if best is not None and best < 1:
        raise UsageError(f"--best is {best}", hint="give a whole number from 1")
    if not mixed:
        refuse_mixture(parts)
    whole = union = merged(parts)
    for workload in without:
        names = union.workloads
        if workload not in names:
            raise UsageError(
                f"--without {workload}: no run is of it", hint=choices(workload, names, "there are")
            )
        union = union.without(workload)
    if without and not union.sources:
        raise UsageError("--without: nothing is left", hint="leave out fewer")
    result = union if best is None else union.fastest(best)
    return Joined(
        result,
        sum(len(part.schedules) for part in parts) - len(whole.schedules),
        len(whole.schedules) - len(union.schedules),
        len(union.schedules) - len(result.schedules),
    )


def place_for(database: Database, folder: Path, sources: Sequence[Path]) -> Path:
    """Returns the file of a joined database in a folder. It is named after the device.

    Args:
        database: The database.
        folder: The folder; it need not exist.
        sources: The joined files; one of them may be overwritten.

    Raises:
        UsageError: The folder is a file, or the file exists and is not a source.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f"--out {folder} is not a folder", hint="give a folder; it is made if missing"
        )
    path = folder / file_name(database)
    if path.exists() and path.resolve() not in [one.resolve() for one in sources]:
        raise UsageError(
            f"{path} exists",
            hint="name it among what is merged, or use `autotune records pull` to add to a store",
        )
    return path
