"""Finds a setting for each call: the shortest cycle through a step and its settings, including the cost of changes.

The order of a step's calls is fixed and repeats, so the best sequence of settings is a shortest closed path
(Viterbi, 1967). A multiplier weighs time against energy. Sweeping it (Everett, 1963) gives the plans on the convex
hull of the front. The objective and the limits choose among these plans and the single settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from autotune.studies.space import Figures, Limits, Objective, best

Floats = NDArray[np.float64]
_WEIGHTS = np.geomspace(1e-3, 1e3, 61)
"""Values of a second in watts, in units of the settings' mean power."""


@dataclass(frozen=True)
class CallCosts:
    """Costs of n calls under m settings, and of changes between settings.

    Attributes:
        time_s: Seconds, shape (n, m).
        energy_j: Joules above idle, shape (n, m); None without a meter.
        switch_s: Seconds of a change from one setting to another, shape (m, m), with zeros on the diagonal.
    """

    time_s: Floats
    energy_j: Floats | None
    switch_s: Floats

    @property
    def switch_j(self) -> Floats:
        """Joules of a change: its seconds times the mean power of the setting that it leads to."""
        if self.energy_j is None:
            return np.zeros_like(self.switch_s)
        watts = self.energy_j.sum(axis=0) / self.time_s.sum(axis=0)
        return np.asarray(self.switch_s * np.maximum(watts, 0.0))

    def together(self, starts: Sequence[int]) -> CallCosts:
        """Returns costs of groups of calls; each group begins at one of these numbers."""
        at = np.asarray(starts)
        energy = None if self.energy_j is None else np.add.reduceat(self.energy_j, at, axis=0)
        return CallCosts(np.add.reduceat(self.time_s, at, axis=0), energy, self.switch_s)


@dataclass(frozen=True)
class Plan:
    """A setting for each call.

    Attributes:
        settings: Number of the setting of each call, or of each group of calls.
        figures: Predicted figures of the step, including changes.
    """

    settings: tuple[int, ...]
    figures: Figures

    @property
    def changes(self) -> tuple[tuple[int, int], ...]:
        """Calls at which the setting changes, and the new setting.

        The first call's change is from the previous step.
        """
        last = self.settings[-1]
        return tuple(
            (at, now)
            for at, (before, now) in enumerate(pairwise((last, *self.settings)))
            if before != now
        )


def figures_of(costs: CallCosts, settings: Sequence[int]) -> Figures:
    """Predicts figures of a step with a setting for each call."""
    chosen = np.asarray(settings)
    rows = np.arange(len(chosen))
    before = np.roll(chosen, 1)
    time_s = float(costs.time_s[rows, chosen].sum() + costs.switch_s[before, chosen].sum())
    if costs.energy_j is None:
        return Figures(time_s)
    joules = costs.energy_j[rows, chosen].sum() + costs.switch_j[before, chosen].sum()
    return Figures(time_s, float(joules))


def singles(costs: CallCosts) -> list[Plan]:
    """Returns plans that use one setting for the whole step, one plan for each setting."""
    count, settings = costs.time_s.shape
    every = [(number,) * count for number in range(settings)]
    return [Plan(chosen, figures_of(costs, chosen)) for chosen in every]


def best_plan(costs: CallCosts, objective: Objective, limits: Limits) -> Plan | None:
    """Returns the best plan that keeps the limits of time and energy; None if there is none.

    Args:
        costs: Costs of the calls.
        objective: The figure to minimise; for `pareto`, the energy-delay product.
        limits: Limits to keep. Temperature and memory are not predicted.
    """
    found = singles(costs)
    if costs.energy_j is None:
        weights = [(1.0, 0.0)]
    else:
        watts = float(costs.energy_j.sum() / costs.time_s.sum())
        weights = [(1.0, 0.0), (0.0, 1.0), *((float(w) * abs(watts), 1.0) for w in _WEIGHTS)]
    for second, joule in weights:
        settings = _shortest(costs, second, joule)
        found.append(Plan(settings, figures_of(costs, settings)))
    chosen = best(objective, limits, [plan.figures for plan in found])
    return None if chosen is None else found[chosen]


def _shortest(costs: CallCosts, second: float, joule: float) -> tuple[int, ...]:
    """Returns the closed path of least weight."""
    weight, change = second * costs.time_s, second * costs.switch_s
    if costs.energy_j is not None and joule:
        weight, change = weight + joule * costs.energy_j, change + joule * costs.switch_j
    count, settings = weight.shape
    # One row for each setting that the step begins with, one column for each present setting.
    reached = np.full((settings, settings), np.inf)
    np.fill_diagonal(reached, weight[0])
    came = np.zeros((count, settings, settings), np.int64)
    for call in range(1, count):
        ways = reached[:, :, None] + change[None, :, :]
        came[call] = ways.argmin(axis=1)
        reached = ways.min(axis=1) + weight[call]
    closed = reached + change.T
    start, end = np.unravel_index(int(closed.argmin()), closed.shape)
    path = [int(end)]
    for call in range(count - 1, 0, -1):
        path.append(int(came[call, start, path[-1]]))
    return tuple(reversed(path))
