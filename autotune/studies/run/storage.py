"""Storage of a study: SQLite in the run's folder, a journal for several processes, or another database."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

from autotune.errors import (
    AutotuneError,
    RecordError,
    ToolchainError,
    UsageError,
    pip_install,
    printable,
)
from autotune.reading import LINES, Unreadable, lines, open_file, reason_of
from autotune.studies.run.database_file import check_database
from autotune.waits import waiting

DATABASE = "study.db"
JOURNAL_PREFIX = "journal:"
_JOURNAL = replace(LINES, lines=100_000, bytes=64 << 20, all_memory=512 << 20)
"""Limits of a journal. A trial has about 25 lines. Optuna's time to read one grows faster than its lines."""
_FIRST = b'{"op_code":'
_CREATES_STUDY, _CREATES_TRIAL = 0, 4
"""Values of `op_code`."""
_MOST_KEYS = 300
"""Attributes, parameters and steps of a trial or study; about 25 are usual. Optuna copies all for each new one."""
_MOST_STUDIES = 200
_MOST_LOOKS = 100_000_000
"""Trials that Optuna looks at: for each parameter of a trial, as many as there are before it in the worst case."""
_PART_BYTES = 1 << 16
_ATTEMPTS, _PAUSE_S = 4, 0.5
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SQLITE_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_HIDDEN = "***"
_PASSWORD = re.compile(r"(?P<user>://[^:/@?]*):(?:[^?]*|.*)@")
"""Matches up to the last @. If a password contains an unquoted @, its rest must not be shown."""
_PASSWORD_OPTION = re.compile(r"(?P<name>[?&]password=)[^&]*")
_FORMS = "sqlite:///FILE, journal:FILE, or postgresql+psycopg://user@host/name"
_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql"}


def default_url(folder: Path) -> str:
    """Returns the storage of a run with one process: SQLite in its folder."""
    return f"sqlite:///{(folder / DATABASE).absolute()}"


@waiting("the study's storage to be read")
def open_storage(url: str) -> BaseStorage:
    """Opens a storage by its URL.

    Args:
        url: `sqlite:///FILE` (one process), `journal:FILE` (several on one host), or any that SQLAlchemy knows,
            such as `postgresql+psycopg://user@host/name` (many hosts). A URL with a hidden password is opened
            without it. PostgreSQL's driver then looks for one in PGPASSWORD and `~/.pgpass`.

    Raises:
        UsageError: The URL is invalid, or nothing answers there, or the file is not a journal or a database.
        ToolchainError: The database's driver is not installed.
        RecordError: The disk of a journal or a database is full.
    """
    check_storage(url)
    if url.startswith(JOURNAL_PREFIX):
        path = Path(url.removeprefix(JOURNAL_PREFIX))
        try:
            # Another process may hold its lock; one that was killed leaves it for half a minute.
            return JournalStorage(_Journal(path))
        except OSError as error:
            if _is_full(error):
                raise _no_space(path) from error
            raise UsageError(
                f"the journal {path} cannot be opened: {error.strerror}", hint="name a file"
            ) from error
        except Exception as error:  # Optuna raises many types.
            raise UsageError(f"{path} is not a journal of a study: {reason_of(error)}") from error

    try:
        return _database(without_password(url) if _HIDDEN in url else url)
    except (ModuleNotFoundError, ImportError) as error:
        scheme = url.partition(":")[0]
        kind = scheme.partition("+")[0]
        hint = "install its driver"
        if (driver := _DRIVERS.get(kind)) is not None:
            hint = pip_install(driver)
            hint += "" if scheme == f"{kind}+{driver}" else f", and write {kind}+{driver}://"
        name = error.name or getattr(error.__cause__, "name", None) or "a driver"
        raise ToolchainError(
            f"the storage {hidden(url)} needs {name}, which is not installed", hint=hint
        ) from error
    except AutotuneError:
        raise
    except Exception as error:  # Optuna, SQLAlchemy and Alembic raise many types.
        if _is_full(error):
            raise _no_space(hidden(url)) from error
        raise UsageError(
            f"the storage {hidden(url)} cannot be opened: {reason_of(error)}",
            hint="a run's folder keeps no password: give --storage with it and --resume, or set PGPASSWORD"
            if _HIDDEN in url
            else _FORMS,
        ) from error


def check_storage(url: str) -> None:
    """Checks what can be known of a storage without opening or creating it.

    Raises:
        UsageError: The URL has no form that is known, its file is in no folder, or is not a journal or a database.
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    if url.startswith(JOURNAL_PREFIX):
        path = Path(url.removeprefix(JOURNAL_PREFIX))
        _check_folder(path)
        _check_journal(path)
        return
    try:
        place = make_url(url)
        place.get_dialect()
    except (ArgumentError, ValueError) as error:
        raise UsageError(
            f"the storage {hidden(url)} cannot be opened: {reason_of(error)}", hint=_FORMS
        ) from None
    except ImportError:  # A driver that is not installed; told when it is needed.
        return
    if place.get_backend_name() == "sqlite" and place.database:
        _check_folder(Path(place.database))
        check_database(Path(place.database))


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")


class _Lock(JournalFileSymlinkLock):
    """The lock of a journal's writers. Whoever has it removes a last line that a full disk or a kill cut off.

    Otherwise the next line would be written behind it, and nobody could read the journal any more.
    """

    def acquire(self) -> bool:
        acquired = super().acquire()
        with Path(self._lock_target_file).open("rb+") as file:
            end = size = file.seek(0, os.SEEK_END)
            part = b""
            while end and b"\n" not in part:
                begin = max(0, end - _PART_BYTES)
                file.seek(begin)
                part = file.read(end - begin)
                end = begin + part.rfind(b"\n") + 1
            if end < size:
                file.truncate(end)
        return acquired


class _Journal(JournalFileBackend):
    """A journal whose failed writes are failures of the storage that name the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Lock(str(path)))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        try:
            super().append_logs(logs)
        except OSError as error:
            raise StorageInternalError(f"{self._file_path}: {error.strerror}") from None


def _is_full(error: Exception) -> bool:
    """Returns whether a file could not be written because its disk is full."""
    cause = getattr(error, "orig", None) or error.__cause__ or error
    cause = getattr(cause, "orig", None) or cause
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return code in _SQLITE_FULL or (isinstance(cause, OSError) and cause.errno in _FULL)


def _no_space(storage: Path | str) -> RecordError:
    return RecordError(
        f"the storage {storage} cannot be written: its disk is full",
        hint="free some space there, or name a file on another disk",
    )


def _check_journal(path: Path) -> None:
    """Refuses a file that is not a journal, before Optuna reads it, which has no limits.

    A last line that was cut off will be removed, so it must begin as Optuna's lines do.
    """
    if not path.exists():
        return
    work = _Work()
    with open_file(path) as file:
        try:
            for number, value in lines(file, _JOURNAL, torn_end=True, nan_as_null=True):
                if not isinstance(value, dict) or not isinstance(value.get("op_code"), int):
                    raise Unreadable(f"line {number} is not one of a journal")
                if (too_many := work.with_line(value)) is not None:
                    raise Unreadable(f"line {number}: {too_many}")
            file.seek(0)
            first = file.read(len(_FIRST))
            if not _FIRST.startswith(first):
                raise Unreadable("it does not begin as one")
        except (OSError, Unreadable) as error:
            raise UsageError(
                f"{path} is not a journal of a study: {error}", hint="name another file"
            ) from None


@dataclass
class _Work:
    """What Optuna does to read a journal. Its time grows with the square of several numbers."""

    keys: defaultdict[Any, set[Any]] = field(default_factory=lambda: defaultdict(set))
    studies: int = 0
    trials: int = 0
    looks: int = 0

    def with_line(self, line: Mapping[str, Any]) -> str | None:
        """Adds a line; returns of what there is too much then."""
        owner = str(line.get("trial_id", "")), str(line.get("study_id", ""))
        kept = self.keys[owner]
        for name, value in line.items():
            if isinstance(value, dict):
                kept.update((name, key) for key in value)
                if len(value) > _MOST_KEYS:
                    return f"more than {_MOST_KEYS} {printable(name[:40])}"
            elif name in ("param_name", "step"):
                kept.add((name, str(value)))
        if line["op_code"] == _CREATES_TRIAL:
            self.trials += 1
            self.keys.pop(owner)  # Those of another trial each time.
        elif len(kept) > _MOST_KEYS:
            return f"a trial or study has more than {_MOST_KEYS} attributes"
        self.studies += line["op_code"] == _CREATES_STUDY
        if self.studies > _MOST_STUDIES:
            return f"more than {_MOST_STUDIES} studies"
        self.looks += self.trials if "param_name" in line else 0
        if self.looks > _MOST_LOOKS:
            return f"too many parameters for {self.trials} trials"
        return None


def _database(url: str) -> RDBStorage:
    """Opens a database's storage. Processes that start together on an empty database all create its tables."""
    from sqlalchemy.exc import IntegrityError, ProgrammingError
    from sqlalchemy.pool import NullPool

    for attempt in range(_ATTEMPTS):
        try:
            # Without a pool, so that a failed attempt leaves no connection open.
            RDBStorage(url, engine_kwargs={"poolclass": NullPool}).remove_session()
            break
        except (IntegrityError, ProgrammingError):  # Another process was quicker.
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE_S)
    # Reconnects to a server that was away between two measurements.
    lasting = {} if url.startswith("sqlite") else {"pool_pre_ping": True}
    return RDBStorage(url, engine_kwargs=lasting)


@contextmanager
def explained_faults(hint: str) -> Iterator[None]:
    """Turns failures of the storage inside the context into errors with a hint.

    Raises:
        RecordError: The storage failed.
    """
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        # Optuna's own message is the same for every fault.
        line = str(error.__cause__ or error).strip().splitlines()[0]
        raise RecordError(f"the study's storage fails: {line}", hint=hint) from error


@contextmanager
def explained_damage(name: str) -> Iterator[None]:
    """Turns errors while a study's content is read into one that it is damaged.

    Args:
        name: The study's name.

    Raises:
        UsageError: Its content is not what Optuna and this project store.
    """
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (AutotuneError, StorageInternalError, SQLAlchemyError):
        raise
    except Exception as error:  # Optuna raises many types.
        raise UsageError(
            f"the study '{name}' is damaged: {reason_of(error)}", hint="--study names another one"
        ) from error


def open_study(
    storage: BaseStorage, name: str, metrics: Sequence[str], sampler: BaseSampler
) -> optuna.Study:
    """Opens a study, and creates it if there is none of that name.

    Args:
        storage: The storage.
        name: The study's name.
        metrics: Figures to minimise, by names that other programs show.
        sampler: Proposes configurations.

    Raises:
        UsageError: There is a study of that name for another objective, or it is damaged.
    """
    # Optuna logs each study and trial; this project has its own log for that.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with explained_damage(name):
        study = optuna.create_study(
            storage=storage,
            study_name=name,
            directions=["minimize"] * len(metrics),
            sampler=sampler,
            load_if_exists=True,
        )
    if len(study.directions) != len(metrics):
        raise UsageError(
            f"the study '{name}' has {len(study.directions)} objectives, not {len(metrics)}",
            hint="give it another name with --study",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        if study.metric_names is None:
            study.set_metric_names(list(metrics))
    return study


def hidden(url: str) -> str:
    """Returns a URL to show or to store, with `***` for its password."""
    shown = _PASSWORD.sub(rf"\g<user>:{_HIDDEN}@", url)
    return _PASSWORD_OPTION.sub(rf"\g<name>{_HIDDEN}", shown)


def without_password(url: str) -> str:
    """Returns a URL without its password, hidden or not."""
    url = _PASSWORD_OPTION.sub(r"\g<name>", _PASSWORD.sub(r"\g<user>@", url))
    return re.sub(r"(?<=[?&])password=(?:&|$)", "", url).rstrip("?&")
