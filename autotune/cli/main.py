"""The command line: `autotune COMMAND ...`.

Nothing heavy is imported here. A command imports what it needs when it runs.
"""

from __future__ import annotations

import gc
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from autotune import __version__
from autotune.cli.commands import (
    breakdown,
    compare,
    doctor,
    export,
    kernels,
    models,
    profile,
    report,
    runs,
    step,
    targets,
    trust,
    verify,
)
from autotune.cli.commands import devices as devices_commands
from autotune.cli.commands import records as records_commands
from autotune.cli.commands import rpc as rpc_commands
from autotune.cli.commands import tracker as tracker_commands
from autotune.cli.options import Quiet, Verbose, completion, with_verbosity
from autotune.cli.search_commands import cpu_config as cpu_config_commands
from autotune.cli.search_commands import cpu_config_apply, cpu_config_compare, joint, replay
from autotune.cli.shared import (
    Command,
    Group,
    command_of,
    drop_results,
    own_stdout,
    results,
    terminal_width,
    wants_json,
    write_error,
)
from autotune.console import ended_by_signals, is_verbose, set_verbosity, stderr_log
from autotune.errors import INTERRUPTED, AutotuneError, UsageError, meant
from autotune.jobs.provenance import RunInterrupted
from autotune.waits import waiting

_BUG = "bug"
_BY_PYDANTIC = "Value error, "
_CHOICE = re.compile(r"'([^']*)' is not one of (.+)\.")
_PIPE_WIDTH, _NARROWEST_HELP, _WIDEST_HELP = 80, 50, 160
"""Width of help in characters: without a terminal, at least, and at most."""

app = typer.Typer(
    name="autotune",
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command, _summary in (
    (kernels.kernels, "Tune the kernels of a model or of one operator."),
    (joint.joint, "Find schedules, cores and clocks together."),
    (breakdown.breakdown, "Show where the time of a tuned step goes."),
    (step.step, "Train some steps with tuned kernels."),
    (profile.profile, "Show each operator's time, energy and memory on a device."),
    (runs.runs, "List the runs that were made."),
    (report.report, "Write a run as one HTML page."),
    (compare.compare, "Compare two runs."),
    (replay.replay, "Search recorded measurements as if they were a device."),
    (export.export, "Write tuned kernels as a library."),
    (verify.verify, "Check an exported library."),
    (trust.trust, "Allow the code that a run or a plan names."),
    (targets.targets, "List what can be tuned for."),
    (models.models, "List the models and what a training step of each costs."),
    (doctor.doctor, "Check this machine, and say how to fix what is missing."),
    (completion.completion, "Print the completion script of a shell."),
):
    app.command(cls=Command, short_help=_summary)(with_verbosity(_command))


def _shown(summary: str, example: str) -> str:
    """Returns the help of a group: what it is for, and an example."""
    return f"{summary}\n\n\b\nExample:\n  {example}"


def _group(
    name: str, text: str, *commands: tuple[str, Callable[..., Any], str], summary: str = ""
) -> typer.Typer:
    """Adds a command with subcommands. In lists it has a summary, which is its help's first line by default."""
    group = typer.Typer(
        name=name, cls=Group, help=text, rich_markup_mode=None,
        no_args_is_help=name not in ("devices", "cpu-config"),
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    for word, command, short in commands:
        group.command(word, cls=Command, short_help=short)(with_verbosity(command))
    app.add_typer(group, short_help=summary or text.splitlines()[0])
    return group


_devices = _group(
    "devices",
    _shown(
        "List phones, boards and this host; show what can be tuned on them.",
        "autotune devices show local",
    ),
    ("show", devices_commands.show, "Show what can be tuned on a device."),
    ("emulate", devices_commands.emulate, "Run an emulated phone that adb sees."),
    ("restore", devices_commands.restore, "Undo changes that a crashed run left."),
)
_devices.callback(invoke_without_command=True)(devices_commands.list_unless_subcommand)
_group(
    "tracker",
    _shown("Serve the connected devices on a TVM tracker.", "autotune tracker up --per-cluster"),
    ("up", tracker_commands.up, "Start the tracker and the devices' servers."),
    ("status", tracker_commands.status, "Show devices, queue, trials a minute, temperature."),
    ("down", tracker_commands.down, "Stop it and restore the devices."),
)
_cpu_config = _group(
    "cpu-config",
    inspect.getdoc(cpu_config_commands.search) or "",
    ("apply", cpu_config_apply.apply, "Set what a search has found on the device."),
    ("compare", cpu_config_compare.compare, "Tell which of two configurations is better."),
    summary="Find the cores and clocks to train on.",
)
_cpu_config.callback(invoke_without_command=True)(with_verbosity(cpu_config_commands.search))
_group(
    "records",
    _shown(
        "Merge, compare and distribute what runs have measured.",
        "autotune records merge logs --out shipped",
    ),
    ("list", records_commands.list_databases, "List the databases and runs of a folder."),
    ("show", records_commands.show, "Show the kernels of a database."),
    ("merge", records_commands.merge, "Join records into one database."),
    ("diff", records_commands.diff, "Compare two databases, kernel by kernel."),
    ("pull", records_commands.pull, "Bring records into the local store."),
)
_group(
    "rpc",
    _shown("Build the device server.", "autotune rpc build --for android-arm64"),
    ("build", rpc_commands.build, "Build it for this host, a board or a phone."),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"autotune {__version__}")
        raise typer.Exit


@app.callback(
    invoke_without_command=True,
    epilog="Start with `autotune doctor`, then `autotune kernels --help`.",
)
def _autotune(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Tunes the kernels of neural-network training for phones, boards and this machine."""
    set_verbosity(verbose=verbose, quiet=quiet)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command. If it fails, says why in a line or two on stderr.

    Args:
        argv: The arguments after the program's name; None for those of the process.

    Returns:
        The exit code: 0; that of the `AutotuneError`; 2 for a malformed command line; 130 if interrupted; 1 for
        anything else.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    as_json = wants_json(arguments)
    completion.ready_to_complete()
    with (
        ended_by_signals(),
        own_stdout(as_json=as_json, to_the_end=argv is None),
        command_of(arguments),
        stderr_log(),
        waiting(f"the result of {next((a for a in arguments if a[:1] != '-'), 'autotune')}"),
    ):
        try:
            width = max(_NARROWEST_HELP, min(terminal_width() or _PIPE_WIDTH, _WIDEST_HELP))
            code = _code(
                app(
                    arguments,
                    prog_name="autotune",
                    standalone_mode=False,
                    terminal_width=width,
                )
            )
            if code == INTERRUPTED and as_json:
                write_error("interrupted; everything measured is kept", "", "interrupted")
        except AutotuneError as error:
            code = _fail(error.kind, error.message, error.hint, error.exit_code, as_json)
        except typer.TyperException as error:
            message, hint = _usage(error)
            code = _fail(UsageError.kind, message, hint, error.exit_code, as_json)
        except RunInterrupted as stopped:
            print(stopped, file=sys.stderr)
            code = INTERRUPTED
            if as_json:
                hint = f"continue with: autotune {stopped.command} --resume {stopped.run}"
                write_error("interrupted; everything measured is kept", hint, "interrupted")
        except (KeyboardInterrupt, typer.Abort):
            print("autotune: interrupted", file=sys.stderr)
            if as_json:
                write_error("interrupted", "", "interrupted")
            code = INTERRUPTED
        except BrokenPipeError:
            # The reader of our results is gone, as that of a completion that was given up.
            drop_results()
            code = 1
        except Exception as error:
            code = _report_bug(error, as_json)
        if argv is None:
            gc.freeze()  # The process ends. Collecting PyTorch's and TVM's objects one by one takes seconds.
        return _flush(code)


def _code(result: Any) -> int:
    return result if isinstance(result, int) else 0


def _fail(kind: str, message: str, hint: str, code: int, as_json: bool) -> int:
    """Reports a failure on stderr, and as JSON on stdout if requested; returns the exit code."""
    _complain("bug" if kind == _BUG else "error", message, hint)
    if as_json:
        write_error(message, hint, kind)
    return code


def _complain(kind: str, message: str, hint: str = "") -> None:
    first, *more = message.strip().splitlines() or [""]
    typer.echo(f"autotune: {kind}: {first}", err=True)
    for line in more:  # For example, a compiler's output.
        typer.echo(f"  {line}", err=True)
    if hint:
        typer.echo(f"  hint: {hint}", err=True)


def _usage(error: typer.TyperException) -> tuple[str, str]:
    """Returns what is wrong with the command line, and a hint: where to read more, or what was probably meant."""
    message = error.format_message().replace(_BY_PYDANTIC, "")
    command = getattr(getattr(error, "ctx", None), "command_path", "")
    hint = f"see `{command} --help`" if command else ""
    if (choice := _CHOICE.search(message)) and (
        near := meant(choice[1], re.findall("'([^']*)'", choice[2]))
    ):
        hint = f"did you mean '{near}'?"
    return message, hint


def _report_bug(error: Exception, as_json: bool) -> int:
    if is_verbose():
        traceback.print_exception(error)
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # PyTorch's words.
        message = ": ".join(("there is not enough memory", *str(error).splitlines()[:1]))
        hint = "use a smaller batch, input or model, or end other programs"
        return _fail(AutotuneError.kind, message, hint, 1, as_json)
    what = f"unexpected {type(error).__name__}: {error}" if str(error) else type(error).__name__
    hint = "" if is_verbose() else "run it again with -v for the traceback, and report it"
    return _fail(_BUG, what, hint, 1, as_json)


def _flush(code: int) -> int:
    """Flushes stdout now. If its reader is gone, this is not an error of ours."""
    try:
        results().flush()
    except BrokenPipeError:
        drop_results()
        return code or 1
    return code
