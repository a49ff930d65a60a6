"""Finds and calls the user's factory of a module."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from autotune.errors import UsageError, choices, pip_install

LONGEST = 300  # Number of characters of another program's message that are passed on.

_MADE: dict[tuple[Any, ...], Any] = {}
"""What factories have made, by seed, and by batch where they take it."""
_FILES: dict[tuple[Path, int, int], ModuleType] = {}
"""Imported files, by path, time of the last change, and size."""


def import_torch() -> Any:
    """Returns the package torch.

    Raises:
        UsageError: It is not installed, or cannot be loaded.
    """
    try:
        import torch
    except (ImportError, OSError) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        what = "is not installed" if missing else f"cannot be loaded: {one_line(error)}"
        raise UsageError(
            f"a model of your own needs PyTorch, which {what}",
            hint=pip_install("torch>=2.13,<3"),
        ) from error
    return torch


def load_module(reference: str, seed: int = 1, batch: int = 1) -> Any:
    """Imports what is before the colon and calls what is after it.

    Args:
        reference: ``package.module:factory`` or ``path/to/file.py:factory``.
        seed: PyTorch's seed, set before the factory runs.
        batch: Samples in a step, for a factory that has an argument of that name.

    Returns:
        What the factory returns: a ``torch.nn.Module``, or a ``Step`` with one.

    Raises:
        UsageError: torch is missing; the reference is malformed; there is no such file, module or factory; the
            factory fails or returns something else.
    """
    source, colon, factory = (part.strip() for part in reference.rpartition(":"))
    if not (source and colon and factory):
        raise UsageError(
            f"{reference!r} does not name a function that makes a model",
            hint="write path/to/file.py:function or package.module:function",
        )
    torch = import_torch()
    imported = _file(Path(source)) if source.endswith(".py") else _package(source)
    make = getattr(imported, factory, None)
    if not callable(make):
        what = "has no function" if make is None else "has no callable"
        own = [
            name
            for name, one in vars(imported).items()
            if callable(one) and getattr(one, "__module__", "") == imported.__name__
        ]
        raise UsageError(
            f"{source} {what} {factory!r}",
            hint=choices(factory, own, "there are")
            if own
            else "write a function that returns the module",
        )
    named = {"batch": batch} if _takes_batch(make) else {}
    key = (make, seed, *named.values())
    with contextlib.suppress(TypeError):  # A callable object may have no hash.
        if (made := _MADE.get(key)) is not None:
            return made
    torch.manual_seed(seed)
    with _told(
        f"{reference}: {factory}()",
        "fix the function; it is called without arguments, or with batch",
    ):
        made = make(**named)
    if not isinstance(getattr(made, "module", made), torch.nn.Module):
        raise UsageError(
            f"{reference}: {factory}() returned {type(made).__name__}, not a torch.nn.Module",
            hint="return the model itself, or an autotune.Step",
        )
    with contextlib.suppress(TypeError):
        _MADE[key] = made
    return made


def _takes_batch(make: Callable[..., Any]) -> bool:
    try:
        return "batch" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        return False


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
    name = f"autotune_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be imported", hint="give the path of a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _search_also(path.resolve().parent)
    try:
        with _told(f"importing {path}", "fix the file"):
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
        with _told(f"importing {name}", "fix the module"):
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
def _told(doing: str, hint: str) -> Iterator[None]:
    """Turns any exception of the user's code into a UsageError that says what was being done. Ctrl-C passes."""
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
    packages = (sys.prefix, sys.base_prefix, "<frozen", str(Path(__file__).parents[2]))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.line and not frame.filename.startswith(packages):
            return f"`{frame.line[:100]}`, line {frame.lineno} of {Path(frame.filename).name}"
    return ""
