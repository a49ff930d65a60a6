"""Databases on disk: each is one gzipped file of JSON lines, written completely or not at all."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.errors import RecordError
from autotune.reading import LINES, Unreadable, is_version, packed_lines
from autotune.records.database import Database, Schedule, Source
from autotune.records.json_form import json_text
from autotune.records.lines import disk_error

SUFFIX = ".records.gz"
SCHEMA_VERSION = 1
_KIND = "autotune records"


def file_name(database: Database) -> str:
    """Returns the name of a database in a store. It is readable, and equal for equal identities."""
    identities = database.identities
    text = json.dumps([str(one) + one.kind for one in identities])
    name = identities[0].device if len(identities) == 1 else "mixed"
    readable = "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")[:60]
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}{SUFFIX}"


def write_database(path: Path, database: Database) -> None:
    """Writes a database completely or not at all. Equal databases give equal bytes.

    Raises:
        RecordError: It cannot be written.
    """
    text = "".join(json_text(line, sort_keys=True) + "\n" for line in _lines(database))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(gzip.compress(text.encode(), mtime=0))
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise disk_error(path, error) from error


def _lines(database: Database) -> Iterator[dict[str, Any]]:
    """Yields the lines of a database one by one: all of its traces at once take much memory."""
    yield {"schema_version": SCHEMA_VERSION, "kind": _KIND}
    yield from ({"source": source.to_json()} for _, source in sorted(database.sources.items()))
    yield from ({"schedule": one.to_json()} for _, one in sorted(database.schedules.items()))


def read_database(path: Path) -> Database:
    """Reads a database file line by line, so that a bad file is refused at its first bad line.

    Raises:
        RecordError: It is damaged, or of another version, or exceeds the limits of `autotune.reading.LINES`, or has
            a schedule that none of our searches makes.
    """
    lines = packed_lines(path, LINES, RecordError)
    head = next(lines, None)
    if not isinstance(head, dict) or head.get("kind") != _KIND:
        raise RecordError(f"{path} holds no records of autotune")
    if not is_version(head.get("schema_version"), SCHEMA_VERSION):
        raise RecordError(
            f"{path} is of schema version {head.get('schema_version')!r:.20}, and this reads {SCHEMA_VERSION}"
        )
    sources: list[Source] = []
    schedules: list[Schedule] = []
    known: dict[str, set[str]] = {}
    for number, line in enumerate(lines, start=2):
        try:
            if not isinstance(line, dict):
                raise Unreadable("it is neither a source nor a schedule")
            if "source" in line:
                sources.append(Source.from_json(line["source"]))
                known.setdefault(sources[-1].id, set()).update(sources[-1].tasks)
            else:
                schedules.append(Schedule.from_json(line.get("schedule")))
                _check_origin(schedules[-1], known)
        except Unreadable as error:
            raise RecordError(f"{path} is damaged: line {number}: {error}") from None
        except RecordError as error:
            raise RecordError(f"{path}: line {number}: {error.message}", hint=error.hint) from None
    return Database.of(sources, schedules)


def _check_origin(schedule: Schedule, known: Mapping[str, set[str]]) -> None:
    """Refuses a schedule whose times are of an unknown source, or of one that has not searched for its kernel."""
    for source in schedule.seconds:
        if source not in known:
            raise Unreadable(f"{schedule.task[:80]}: a time of an unknown source")
        if schedule.task not in known[source]:
            raise Unreadable(f"{schedule.task[:80]}: its source has no such kernel")
