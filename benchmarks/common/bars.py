"""Parts that all benchmarks share: command line, description of the machine, and the JSON file of bars."""

from __future__ import annotations

import argparse
import math
import os
import platform
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.stats import bootstrap

from autotune.compiler.runners.local_devices import host_device
from autotune.errors import INTERRUPTED, AutotuneError
from autotune.measurement import Interval
from autotune.records.folder import write_json

QUICK_TRIALS = 8
"""Number of trials of a kernel run in a smoke run."""


@dataclass(frozen=True)
class Bar:
    """A measured figure with its goal.

    `ok` is None in a smoke run, which judges nothing. If the figure has a 95 % interval, its worse end must meet
    the goal: the lower end for "at least", the upper end for "at most".
    """

    name: str
    value: float
    goal: str
    unit: str
    ok: bool | None
    interval: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the bar for a file. An end of its interval that is not known is null."""
        ends = self.interval and [end if math.isfinite(end) else None for end in self.interval]
        return {**asdict(self), "interval": ends}


@dataclass
class Report:
    """Bars and rows of one benchmark run."""

    quick: bool
    options: argparse.Namespace = field(default_factory=argparse.Namespace)
    bars: list[Bar] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def bar(
        self,
        name: str,
        value: float,
        kind: Literal["at least", "at most"],
        goal: float,
        unit: str,
        *,
        interval: tuple[float, float] | None = None,
    ) -> None:
        """Adds a bar and prints it.

        Args:
            name: What is measured.
            value: The figure.
            kind: Whether larger or smaller values are better.
            goal: The limit that it must meet.
            unit: Unit of the figure.
            interval: Its 95 % interval; None for a count or another figure without spread.
        """

        def meets(figure: float) -> bool:
            return figure >= goal if kind == "at least" else figure <= goal

        near = value if interval is None else interval[0 if kind == "at least" else 1]
        ok = None if self.quick else meets(near)
        self.bars.append(Bar(name, value, f"{kind} {goal:g}", unit, ok, interval))
        word = {None: "not judged", True: "met", False: "MISSED"}[ok]
        if ok is False and meets(value):
            word = "MISSED: met by the estimate only"
        spread = "" if interval is None else f" ({interval[0]:.4g} to {interval[1]:.4g})"
        print(f"{name}: {value:.4g} {unit}{spread} ({kind} {goal:g}: {word})", flush=True)

    def row(self, **fields: Any) -> None:
        """Adds a row of details."""
        self.rows.append(fields)


def mean_ratio(ratios: Sequence[Interval]) -> tuple[float, tuple[float, float]]:
    """Returns the geometric mean of independently measured ratios, with its 95 % interval.

    The interval assumes that the logarithm of each ratio is normally distributed.
    """
    logs = [math.log(one.estimate) for one in ratios]
    spread = [math.log(one.high / one.low) / 2 if one.low > 0 else math.inf for one in ratios]
    mean, half = sum(logs) / len(logs), math.hypot(*spread) / len(logs)
    return math.exp(mean), (math.exp(mean - half), math.exp(mean + half))


def mean_bar(report: Report, side: str, gains: Mapping[str, Interval], goal: float) -> None:
    """Adds the bar of the geometric mean of speed-ups over a side, by model."""
    mean, ends = mean_ratio(list(gains.values()))
    report.bar(
        f"{side}, geometric mean of {len(gains)}", mean, "at least", goal, "x", interval=ends
    )


def slowest_bar(report: Report, side: str, gains: Mapping[str, Interval], goal: float) -> None:
    """Adds the bar of the smallest of speed-ups over a side, by model."""
    slowest = min(gains, key=lambda name: gains[name].estimate)
    worst = gains[slowest]
    report.bar(
        f"{side}, slowest: {slowest}", worst.estimate, "at least", goal, "x", interval=(worst.low, worst.high)
    )  # fmt: skip


def resampled(
    statistic: Callable[..., Any], *samples: Sequence[float]
) -> tuple[float, tuple[float, float]]:
    """Returns a statistic of samples with its 95 % interval, a percentile bootstrap over them.

    Args:
        statistic: Takes arrays and the axis of the samples, as `numpy.median` does.
        samples: One or more lists of equal length; entries of one place belong together, such as those of one seed.
    """
    estimate = float(statistic(*map(np.asarray, samples), axis=-1))
    if len(samples[0]) == 1:
        return estimate, (-math.inf, math.inf)
    found = bootstrap(
        samples,
        statistic,
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=9999,
        rng=1,
    )
    low, high = found.confidence_interval
    return estimate, (float(low), float(high))


def positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """Returns a parser for an option that is a positive number of the given type."""

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

    Ctrl-C or an error ends the benchmark. What was measured until then is written, with the reason as
    `ended_early`. If nothing was measured, an existing file is kept.

    Args:
        description: Text for `--help`.
        measure: Takes the measurements.
        add_options: Adds the benchmark's own options, which are stored in `Report.options`.

    Returns:
        0; 1 if a bar was missed; the exit code of an error; or 130 after Ctrl-C.
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
            "bars": [bar.to_json() for bar in report.bars],
            "rows": report.rows,
        }
        if ended_early:
            content["ended_early"] = ended_early
        options.json.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.json, content)
    return code or int(any(bar.ok is False for bar in report.bars))


def machine() -> dict[str, Any]:
    """Describes this machine: processor, cores, load, and the relevant versions."""
    return {
        **host_device().to_json(),
        "load_average": list(os.getloadavg()),
        "python": platform.python_version(),
        "tvm": version("apache-tvm"),
    }
