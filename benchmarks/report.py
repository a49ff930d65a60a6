"""Pages of every kind of run, opened in headless Chromium without a network: checks errors, requests and plots.

The runs are small ones on the emulator's models, made by the commands themselves; their figures have no meaning
here. A smoke run opens only a recorded run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from common.bars import Report, run
from common.browser import Browser, Seen, chromium, offline_browser
from common.sample_runs import command, sample_runs

TRIALS = (96, 24)
RECORDED = Path(__file__).parents[1] / "logs" / "samples" / "cpu-matmul"


def opened(report: Report, browser: Browser, title: str, page: Path, written_s: float) -> int:
    """Opens a page light, dark, narrow and as for print; returns its number of faults."""
    looks: list[Seen] = []
    began = time.monotonic()
    for dark, width, printed in (
        (False, 1000, False), (True, 1000, False), (False, 390, False), (True, 718, True),
    ):  # fmt: skip
        looks.append(browser.open(page, dark=dark, width=width, printed=printed))
    faults = [fault for seen in looks for fault in seen.faults()]
    first = looks[0]
    report.row(
        page=title,
        plots=len(first.look["plots"]),
        tables=first.look["tables"],
        downloads=len(first.look["downloads"]),
        bytes=page.stat().st_size,
        written_s=written_s,
        opened_s=(time.monotonic() - began) / len(looks),
        console_errors=sum(len(seen.errors) for seen in looks),
        requests=sum(len(seen.requests) for seen in looks),
        faults=faults,
    )
    print(f"{title}: {len(first.look['plots'])} plots, {len(faults)} faults", flush=True)
    return len(faults)


def measure(report: Report) -> None:
    if chromium() is None:
        print("no Chromium is installed: nothing was opened", file=sys.stderr)
        if not report.quick:
            raise SystemExit(1)
        return
    folder = report.options.runs
    with tempfile.TemporaryDirectory() as temporary, offline_browser() as browser:
        made = (
            {"kernels": RECORDED}
            if report.quick
            else sample_runs(folder or Path(temporary, "runs"), TRIALS)
        )
        pages: dict[str, tuple[tuple[str | Path, ...], str]] = {
            kind: (("report", path), "--out") for kind, path in made.items()
        }
        for kind, pair in (
            ("kernels", ("kernels", "kernels of another cluster")),
            ("joint", ("joint", "joint")),
            ("cpu-config", ("cpu-config", "cpu-config")),
            ("profile", ("profile", "profile")),
        ):
            if made.keys() >= set(pair):
                words: tuple[str | Path, ...] = ("compare", *(made[name] for name in pair))
                pages[f"two runs of {kind}"] = (words, "--html")
        faults = {}
        for number, (title, (words, option)) in enumerate(pages.items()):
            page = Path(temporary, f"{number}.html")
            began = time.monotonic()
            command(*words, option, page)
            faults[title] = opened(report, browser, title, page, time.monotonic() - began)
    rows = report.rows
    plots = sum(row["plots"] for row in rows)
    report.bar("pages opened", len(rows), "at least", len(made) + 4, "")
    report.bar("plots shown", plots, "at least", 60, "")
    report.bar("console errors", sum(row["console_errors"] for row in rows), "at most", 0, "")
    report.bar("requests beside the page", sum(row["requests"] for row in rows), "at most", 0, "")
    report.bar("faults of pages and plots", sum(faults.values()), "at most", 0, "")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs", type=Path, metavar="DIR", help="keep the runs in this empty folder"
    )


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure, options))
