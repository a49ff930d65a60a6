"""A configuration for each phase or operator of a step: what it gains over the best single one.

Configurations of the search are profiled, changes between them are measured, a plan is made of both, and what it
foretells is then measured beside the best single configuration.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.devices.topology import Cluster
from autotune.errors import StableDeviceError
from autotune.measurement.profile import StepProfile
from autotune.measurement.setting import Setting
from autotune.measurement.step_bench import StepBench
from autotune.measurement.step_run import StepRun
from autotune.measurement.step_runner import StepRunner, settings_text, switch_seconds
from autotune.measurement.versus import TIE, judge
from autotune.studies.bench import Measured
from autotune.studies.configuration import CpuConfiguration
from autotune.studies.device_bench import DeviceBench, setting_of
from autotune.studies.objective import (
    Figures,
    Limits,
    Objective,
    best,
    needs_energy,
    values,
)
from autotune.studies.pareto import front
from autotune.studies.plan import CallCosts, Plan, best_plan, singles
from autotune.studies.study import StudyTrial
from autotune.workloads.graph import StepGraph

MOST = 6
"""Configurations that a plan may go through."""
_PHASES = {"forward": "forward", "data_grad": "backward", "weight_grad": "backward"}
_SWITCH_LIMIT_S = 120.0
Told = Callable[[str, dict[str, Any], Measured], None]


def candidates(
    objective: Objective, limits: Limits, trials: Sequence[StudyTrial]
) -> list[CpuConfiguration]:
    """Configurations that a plan may use: the best, and others spread along the front of time and energy.

    Without joules there is no front: then the fastest few.
    """
    measured = [t for t in trials if t.figures is not None]
    figures = [t.figures for t in measured if t.figures is not None]
    winner = best(objective, limits, figures)
    if winner is None:
        return []
    if any(f.energy_j is None for f in figures):
        ranked = sorted(range(len(figures)), key=lambda i: figures[i].time_s)
    else:
        on_front = sorted(
            front([values("pareto", f) for f in figures]), key=lambda i: figures[i].time_s
        )
        spread = np.linspace(0, len(on_front) - 1, min(MOST, len(on_front)))
        ranked = [on_front[round(at)] for at in spread]
    chosen = list(dict.fromkeys([winner, *ranked]))[:MOST]
    return [measured[i].configuration for i in chosen]


def phases(graph: StepGraph) -> list[int]:
    """Numbers of the calls with which the forward pass, the backward pass and the update begin, each time."""
    names = [_PHASES.get(node.kernel.role, node.kernel.role) for node in graph.nodes]
    return [at for at, name in enumerate(names) if at == 0 or name != names[at - 1]]


@dataclass(frozen=True)
class PlanRun:
    """Plans for one device and step.

    Attributes:
        bench: Measures the step.
        runner: The step on the device.
        graph: The step.
        objective: What is to be small.
        limits: What must be kept.
        seed: Of the orders and the bootstrap.
        blocks: How often a plan and the best single configuration are measured.
        told: Called with each measurement, its kind and what it was of.
        interrupted: Asked between runs whether to stop.
    """

    bench: StepBench
    runner: StepRunner
    graph: StepGraph
    objective: Objective
    limits: Limits
    seed: int
    blocks: int
    told: Told
    interrupted: Callable[[], bool] = lambda: False

    @property
    def _clusters(self) -> Sequence[Cluster]:
        return self.bench.info.clusters

    def run(self, configurations: Sequence[CpuConfiguration]) -> dict[str, Any] | None:
        """Profiles, plans and measures; None where it was interrupted.

        Raises:
            StableDeviceError: Fewer than two configurations can be profiled, or changes cannot be measured.
            DeviceError: The device is gone.
        """
        profiled = self._profiled(configurations)
        if self.interrupted():
            return None
        if len(profiled) < 2:
            raise StableDeviceError(
                f"{len(profiled)} configurations were profiled, and a plan needs two",
                hint="search for longer (--trials), or in a larger --space",
            )
        used = [configuration for configuration, _, _ in profiled]
        settings = [setting_of(self._clusters, configuration) for configuration in used]
        energies = [energy for _, _, energy in profiled]
        known = [energy for energy in energies if energy is not None]
        costs = CallCosts(
            np.stack([times for _, times, _ in profiled], axis=1),
            np.stack(known, axis=1) if len(known) == len(energies) else None,
            np.asarray(self._switches(settings)),
        )
        alone = self._alone(costs)
        plan = self._worth_it(best_plan(costs, self.objective, self.limits), alone)
        starts = phases(self.graph)
        coarse = self._worth_it(
            best_plan(costs.together(starts), self.objective, self.limits), alone
        )
        names = [cluster.name for cluster in self._clusters]
        found: dict[str, Any] = {
            "configurations": [c.to_json(names) for c in used],
            "switch_s": costs.switch_s.tolist(),
            "single": None if alone is None else _shown(alone) | {"number": alone.settings[0]},
            "phases": None if coarse is None else self._told_plan(coarse, alone, starts),
            "operators": None
            if plan is None
            else self._told_plan(plan, alone, list(range(len(self.graph.nodes)))),
            "measured": None,
        }
        if plan is not None and alone is not None and plan.changes and self.blocks:
            found["measured"] = self._compared(plan, settings, settings[alone.settings[0]])
        return found

    def _alone(self, costs: CallCosts) -> Plan | None:
        every = singles(costs)
        index = best(self.objective, self.limits, [plan.figures for plan in every])
        return None if index is None else every[index]

    def _worth_it(self, plan: Plan | None, alone: Plan | None) -> Plan | None:
        """A plan; the single configuration instead where it gains too little to be told from it."""
        if plan is None or alone is None:
            return plan
        gain = _value(self, alone.figures) / _value(self, plan.figures)
        return plan if gain > 1 + TIE else alone

    def _told_plan(self, plan: Plan, alone: Plan | None, starts: Sequence[int]) -> dict[str, Any]:
        nodes = self.graph.nodes
        changes = [
            {
                "call": starts[at],
                "name": f"{nodes[starts[at]].place} {nodes[starts[at]].kernel.role}",
                "to": to,
            }
            for at, to in plan.changes
        ]
        gain = None if alone is None else _value(self, alone.figures) / _value(self, plan.figures)
        return {**_shown(plan), "changes": changes, "foretold_gain": gain}

    def _profiled(
        self, configurations: Sequence[CpuConfiguration]
    ) -> list[tuple[CpuConfiguration, np.ndarray, np.ndarray | None]]:
        """Median seconds and joules of each call under each configuration that could be measured."""
        traced = self.bench.measuring(self.runner.traced())
        found = []
        for configuration in configurations:
            if self.interrupted():
                break
            run, profile = traced.profile(setting_of(self._clusters, configuration))
            self._tell("profile", {"configuration": self._json(configuration)}, run)
            if profile is None or profile.calls.seconds.shape[1] != len(self.graph.nodes):
                continue
            times = np.median(profile.calls.seconds, axis=0)
            watts = self._watts(profile)
            if watts is None and needs_energy(self.objective, self.limits):
                continue
            found.append((configuration, times, None if watts is None else times * watts))
        return found

    def _watts(self, profile: StepProfile) -> np.ndarray | None:
        """Power of each call, from all calls of its operator and role together; None without a meter.

        Of many calls, some seem frugal under some setting by chance, and a plan would go from one such to the next.
        """
        step = profile.step
        if step.energy_j is None:
            return None
        watts = np.full(len(self.graph.nodes), step.energy_j / step.time_s)
        together: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for number, node in enumerate(self.graph.nodes):
            together[node.kernel.operator.name, node.kernel.role].append(number)
        for numbers in together.values():
            one = profile.of(numbers)
            if one.apart and one.energy_j is not None:
                watts[numbers] = one.energy_j / one.time_s
        return watts

    def _switches(self, settings: Sequence[Setting]) -> list[list[float]]:
        file = self.bench.bring(settings_text(settings, self._clusters), "switches")
        observed = self.bench.observe(
            self.runner.switches(file), self._moving(settings), _SWITCH_LIMIT_S
        )
        self.told("switches", {}, Measured("ok", raw={"records": [observed.text]}))
        try:
            return switch_seconds(observed.lines, len(settings))
        except ValueError as error:
            raise StableDeviceError(f"{self.bench.device.serial}: {error}") from error

    def _tell(self, kind: str, what: dict[str, Any], run: StepRun) -> None:
        self.told(kind, what, DeviceBench(self.bench, needs_energy=False).measured(run))

    def _moving(self, settings: Sequence[Setting]) -> Setting:
        """All that a program may use that goes through settings."""
        cpus = sorted({cpu for setting in settings for cpu in setting.cpus or ()})
        clocks = [
            tuple(dict.fromkeys(khz for khz in column if khz is not None))
            for column in zip(*(setting.khz for setting in settings), strict=True)
        ]
        threads = max(setting.threads for setting in settings)
        return Setting(tuple(cpus), (None,) * len(clocks), threads, tuple(clocks))

    def _compared(
        self, plan: Plan, settings: Sequence[Setting], alone: Setting
    ) -> dict[str, Any] | None:
        """The plan beside the best single configuration, in blocks of random order."""
        used = sorted(set(plan.settings))
        place = {number: at for at, number in enumerate(used)}
        through = [settings[number] for number in used]
        at = {0: place[plan.settings[0]]} | {call: place[to] for call, to in plan.changes}
        file = self.bench.bring(settings_text(through, self._clusters, at), "plan")
        planned = self.bench.measuring(self.runner.planned(file))
        plain = self.bench.measuring(self.runner.plain())
        turns = [("plan", planned, self._moving(through)), ("single", plain, alone)]
        order, pairs = random.Random(self.seed), []
        for _ in range(self.blocks):
            if self.interrupted():
                break
            order.shuffle(turns)
            block: dict[str, Figures] = {}
            for kind, bench, setting in turns:
                run = bench.run(setting)
                self._tell("plan", {"of": kind}, run)
                if run.status == "ok" and (run.energy is not None or self.objective == "latency"):
                    block[kind] = Figures(run.time_s, run.energy_j)
            if len(block) == 2:
                pairs.append((block["single"], block["plan"]))
        if not pairs:
            return None
        found: dict[str, Any] = {"blocks": len(pairs)}
        single, plan_ = zip(*pairs, strict=True)
        verdict = judge(
            [_value(self, f) for f in single],
            [_value(self, f) for f in plan_],
            seed=self.seed,
            confidence=0.95,
        )
        found["ratio"] = verdict.ratio.estimate
        found["ci"] = verdict.ratio.ends
        found["verdict"] = {"second": "better", "first": "worse", "tie": "tie"}[verdict.winner]
        for name, figures in (("plan", plan_), ("single", single)):
            found[name] = {
                "time_s": float(np.median([f.time_s for f in figures])),
                "energy_j": _median([f.energy_j for f in figures]),
            }
        return found

    def _json(self, configuration: CpuConfiguration) -> dict[str, Any]:
        return configuration.to_json([cluster.name for cluster in self._clusters])


def _value(run: PlanRun, figures: Figures) -> float:
    """What is to be small, as one number."""
    single: Objective = "edp" if run.objective == "pareto" else run.objective
    return values(single, figures)[0]


def _shown(plan: Plan) -> dict[str, Any]:
    return {"time_s": plan.figures.time_s, "energy_j": plan.figures.energy_j}


def _median(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return float(np.median(known)) if len(known) == len(numbers) else None
