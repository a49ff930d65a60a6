"""Options of commands that search: the device, the limits and how to measure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli.options import completion
from autotune.cli.options.latest import run_path
from autotune.jobs.requests import BLOCKS, SEED

Objective = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.objectives,
        help="Objective to minimise: latency, energy, edp (energy x time) or pareto (the front of time and "
        "energy). [default: latency]",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        autocompletion=completion.devices,
        metavar="SERIAL",
        help="Device, as `autotune devices` lists it; or local.",
    ),
]
Ssh = Annotated[
    list[str] | None,
    typer.Option("--ssh", metavar="USER@HOST", help="A board reached by ssh; may be repeated."),
]
Emulate = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.profiles,
        metavar="PROFILE",
        help="Measure on a model of a device, in this process; see `autotune devices emulate --list`.",
    ),
]
Deadline = Annotated[
    str | None, typer.Option(metavar="TIME", help="Maximum time of a step, such as 30s or 800ms.")
]
EnergyBudget = Annotated[
    str | None, typer.Option(metavar="ENERGY", help="Maximum energy of a step, such as 5J.")
]
MaxTemperature = Annotated[
    float | None, typer.Option(metavar="CELSIUS", help="Maximum temperature of the device's case.")
]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Highest memory use of the program, such as 1GB.")
]
Space = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.spaces,
        metavar="NAME|FILE",
        help="Cores and clocks to choose among: every, phone, unrooted, coarse, or a TOML file. "
        "[default: every]",
    ),
]
Meter = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.meters,
        help="auto, none, odpm, hwmon, iio, rapl, battery, nvml, or csv:SOURCE: a file, a FIFO, a "
        "serial line or tcp://HOST:PORT that gives lines of seconds,watts. [default: auto]",
    ),
]
Blocks = Annotated[
    int | None,
    typer.Option(
        help="Repeated measurements of the best and the default configuration (all cores, "
        f"clocks free). [default: {BLOCKS}]"
    ),
]
LeastSeconds = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Minimum duration of a measurement. [default: 5]"),
]
StartTemperature = Annotated[
    float | None,
    typer.Option(
        metavar="CELSIUS",
        help="Before each measurement, wait until the case is at most this warm. [default: 2 degrees above the "
        "first reading; a case more than 8 degrees below that reading is warmed first]",
    ),
]
Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where several processes share the study: journal:FILE, postgresql+psycopg://... "
        "[default: SQLite in the run's folder]",
    ),
]
StudyName = Annotated[
    str | None, typer.Option(metavar="NAME", help="The study's name in a shared --storage.")
]
Seed = Annotated[int | None, typer.Option(help=f"Seed of the search. [default: {SEED}]")]
Logs = Annotated[
    Path | None, typer.Option(help="Folder that the run's folder is made in. [default: logs]")
]


def _resume(kind: str) -> Any:
    return typer.Option(
        parser=run_path(kind, ended=False),
        autocompletion=completion.runs,
        metavar="FOLDER",
        help="Resume a run. Only --trials may change; --storage may be given again for its password.",
    )


Resume = Annotated[Path | None, _resume("cpu-config")]
JointResume = Annotated[Path | None, _resume("joint")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
