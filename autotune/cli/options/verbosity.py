"""The options `-v` and `-q`, before or after the command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from autotune.console import set_verbosity

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Log errors only.")]


def with_verbosity(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options `-v` and `-q` to a command; `autotune` itself has them too."""

    @functools.wraps(command)
    def wrapper(*args: Any, verbose: bool, quiet: bool, **options: Any) -> Any:
        set_verbosity(verbose=verbose, quiet=quiet)
        return command(*args, **options)

    signature = inspect.signature(command, eval_str=True)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=False)
        for name, kind in (("verbose", Verbose), ("quiet", Quiet))
    ]
    parameters = [*signature.parameters.values(), *extra]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # what inspect reads
    return wrapper
