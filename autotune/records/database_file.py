"""Databases on disk: one gzipped file of JSON lines each, written whole or not at all."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

from autotune.errors import RecordError
from autotune.records.database import Database, Schedule, Source
from autotune.records.json_text import json_text
from autotune.records.lines import disk_error

SUFFIX = ".records.gz"
SCHEMA_VERSION = 1
_KIND = "autotune records"
_LARGEST_BYTES = 1 << 30


def file_name(database: Database) -> str:
    """The name that a database has in a store: readable, and the same for the same identity."""
    identities = database.identities
    text = json.dumps([str(one) + one.kind for one in identities])
    name = identities[0].device if len(identities) == 1 else "mixed"
    readable = "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")[:60]
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}{SUFFIX}"


def write_database(path: Path, database: Database) -> None:
    """Writes a database whole or not at all; equal databases give equal bytes.

    Raises:
        RecordError: It cannot be written.
    """
    lines: list[dict[str, Any]] = [{"schema_version": SCHEMA_VERSION, "kind": _KIND}]
    lines += [{"source": source.to_json()} for _, source in sorted(database.sources.items())]
    lines += [{"schedule": one.to_json()} for _, one in sorted(database.schedules.items())]
    text = "".join(json_text(line, sort_keys=True) + "\n" for line in lines)
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


def read_database(path: Path) -> Database:
    """Reads a database file.

    Raises:
        RecordError: It is damaged, or of another version.
    """
    try:
        with gzip.open(path) as file:
            data = file.read(_LARGEST_BYTES + 1)
        lines = [json.loads(line) for line in data.splitlines()]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise RecordError(f"{path} is damaged: {error}") from error
    if len(data) > _LARGEST_BYTES:
        raise RecordError(f"{path} holds more than {_LARGEST_BYTES >> 20} MiB")
    head = lines[0] if lines else None
    if not isinstance(head, dict) or head.get("kind") != _KIND:
        raise RecordError(f"{path} holds no records of autotune")
    if head.get("schema_version") != SCHEMA_VERSION:
        raise RecordError(
            f"{path} is of schema version {head.get('schema_version')}, and this reads {SCHEMA_VERSION}"
        )
    try:
        ((_, *rest), sources, schedules) = lines, [], []
        for line in rest:
            if "source" in line:
                sources.append(Source.from_json(line["source"]))
            else:
                schedules.append(Schedule(**line["schedule"]))
        database = Database.of(sources, schedules)
        for one in database.schedules.values():
            if not one.seconds or not all(database.sources[s] for s in one.seconds):
                raise ValueError(f"{one.task}: a schedule without a time")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{path} is damaged: {error!r}") from error
    return database
