"""Fits the model's constants to the paper's table of 21 CPU configurations.

`python -m autotune.emulator.model.fit TABLE.csv` prints the constants of the profile `meizu-16t`, and the errors of
each row.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.emulator.model.profile import Profile, load
from autotune.emulator.model.step_model import ALEXNET_B16, StepEstimate, estimate

METER_LIMIT_W = 3.56
"""Net power in watts at which the paper's meter saturated. It is fitted with the other constants.

The phone was fed by a 500 mA port, so rows with several large cores have too few joules: see docs/emulator.md.
"""
_TIME = ("flops_per_cycle", "bandwidth_gb_s", "crowding_ghz", "crowding_exponent")
_POWER = ("static_w", "dynamic_w", "dynamic_exponent")
_SMALLEST = 1e-3
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """A row of the table: the cores used, the clock of each cluster, seconds and net joules of a step."""

    name: str
    cpus: tuple[int, ...]
    clocks_khz: tuple[int, ...]
    time_s: float
    energy_j: float


def read_table(path: Path, profile: Profile) -> list[Row]:
    """Returns the table's rows. Each clock is replaced by the nearest one in the profile.

    Raises:
        OSError: The file cannot be read.
    """
    little, big = profile.clusters
    rows = []
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            count = int(line["cores"])
            cpus = {"small": little.cpus, "big": big.cpus, "hybrid": profile.cpus}[line["cluster"]]
            clocks = tuple(
                min(cluster.frequencies_khz, key=lambda khz, ghz=ghz: abs(khz - 1e6 * ghz))  # type: ignore[misc]
                for cluster, ghz in (
                    (little, float(line["small_freq_ghz"] or 0)),
                    (big, float(line["big_freq_ghz"] or 0)),
                )
            )
            name = f"{line['cluster']} {count} {line['frequency_level']}"
            rows.append(
                Row(name, cpus[:count], clocks, float(line["time_s"]), float(line["energy_j"]))
            )
    return rows


def predict(profile: Profile, row: Row) -> StepEstimate:
    """Returns the model's step for a row."""
    return estimate(profile, ALEXNET_B16, row.cpus, row.clocks_khz)


def metered_j(step: StepEstimate, limit_w: float = METER_LIMIT_W) -> float:
    """Returns net joules of a step, as measured by a meter that saturates at `limit_w`."""
    return step.time_s * min(step.net_w, limit_w)


def fit(rows: Sequence[Row], profile: Profile) -> tuple[Profile, float]:
    """Fits constants by least squares of logarithms, first of time, then of energy.

    Args:
        rows: The table.
        profile: The start of the fit. Constants that are not fitted are kept.

    Returns:
        The profile with the constants, and the meter's limit in watts.
    """
    times = np.log([row.time_s for row in rows])
    start = [getattr(c.model, n) for c in profile.clusters for n in _TIME]
    start += [profile.model.serial_share, profile.model.crowding_everywhere]

    def timed(values: _Floats) -> Profile:
        shared = {"serial_share": float(values[-2]), "crowding_everywhere": float(values[-1])}
        return _with(profile, _TIME, values[:-2], shared)

    def time_errors(logs: _Floats) -> _Floats:
        trial = timed(np.exp(logs))
        return np.log([predict(trial, row).time_s for row in rows]) - times

    with_times = timed(np.exp(_least_squares(time_errors, np.log(start))))
    energies = np.log([row.energy_j for row in rows])
    start = [getattr(c.model, n) for c in profile.clusters for n in _POWER]
    start += [profile.model.waiting_share, METER_LIMIT_W]

    def powered(values: _Floats) -> Profile:
        return _with(with_times, _POWER, values[:-2], {"waiting_share": float(values[-2])})

    def energy_errors(logs: _Floats) -> _Floats:
        values = np.exp(logs)
        trial = powered(values)
        found = [metered_j(predict(trial, row), float(values[-1])) for row in rows]
        return np.log(found) - energies

    values = np.exp(_least_squares(energy_errors, np.log(start)))
    return powered(values), float(values[-1])


def _with(
    profile: Profile, fields: Sequence[str], values: _Floats, shared: dict[str, float]
) -> Profile:
    """Returns the profile with `fields` of each cluster's core model set from `values`, and `shared` ones."""
    clusters = []
    for number, cluster in enumerate(profile.clusters):
        part = values[number * len(fields) : (number + 1) * len(fields)]
        changed: dict[str, Any] = {n: float(v) for n, v in zip(fields, part, strict=True)}
        model = cluster.model.model_copy(update=changed)
        clusters.append(cluster.model_copy(update={"model": model}))
    common = profile.model.model_copy(update=shared)
    return profile.model_copy(update={"clusters": tuple(clusters), "model": common})


def _least_squares(
    errors: Callable[[_Floats], _Floats], start: Sequence[float] | _Floats, rounds: int = 60
) -> _Floats:
    """Runs Levenberg-Marquardt with a numeric Jacobian from `start`. No value falls below `_SMALLEST`."""
    at = np.maximum(np.asarray(start, np.float64), np.log(_SMALLEST))
    now = errors(at)
    damping = 1e-2
    for _ in range(rounds):
        step = 1e-5
        jacobian = np.array([errors(at + step * unit) - now for unit in np.eye(len(at))]).T / step
        normal = jacobian.T @ jacobian
        damped = normal + damping * np.diag(np.diag(normal) + 1e-9)
        trial = np.maximum(at - np.linalg.solve(damped, jacobian.T @ now), np.log(_SMALLEST))
        then = errors(trial)
        if then @ then < now @ now:
            done = now @ now - then @ then < 1e-10
            at, now, damping = trial, then, damping / 5
            if done:
                break
        else:
            damping *= 5
    return at


def main(arguments: Sequence[str]) -> None:
    """Prints the fit to the table at `arguments[0]`."""
    profile = load("meizu-16t")
    rows = read_table(Path(arguments[0]), profile)
    found, limit = fit(rows, profile)
    for cluster in found.clusters:
        print(cluster.core, cluster.model)
    print(found.model, f"meter limit {limit:.3f} W")
    for label, shown, cap in (("fitted now", found, limit), ("stored", profile, METER_LIMIT_W)):
        steps = [predict(shown, row) for row in rows]
        time = np.array([s.time_s / r.time_s - 1 for s, r in zip(steps, rows, strict=True)])
        energy = np.array(
            [metered_j(s, cap) / r.energy_j - 1 for s, r in zip(steps, rows, strict=True)]
        )
        print(f"{label}: relative errors of time and energy")
        for row, one, other, step in zip(rows, time, energy, steps, strict=True):
            print(f"  {row.name:16} {one:+7.1%} {other:+7.1%}   net {step.net_w:.2f} W")
        for what, values in (("time", time), ("energy", energy)):
            size = np.abs(values)
            print(f"  {what}: median {np.median(size):.1%}, worst {size.max():.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
