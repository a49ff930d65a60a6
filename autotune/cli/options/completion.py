"""Shell completions of names. They are quick, and do not need TVM."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options.completion_scripts import SCRIPTS, Shell
from autotune.cli.shared import results

PROGRAM, VARIABLE = "autotune", "_AUTOTUNE_COMPLETE"
FOLDER, FILE = "folder", "file"
"""Marks of paths: shells quote them, and add no space after a folder."""

Name = str | tuple[str, str]
"""A word that can follow, or the word and what it is."""


def targets(incomplete: str) -> list[str]:
    """Completes names of targets."""
    from autotune.compiler.target import TARGETS

    return _beginning(incomplete, [target.name for target in TARGETS])


def models(incomplete: str) -> list[str]:
    """Completes names of built-in models and of Hugging Face's."""
    from autotune.workloads.capture import NAMED, PREFIX
    from autotune.workloads.models import MODELS

    return _beginning(
        incomplete, [*(model.name for model in MODELS), *(f"{PREFIX}{name}" for name in NAMED)]
    )


def profiles(incomplete: str) -> list[str]:
    """Completes names of emulated devices."""
    from autotune.emulator.model import profile

    return _beginning(incomplete, list(profile.names()))


def spaces(incomplete: str) -> list[Name]:
    """Completes names of the shipped spaces of cores and clocks, and TOML files."""
    from autotune.compiler.target import folder

    names = (path.stem for path in folder().joinpath("cpu_config").glob("*.toml"))
    return [*_beginning(incomplete, sorted(names)), *space_files(incomplete)]


def space_files(incomplete: str) -> list[tuple[str, str]]:
    """Completes TOML files."""
    return _paths(incomplete, ".toml")


def operators(incomplete: str) -> list[str]:
    """Completes operators, with the sizes that each needs."""
    from autotune.workloads import OPERATORS

    specs = [
        f"{name}:{','.join(f'{one.name}=' for one in fields(operator) if one.default is MISSING)}"
        for name, operator in OPERATORS.items()
    ]
    return _beginning(incomplete, specs)


def roles(incomplete: str) -> list[str]:
    """Completes the last of several roles with commas."""
    from autotune.workloads import ROLES

    before, comma, last = incomplete.rpartition(",")
    left = [role for role in ROLES if role not in before.split(",")]
    return [f"{before}{comma}{role}" for role in _beginning(last, left)]


def samplers(incomplete: str) -> list[str]:
    """Completes samplers of a search. Their room takes long to import."""
    return _beginning(incomplete, ["tpe", "nsga2", "random", "grid"])


def runs(incomplete: str) -> list[Name]:
    """Completes `latest`, the runs in the typed folder or in `logs`, and other folders and files of records."""
    return _runs_with("run.json", incomplete)


def plans(incomplete: str) -> list[Name]:
    """Completes `latest`, the runs that have plans, and other folders and files."""
    return _runs_with("plans/best.json", incomplete)


def _runs_with(file: str, incomplete: str) -> list[Name]:
    from autotune.cli.options.latest import LATEST, LOGS

    typed = Path(incomplete).parent if "/" in incomplete else LOGS
    made = sorted((path for path in typed.glob("*") if (path / file).is_file()), reverse=True)
    found = _beginning(incomplete, [LATEST, *map(str, made)])
    others = _paths(incomplete, ".records.gz", ".json")
    return [
        *((name, FILE) if name != LATEST else name for name in found),
        *((path, kind) for path, kind in others if path.rstrip("/") not in found),
    ]


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
    """Completes names of optimisers, and after a name's colon its settings."""
    from autotune.workloads import ALGORITHMS, settings_of

    name, colon, body = incomplete.partition(":")
    if not colon:
        return _beginning(incomplete, list(ALGORITHMS))
    before, comma, _ = body.rpartition(",")
    given = [part.partition("=")[0] for part in before.split(",")]
    return _beginning(
        incomplete,
        [
            f"{name}:{before}{comma}{setting}="
            for algorithm in ALGORITHMS
            if algorithm == name
            for setting in settings_of(algorithm)
            if setting not in given
        ],
    )


def trained(incomplete: str) -> list[str]:
    """Completes what `--train` takes besides names of parameters."""
    return _beginning(incomplete, ["last:1", "frozen:eval"])


def clusters(incomplete: str) -> list[str]:
    """Completes names of clusters of cores."""
    return _beginning(incomplete, ["little", "mid", "big", "prime", "hybrid"])


def meters(incomplete: str) -> list[str]:
    """Completes kinds of power meters."""
    return _beginning(
        incomplete,
        ["auto", "none", "odpm", "hwmon", "iio", "rapl", "battery", "nvml", "csv:"],
    )


def devices(incomplete: str) -> list[str]:
    """Completes serials of devices that are ready, and `local`."""
    from autotune.devices import discovery
    from autotune.errors import AutotuneError
    from autotune.jobs.device import boards

    try:
        named = boards()
    except AutotuneError:  # Told by the command itself.
        named = []
    return _beginning(incomplete, discovery.ready(named))


def places(incomplete: str) -> list[str]:
    """Completes places where an export can be checked."""
    return [*_beginning(incomplete, ["host", "qemu"]), *devices(incomplete)]


def left_behind(incomplete: str) -> list[str]:
    """Completes serials of devices on which a crashed run left changes."""
    from autotune.devices import left_behind

    return _beginning(incomplete, [left.serial for left in left_behind()])


def _paths(incomplete: str, *endings: str) -> list[tuple[str, str]]:
    """Completes folders, and files with these endings, each with its mark."""
    typed = incomplete.rpartition("/")[0] + "/" if "/" in incomplete else ""
    try:
        inside = sorted(Path(typed or ".").expanduser().iterdir())
    except OSError:
        return []
    shown = [path for path in inside if not path.name.startswith(".")]
    folders = [f"{typed}{path.name}/" for path in shown if path.is_dir()]
    files = [f"{typed}{path.name}" for path in shown if path.name.endswith(endings)]
    return [
        *((name, FOLDER) for name in _beginning(incomplete, folders)),
        *((name, FILE) for name in _beginning(incomplete, files)),
    ]


def _beginning(incomplete: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def ready_to_complete() -> None:
    """Makes the command line answer the shells' completion requests."""
    if VARIABLE in os.environ:
        os.environ["COLUMNS"] = "9999"  # What a word is, is told in one line.
        from typer.completion import completion_init  # type: ignore[attr-defined]  # not in its __all__

        completion_init()


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)],
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
        print(SCRIPTS[shell], file=results())
        return
    try:
        _, path = typers.install(  # type: ignore[attr-defined]  # not in its __all__
            shell=shell, prog_name=PROGRAM, complete_var=VARIABLE
        )
        path.write_text(f"{SCRIPTS[shell]}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{error.filename} cannot be written: {error.strerror}",
            hint=f"autotune completion {shell} prints it",
        ) from error
    print(f"{path}: {shell} completes from its next start on", file=results())
