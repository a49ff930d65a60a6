"""Checks an SQLite file before a study is opened in it. The file may come from outside.

SQLite trusts a file's schema: a view, a trigger or an expression in a table can run a query that never ends. It
trusts a file's rollback journal too: a journal may name another file, which SQLite deletes after the rollback.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from autotune.errors import UsageError, printable
from autotune.reading import Limits, Unreadable, lines, open_file

_HEAD = b"SQLite format 3\0"
"""The beginning of each database. A new one is empty."""
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_LARGEST_BYTES = 256 << 20
_MOST_ROWS = 200_000
"""Rows of a table. Optuna reads whole tables; a trial has about ten rows in the largest one."""
_MOST_TRIALS = 20_000
_MOST_PARTS = 200
"""Tables and indices. Optuna has about 30."""
_LONGEST_VALUE = 1 << 20
_MOST_BYTES = 64 << 20
"""Bytes of all values of a table. They can be many times as large as the file, in which rows may share pages."""
_JSON = Limits(
    bytes=2 * _MOST_BYTES, line_bytes=_LONGEST_VALUE, lines=4 * _MOST_ROWS, all_memory=512 << 20
)
"""Limits of a table's JSON values, which Optuna reads all at once."""
_STEPS_AT_ONCE, _MOST_STEPS = 10_000, 100_000_000
"""Steps of SQLite's virtual machine for all checks: some seconds. The largest accepted files need a third."""
_SIDE_FILES = ("-journal", "-wal", "-shm")
_HINT = "name another file, or remove this one"
_SIGNS = re.compile(r"[\w\s,()=\"'-]*", re.ASCII)
_FORBIDDEN = re.compile(r"\b(as|default|generated|collate|select|virtual)\b", re.IGNORECASE)
_CALL = re.compile(
    r"(?<!ON )(?<!TABLE )(?<!REFERENCES )\b(?!(?:CHECK|KEY|UNIQUE|VARCHAR|CHAR|FLOAT|IN)\b)\w+\s*\(|\"\s*\(",
    re.IGNORECASE,
)
"""A function in a definition. Optuna's definitions have none."""


def check_database(path: Path) -> None:
    """Refuses a file that a study must not be opened in. A file that does not exist is accepted.

    Raises:
        UsageError: It is not an SQLite database, is too large, or has more than plain tables and indices; or a file
            beside it, such as its journal, is a link, is too large, or names another file.
    """
    if not path.exists():
        return
    # As SQLite does, which looks for a journal beside the file that a link names.
    path = path.resolve()
    _check_file(path)
    for suffix in _SIDE_FILES:
        _check_side_file(path.with_name(path.name + suffix))
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True)) as database:
            _limit_steps(database)
            database.execute("PRAGMA trusted_schema = OFF")
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            parts = database.execute(
                f"SELECT type, name, sql FROM sqlite_master LIMIT {_MOST_PARTS + 1}"
            ).fetchall()
            if len(parts) > _MOST_PARTS:
                raise UsageError(f"{path} has more than a study's tables", hint=_HINT)
            _check_definitions(path, parts)
            # Finds pages that belong to several tables, or several times to one.
            (state,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                why = printable(str(state).splitlines()[-1][:200])
                raise UsageError(f"{path} is damaged: {why}", hint=_HINT)
            for table in [str(name) for kind, name, _ in parts if kind == "table"]:
                most = _MOST_TRIALS if table == "trials" else _MOST_ROWS
                some = database.execute(f'SELECT 1 FROM "{table}" LIMIT 1 OFFSET {most}').fetchone()
                if some is not None:
                    raise UsageError(f"{path} has more than {most} rows in {table}", hint=_HINT)
                _check_values(path, database, table)
    except sqlite3.Error as error:
        stopped = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
        why = "reading it takes too long" if stopped else str(error)
        raise UsageError(
            f"{path} cannot be read as an SQLite database: {why}", hint=_HINT
        ) from None
    _check_file(path)  # The rollback of a journal can make it larger.


def _limit_steps(database: sqlite3.Connection) -> None:
    """Lets SQLite stop after too many steps. Tables whose pages refer to each other can have endless rows."""
    calls = itertools.count(1)
    most = _MOST_STEPS // _STEPS_AT_ONCE
    database.set_progress_handler(lambda: next(calls) > most, _STEPS_AT_ONCE)


def _check_values(path: Path, database: sqlite3.Connection, table: str) -> None:
    """Refuses a table whose values take much memory.

    Raises:
        UsageError: They do, or one of its JSON values is not JSON.
    """
    found = database.execute(f'SELECT * FROM "{table}"')
    names = [str(one[0]) for one in found.description]
    texts, total = [], 0
    for row in found:
        for name, value in zip(names, row, strict=True):
            if not isinstance(value, str | bytes):
                continue
            data = value.encode() if isinstance(value, str) else value
            total += len(data)
            if total > _MOST_BYTES:
                most = f"{_MOST_BYTES >> 20} MiB"
                raise UsageError(f"{path}: the values of {table} take more than {most}", hint=_HINT)
            if name.endswith("_json"):
                texts.append(data.replace(b"\n", b" "))
    try:
        for _ in lines(
            io.BytesIO(b"".join(text + b"\n" for text in texts)), _JSON, nan_as_null=True
        ):
            pass
    except Unreadable as error:
        raise UsageError(f"{path}: a value of {table} is refused: {error}", hint=_HINT) from None


def _check_definitions(path: Path, parts: Sequence[tuple[Any, Any, Any]]) -> None:
    """Refuses a schema with more than plain tables and indices.

    Raises:
        UsageError: It has more.
    """
    for kind, name, definition in parts:
        plain = str(name).isidentifier() and _is_plain(str(definition or ""))
        if kind not in ("table", "index") or not plain:
            raise UsageError(f"{path} has more than a study's tables", hint=_HINT)


def _check_file(path: Path) -> None:
    """Refuses a file that is not an SQLite database, or is too large.

    Raises:
        UsageError: It is refused.
    """
    with open_file(path) as file:
        head = file.read(len(_HEAD))
        size = os.fstat(file.fileno()).st_size
    if head not in (b"", _HEAD):
        raise UsageError(f"{path} is not an SQLite database", hint=_HINT)
    if size > _LARGEST_BYTES:
        raise UsageError(f"{path} is larger than {_LARGEST_BYTES >> 20} MiB", hint=_HINT)


def _is_plain(definition: str) -> bool:
    """Returns whether a table or an index is defined without any expression but comparisons."""
    return (
        _SIGNS.fullmatch(definition) is not None
        and "--" not in definition
        and _FORBIDDEN.search(definition) is None
        and _CALL.search(definition) is None
    )


def _check_side_file(path: Path) -> None:
    """Refuses a journal that SQLite must not roll back.

    Raises:
        UsageError: It is a link, is too large, or names a super-journal, as only changes of several databases do.
    """
    if path.is_symlink():
        raise UsageError(f"{path} is a link", hint="remove it")
    if not path.exists():
        return
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - len(_JOURNAL_MAGIC)))
        names_another = size > 0 and file.read() == _JOURNAL_MAGIC
    if size > _LARGEST_BYTES:
        raise UsageError(f"{path} is larger than {_LARGEST_BYTES >> 20} MiB", hint="remove it")
    if names_another:
        raise UsageError(f"{path} names another file, which SQLite would delete", hint="remove it")
