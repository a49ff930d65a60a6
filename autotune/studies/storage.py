"""Where a study is kept: SQLite in the run's folder, a journal for several processes, or another database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import optuna
from optuna.exceptions import OptunaError
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from autotune.errors import ToolchainError, UsageError

DATABASE = "study.db"
JOURNAL_PREFIX = "journal:"
_ATTEMPTS, _PAUSE_S = 4, 0.5
_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql"}


def default_url(folder: Path) -> str:
    """The storage of a run of one process: SQLite in its folder."""
    return f"sqlite:///{(folder / DATABASE).absolute()}"


def open_storage(url: str) -> BaseStorage:
    """A storage by its URL.

    Args:
        url: `sqlite:///FILE` (one process), `journal:FILE` (several of one host), or any that SQLAlchemy knows,
            such as `postgresql+psycopg://user@host/name` (many hosts).

    Raises:
        UsageError: The URL is none, or nothing answers there.
        ToolchainError: The database's driver is not installed.
    """
    if url.startswith(JOURNAL_PREFIX):
        path = Path(url.removeprefix(JOURNAL_PREFIX))
        if not path.parent.is_dir():
            raise UsageError(f"{path}: there is no folder {path.parent}")
        try:
            return JournalStorage(JournalFileBackend(str(path)))
        except OSError as error:
            raise UsageError(
                f"the journal {path} cannot be opened: {error.strerror}", hint="name a file"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is no journal of a study: {error}") from error
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return _database(url)
    except (ModuleNotFoundError, ImportError) as error:
        kind = url.partition(":")[0].partition("+")[0]
        raise ToolchainError(
            f"the storage {_without_password(url)} needs {error.name or error}",
            hint=f"pip install '{_DRIVERS[kind]}'" if kind in _DRIVERS else "install its driver",
        ) from error
    except (SQLAlchemyError, OptunaError, ValueError, RuntimeError) as error:
        line = str(error).strip().splitlines()[0]
        raise UsageError(
            f"the storage {_without_password(url)} cannot be opened: {line}",
            hint="sqlite:///FILE, journal:FILE, or postgresql+psycopg://user@host/name",
        ) from error


def _database(url: str) -> RDBStorage:
    """A database's storage; processes that begin together on an empty one all make its tables."""
    from sqlalchemy.exc import IntegrityError, ProgrammingError
    from sqlalchemy.pool import NullPool

    for attempt in range(_ATTEMPTS):
        try:
            # Without a pool: an attempt that fails leaves no connection open.
            RDBStorage(url, engine_kwargs={"poolclass": NullPool}).remove_session()
            break
        except (IntegrityError, ProgrammingError):  # Another one was quicker.
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE_S)
    return RDBStorage(url)


def open_study(
    storage: BaseStorage, name: str, directions: Sequence[str], sampler: BaseSampler
) -> optuna.Study:
    """A study, made where there is none of that name.

    Raises:
        UsageError: There is one for another objective.
    """
    # Optuna tells of each study and trial; this project's own log does.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        directions=list(directions),  # type: ignore[arg-type]
        sampler=sampler,
        load_if_exists=True,
    )
    if len(study.directions) != len(directions):
        raise UsageError(
            f"the study '{name}' has {len(study.directions)} objectives, not {len(directions)}",
            hint="give it another name with --study",
        )
    return study


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    scheme, slashes, user = head.partition("://")
    return f"{scheme}{slashes}{user.partition(':')[0]}{at}{tail}" if at else url
