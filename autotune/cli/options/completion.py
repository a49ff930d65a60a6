"""Shell completions of names. They are quick, and do not need TVM."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from autotune.cli.shared import results

PROGRAM, VARIABLE = "autotune", "_AUTOTUNE_COMPLETE"


def targets(incomplete: str) -> list[str]:
    """Completes names of targets."""
    from autotune.compiler.target import TARGETS

    return _beginning(incomplete, [target.name for target in TARGETS])


def models(incomplete: str) -> list[str]:
    """Completes names of built-in models."""
    from autotune.workloads.models import MODELS

    return _beginning(incomplete, [model.name for model in MODELS])


def profiles(incomplete: str) -> list[str]:
    """Completes names of emulated devices."""
    from autotune.emulator.model import profile

    return _beginning(incomplete, list(profile.names()))


def spaces(incomplete: str) -> list[str]:
    """Completes names of the shipped spaces of cores and clocks."""
    from autotune.compiler.target import folder

    names = (path.stem for path in folder().joinpath("cpu_config").glob("*.toml"))
    return _beginning(incomplete, sorted(names))


def runs(incomplete: str) -> list[str]:
    """Completes `latest`, and the runs in the typed folder or in `logs`."""
    from autotune.cli.options.latest import LATEST, LOGS

    typed = Path(incomplete).parent if "/" in incomplete else LOGS
    made = sorted((path.parent for path in typed.glob("*/run.json")), reverse=True)
    return _beginning(incomplete, [LATEST, *map(str, made)])


def objectives(incomplete: str) -> list[str]:
    """Completes objectives of a search."""
    return _beginning(incomplete, ["latency", "energy", "edp", "pareto"])


def formats(incomplete: str) -> list[str]:
    """Completes formats of an export."""
    return _beginning(incomplete, ["tvm", "c", "opencl"])


def platforms(incomplete: str) -> list[str]:
    """Completes platforms that programs are built for."""
    return _beginning(incomplete, ["host", "linux-aarch64", "android-arm64"])


def optimizers(incomplete: str) -> list[str]:
    """Completes names of optimisers."""
    from autotune.workloads import ALGORITHMS

    return _beginning(incomplete, list(ALGORITHMS))


def _beginning(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def ready_to_complete() -> None:
    """Makes the command line answer the shells' completion requests."""
    if VARIABLE in os.environ:
        # Bash splits `--target=ad` into three words.
        words, joined = re.subn(r" =(?= \S)", "", os.environ.get("COMP_WORDS", ""))
        if joined:
            os.environ["COMP_WORDS"] = words
            os.environ["COMP_CWORD"] = str(int(os.environ["COMP_CWORD"]) - joined)
        from typer.completion import completion_init  # type: ignore[attr-defined]  # not in its __all__

        completion_init()


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(help="The shell.", show_default=False)
    ],
    install: Annotated[
        bool, typer.Option("--install", help="Install it where the shell loads completions.")
    ] = False,
) -> None:
    """Prints a shell script that completes commands, options, models, targets, devices and runs.

    \b
    Examples:
      eval "$(autotune completion bash)"
      autotune completion zsh --install
      autotune completion fish > ~/.config/fish/completions/autotune.fish
    """
    from typer import completion as typers

    from autotune.errors import UsageError

    if not install:
        script = typers.get_completion_script(  # type: ignore[attr-defined]  # not in its __all__
            prog_name=PROGRAM, complete_var=VARIABLE, shell=shell
        )
        print(script, file=results())
        return
    try:
        _, path = typers.install(  # type: ignore[attr-defined]  # not in its __all__
            shell=shell, prog_name=PROGRAM, complete_var=VARIABLE
        )
    except OSError as error:
        raise UsageError(
            f"{error.filename} cannot be written: {error.strerror}",
            hint=f"autotune completion {shell} prints it",
        ) from error
    print(f"{path}: {shell} completes from its next start on", file=results())
