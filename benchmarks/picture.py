"""Picture of the README: `python benchmarks/picture.py --out docs/joint-fronts.svg`.

It shows one of the twenty seeds that `benchmarks/joint.py` judges: the fronts of time and energy that a joint
search finds, and those of tuning kernels first and cores and clocks afterwards. Each has 150 measured steps on a
phone model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import optuna
from common.bars import Report, run
from joint import searched

from autotune.records.folder import write_text
from autotune.report.pages.html_page import picture
from autotune.report.plots.charts import Point, scatter
from autotune.report.plots.svg import Axis
from autotune.studies.space.pareto import front

PHONE, TRIALS, SEED = "meizu-16t", 150, 1
METHODS = {
    "sequential": "kernels first, cores and clocks afterwards",
    "joint": "schedules, cores and clocks together",
}


def drawn(fronts: dict[str, list[tuple[float, float]]]) -> str:
    """Returns the picture as SVG.

    Args:
        fronts: Seconds and joules of a step, by method.
    """
    joined = []
    for kind, (method, name) in enumerate(METHODS.items()):
        points = sorted(fronts[method])
        joined.append(
            (name, [Point(s, j, f"{name}: {s:.3g} s, {j:.3g} J", kind=kind) for s, j in points])
        )
    every = [point for _, along in joined for point in along]
    return picture(
        scatter(
            f"MobileNetV2's training step, batch 8, on a model of a phone ({PHONE})",
            Axis.over("seconds a step, of the model", [p.x for p in every], logarithmic=True),
            Axis.over("joules a step, of the model", [p.y for p in every], logarithmic=True),
            every,
            joined,
        ),
        "MobileNetV2, batch 8: a MODEL of a phone; none was measured",
    )


def measure(report: Report) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    trials = 12 if report.quick else TRIALS
    fronts = {}
    for method, name in METHODS.items():
        found = searched((PHONE, method, trials, SEED))
        fronts[method] = [found[i] for i in front(found)]
        report.row(emulated=PHONE, seed=SEED, method=method, front=fronts[method])
        print(f"{name}: {len(found)} points, {len(fronts[method])} by their exact figures")
    if report.options.out:
        write_text(report.options.out, drawn(fronts))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the picture here")


if __name__ == "__main__":
    raise SystemExit(run(__doc__ or "", measure, options))
