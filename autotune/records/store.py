"""The local store of records: a folder with one database for each identity."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from autotune.errors import UsageError
from autotune.records.database import Database, Identity, merged
from autotune.records.database_file import file_name, read_database, write_database


def pulled(databases: Iterable[Database], store: Path) -> list[tuple[Path, Database, int]]:
    """Merges databases into a store. Each of its files is replaced completely or left unchanged.

    A mixed database is split among the databases of its identities.

    Args:
        databases: Databases to add.
        store: The folder; made if it is missing.

    Returns:
        The written files, their content, and the number of new schedules in each.

    Raises:
        UsageError: The store cannot be made or is not a folder.
        RecordError: A database of the store is damaged, or cannot be written.
    """
    parts: dict[Identity, list[Database]] = {}
    for database in databases:
        for identity in database.identities:
            parts.setdefault(identity, []).append(database.of_identity(identity))
    try:
        store.mkdir(parents=True, exist_ok=True)
        lock = os.open(store / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(
            f"{store} cannot be a store of records: {error.strerror}",
            hint="give a writable folder with --store",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return [_added(merged(found), store) for _, found in sorted(parts.items())]
    finally:
        os.close(lock)


def _added(database: Database, store: Path) -> tuple[Path, Database, int]:
    path = store / file_name(database)
    known = read_database(path) if path.exists() else Database()
    whole = merged([known, database])
    if whole != known:
        write_database(path, whole)
    return path, whole, len(whole.schedules) - len(known.schedules)
