"""Finds and calls the user's factory of a module."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autotune.errors import UsageError, pip_install
from autotune.workloads.user_code import load_named, one_line, users_errors

_MADE: dict[tuple[Any, ...], tuple[Any, _AsMade]] = {}
"""What factories have made, by seed, and by batch where they take it."""


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
    torch = import_torch()
    _, make = load_named(reference, "a model")
    factory = reference.rpartition(":")[2].strip()
    named = {"batch": batch} if _takes_batch(make) else {}

    def call() -> Any:
        with users_errors(
            f"{reference}: {factory}()",
            "fix the function; it is called without arguments, or with batch",
        ):
            made = make(**named)
        if not isinstance(getattr(made, "module", made), torch.nn.Module):
            raise UsageError(
                f"{reference}: {factory}() returned {type(made).__name__}, not a torch.nn.Module",
                hint="return the model itself, or an autotune.Step",
            )
        return made

    return made_once((make, seed, *named.values()), seed, call)


def made_once(key: tuple[Any, ...], seed: int, make: Callable[[], Any]) -> Any:
    """Returns what a function makes after PyTorch's seed has been set; what it has made before, as it was then.

    Args:
        key: What tells one result from another.
        seed: PyTorch's seed.
        make: Makes a module, or a ``Step`` with one.
    """
    with contextlib.suppress(TypeError):  # A callable object may have no hash.
        if (known := _MADE.get(key)) is not None:
            made, as_made = known
            as_made.restore(made)
            return made
    import_torch().manual_seed(seed)
    made = make()
    with contextlib.suppress(TypeError):
        _MADE[key] = made, _AsMade.of(made)
    return made


@dataclass(frozen=True)
class _AsMade:
    """What captures of a module change: which parameters require a gradient, and its parts' modes."""

    trains: tuple[bool, ...]
    training: tuple[bool, ...]

    @classmethod
    def of(cls, made: Any) -> _AsMade:
        module = getattr(made, "module", made)
        return cls(
            tuple(parameter.requires_grad for parameter in module.parameters()),
            tuple(part.training for part in module.modules()),
        )

    def restore(self, made: Any) -> None:
        module = getattr(made, "module", made)
        for parameter, trains in zip(module.parameters(), self.trains, strict=False):
            parameter.requires_grad_(trains)
        for part, training in zip(module.modules(), self.training, strict=False):
            part.training = training


def _takes_batch(make: Callable[..., Any]) -> bool:
    try:
        return "batch" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        return False
