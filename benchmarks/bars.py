"""What every benchmark shares: its command line, the machine, and the file of bars that it writes."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from autotune.compiler.runner import host_device
from autotune.errors import INTERRUPTED, AutotuneError
from autotune.records.folder import write_json


@dataclass(frozen=True)
class Bar:
    """A figure with its goal; `ok` is None in a smoke run, which judges nothing."""

    name: str
    value: float
    goal: str
    unit: str
    ok: bool | None


@dataclass
class Report:
    """Bars and rows of one run of a benchmark."""

    quick: bool
    options: argparse.Namespace = field(default_factory=argparse.Namespace)
    bars: list[Bar] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def bar(
        self, name: str, value: float, kind: Literal["at least", "at most"], goal: float, unit: str
    ) -> None:
        """Adds a bar and prints it."""
        met = value >= goal if kind == "at least" else value <= goal
        ok = None if self.quick else met
        self.bars.append(Bar(name, value, f"{kind} {goal:g}", unit, ok))
        word = {None: "not judged", True: "met", False: "MISSED"}[ok]
        print(f"{name}: {value:.4g} {unit} ({kind} {goal:g}: {word})", flush=True)

    def row(self, **fields: Any) -> None:
        """Adds a row of detail."""
        self.rows.append(fields)


def positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """Reads an option that is a number of such a kind, above 0."""

    def number(text: str) -> float:
        with suppress(ValueError):
            if (value := kind(text)) > 0:
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")

    return number


def run(
    description: str,
    measure: Callable[[Report], None],
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> int:
    """Runs a benchmark: parses the command line, measures, and writes the JSON file.

    Ctrl-C or an error ends it, and what was measured until then is written, with the word of what ended it
    as `ended_early`; a file that is there already stays when nothing was.

    Args:
        description: For `--help`.
        measure: Takes the measurements.
        add_options: Adds the benchmark's own options, which `Report.options` then holds.

    Returns:
        0, 1 when a bar was missed, what an error's kind is told with, or 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write machine, bars and rows here"
    )
    parser.add_argument("--quick", action="store_true", help="smoke run that judges nothing")
    add_options(parser)
    options = parser.parse_args()
    report = Report(quick=options.quick, options=options)
    ended_early, code = "", 0
    try:
        measure(report)
    except AutotuneError as error:
        ended_early, code = str(error), error.exit_code
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        ended_early, code = "interrupted", INTERRUPTED
        print(f"{parser.prog}: interrupted", file=sys.stderr)
    if options.json and (report.bars or report.rows or not ended_early):
        content = {
            "machine": machine(),
            "command": shlex.join([Path(sys.executable).name, *sys.argv]),
            "bars": [asdict(bar) for bar in report.bars],
            "rows": report.rows,
        }
        if ended_early:
            content["ended_early"] = ended_early
        options.json.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.json, content)
    return code or int(any(bar.ok is False for bar in report.bars))


def machine() -> dict[str, Any]:
    """This machine: processor, cores, load, and the versions that matter."""
    return {
        **host_device().to_json(),
        "load_average": list(os.getloadavg()),
        "python": platform.python_version(),
        "tvm": version("apache-tvm"),
    }
