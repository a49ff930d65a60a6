"""Imports the user's own code: a function in a file or in a package. It runs what it imports."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from autotune.errors import UsageError, choices

LONGEST = 300  # Number of characters of another program's message that are passed on.

_FILES: dict[tuple[Path, int, int], ModuleType] = {}
"""Imported files, by path, time of the last change, and size."""


def load_named(reference: str, makes: str) -> tuple[ModuleType, Any]:
    """Imports what is before the colon and returns it, with what it calls by the name after the colon.

    Args:
        reference: ``package.module:name`` or ``path/to/file.py:name``. A file is imported once unless it changes.
        makes: What it should make or be, for messages, such as ``a model``.

    Raises:
        UsageError: The reference is malformed; there is no such file, module or name; or importing it fails.
    """
    source, colon, name = (part.strip() for part in reference.rpartition(":"))
    if not (source and colon and name):
        raise UsageError(
            f"{reference!r} does not name a function that makes {makes}",
            hint="write path/to/file.py:function or package.module:function",
        )
    imported = _file(Path(source)) if source.endswith(".py") else _package(source)
    found = getattr(imported, name, None)
    if not callable(found):
        what = "has no function" if found is None else "has no callable"
        own = [
            name
            for name, one in vars(imported).items()
            if callable(one) and getattr(one, "__module__", imported.__name__) == imported.__name__
        ]
        raise UsageError(
            f"{source} {what} {name!r}",
            hint=choices(name, own, "there are")
            if own
            else f"write a function that returns {makes}",
        )
    return imported, found


def describe(error: BaseException) -> str:
    """Returns an error's kind and message in one line."""
    return f"{type(error).__name__}: {one_line(error)}"


def one_line(error: BaseException) -> str:
    """Returns an error's message in one line of at most ``LONGEST`` characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint="give the path of a Python file")
    at = path.resolve()
    status = at.stat()
    version = (at, status.st_mtime_ns, status.st_size)
    if (known := _FILES.get(version)) is not None:
        return known
    # Registered under a unique name, because dataclasses and pickle look up their module by name.
    name = f"autotune_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be imported", hint="give the path of a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _search_also(path.resolve().parent)
    try:
        with users_errors(f"importing {path}", "fix the file"):
            spec.loader.exec_module(module)
    except UsageError:
        sys.modules.pop(name, None)
        raise
    _FILES[version] = module
    return module


def _search_also(folder: Path) -> None:
    """Makes the modules in a folder importable, such as those beside the model. Installed ones have precedence."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _package(name: str) -> ModuleType:
    _search_also(Path.cwd())
    try:
        with users_errors(f"importing {name}", "fix the module"):
            return importlib.import_module(name)
    except UsageError as refusal:
        error = refusal.__cause__
        if not isinstance(error, ModuleNotFoundError):
            raise
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(
                f"there is no Python module {name!r}",
                hint="install it, or give its file: path/to/file.py:function",
            ) from error
        raise UsageError(refusal.message, hint="install what it needs") from error


@contextlib.contextmanager
def users_errors(doing: str, hint: str) -> Iterator[None]:
    """Turns any exception of the user's code into an error that says what was being done. Ctrl-C passes.

    Args:
        doing: What is being done.
        hint: How to go on.

    Raises:
        UsageError: The code raised an exception; the message has the line.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        where = _where(error)
        raise UsageError(
            f"{doing} raised {describe(error)}{f' at {where}' if where else ''}", hint=hint
        ) from error


def _where(error: BaseException) -> str:
    """The innermost line of an error that is neither a package's nor ours; empty without one."""
    packages = (sys.prefix, sys.base_prefix, "<frozen", str(Path(__file__).parents[1]))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.line and not frame.filename.startswith(packages):
            return f"`{frame.line[:100]}`, line {frame.lineno} of {Path(frame.filename).name}"
    return ""
